"""Shards on the benchmark's workloads: copies of an event, and what routing costs: ``python bench/shards.py``.

100,000 subscriptions of each workload over 16 shards, planned from 4,000 events and evaluated on others. Sieve's plan,
and the router that Spark uses, with subscriptions placed by a hash, beside similar ones, and as it decides. *Needed* is
the number of shards in which an event has a match: with this placement no routing can do with fewer copies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

import gpumatch as gm
from engines.ours import batch_of, loaded
from gpumatch.routing import plan_shards
from gpumatch.routing.shards.plan import Draft, Place, Plan
from gpumatch.routing.shards.router import Entries
from gpumatch.store.source import join_sources
from gpumatch.workloads import make
from measuring.clock import cpu_seconds
from measuring.options import parser
from measuring.report import headed, terminal, write

SHARDS, SAMPLE, SUBSCRIPTIONS = 16, 4_000, 20_000  # the last in a sample, as build_index takes it
SCALES = {"w1-100k": 1.0, "w2": 0.1, "w3": 0.1, "w4": 1.0, "w5": 1.0, "ads": 1 / 30}  # gives 100,000 subscriptions
PLACES: tuple[Place, ...] = ("hash", "similar", "auto")


class Found(NamedTuple):
    workload: str
    way: str
    subscriptions: int
    copies: float
    needed: float
    balance: float
    plan_seconds: float
    route_microseconds: float
    router_bytes: float  # per subscription
    is_used: bool  # whether Spark would route, and not show events to all shards


def planned(name: str, scale: float, events: int) -> list[Found]:
    workload = make(name, scale)
    matcher = loaded(workload, device="cpu")
    sample, others = batch_of(workload.events(SAMPLE, 1)), batch_of(workload.events(events, 2))
    return [_sieve(name, matcher, sample, others), *(_routed(name, matcher, sample, others, at) for at in PLACES)]


def _sieve(name: str, matcher: gm.Matcher, sample: Any, others: Any) -> Found:
    started = time.process_time()
    plan = plan_shards(matcher, SHARDS, events=sample)
    seconds = time.process_time() - started
    size = plan.router.routes.values.rows.nbytes + plan.router.coder.book.cuts.nbytes
    return _found(name, "Sieve's plan", plan.route, plan.matchers(), others, seconds, size, False)


def _routed(name: str, matcher: gm.Matcher, sample: Any, others: Any, place: Place) -> Found:
    source, attributes = matcher._source(), matcher._attributes
    keep = np.random.default_rng(0).random(len(source)) < SUBSCRIPTIONS / len(source)
    some = matcher._subset(join_sources(attributes, [source], [keep]))
    started = time.process_time()
    draft = Draft.of(some, SHARDS, len(source), sample, place)
    seconds = time.process_time() - started
    placement = draft.placement
    shard = np.arange(len(source)) % SHARDS if placement is None else placement.shards(draft.grid, source)
    parts = [matcher._subset(join_sources(attributes, [source], [shard == n])) for n in range(SHARDS)]
    plan: Plan = draft.finished([Entries.of(draft.grid, part) for part in parts])
    size = plan.router.nbytes
    return _found(name, f"router, {place}", plan.router.route, parts, others, seconds, size, plan.report.pays)


def _found(
    name: str, way: str, route: Any, parts: Sequence[gm.Matcher], others: Any, seconds: float, size: int, is_used: bool
) -> Found:
    sent, total = route(others), sum(map(len, parts))
    marks = np.zeros((len(sent), SHARDS), np.bool_)
    marks[np.repeat(np.arange(len(sent)), sent.counts), sent.rows] = True
    needs = np.stack([part.any(others) for part in parts], axis=1)
    assert not (needs & ~marks).any(), "a match is lost"
    each = cpu_seconds(partial(route, others)) / len(sent) * 1e6
    busiest = float(marks.sum(axis=0).max() * SHARDS / max(marks.sum(), 1))
    counts = float(marks.sum() / len(sent)), float(needs.sum() / len(sent)), busiest
    return Found(name, way, total, *counts, seconds, each, size / total, is_used)


def main() -> int:
    given, console = parser(__doc__ or "").parse_args(), terminal()
    found = [
        one
        for name, scale in track(SCALES.items(), transient=True)
        for one in planned(name, scale * given.scale, given.events)
    ]
    counts, costs = ("copies", "needed", "busiest / mean"), ("plan, s", "route, µs", "bytes each", "routed")
    table = headed(f"copies of an event over {SHARDS} shards; CPU time", "workload", "way", *counts, *costs)
    for x in found:
        numbers = (f"{x.copies:.2f}", f"{x.needed:.2f}", f"{x.balance:.2f}")
        times = (f"{x.plan_seconds:.1f}", f"{x.route_microseconds:.1f}", f"{x.router_bytes:.1f}")
        table.add_row(x.workload, x.way, *numbers, *times, "yes" if x.is_used else "")
    console.print(table)
    content = {"shards": SHARDS, "found": [x._asdict() for x in found]}
    console.print(f"written to {write('shards', given, content)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
