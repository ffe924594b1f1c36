"""Arbitrary Boolean expressions, compared with engines that share nothing: ``python bench/boolean.py --help``.

Experiments (``--parts``): ``defaults`` is ABE-Gen with the thesis's defaults, ``ads`` has expressions like its
advertisements, ``repeats`` and ``depth`` vary one parameter of ABE-Gen. Before timing, all answers of all engines are
compared with the bit planes', and those with plain Python on a sample.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from engines import BOOLEAN
from generators import ads
from generators.abe import abe
from measuring.expressions import BooleanJob, BooleanResult, Facts
from measuring.jobs import Source, run_all
from measuring.options import parser, positive, some_of
from measuring.plots import Axis, draw, lines
from measuring.report import by_engine, finish, headed, matches, status, terminal, us

BASELINES = {"numpy bit planes": "planes", "numba scan": "scan", "translation": "DNF"}
MIB = 2**20


class Part(NamedTuple):
    """Workloads, by position on the x axis if there are several."""

    cases: dict[int, Source]
    finding: str  # of the thesis
    axis: str = ""
    cores: bool = False  # also measure on all cores


class Figure(NamedTuple):
    """A row of the thesis's table 10.4.2, or a target: ms per event, seconds to build, MB."""

    engine: str
    match_ms: float
    build_s: float | None = None
    mb: float | None = None


PARTS = {
    "defaults": Part(
        {0: Source("abe", 1_000_000, abe)}, "A-Tree is the fastest at any number of expressions", cores=True
    ),
    "ads": Part({0: Source("ads", ads.SIZE, ads.ads)}, "table 10.4.2", cores=True),
    "repeats": Part(
        {x: Source(f"repeats={x}", 200_000, partial(abe, repeats=x)) for x in range(6)},
        "A-Tree is flat in time and memory, all others rise",
        "repeats of each expression",
    ),
    "depth": Part(
        {x: Source(f"depth={x}", 100_000, partial(abe, depth=x)) for x in range(1, 7)},
        "all rise; translation and BDD run out of 128 GB from depth 4 on",
        "depth of expressions",
    ),
}
PAPER = (
    Figure("SCAN", 994.1),
    Figure("Translation", 7.1, 588.2, 25822),
    Figure("BDD", 7.8, 238.3, 4310),
    Figure("Interval ID", 17.9, 61.2, 4432),
    Figure("BoP", 18.9, 41.9, 1456),
    Figure("A-Tree", 0.27, 12.3, 509),
)
# Also a target: abe 50 times as fast as the scan
TARGETS = {"abe": Figure("target", 0.3), "ads": Figure("target", 0.05, 20, 400)}


def main() -> int:
    options, console, code = _options(), terminal(), 0
    for name in options.parts:
        facts, results = _run(name, options, console)
        console.print(_workloads(facts))
        console.print(_sweep(name, results) if PARTS[name].axis else _engines(name, results))
        if PARTS[name].axis:
            for path in _draw(name, options, results):
                console.print(f"drawn to {path}")
        figures = {"paper": [f._asdict() for f in PAPER]} if name == "ads" else {}
        content = {"workloads": [asdict(one) for one in facts], "finding": PARTS[name].finding, **figures}
        code |= finish(console, f"boolean-{name}", options, results, content)
    return code


def _options() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    options = parser(__doc__ or "")
    add = options.add_argument
    add("--parts", type=some_of(PARTS), default=",".join(PARTS), help="experiments: " + ", ".join(PARTS))
    add("--engines", type=some_of(BOOLEAN), default=",".join(BOOLEAN), help="names or substrings")
    add("--cores", type=positive, default=cores, help="threads of the second run of defaults and ads; 1: no second run")
    add("--batch", type=positive, default=1000, help="events per call")
    add("--seconds", type=float, default=2.0, help="target length of a pass of the scan, which gets fewer events")
    add("--repeats", type=positive, default=3, help="passes; the best counts")
    add("--equality", type=float, default=1.0, help="share of ABE-Gen's predicates that are equalities, not ranges")
    add("--clauses", type=positive, default=30_000_000, help="skip translation above this number of conjunctions")
    return options.parse_args()


def _run(name: str, options: argparse.Namespace, console: Console) -> tuple[list[Facts], list[BooleanResult]]:
    part = PARTS[name]
    threads = sorted({1, options.cores}) if part.cores else [1]
    jobs = [BooleanJob.of(options, _drawn(case, options), threads=t) for t in threads for case in part.cases.values()]
    sent = run_all(jobs, console)
    facts = [one for one in sent if isinstance(one, Facts)][: len(part.cases)]  # the same for all threads
    return facts, [one for one in sent if isinstance(one, BooleanResult)]


