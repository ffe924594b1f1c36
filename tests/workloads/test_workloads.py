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
    "w6": lambda: workloads.mixed(1000),
    "ads": lambda: workloads.ads(3000),
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
        inside = ((held >= workload.lo) & (held <= workload.hi)) | (workload.sub_attr < 0)
        rows.append(np.flatnonzero(inside.all(axis=1)).tolist())
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


@pytest.mark.parametrize("theta", [0.0, 0.1, 0.3, 0.5, 0.8])
def test_widths_keep_to_the_bounds_that_the_paper_draws_from(theta: float) -> None:
    low, high = (np.stack(side) for side in zip(*workloads.gem(2000, 3, theta).ranges.values(), strict=True))
    assert (low <= high).all()
    assert low.min() >= 0
    assert low.max() <= 1 - theta
    assert high.min() >= theta
    assert high.max() <= 1


def test_low_widths_are_uniform_over_what_is_allowed() -> None:
    low, high = workloads.gem(40_000, 1, 0.0).ranges["x0"]
    assert (high - low).mean() == pytest.approx(1 / 3, abs=0.01)
    assert np.mean(low < 0.5) == pytest.approx(3 / 4, abs=0.01)


def test_wider_than_the_line_is_refused() -> None:
    with pytest.raises(ValueError, match=r"theta must be in \[0, 1\], found 1.5"):
        workloads.gem(10, theta=1.5)


def test_ads_have_one_to_56_predicates_on_distinct_attributes() -> None:
    workload = workloads.ads(20_000)
    used = workload.sub_attr >= 0
    sizes = used.sum(axis=1)
    assert sizes.min() >= 1
    assert 40 <= sizes.max() <= 56
    assert sizes.mean() == pytest.approx(8, abs=0.2)
    ascending = np.sort(workload.sub_attr, axis=1)
    assert not ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any()
    assert workload.sub_attr.max() < len(workload.schema) == 122
    events = workload.events(200)
    assert (np.diff(events.offsets) == 20).all()
    often = np.bincount(events.attribute, minlength=122)
    assert often[0] > 5 * often[100:].max()  # popular in events as in subscriptions


def test_mixed_events_satisfy_what_those_of_both_halves_do() -> None:
    workload = workloads.mixed(1000)
    half = len(workload.ranges.ids)
    found = brute_force(workload, workload.events(30, seed=2))
    dense = brute_force(workload.ranges, workload.ranges.events(30, seed=2))
    sparse = brute_force(workload.rest, workload.rest.events(30, seed=2))
    assert found == [a + [row + half for row in b] for a, b in zip(dense, sparse, strict=True)]
    assert any(dense)
    assert all(sparse)
