"""Filters: the best of all there are by brute force, the paper's example, and what passes where."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.filters import Filters, equal_count_filters, equal_width_filters, leak, optimal_filters
from gpumatch.routing.sieve.groups import Groups

inf, nan = float("inf"), float("nan")
Rows = list[tuple[int, int, int]]  # low, high, owner

ranges = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 4)), min_size=1, max_size=14)


def groups_of(rows: Rows) -> Groups:
    return Groups.of(*([row[side] for row in rows] for side in range(3)), owners=6)


def interested(rows: Rows, value: int) -> set[int]:
    return {owner for low, high, owner in rows if low <= value < high}


def least_leak(rows: Rows, edges: list[int], weights: list[int], k: int) -> int:
    """Over all ways to cut the line at edges into at most k filters, each trimmed to what somebody wants."""
    wanted = [interested(rows, edge) for edge in edges[:-1]]
    best: int | None = None
    for cuts in range(len(wanted)):
        for at in combinations(range(1, len(wanted)), cuts):
            total = used = 0
            for first, last in pairwise((0, *at, len(wanted))):
                inside = [g for g in range(first, last) if wanted[g]]
                if inside:
                    used += 1
                    span = range(inside[0], inside[-1] + 1)
                    nodes = set().union(*(wanted[g] for g in span))
                    total += sum(weights[g] * len(nodes - wanted[g]) for g in span)
            if used <= k and (best is None or total < best):
                best = total
    assert best is not None
    return best


def counted_leak(filters: Filters, rows: Rows, edges: list[int], weights: list[int]) -> int:
    """Send every group's traffic through the filters, and see who has no use for it; nobody may miss it."""
    total = 0
    for edge, weight in zip(edges[:-1], weights, strict=True):
        passed = [f for f in range(len(filters)) if filters.low[f] <= edge < filters.high[f]]
        assert len(passed) <= 1
        nodes = set(filters.nodes(passed[0]).tolist()) if passed else set()
        assert interested(rows, edge) <= nodes
        total += weight * len(nodes - interested(rows, edge))
    return total


def check(rows: Rows, weights: list[int], k: int) -> None:
    groups = groups_of(rows)
    edges, used = groups.edges.tolist(), weights[: len(groups)]
    best = optimal_filters(groups, used, k)
    assert len(best) <= k
    found = counted_leak(best, rows, edges, used)
    assert found == leak(best, groups, used) == least_leak(rows, edges, used, k)
    for other in (equal_width_filters(groups, k), equal_count_filters(groups, k)):
        assert len(other) <= k
        assert found <= counted_leak(other, rows, edges, used) == leak(other, groups, used)
    members = [interested(rows, edge) for edge in edges[:-1]]
    blocks = sum(bool(now) and now != before for before, now in pairwise([set(), *members]))
    if blocks <= k:
        assert (len(best), found) == (blocks, 0)
    elif len(best) > 1:
        assert least_leak(rows, edges, used, len(best) - 1) > found


@given(ranges.filter(lambda rows: any(low < high for low, high, _ in rows)), st.integers(1, 12), st.data())
def test_no_filters_leak_less(rows: Rows, k: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 20), min_size=11, max_size=11))
    check(rows, weights, k)


def test_no_filters_leak_less_on_many_lines() -> None:
    """Up to 12 points, few and many owners, narrow and wide ranges."""
    rng = np.random.default_rng(5)
    for case in range(150):
        points, n = int(rng.integers(2, 12)), int(rng.integers(1, 20))
        low = rng.integers(0, points, n)
        high = np.minimum(low + rng.integers(1, 1 + int(rng.integers(1, 12)), n), 11)
        rows = list(zip(low.tolist(), high.tolist(), rng.integers(0, rng.integers(1, 7), n).tolist(), strict=True))
        if (low < high).any():
            check(rows, rng.integers(0, 100, 11).tolist(), 1 + case % 6)