def _drawn(case: Source, options: argparse.Namespace) -> Source:
    """The source with the requested share of equalities, which only ABE-Gen has."""
    return case if case.name == "ads" else case._replace(generate=partial(case.generate, equality=options.equality))


def _workloads(facts: Sequence[Facts]) -> Table:
    columns = ("", "expressions", "predicates: mean", "least", "most", "distinct: predicates", "sub-expressions",
               "expressions", "checked in Python")  # fmt: skip
    table = headed("workloads", *columns)
    keys = ("predicates_mean", "predicates_least", "predicates_most", "distinct_predicates", "distinct_subexpressions",
            "distinct_expressions")  # fmt: skip
    for one in facts:
        cells = [f"{one.facts[key]:,.1f}" if key == "predicates_mean" else f"{one.facts[key]:,}" for key in keys]
        table.add_row(one.workload, f"{one.facts['expressions']:,}", *cells, f"{one.checked:,}")
    return table


def _engines(name: str, results: Sequence[BooleanResult]) -> Table:
    """One row per engine with ratios to the baselines, then targets and the thesis's figures."""
    first = [r for r in results if r.threads == 1]
    more = {r.engine: r for r in results if r.threads > 1}
    cores = max((r.threads for r in results), default=1)
    base = {r.engine: r.us for r in first if r.engine in BASELINES and r.status == "ok"}
    title = f"{name}: one thread, CPU time; {cores} threads, wall time × {cores}; ×: speed relative to"
    columns = ("engine", "µs/event", f"{cores} threads", "build s", "index s", "B each", "MB", "matches",
               "nodes M", "cost M", *(f"× {BASELINES[b]}" for b in base))  # fmt: skip
    table = headed(title, *columns)
    for r in first:
        if r.status != "ok":
            table.add_row(r.engine, status(r))
            continue
        many = more.get(r.engine)
        times = [us(r.us), "" if many is None else status(many) or us(many.us * cores)]
        graph = [f"{r.graph[key] / 1e6:.2f}" if key in r.graph else "" for key in ("nodes", "cost")]
        size = r.bytes or 0
        build = [f"{r.build_cpu_s:.1f}", f"{r.index_cpu_s:.1f}" if r.index_cpu_s else ""]
        ratios = [f"{value / r.us:.1f}" for value in base.values()]
        memory = [f"{size / r.subscriptions:,.0f}", f"{size / MIB:,.0f}"]
        table.add_row(r.engine, *times, *build, *memory, us(r.matches), *graph, *ratios)
    table.add_section()
    for figure in [TARGETS[r.workload] for r in first[:1]] + (list(PAPER) if name == "ads" else []):
        title = figure.engine if figure.engine == "target" else f"thesis: {figure.engine}"
        build_s, mb = (f"{value:,.0f}" if value else "" for value in (figure.build_s, figure.mb))
        table.add_row(title, us(figure.match_ms * 1000), "", build_s, "", "", mb)
    return table


def _sweep(name: str, results: Sequence[BooleanResult]) -> Table:
    """One row per engine and one column per position: time, megabytes, seconds to build."""
    part = PARTS[name]
    shown = {case.name: str(x) for x, case in part.cases.items()}
    title = f"µs per event, MB, build s by {part.axis}; thesis: {part.finding}"
    return by_engine(title, results, _cell, matches(results), shown)


def _cell(r: BooleanResult) -> str:
    return f"{us(r.us)}, {(r.bytes or 0) / MIB:,.0f}, {r.build_cpu_s:.1f}"


def _draw(name: str, options: argparse.Namespace, results: Sequence[BooleanResult]) -> list[Path]:
    """Time and memory by the varied parameter."""
    part = PARTS[name]
    places = {case.name: x for x, case in part.cases.items()}
    size = round(next(iter(part.cases.values())).size * options.scale)
    title = f"ABE-Gen, {size:,} distinct expressions. Thesis:\n{part.finding}"
    time, memory = lines(results, places, lambda r: r.us), lines(results, places, lambda r: (r.bytes or 0) / MIB)
    path, x = options.out / f"boolean-{name}.png", Axis(part.axis)
    return [
        draw(path, {title: time}, x, Axis("µs per event, one thread", log=True)),
        draw(path.with_stem(f"{path.stem}-memory"), {title: memory}, x, Axis("MB", log=True)),
    ]


if __name__ == "__main__":
    sys.exit(main())
