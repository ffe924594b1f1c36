"""The cost of one event alone, compared with its share of a batch: ``python bench/latency.py``.

Three calls with auto's index: ``match`` of a batch of 1,000, ``match`` of a batch of one, ``match_one`` of a dict.
The target for the median of a call with one event is three times its share of the batch and 50 µs. Medians are wall
time, which a busy machine lengthens; the mean CPU time over all calls is shown too.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from rich.table import Table

from measuring.conjunctions import ConjunctionJob
from measuring.jobs import Result, Source, run_all
from measuring.options import positive, timing_parser
from measuring.report import finish, headed, status, terminal, us

WORKLOADS = ("w1-100k", "w1-1m", "w2", "w3", "w4", "w5", "w6")
BATCH, ONE = "gpumatch auto", "gpumatch match_one"


class Ways(NamedTuple):
    """The results of one workload."""

    batch: Result
    batch_of_one: Result
    match_one: Result

    @property
    def target(self) -> float:
        return 3 * self.batch.us + 50

    def above(self) -> list[str]:
        alone = {"a batch of one": self.batch_of_one, "match_one": self.match_one}
        return [
            f"above the target: {name} on {r.workload}: {r.call_p50_us:.0f} µs, target {self.target:.0f} µs"
            for name, r in alone.items()
            if r.call_p50_us > self.target
        ]


def main() -> int:
    options = timing_parser(__doc__ or "", verify=4)
    options.add_argument("--threads", type=positive, default=1, help="threads")
    options.add_argument("--only", choices=WORKLOADS, help="only this workload")
    given, console = options.parse_args(), terminal()
    jobs = []
    for name in [given.only] if given.only else WORKLOADS:
        source = Source.of(name)
        jobs.append(ConjunctionJob.of(given, source, engines=(BATCH,)))
        jobs.append(ConjunctionJob.of(given, source, engines=(BATCH, ONE), batch=1))
    results = run_all(jobs, console)
    by_workload = [Ways(*results[i : i + 3]) for i in range(0, len(results), 3)]
    console.print(_table(by_workload))
    above = [line for ways in by_workload for line in ways.above()]
    for line in above:
        console.print(line)
    targets = {ways.batch.workload: ways.target for ways in by_workload}
    return finish(console, "latency", given, results, {"bars": targets}) or int(bool(above))


def _table(by_workload: list[Ways]) -> Table:
    title = "µs per event: in a batch, and alone: median / 95th percentile, CPU"
    table = headed(title, "workload", "in a batch", "batch of one", "CPU", "match_one", "CPU", "target")
    for ways in by_workload:
        cells = [status(ways.batch) or us(ways.batch.us)]
        for r in (ways.batch_of_one, ways.match_one):
            cells += [status(r) or f"{us(r.call_p50_us)} / {us(r.call_p95_us)}", us(r.cpu_us)]
        table.add_row(ways.batch.workload, *cells, us(ways.target))
    return table


if __name__ == "__main__":
    sys.exit(main())