def programme(groups: Groups, weights: list[int], k: int) -> int:
    """The paper's programme in plain Python: least leak over at most k filters."""
    wanted = [set(groups.members(g).tolist()) for g in range(len(groups))]
    best = [[0] * (len(wanted) + 1)] + [[0] * (len(wanted) + 1) for _ in range(k)]
    best[0] = [10**18 if any(wanted[i:]) else 0 for i in range(len(wanted) + 1)]
    for f in range(1, k + 1):
        for i in range(len(wanted) - 1, -1, -1):
            if not wanted[i]:
                best[f][i] = best[f][i + 1]
                continue
            nodes, traffic, used, costs = set[int](), 0, 0, []
            for j in range(i, len(wanted)):
                nodes |= wanted[j]
                traffic += weights[j]
                used += weights[j] * len(wanted[j])
                costs.append(traffic * len(nodes) - used + best[f - 1][j + 1])
            best[f][i] = min(costs)
    return best[k][0]


@pytest.mark.parametrize(("n", "owners", "width", "k"), [(150, 4, 3, 7), (200, 200, 90, 5), (300, 25, 6, 20)])
def test_longer_lines_than_a_block(n: int, owners: int, width: int, k: int) -> None:
    """More groups than are judged at once: leaving out blocks loses nothing."""
    rng = np.random.default_rng(n)
    low = rng.integers(0, 1000, n)
    groups = Groups.of(low, low + rng.integers(1, width + 1, n), rng.integers(0, owners, n), owners)
    weights = rng.integers(0, 50, len(groups)).tolist()
    filters = optimal_filters(groups, weights, k)
    assert leak(filters, groups, weights) == programme(groups, weights, k)
    assert len(groups) > 256


def test_figure_5() -> None:
    """One message per unit. By the definition of III-B one filter leaks 6, not the 7 that is printed."""
    groups = Groups.of([1, 3, 3, 6], [4, 6, 5, 9], [0, 0, 1, 1])
    traffic = np.diff(groups.edges)
    assert len(groups) == 5
    one = optimal_filters(groups, traffic, 1)
    assert (one.low.tolist(), one.high.tolist(), leak(one, groups, traffic)) == ([1], [9], 6.0)
    printed = Filters(np.array([1, 5]), np.array([5, 9]), np.array([0, 2, 4]), np.array([0, 1, 0, 1]))
    assert leak(printed, groups, traffic) == 6.0
    assert leak(Filters(*(a[:n] for a, n in zip(_columns(printed), (1, 1, 2, 2), strict=True))), groups, traffic) == 2.0
    two = optimal_filters(groups, traffic, 2)
    assert (two.low.tolist(), two.high.tolist()) == ([1, 6], [6, 9])
    assert [two.nodes(f).tolist() for f in range(2)] == [[0, 1], [1]]
    assert leak(two, groups, traffic) == 3.0
    assert [leak(optimal_filters(groups, traffic, k), groups, traffic) for k in (3, 4, 5, 99)] == [1.0, 0.0, 0.0, 0.0]


def _columns(filters: Filters) -> tuple[Any, ...]:
    return filters.low, filters.high, filters.ptr, filters.node


def test_what_nobody_wants_is_between_filters() -> None:
    groups = Groups.of([0, 10, 20], [1, 11, 21], [0, 1, 0])
    filters = optimal_filters(groups, [1, 100, 1, 50, 1], 2)
    assert (filters.low.tolist(), filters.high.tolist()) == ([0, 10], [1, 21])
    assert leak(filters, groups, [1, 100, 1, 50, 1]) == 50 * 2 + 2


def test_no_more_filters_than_lower_the_leak() -> None:
    groups = Groups.of([0, 1, 2, 3], [1, 2, 3, 4], [0, 1, 2, 3])
    assert len(optimal_filters(groups, [0, 0, 0, 0], 3)) == 1
    assert len(optimal_filters(groups, [1, 0, 0, 0], 3)) == 2
    same = Groups.of([0, 1, 3], [4, 2, 5], [0, 0, 0])
    assert len(same) > 1
    assert len(optimal_filters(same, np.ones(len(same)), 3)) == 1


