"""Shard plans on the benchmark's workloads: copies of an event, and time: ``python bench/shards.py``.

100,000 subscriptions of each workload over 16 shards. Plans are made from 4,000 events and judged by others. *Needed*
are the shards in which an event matches anything: with subscriptions where they are, no filters can do with fewer
copies. Without a plan there are 16.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

from jobs import parser, terminal, write
from rich.progress import track
from rich.table import Table

import gpumatch as gm
from gpumatch.routing import plan_shards
from gpumatch.workloads import SparseEvents, Workload, make

SHARDS, SUBSCRIPTIONS, SAMPLE = 16, 100_000, 4_000
SCALES = {"w1-100k": 1.0, "w2": 0.1, "w3": 0.1, "w4": 1.0, "w5": 1.0, "ads": 1 / 30}  # to 100,000 subscriptions


class Planned(NamedTuple):
    workload: str
    subscriptions: int
    copies: float
    needed: float
    balance: float
    tested: int  # attributes that are tested beside those that shards were made by
    plan_seconds: float
    route_microseconds: float
    router_bytes: int


def events_of(workload: Workload, n: int, seed: int) -> Any:
    events = workload.events(n, seed)
    return gm.EventBatch.from_csr(*events) if isinstance(events, SparseEvents) else events


def planned(name: str, scale: float, events: int) -> Planned:
    workload = make(name, scale)
    matcher = gm.Matcher(workload.schema, device="cpu")
    workload.add_to(matcher)
    sample, others = events_of(workload, SAMPLE, 1), events_of(workload, events, 2)
    started = time.process_time()
    plan = plan_shards(matcher, SHARDS, events=sample)
    seconds = time.process_time() - started
    plan.route(others)
    started = time.process_time()
    routed = plan.route(others)
    each = (time.process_time() - started) / events * 1e6
    report = plan.report(others)
    needed = sum(int(part.any(others).sum()) for part in plan.matchers())
    assert routed.n_pairs == report.copies >= needed
    held = plan.router.routes.values.rows.nbytes + plan.router.coder.book.cuts.nbytes
    return Planned(
        name,
        len(matcher),
        report.replication,
        needed / events,
        report.balance,
        len(plan.filtered_by),
        seconds,
        each,
        held,
    )


def main() -> int:
    given, console = parser(__doc__ or "").parse_args(), terminal()
    found = [planned(name, scale * given.scale, given.events) for name, scale in track(SCALES.items(), transient=True)]
    table = Table(title=f"copies of an event over {SHARDS} shards; CPU time", title_justify="left")
    columns = (
        "workload",
        "subscriptions",
        "copies",
        "needed",
        "busiest / mean",
        "tested",
        "plan, s",
        "route, µs",
        "MB",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for x in found:
        numbers = (f"{x.copies:.2f}", f"{x.needed:.2f}", f"{x.balance:.2f}", str(x.tested))
        times = (f"{x.plan_seconds:.1f}", f"{x.route_microseconds:.1f}", f"{x.router_bytes / 1e6:.1f}")
        table.add_row(x.workload, f"{x.subscriptions:,}", *numbers, *times)
    console.print(table)
    content = {"shards": SHARDS, "found": [x._asdict() for x in found]}
    console.print(f"written to {write('shards', given, content)}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
