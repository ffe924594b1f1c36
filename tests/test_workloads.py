"""Workloads are what the benchmarks say they are, and every index gives brute force's answer on them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch import workloads

SMALL = {
    "w1": lambda: workloads.gem(500),
    "w2": lambda: workloads.dense(2000, k=2),
    "w3": lambda: workloads.sparse(2000),
    "w4": lambda: workloads.tama(500),
    "w5": lambda: workloads.box(500),
}


def brute_force(workload: Any, events: Any) -> list[list[int]]:
    """Every event against every subscription."""
    if isinstance(workload, workloads.RangeWorkload):
        inside = [
            (lo <= v[:, None]) & (v[:, None] <= hi)
            for v, (lo, hi) in zip(events.values(), workload.ranges.values(), strict=True)
        ]
        return [np.flatnonzero(row).tolist() for row in np.logical_and.reduce(inside)]
    offsets, attribute, value, names = events
    rows = []
    for first, last in pairwise(offsets):
        dense = np.full(len(names), np.nan)
        dense[attribute[first:last]] = value[first:last]
        held = dense[workload.sub_attr]
        rows.append(np.flatnonzero(((held >= workload.lo) & (held <= workload.hi)).all(axis=1)).tolist())
    return rows


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("index", ["scan", "pstbloom", "auto"])
def test_matches_are_those_of_brute_force(name: str, index: str) -> None:
    workload = SMALL[name]()
    events = workload.events(50, seed=3)
    matcher = gm.Matcher(workload.schema, index=index)
    workload.add_to(matcher)
    given = events if isinstance(events, dict) else gm.EventBatch.from_csr(*events)
    right = brute_force(workload, events)
    assert list(matcher.match(given)) == right
    assert any(right)


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same(name: str) -> None:
    one, two = SMALL[name](), SMALL[name]()
    first, second, other = one.events(20, seed=1), two.events(20, seed=1), two.events(20, seed=2)
    arrays = [list(e.values()) if isinstance(e, dict) else list(e[:3]) for e in (first, second, other)]
    assert all(np.array_equal(a, b) for a, b in zip(arrays[0], arrays[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(arrays[0], arrays[2], strict=True))


@pytest.mark.parametrize("name", ["w3", "w4"])
def test_planted_events_match_something(name: str) -> None:
    workload = SMALL[name]()
    matcher = gm.Matcher(workload.schema)
    workload.add_to(matcher)
    assert matcher.any(gm.EventBatch.from_csr(*workload.events(100, seed=5))).all()
