"""Arbitrary Boolean expressions, ours beside engines without sharing: ``python bench/boolean.py --help``.

Parts: ``defaults`` is ABE-Gen with the thesis's defaults, ``ads`` expressions like its advertisements, ``repeats`` and
``depth`` vary one parameter of ABE-Gen. All answers of all engines are compared with the bit planes' before anything is
timed, and the bit planes' with plain Python on a sample.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import abe_ads
from abe import BooleanWorkload, abe
from boolean_measure import ENGINES, BooleanJob, BooleanResult, Facts, results_of
from jobs import finish, parser, positive, terminal
from plots import Axis, Line, draw
from report import status, us
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

BASELINES = {"numpy bit planes": "planes", "numba scan": "scan", "translation": "DNF"}
MIB = 2**20


class Case(NamedTuple):
    """A workload of a part, at its place on the x axis if it is one of several."""

    name: str
    size: int
    generate: Callable[..., BooleanWorkload]
    x: int = 0


class Part(NamedTuple):
    cases: tuple[Case, ...]
    finding: str  # the thesis's
    axis: str = ""
    cores: bool = False  # on all cores too


class Figure(NamedTuple):
    """Of the thesis's table 10.4.2: ms per event, seconds to build, MB. Goals are given in the same way."""

    engine: str
    match_ms: float
    build_s: float | None = None
    mb: float | None = None


