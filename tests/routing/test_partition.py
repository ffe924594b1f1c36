"""Subscriptions on nodes: the paper's process in plain Python, bounds that are kept, and pools that run out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.groups import Groups
from gpumatch.routing.sieve.partition import Partition, partition

inf, nan = float("inf"), float("nan")
Row = tuple[int, int, int]  # low, high, load

subscriptions = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 5)), max_size=40)
options = st.tuples(
    st.sampled_from(["given", "low"]), st.sampled_from(["ranges", "members"]), st.sampled_from(["bound", "exact"])
)


def space_of(held: list[Row], measure: str) -> int:
    """Ranges between adjacent edges, or the subscriptions interested in each, all together."""
    edges = sorted({bound for row in held for bound in row[:2]})
    if measure == "ranges":
        return max(len(edges) - 1, 0)
    return sum(low <= edge < high for edge in edges[:-1] for low, high, _ in held)


def met(held: list[Row], row: Row) -> int:
    edges = sorted({bound for other in held for bound in other[:2]})
    return sum(a < row[1] and row[0] < b for a, b in pairwise(edges))


def place(
    rows: list[Row], room: list[float], capacity: list[float], order: str, measure: str, growth: str
) -> list[int]:
    """The process of III-A. Raises LookupError with the number of a subscription that fits nowhere."""
    nodes: list[list[int]] = [[] for _ in room]
    found = [-1] * len(rows)
    turn = sorted(range(len(rows)), key=lambda s: rows[s][:2]) if order == "low" else range(len(rows))
    for s in turn:
        if rows[s][0] >= rows[s][1]:
            continue
        options = []
        for j, numbers in enumerate(nodes):
            held = [rows[n] for n in numbers]
            space = space_of([*held, rows[s]], measure)
            if space <= room[j] and sum(row[2] for row in held) + rows[s][2] <= capacity[j]:
                least = space - space_of(held, measure) if growth == "exact" else met(held, rows[s]) + 2
                # A new node only if none in use has room, and then the first; else the highest of equals
                options.append((not held, least if held else 0, -j if held else j))
        if not options:
            raise LookupError(s)
        chosen = abs(min(options)[2])
        nodes[chosen].append(s)
        found[s] = chosen
    return found


def check(found: Partition, rows: list[Row], measure: str) -> None:
    assert found.node.dtype == np.int32
    assert found.nodes == len(set(found.node.tolist()) - {-1})
    for j in range(len(found.space)):
        held = [rows[s] for s in found.subscriptions(j)]
        assert found.space[j] == space_of(held, measure)
        assert found.load[j] == sum(row[2] for row in held)
    assert [node < 0 for node in found.node] == [low >= high for low, high, _ in rows]


@pytest.mark.long
@given(subscriptions, st.integers(1, 25), st.integers(5, 30), options)
def test_equal_nodes(rows: list[Row], space: int, capacity: int, how: tuple[str, str, str]) -> None:
    low, high, load = ([row[i] for row in rows] for i in range(3))
    order, measure, growth = how
    found = partition(low, high, load, space, capacity, order=order, measure=measure, growth=growth)
    count = len(rows) + 1
    assert found.node.tolist() == place(rows, [space] * count, [capacity] * count, order, measure, growth)
    check(found, rows, measure)
    assert (found.space <= space).all()
    assert (found.load <= capacity).all()


@given(
    subscriptions,
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 20)), min_size=1, max_size=8),
    options,
)
def test_a_pool_of_nodes(rows: list[Row], pool: list[tuple[int, int]], how: tuple[str, str, str]) -> None:
    low, high, load = ([row[i] for row in rows] for i in range(3))
    space, capacity = ([node[i] for node in pool] for i in range(2))
    order, measure, growth = how
    try:
        expected = place(rows, [*space], [*capacity], order, measure, growth)
    except LookupError as failure:
        with pytest.raises(RoutingError, match=rf"^subscription {failure.args[0]}, "):
            partition(low, high, load, space, capacity, order=order, measure=measure, growth=growth)
        return
    found = partition(low, high, load, space, capacity, order=order, measure=measure, growth=growth)
    assert found.node.tolist() == expected
    check(found, rows, measure)


def test_space_agrees_with_groups() -> None:
    rng = np.random.default_rng(2)
    low = rng.random(3000)
    high = low + rng.random(3000) / 50
    for measure in ("ranges", "members"):
        found = partition(low, high, np.ones(3000), inf, 250, measure=measure)
        assert found.nodes == 12
        for j in range(12):
            mine = found.subscriptions(j)
            groups = Groups.of(low[mine], high[mine], np.arange(len(mine)))
            assert found.space[j] == (len(groups) if measure == "ranges" else groups.state_space)


def test_more_nodes_than_room_was_made_for() -> None:
    n = 100
    found = partition(np.arange(n), np.arange(n) + 1, np.ones(n), 1, 5)
    assert found.node.tolist() == list(range(n))
    assert found.space.tolist() == [1] * n


def test_along_the_line_neighbours_stay_together() -> None:
    """With order="low" and exact growth nodes have one stretch of the line each, but for a few that fill gaps."""
    rng = np.random.default_rng(1)
    low = rng.permutation(1000)
    load = rng.random(1000)
    found = partition(low, low + 5, load, inf, 50, order="low", growth="exact")
    assert found.nodes in (10, 11)
    assert len(Groups.of(low, low + 5, found.node).runs.owner) < 1.5 * found.nodes
    assert (np.diff(found.node[np.argsort(low)]) >= 0).mean() > 0.99
    scattered = partition(low, low + 5, load, inf, 50)
    assert len(Groups.of(low, low + 5, scattered.node).runs.owner) > 100


def test_nodes_that_are_too_small_are_left_for_others() -> None:
    found = partition([0, 10], [1, 11], [5, 1], 10, [1, 5])
    assert found.node.tolist() == [1, 0]
    assert (found.nodes, found.load.tolist()) == (2, [1.0, 5.0])


def test_no_subscriptions() -> None:
    found = partition([], [], [], 1, 1)
    assert (found.nodes, found.node.tolist(), found.space.tolist()) == (0, [], [])
    empty = partition([1.0, inf], [1.0, inf], [3, 4], [], [])
    assert (empty.nodes, empty.node.tolist()) == (0, [-1, -1])


def test_infinite_ranges_and_64_bits() -> None:
    ends = np.iinfo(np.int64)
    assert partition([-inf, 0], [inf, 1], [1, 1], 3, 2).space.tolist() == [3]
    assert partition([ends.min, 0], [ends.max, ends.max], [1, 1], 2, 2).space.tolist() == [2]


def test_subscriptions_that_fit_nowhere() -> None:
    with pytest.raises(
        RoutingError, match=r"subscription 1, \[2, 3\) with load 9, fits no empty node.*at most.*capacity 8"
    ):
        partition([0, 2], [1, 3], [8, 9], 5, 8)
    with pytest.raises(RoutingError, match=r"subscription 0, .* found at most space 0"):
        partition([0], [1], [1], 0, 8)
    with pytest.raises(RoutingError, match=r"subscription 2, .* all that could hold it are in use, 2 in all"):
        partition([0, 2, 4], [1, 3, 5], [8, 8, 8], 5, 8, nodes=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"load": [1]}, "load: expected one for each of the 2 subscriptions, found 1"),
        ({"load": [1, -1]}, "load: expected finite numbers from 0"),
        ({"load": [1, nan]}, "load: expected finite numbers from 0"),
        ({"load": [1, inf]}, "load: expected finite numbers from 0"),
        ({"space": -1}, "space and capacity: expected numbers from 0"),
        ({"capacity": nan}, "space and capacity: expected numbers from 0"),
        ({"space": [1, 2], "capacity": [1, 2, 3]}, r"equally many, or one for all, found \[2, 3\]"),
        ({"space": [1, 2], "nodes": 3}, "nodes: expected 2, found 3"),
        ({"nodes": 0}, "nodes: expected 1 or more, found 0"),
        ({"nodes": 2.5}, "nodes: expected 1 or more, found 2.5"),
        ({"nodes": True}, "nodes: expected 1 or more, found True"),
        ({"nodes": "2"}, "nodes: expected 1 or more, found '2'"),
        ({"space": [[1], [2, 3]]}, "space: expected numbers in one dimension"),
        ({"order": "high"}, "order: expected one of given, low, found 'high'"),
        ({"measure": "bytes"}, "measure: expected one of ranges, members"),
        ({"growth": "least"}, "growth: expected one of bound, exact"),
        ({"low": [nan, 0]}, "low: bounds are numbers"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"low": [0, 2], "high": [1, 3], "load": [1, 1], "space": 5, "capacity": 5}
    with pytest.raises(RoutingError, match=message):
        partition(**arguments | changes)


def test_nodes_by_number() -> None:
    found = partition([0, 2, 5], [1, 3, 5], [1, 1, 1], 1, 5, nodes=10**30)
    assert (found.node.tolist(), found.nodes) == ([0, 1, -1], 2)
    assert [found.subscriptions(node).tolist() for node in range(2)] == [[0], [1]]
    for node in (-1, 2, 99, 0.5):
        with pytest.raises(RoutingError, match=r"node .*: expected a number from 0 to 1"):
            found.subscriptions(node)  # type: ignore[arg-type]
    assert found != partition([0, 2, 5], [1, 3, 5], [1, 1, 1], 1, 5)
    groups = Groups.of([0, 2, 5], [1, 3, 5], found.node)
    assert (groups.owners, groups.state_space) == (2, 2)
