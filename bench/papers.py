"""Build time, memory and matching time of each index, with the figures of its paper: ``python bench/papers.py``.

The papers' machines and languages differ (GEM: Java on a Xeon at 2.6 GHz; TAMA: C++ at 3 GHz; the thesis: C at
2.66 GHz), so compare only orders of magnitude. Ours is one thread, the public API, checked against brute force.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from gpumatch import workloads
from measuring.conjunctions import ConjunctionJob
from measuring.jobs import Result, Source, run_all
from measuring.options import timing_parser
from measuring.report import finish, headed, status, terminal

KB = 1024


class Figure(NamedTuple):
    """A paper's figures for an index on a workload: seconds per million subscriptions, bytes for each, ms per event."""

    engine: str
    workload: str
    paper: str = ""
    build_s: float | None = None
    bytes: float | None = None
    match_ms: float | None = None


SOURCES = {
    "w1-1m": Source.of("w1-1m"),
    "w4-1m": Source("w4-1m", 1_000_000, workloads.tama),
    "ads": Source.of("ads"),
}
FIGURES = (  # GEM: mean over 2 to 20 dimensions at 1M; TAMA: three to four times 16 bytes for each of 10 ranges
    Figure("gpumatch gem, no caches", "w1-1m", "GEM, ω = 0", 32.1, 0.94 * KB, 360.5),
    Figure("gpumatch gem, 20 caches", "w1-1m", "GEM, ω = 20", 149.0, 3.68 * KB, 78.4),
    Figure("gpumatch gem", "w1-1m"),
    Figure("gpumatch tama, 13 levels", "w1-1m", "TAMA as in GEM's paper", 298.1, 7.12 * KB, 1770.4),
    Figure("gpumatch auto", "w1-1m"),
    Figure("gpumatch tama", "w4-1m", "TAMA", None, 3.5 * 160, 3.23),
    Figure("gpumatch auto", "w4-1m"),
    Figure("gpumatch pstbloom", "ads", "PSTBloom", 7.81 / 3, 55.93e6 / 3e6, 0.82),
    Figure("gpumatch psthash", "ads", "PSTHash", 8.22 / 3, 759.72e6 / 3e6, 0.24),
    Figure("gpumatch ladder", "ads"),
    Figure("gpumatch scan", "ads", "SCAN", None, None, 435.27),
    Figure("gpumatch auto", "ads"),
)


def main() -> int:
    options = timing_parser(__doc__ or "", events=300, seconds=1.0, verify=4)
    options.add_argument("--only", choices=SOURCES, help="only this workload")
    given, console = options.parse_args(), terminal()
    chosen = [figure for figure in FIGURES if given.only in (None, figure.workload)]
    jobs = [
        ConjunctionJob.of(given, source, engines=tuple(figure.engine for figure in chosen if figure.workload == name))
        for name, source in SOURCES.items()
        if given.only in (None, name)
    ]
    results = run_all(jobs, console)
    console.print(_table(chosen, results))
    figures = {"papers": [figure._asdict() for figure in chosen]}
    return finish(console, "papers", given, results, figures)


def _table(figures: Sequence[Figure], results: Sequence[Result]) -> Table:
    title = "papers and ours: seconds to build per million subscriptions, bytes for each, ms per event"
    names = ("workload", "index", "paper", "s", "B", "ms", "ours: s", "index", "B", "ms")
    table = headed(title, *names, left=3)
    table.caption = "index: seconds of the build after loading; one core"
    found = {(r.engine, r.workload): r for r in results}
    for figure in figures:
        result = found[figure.engine, figure.workload]
        stated = (_number(value) for value in (figure.build_s, figure.bytes, figure.match_ms))
        shown = figure.engine.removeprefix("gpumatch ")
        table.add_row(figure.workload, shown, figure.paper, *stated, *_ours(result))
    return table


def _ours(result: Result) -> list[str]:
    if result.status != "ok":
        return [status(result)] * 4
    per_million = 1e6 / result.subscriptions
    seconds = (result.build_cpu_s * per_million, result.index_cpu_s * per_million)
    each = result.bytes / result.subscriptions if result.bytes is not None else None
    return [_number(value) for value in (*seconds, each, result.us / 1000)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
