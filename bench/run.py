"""Times engines on workloads, after checking every one of them against brute force: ``python bench/run.py --help``."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections.abc import Callable, Iterable

from jobs import Source, finish, job, positive, run_all, terminal, timing_parser
from measure import ENGINES
from report import tables

from gpumatch.workloads import WORKLOADS


def main() -> int:
    options, console = _options(), terminal()
    started = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H%M%S")
    jobs = [
        job(options, Source.of(workload), threads, options.engines, options.batch)
        for workload in options.workloads
        for threads in options.threads
    ]
    results = run_all(jobs, console)
    for table in tables(results):
        console.print(table)
    return finish(console, started, options, results)


def _options() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    options = timing_parser(__doc__ or "")
    add = options.add_argument
    add(
        "--workloads",
        type=_workloads,
        default="w1,w2,w3,w4,w5,w6",
        help=f"of {', '.join(WORKLOADS)}, or their beginnings",
    )
    add("--engines", type=_engines, default=",".join(ENGINES), help="names, or parts of them")
    add("--threads", type=_numbers, default=f"1,{cores}" if cores > 1 else "1", help="numbers of threads")
    add("--batch", type=positive, default=1000, help="events per call")
    return options.parse_args()


def _workloads(text: str) -> tuple[str, ...]:
    return _chosen(text, WORKLOADS, str.startswith)


def _engines(text: str) -> tuple[str, ...]:
    return _chosen(text, ENGINES, str.__contains__)


def _chosen(text: str, names: Iterable[str], fits: Callable[[str, str], bool]) -> tuple[str, ...]:
    chosen = {part: [name for name in names if fits(name, part.strip())] for part in text.split(",")}
    for part, found in chosen.items():
        if not found:
            raise argparse.ArgumentTypeError(f"nothing is called {part!r}; there are {', '.join(names)}")
    return tuple(name for name in names if any(name in found for found in chosen.values()))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(part) for part in text.split(",")}))


if __name__ == "__main__":
    sys.exit(main())
