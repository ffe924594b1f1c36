"""Checks engines against brute force on workloads, then times them: ``python bench/run.py --help``."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections.abc import Sequence

from rich.table import Table

from engines import ENGINES, NUMPY_INDEXES
from gpumatch.workloads import WORKLOADS
from measuring.conjunctions import ConjunctionJob
from measuring.jobs import Result, Source, run_all
from measuring.options import positive, some_of, timing_parser
from measuring.report import by_engine, finish, terminal, us

# Targets for auto at the published sizes: µs per event and core, and speed relative to the better numpy index
TARGETS = {"w1-100k": (7, 6), "w1-1m": (60, 6), "w2": (20, 6), "w3": (5, 6), "w4": (12, 3), "w5": (25, 3)}


def main() -> int:
    options, console = _options(), terminal()
    started = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H%M%S")
    sources = map(Source.of, options.workloads)
    jobs = [ConjunctionJob.of(options, source, threads=threads) for source in sources for threads in options.threads]
    results = run_all(jobs, console)
    for table in _tables(results):
        console.print(table)
    return finish(console, started, options, results)


def _options() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    options = timing_parser(__doc__ or "")
    add = options.add_argument
    named = some_of(WORKLOADS, str.startswith)
    add("--workloads", type=named, default="w1,w2,w3,w4,w5,w6", help=f"{', '.join(WORKLOADS)}, or prefixes")
    add("--engines", type=some_of(ENGINES), default=",".join(ENGINES), help="names or substrings")
    add("--threads", type=_numbers, default=f"1,{cores}" if cores > 1 else "1", help="numbers of threads")
    add("--batch", type=positive, default=1000, help="events per call")
    return options.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(number) for number in text.split(",")}))


def _tables(results: Sequence[Result]) -> list[Table]:
    threads = sorted({r.threads for r in results})
    first, shown, better = threads[0], " / ".join(str(t) for t in threads), "the better numpy index"
    best = {(t, w): _best_numpy(results, t, w) for t in threads for w in {r.workload for r in results}}

    def ratio(r: Result) -> str:
        base = best[r.threads, r.workload]
        return f"{base / r.us:.1f}×" if base else ""

    def memory(r: Result) -> str:
        seconds = r.build_cpu_s if r.threads == 1 else r.build_s
        return f"{seconds:.1f} s, " + (f"{r.bytes / r.subscriptions:,.0f} B" if r.bytes is not None else "?")

    full = {r.workload for r in results if r.subscriptions == WORKLOADS[r.workload][0] and r.workload in TARGETS}
    times = {w: " / ".join(us(TARGETS[w][0] / t) for t in threads) for w in full}
    ratios = {w: f"{TARGETS[w][1]:.1f}×" for w in full}
    title = f"µs per event, {shown} threads (one: CPU time, more: wall time)"
    return [
        by_engine(title, results, lambda r: us(r.us), {"target": times}, threads=threads),
        by_engine(f"speed relative to {better}, {shown} threads", results, ratio, {"target": ratios}, threads=threads),
        by_engine(f"build time and bytes per subscription, {first} threads", results, memory, {}, threads=[first]),
    ]


def _best_numpy(results: Sequence[Result], threads: int, workload: str) -> float | None:
    here = [r for r in results if (r.threads, r.workload) == (threads, workload) and r.status == "ok"]
    return min((r.us for r in here if r.engine in NUMPY_INDEXES), default=None)


if __name__ == "__main__":
    sys.exit(main())