def test_match_and_nodes() -> None:
    filters = Filters([0.0, 1.0, 5.0], [1.0, 2.0, inf], [0, 2, 2, 3], [0, 3, 1])
    values = [-1, 0, 0.5, 1, 2, 4.9, 5, 1e300, inf, -inf, nan]
    assert filters.match(values).tolist() == [-1, 0, 0, 1, -1, -1, 2, 2, -1, -1, -1]
    offsets, nodes = filters.nodes_of(values)
    assert np.diff(offsets).tolist() == [0, 2, 2, 0, 0, 0, 1, 1, 0, 0, 0]
    assert nodes.tolist() == [0, 3, 0, 3, 1, 1]
    assert len(filters) == 3
    assert filters.nodes_of([])[0].tolist() == [0]


def test_floats_pass_integer_filters() -> None:
    big = 2**60
    filters = Filters([0, big], [2, big + 1], [0, 1, 2], [0, 1])
    assert filters.match([-0.5, 0.0, 1.9, 2.0, float(big), nan, inf]).tolist() == [-1, 0, 0, -1, 1, -1, -1]
    assert filters.match([big - 1, big, big + 1]).tolist() == [-1, 1, -1]


@pytest.mark.parametrize("make", [equal_width_filters, equal_count_filters, lambda g, k: optimal_filters(g, [], k)])
def test_no_groups_no_filters(make: Any) -> None:
    filters = make(Groups.of([], [], []), 3)
    assert len(filters) == 0
    assert filters.match([0, nan]).tolist() == [-1, -1]
    assert [a.tolist() for a in filters.nodes_of([0, 1])] == [[0, 0, 0], []]


def test_infinite_edges() -> None:
    groups = Groups.of([-inf, 0.0, 5.0], [0.0, 10.0, inf], [0, 1, 2])
    for make in (equal_width_filters, equal_count_filters):
        filters = make(groups, 2)
        assert (filters.low[0], filters.high[-1]) == (-inf, inf)
        assert len(filters) == 2
    assert leak(optimal_filters(groups, np.ones(len(groups)), 4), groups, np.ones(len(groups))) == 0
    whole = Groups.of([-inf], [inf], [0])
    assert len(equal_width_filters(whole, 3)) == 1


def test_leak_of_filters_that_send_to_strangers() -> None:
    groups = Groups.of([0, 2], [1, 3], [0, 1], owners=3)
    filters = Filters([0], [3], [0, 2], [0, 2])
    assert leak(filters, groups, [1, 10, 100]) == (1 + 10 + 100) + (10 + 100)


def test_weights_of_very_different_size() -> None:
    """No leak is no leak, however small the traffic is beside the rest."""
    groups = Groups.of([0, 1, 2], [1, 2, 3], [0, 1, 0])
    weights = [1e-300, 1e300, 1e-300]
    assert leak(optimal_filters(groups, weights, 3), groups, weights) == 0.0


def test_small_weights_beside_huge_ones() -> None:
    """The best filters leave the huge traffic alone, and it does not hide what the others leak."""
    groups = Groups.of(range(6), range(1, 7), range(6))
    weights = [1e18, 50, 1, 50, 1, 50]
    assert leak(optimal_filters(groups, weights, 5), groups, weights) == 51
    assert leak(optimal_filters(groups, weights, 4), groups, weights) == 102
    assert leak(optimal_filters(groups, [50, 1, 50, 1, 50, 1e18], 5), groups, [50, 1, 50, 1, 50, 1e18]) == 51


@pytest.mark.parametrize("weights", [[1], [1, -1], [1, nan], [1, inf], [1e308, 1e308]])
def test_bad_weights(weights: list[float]) -> None:
    groups = Groups.of([0, 1], [1, 2], [0, 1])
    with pytest.raises(RoutingError, match="weights: expected"):
        optimal_filters(groups, weights, 1)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, None])
