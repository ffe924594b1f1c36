"""Stages of filters: every event walked from node to node in plain Python, and leaks counted on the way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.filters import Filters, leak, optimal_filters
from gpumatch.routing.sieve.groups import Groups
from gpumatch.routing.sieve.stages import Stages, multi_stage

inf, nan = float("inf"), float("nan")
Rows = list[tuple[int, int, int]]  # low, high, leaf

ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 7)), min_size=1, max_size=40)


def groups_of(rows: Rows) -> Groups:
    return Groups.of(*([row[side] for row in rows] for side in range(3)), owners=8)


def interested(rows: Rows, value: int) -> set[int]:
    return {leaf for low, high, leaf in rows if low <= value < high}


def receivers(filters: Filters, value: int) -> list[int]:
    found = [f for f in range(len(filters)) if filters.low[f] <= value < filters.high[f]]
    assert len(found) <= 1
    return filters.nodes(found[0]).tolist() if found else []


def has_use(filters: Filters, value: int, anybody: bool) -> bool:
    """A node of a lower stage can use what lies between its filters' ends if somebody wants it."""
    return anybody and len(filters) > 0 and bool(filters.low[0] <= value < filters.high[-1])


def walk(stages: Stages, rows: Rows, value: int) -> tuple[list[int], list[int]]:
    """The leaves that get a value, and how many nodes or leaves each stage sends it to in vain."""
    wants, at, vain = interested(rows, value), [0], []
    for number, stage in enumerate(stages.stages):
        reached = [to for node in at for to in receivers(stage.node(node), value)]
        if number + 1 < len(stages.stages):
            below = stages.stages[number + 1]
            vain.append(sum(not has_use(below.node(to), value, bool(wants)) for to in reached))
        else:
            vain.append(sum(to not in wants for to in reached))
        at = reached
    assert len(set(at)) == len(at)
    assert wants <= set(at)
    return at, vain


def check(rows: Rows, traffic: list[int], k: int, max_leak: float) -> Stages:
    groups = groups_of(rows)
    weights = np.add.reduceat(traffic[: int(groups.edges[-1])], groups.edges[:-1]) if len(groups) else []
    stages = multi_stage(groups, weights, k, max_leak)
    assert stages.nodes[0] == 1
    assert all(stage.space.max() <= k for stage in stages.stages)
    values = range(int(groups.edges[0]), int(groups.edges[-1])) if len(groups) else range(0)
    walked = [walk(stages, rows, value) for value in values]
    counted = [
        sum(traffic[v] * vain[s] for v, (_, vain) in zip(values, walked, strict=True))
        for s in range(len(stages.stages))
    ]
    assert stages.leak == counted
    assert counted[-1] <= max_leak * sum(traffic[v] for v in values)
    offsets, leaves = stages.route(values)
    assert [leaves[a:b].tolist() for a, b in pairwise(offsets)] == [at for at, _ in walked]
    return stages


@given(ranges, st.integers(2, 6), st.sampled_from([0.0, 0.05, 0.5, 3.0]), st.data())
def test_leaks_and_routes_are_as_walked(rows: Rows, k: int, max_leak: float, data: st.DataObject) -> None:
    check(rows, data.draw(st.lists(st.integers(0, 9), min_size=40, max_size=40)), k, max_leak)


def test_two_filters_reach_no_leak() -> None:
    """The least that a node can have still makes a tree of nodes, with no leak at the leaves nor between stages."""
    rng = np.random.default_rng(3)
    low = rng.integers(0, 40, 60)
    rows = list(
        zip(low.tolist(), (low + rng.integers(1, 4, 60)).tolist(), rng.integers(0, 8, 60).tolist(), strict=True)
    )
    stages = check(rows, rng.integers(1, 9, 50).tolist(), 2, 0.0)
    assert stages.leak[-1] == 0
    assert len(stages.stages) > 3
    assert stages.leaves == 8
    assert all(above < below <= 2 * above for above, below in pairwise(stages.nodes))


def test_one_stage_is_the_optimal_filters() -> None:
    groups = Groups.of([1, 3, 3, 6], [4, 6, 5, 9], [0, 0, 1, 1])
    weights = np.diff(groups.edges)
    stages = multi_stage(groups, weights, 2, max_leak=3 / 8)
    assert (stages.nodes, stages.leak) == ([1], [3.0])
    best = optimal_filters(groups, weights, 2)
    root = stages.stages[0].node(0)
    assert (root.low.tolist(), root.high.tolist()) == (best.low.tolist(), best.high.tolist())
    assert leak(root, groups, weights) == 3.0
    two = multi_stage(groups, weights, 2, max_leak=0.37)
    assert (two.nodes, two.leak) == ([1, 2], [0.0, 0.0])


def test_less_leak_takes_more_nodes() -> None:
    rng = np.random.default_rng(7)
    low = rng.integers(0, 2000, 600)
    groups = Groups.of(low, low + rng.integers(1, 40, 600), rng.integers(0, 12, 600))
    weights = rng.random(len(groups))
    found = [sum(multi_stage(groups, weights, 8, allowed).nodes) for allowed in (10.0, 1.0, 0.3, 0.1, 0.0)]
    assert found == sorted(found)
    assert found[0] == 1
    assert found[-1] > 8


def test_nobody_and_nothing() -> None:
    stages = multi_stage(Groups.of([], [], []), [], 3)
    assert (stages.nodes, stages.leak) == ([1], [0.0])
    assert [a.tolist() for a in stages.route([1, nan])] == [[0, 0, 0], []]
    one = multi_stage(Groups.of([-inf], [inf], [0]), [1.0], 1)
    assert [a.tolist() for a in one.route([-inf, 0, inf, nan])] == [[0, 1, 2, 2, 2], [0, 0]]
    assert [a.tolist() for a in one.route([])] == [[0], []]


def test_no_traffic_no_leak() -> None:
    groups = Groups.of([0, 1, 2], [1, 2, 3], [0, 1, 2])
    assert multi_stage(groups, [0, 0, 0], 2).nodes == [1]


@pytest.mark.parametrize("max_leak", [-0.1, nan, -inf, "x", None, True, 10**400])
def test_bad_leak(max_leak: Any) -> None:
    with pytest.raises(RoutingError, match="max_leak: expected a share of traffic from 0"):
        multi_stage(Groups.of([0], [1], [0]), [1], 2, max_leak)


def test_one_filter_cannot_lead_to_parts() -> None:
    groups = Groups.of([0, 1], [1, 2], [0, 1])
    with pytest.raises(RoutingError, match="takes 2 filters or more, found 1"):
        multi_stage(groups, [1, 1], 1)
    assert multi_stage(groups, [1, 1], 1, max_leak=1.0).leak == [2.0]


def test_all_leak_allowed() -> None:
    groups = Groups.of([0, 2, 4, 9], [3, 5, 8, 12], [0, 1, 0, 2])
    for weights in (np.zeros(7), np.ones(7)):
        assert multi_stage(groups, weights, 1, inf).nodes == [1]
    assert multi_stage(groups, np.zeros(7), 1).nodes == [1]


def test_nodes_by_number() -> None:
    stage = multi_stage(Groups.of([0], [1], [0]), [1], 2).stages[0]
    assert len(stage.node(0)) == 1
    for number in (-1, 1, 99, 0.5):
        with pytest.raises(RoutingError, match=r"node .*: expected a number from 0 to 0"):
            stage.node(number)  # type: ignore[arg-type]