PARTS = {
    "defaults": Part((Case("abe", 1_000_000, abe),), "A-Tree is the fastest at any number of expressions", cores=True),
    "ads": Part((Case("ads", abe_ads.SIZE, abe_ads.ads),), "table 10.4.2", cores=True),
    "repeats": Part(
        tuple(Case(f"repeats={x}", 200_000, partial(abe, repeats=x), x) for x in range(6)),
        "A-Tree is flat in time and memory, all others rise",
        "repeats of each expression",
    ),
    "depth": Part(
        tuple(Case(f"depth={x}", 100_000, partial(abe, depth=x), x) for x in range(1, 7)),
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
GOALS = {"abe": Figure("goal", 0.3), "ads": Figure("goal", 0.05, 20, 400)}  # and abe 50 times as fast as the scan


def main() -> int:
    options, console, code = _options(), terminal(), 0
    for name in options.parts:
        facts, results = _run(name, options, console)
        console.print(_workloads(facts))
        console.print(_sweep(name, results) if PARTS[name].axis else _engines(name, results))
        if PARTS[name].axis:
            for path in _draw(name, options, results):
                console.print(f"drawn to {path}", markup=False)
        figures = {"paper": [f._asdict() for f in PAPER]} if name == "ads" else {}
        told = {"workloads": [asdict(one) for one in facts], "finding": PARTS[name].finding, **figures}
        code |= finish(console, f"boolean-{name}", options, results, told)
    return code


def _options() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    options = parser(__doc__ or "")
    add = options.add_argument
    add("--parts", type=partial(_chosen, PARTS), default=",".join(PARTS), help="of " + ", ".join(PARTS))
    add("--engines", type=partial(_chosen, ENGINES), default=",".join(ENGINES), help="names, or parts of them")
    add("--cores", type=positive, default=cores, help="threads of the second run of defaults and ads; 1 is none")
    add("--batch", type=positive, default=1000, help="events per call")
    add("--seconds", type=float, default=2.0, help="aim of a pass of the scan, which gets fewer events then")
    add("--repeats", type=positive, default=3, help="passes, of which the best counts")
    add("--equality", type=float, default=1.0, help="share of ABE-Gen's predicates that are equalities, not ranges")
    add("--clauses", type=positive, default=30_000_000, help="conjunctions up to which translation is tried")
    return options.parse_args()


def _chosen(names: Mapping[str, Any], text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not any(part in name for name in names):
            raise argparse.ArgumentTypeError(f"nothing is called {part!r}; there are {', '.join(names)}")
    return tuple(name for name in names if any(part in name for part in parts))


def _run(name: str, options: argparse.Namespace, console: Console) -> tuple[list[Facts], list[BooleanResult]]:
    part = PARTS[name]
    threads = sorted({1, options.cores}) if part.cores else [1]
    jobs = [_job(case, t, options) for t in threads for case in part.cases]
    facts: dict[str, Facts] = {}
    results: list[BooleanResult] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=sum(len(job.engines) + 1 for job in jobs))
        for job in jobs:
            progress.update(task, description=f"{job.workload}, {job.threads} threads")
            for one in results_of(job):
                if isinstance(one, Facts):
                    facts.setdefault(one.workload, one)
                else:
                    results.append(one)
                progress.advance(task)
    return list(facts.values()), results


def _job(case: Case, threads: int, options: argparse.Namespace) -> BooleanJob:
    generate = case.generate if case.name == "ads" else partial(case.generate, equality=options.equality)
    given = {name: getattr(options, name) for name in ("engines", "events", "batch", "seconds", "repeats", "clauses")}
    return BooleanJob(case.name, max(1, round(case.size * options.scale)), generate, threads, **given)


def _workloads(facts: Sequence[Facts]) -> Table:
    table = Table(title="workloads", title_justify="left")
    columns = ("", "expressions", "predicates: mean", "least", "most", "distinct: predicates", "sub-expressions",
               "expressions", "checked in Python")  # fmt: skip
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left")
    keys = ("predicates_mean", "predicates_least", "predicates_most", "distinct_predicates", "distinct_subexpressions",
            "distinct_expressions")  # fmt: skip
    for one in facts:
        cells = [f"{one.facts[key]:,.1f}" if key == "predicates_mean" else f"{one.facts[key]:,}" for key in keys]
        table.add_row(one.workload, f"{one.facts['expressions']:,}", *cells, f"{one.checked:,}")
    return table


def _engines(name: str, results: Sequence[BooleanResult]) -> Table:
    """A row per engine, ratios to the baselines, and beside them goals and what the thesis tells."""
    first = [r for r in results if r.threads == 1]
    more = {r.engine: r for r in results if r.threads > 1}
    cores = max((r.threads for r in results), default=1)
    base = {r.engine: r.us for r in first if r.engine in BASELINES and r.status == "ok"}
    title = f"{name}: one thread, CPU time; {cores} threads, wall time × {cores}; ×: times as fast as"
    table = Table(title=title, title_justify="left")
    columns = ("engine", "µs/event", f"{cores} threads", "build s", "of it index", "B each", "MB", "matches",
               "nodes M", "cost M", *(f"× {BASELINES[b]}" for b in base))  # fmt: skip
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=not i)
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
    for figure in [GOALS[r.workload] for r in first[:1]] + (list(PAPER) if name == "ads" else []):
        title = figure.engine if figure.engine == "goal" else f"thesis: {figure.engine}"
        build_s, mb = (f"{value:,.0f}" if value else "" for value in (figure.build_s, figure.mb))
        table.add_row(title, us(figure.match_ms * 1000), "", build_s, "", "", mb)
    return table


def _sweep(name: str, results: Sequence[BooleanResult]) -> Table:
    """A row per engine and a column per place: time, and megabytes."""
    part = PARTS[name]
    table = Table(title=f"µs per event, MB, build s by {part.axis}; thesis: {part.finding}", title_justify="left")
    table.add_column("engine", no_wrap=True)
    for case in part.cases:
        table.add_column(str(case.x), justify="right")
    found = {(r.engine, r.workload): r for r in results}
    for engine in dict.fromkeys(r.engine for r in results):
        row = [found.get((engine, case.name)) for case in part.cases]
        table.add_row(engine, *("" if r is None else status(r) or _cell(r) for r in row))
    table.add_section()
    matches = [max((r.matches for r in results if r.workload == case.name), default=0.0) for case in part.cases]
    table.add_row("matches per event", *map(us, matches))
    return table


def _cell(r: BooleanResult) -> str:
    return f"{us(r.us)}, {(r.bytes or 0) / MIB:,.0f}, {r.build_cpu_s:.1f}"


def _draw(name: str, options: argparse.Namespace, results: Sequence[BooleanResult]) -> list[Any]:
    """Time and memory by the parameter that varies."""
    part = PARTS[name]
    x = {case.name: case.x for case in part.cases}
    good = [r for r in results if r.status == "ok"]

    def lines(value: Callable[[BooleanResult], float]) -> list[Line]:
        return [Line(e, [(x[r.workload], value(r)) for r in good if r.engine == e]) for e in ENGINES]

    size = round(part.cases[0].size * options.scale)
    title = f"ABE-Gen, {size:,} distinct expressions. Thesis:\n{part.finding}"
    return [
        draw(options.out / f"boolean-{name}{end}.png", {title: lines(value)}, Axis(part.axis), Axis(label, log=True))
        for end, label, value in (
            ("", "µs per event, one thread", lambda r: r.us),
            ("-memory", "MB", lambda r: (r.bytes or 0) / MIB),
        )
    ]


if __name__ == "__main__":
    sys.exit(main())