def test_bad_number_of_filters(k: Any) -> None:
    groups = Groups.of([0, 1], [1, 2], [0, 1])
    for make in (equal_width_filters, equal_count_filters, lambda g, k: optimal_filters(g, [1, 1], k)):
        with pytest.raises(RoutingError, match="k: expected a number of filters"):
            make(groups, k)


def test_bad_filters() -> None:
    for low, high in (([0, 1], [2, 3]), ([2, 0], [3, 1]), ([1], [1]), ([2], [1])):
        with pytest.raises(RoutingError, match="do not overlap"):
            Filters(low, high, [0] * (len(low) + 1), [])
    for ptr in ([0], [0, 2], [1, 1], [0, 1, 1]):
        with pytest.raises(RoutingError, match="ptr: expected 2 offsets"):
            Filters([0], [1], ptr, [0])
    groups = Groups.of([0, 4], [2, 6], [0, 1])
    with pytest.raises(RoutingError, match="edges of the groups"):
        leak(Filters([1], [4], [0, 1], [0]), groups, [1, 1, 1])
    with pytest.raises(RoutingError, match="edges of the groups"):
        leak(Filters([0], [9], [0, 1], [0]), groups, [1, 1, 1])
    with pytest.raises(RoutingError, match="node 2 is none of the 2 owners"):
        leak(Filters([0], [2], [0, 1], [2]), groups, [1, 1, 1])
    for ptr in ([0, 1.9], [0.0, 1.0]):
        with pytest.raises(RoutingError, match="ptr: expected integers"):
            Filters([0], [1], ptr, [0])
    for node in ([-1, 0], [1, 1], [1, 0], [0, 2**31], [0, 2**40 + 1]):
        with pytest.raises(RoutingError, match="node: expected numbers from 0"):
            Filters([0], [1], [0, 2], node)
    with pytest.raises(RoutingError, match="node: expected integers"):
        Filters([0], [1], [0, 1], [0.7])
    with pytest.raises(RoutingError, match="node: expected numbers in one dimension"):
        Filters([0], [1], [0, 1], [[0], [1, 2]])


def test_filters_by_number() -> None:
    filters = Filters([0, 1], [1, 2], [0, 1, 2], [1, 0])
    assert [filters.nodes(f).tolist() for f in range(2)] == [[1], [0]]
    for number in (-1, 2, 99, 0.5, True):
        with pytest.raises(RoutingError, match=r"filter .*: expected a number from 0 to 1"):
            filters.nodes(number)  # type: ignore[arg-type]
    assert filters != Filters([0, 1], [1, 2], [0, 1, 2], [1, 0])


def test_integers_pass_float_filters() -> None:
    filters = Filters([0.0, 2.0**53 + 4], [2.0**53 + 4, 2.0**63], [0, 1, 2], [0, 1])
    values = [2**53 + 3, 2**53 + 4, 2**53 + 5, 2**63 - 1, -1]
    assert filters.match(values).tolist() == [0, 1, 1, 1, -1]


def test_weights_must_be_there() -> None:
    groups = Groups.of([0, 2, 4, 9], [3, 5, 8, 12], [0, 1, 0, 2])
    for k in (2, 99):
        with pytest.raises(RoutingError, match="weights: expected"):
            optimal_filters(groups, None, k)
    with pytest.raises(RoutingError, match="weights: expected"):
        leak(optimal_filters(groups, np.ones(7), 2), groups, None)


def test_more_filters_than_groups() -> None:
    groups = Groups.of([0, 2, 4, 9], [3, 5, 8, 12], [0, 1, 0, 2])
    for make in (equal_width_filters, equal_count_filters):
        same, many = make(groups, len(groups)), make(groups, 10**12)
        assert (many.low.tolist(), many.high.tolist()) == (same.low.tolist(), same.high.tolist())
    assert leak(equal_count_filters(groups, 10**400), groups, np.ones(7)) == 0
