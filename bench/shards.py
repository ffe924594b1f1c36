"""Shard plans on the benchmark's workloads: copies of an event, and time: ``python bench/shards.py``.

100,000 subscriptions of each workload over 16 shards. Plans are made from 4,000 events and evaluated on others.
*Needed* is the number of shards in which an event has a match: with this placement no filters can do with fewer copies.
Without a plan there are 16.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import NamedTuple

from rich.progress import track

from engines.ours import batch_of, loaded
from gpumatch.routing import plan_shards
from gpumatch.workloads import make
from measuring.clock import cpu_seconds
from measuring.options import parser
from measuring.report import headed, terminal, write

SHARDS, SAMPLE = 16, 4_000
SCALES = {"w1-100k": 1.0, "w2": 0.1, "w3": 0.1, "w4": 1.0, "w5": 1.0, "ads": 1 / 30}  # gives 100,000 subscriptions


class Planned(NamedTuple):
    workload: str
    subscriptions: int
    copies: float
    needed: float
    balance: float
    tested: int  # attributes that are tested in addition to those that define shards
    plan_seconds: float
    route_microseconds: float
    router_bytes: int


def planned(name: str, scale: float, events: int) -> Planned:
    workload = make(name, scale)
    matcher = loaded(workload, device="cpu")
    sample, others = batch_of(workload.events(SAMPLE, 1)), batch_of(workload.events(events, 2))
    started = time.process_time()
    plan = plan_shards(matcher, SHARDS, events=sample)
    seconds = time.process_time() - started
    routed, report = plan.route(others), plan.report(others)
    each = cpu_seconds(partial(plan.route, others)) / events * 1e6
    needed = sum(int(shard.any(others).sum()) for shard in plan.matchers())
    assert routed.n_pairs == report.copies >= needed
    size = plan.router.routes.values.rows.nbytes + plan.router.coder.book.cuts.nbytes
    shares = report.replication, needed / events, report.balance
    return Planned(name, len(matcher), *shares, len(plan.filtered_by), seconds, each, size)


def main() -> int:
    given, console = parser(__doc__ or "").parse_args(), terminal()
    found = [planned(name, scale * given.scale, given.events) for name, scale in track(SCALES.items(), transient=True)]
    counts, costs = ("copies", "needed", "busiest / mean", "tested"), ("plan, s", "route, µs", "MB")
    table = headed(f"copies of an event over {SHARDS} shards; CPU time", "workload", "subscriptions", *counts, *costs)
    for x in found:
        numbers = (f"{x.copies:.2f}", f"{x.needed:.2f}", f"{x.balance:.2f}", str(x.tested))
        times = (f"{x.plan_seconds:.1f}", f"{x.route_microseconds:.1f}", f"{x.router_bytes / 1e6:.1f}")
        table.add_row(x.workload, f"{x.subscriptions:,}", *numbers, *times)
    console.print(table)
    content = {"shards": SHARDS, "found": [x._asdict() for x in found]}
    console.print(f"written to {write('shards', given, content)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
