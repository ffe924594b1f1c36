"""Topologies against all simple paths, written out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.graphs import random_graph
from gpumatch.routing.overlays.topology import MOST_BROKERS, Topology


@st.composite
def topologies(draw: st.DrawFn, most: int = 8) -> Topology:
    brokers = draw(st.integers(1, most))
    pairs = list(combinations(range(brokers), 2))
    links = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    up = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=brokers, max_size=brokers))
    return Topology(brokers, links, np.array(up))


def shortest_paths(topology: Topology, start: int, end: int) -> list[list[int]]:
    """All of them, in dictionary order."""
    near = {at: set() for at in range(topology.brokers)}
    for a, b in topology.links.tolist():
        near[a].add(b)
        near[b].add(a)
    if not (topology.up[start] and topology.up[end]):
        return []
    paths = [[start]]
    for _ in range(topology.brokers):
        found = sorted(path for path in paths if path[-1] == end)
        if found:
            return found
        paths = [[*path, to] for path in paths for to in near[path[-1]] if to not in path]
    return []


@given(topologies())
def test_tables_are_those_of_the_first_shortest_path(topology: Topology) -> None:
    for start in range(topology.brokers):
        for end in range(topology.brokers):
            paths = shortest_paths(topology, start, end)
            found = (topology.distance[start, end], topology.next_hop[start, end], topology.parent[start, end])
            if not paths:
                assert found == (-1, -1, -1)
                with pytest.raises(RoutingError, match=f"broker {start} has no path to broker {end}"):
                    topology.path(start, end)
                continue
            first = paths[0]
            assert topology.path(start, end) == first
            if len(first) == 1:
                assert found == (0, -1, -1)
            else:
                assert found == (len(first) - 1, min(path[1] for path in paths), first[-2])


@given(topologies())
def test_the_paths_from_a_broker_are_a_tree_that_those_on_the_way_follow(topology: Topology) -> None:
    for start, end in np.argwhere(topology.distance > 0).tolist():
        path = topology.path(start, end)
        for place, at in enumerate(path):
            assert topology.path(start, at) == path[: place + 1]
            assert topology.path(at, end) == path[place:]


@given(topologies(), st.data())
def test_split_reaches_every_destination_once_along_its_path(topology: Topology, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, topology.brokers - 1))
    reached = np.flatnonzero(topology.distance[at] >= 0).tolist()
    wanted = data.draw(st.lists(st.sampled_from(reached), unique=True)) if reached else []
    messages = topology.split(at, wanted)
    assert sorted(to for part in messages.values() for to in part.tolist()) == sorted(set(wanted) - {at})
    for hop, part in messages.items():
        assert part.tolist() == sorted(part.tolist())
        assert all(topology.path(at, to)[1] == hop for to in part.tolist())


def test_split_takes_any_iterable_and_each_destination_once() -> None:
    line = Topology(4, [(0, 1), (1, 2), (2, 3)])
    for wanted in ([3, 1, 0, 3], {0, 1, 3}, np.array([3, 0, 1], np.uint8), (at for at in (0, 1, 3))):
        parts = line.split(1, wanted)
        assert {hop: part.tolist() for hop, part in parts.items()} == {0: [0], 2: [3]}
    assert line.split(1, []) == {}
    assert line.split(1, [1]) == {}


def test_split_names_who_cannot_be_reached() -> None:
    apart = Topology(9, [(0, 1)])
    with pytest.raises(RoutingError, match="broker 0 has no path to broker 4"):
        apart.split(0, [1, 4])
    with pytest.raises(RoutingError, match="no path to brokers 2, 3, 4, 5, 6 and 2 more"):
        apart.split(0, range(9))
    with pytest.raises(RoutingError, match="there is no broker 9: they are numbered 0 to 8"):
        apart.split(0, [9])
    with pytest.raises(RoutingError, match="there is no broker -1"):
        apart.split(0, [-1, 1])
    with pytest.raises(RoutingError, match="expected broker numbers, found float64"):
        apart.split(0, [1.5])


A, B, C, D, E, F, G, H = range(8)


def test_a_lost_link_changes_next_hops_only() -> None:
    """B reaches H through F and through G, and F is nearer; without B-F events from A to G pass E."""
    overlay = Topology(8, [(A, B), (A, C), (B, D), (D, E), (E, G), (B, F), (F, G), (F, H), (G, H)])
    assert (overlay.next_hop[B, H], overlay.distance[B, H]) == (F, 2)
    assert overlay.path(A, G) == [A, B, F, G]
    assert {hop: part.tolist() for hop, part in overlay.split(B, [E, G, H]).items()} == {D: [E], F: [G, H]}
    after = overlay.without(links=[(F, B)])
    assert after.path(A, G) == [A, B, D, E, G]
    assert after.path(B, H) == [B, D, E, G, H]
    assert {hop: part.tolist() for hop, part in after.split(B, [E, G, H]).items()} == {D: [E, G, H]}
    assert overlay.path(A, G) == [A, B, F, G]
    assert overlay.without(brokers=[F]).path(A, H) == [A, B, D, E, G, H]


def test_links_are_sorted_and_distinct() -> None:
    topology = Topology(5, [(3, 1), (1, 3), (0, 4), (2, 0)])
    assert topology.links.tolist() == [[0, 2], [0, 4], [1, 3]]
    assert topology.links.dtype == np.int64
    assert topology.degrees.tolist() == [2, 1, 1, 1, 1]
    assert topology.neighbours(0).tolist() == [2, 4]
    assert topology.neighbours(4).tolist() == [0]
    assert repr(topology) == "<Topology: 5 brokers, 3 links>"


def test_a_broker_that_is_down_has_no_links_and_reaches_nobody() -> None:
    topology = Topology(4, [(0, 1), (1, 2), (2, 3)], np.array([True, True, False, True]))
    assert topology.links.tolist() == [[0, 1]]
    assert topology.distance[2].tolist() == [-1, -1, -1, -1]
    assert topology.distance[3].tolist() == [-1, -1, -1, 0]
    assert topology.neighbours(2).tolist() == []
    assert "1 of them down" in repr(topology)
    with pytest.raises(RoutingError, match="broker 2 has no path to broker 2"):
        topology.path(2, 2)


@pytest.mark.parametrize("links", [[], (), np.empty((0, 2), np.int64), np.empty((0, 2))])
def test_without_links(links: object) -> None:
    none = Topology(0, links)
    assert none.distance.shape == none.next_hop.shape == none.parent.shape == (0, 0)
    three = Topology(3, links)
    assert three.distance.tolist() == [[0, -1, -1], [-1, 0, -1], [-1, -1, 0]]
    assert (three.next_hop == -1).all()
    assert (three.parent == -1).all()
    assert three.degrees.tolist() == [0, 0, 0]
    assert Topology(1, links).path(0, 0) == [0]


def test_tables_are_16_bit_and_cannot_be_written_to() -> None:
    topology = Topology(3, [(0, 1)])
    for table in (topology.distance, topology.next_hop, topology.parent):
        assert table.dtype == np.int16
    for array in (topology.links, topology.up, topology.distance, topology.next_hop, topology.parent):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_arrays_given_stay_the_callers() -> None:
    links, up = np.array([[1, 0]]), np.array([True, True])
    topology = Topology(2, links, up)
    links[0], up[0] = (0, 0), False
    assert topology.links.tolist() == [[0, 1]]
    assert topology.up.tolist() == [True, True]


@given(topologies(), st.data())
def test_changes_are_those_of_sets(topology: Topology, data: st.DataObject) -> None:
    links = list(map(tuple, topology.links.tolist()))
    lost = data.draw(st.lists(st.sampled_from(links), unique=True)) if links else []
    down = data.draw(st.lists(st.integers(0, topology.brokers - 1)))
    after = topology.without(links=lost, brokers=down)
    left = [link for link in links if link not in lost and not set(link) & set(down)]
    assert list(map(tuple, after.links.tolist())) == left
    assert after.up.tolist() == [bool(up) and at not in down for at, up in enumerate(topology.up)]
    live = np.flatnonzero(topology.up).tolist()
    free = [link for link in combinations(live, 2) if link not in links]
    new = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    changed = topology.with_changes(add=[link[::-1] for link in new], drop=lost)
    assert list(map(tuple, changed.links.tolist())) == sorted(set(links) - set(lost) | set(new))
    assert changed.up.tolist() == topology.up.tolist()


def test_a_dropped_link_may_be_added_again() -> None:
    topology = Topology(3, [(0, 1), (1, 2)])
    assert topology.with_changes(add=[(0, 1)], drop=[(0, 1)]).links.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology(-1, []), "expected 0 to 32,767 brokers, found -1"),
        (lambda: Topology(MOST_BROKERS + 1, []), "found 32,768"),
        (lambda: Topology(3, [(0, 3)]), "two different brokers of 0 to 2, found 0-3"),
        (lambda: Topology(3, [(0, 1), (-1, 2)]), "found -1-2"),
        (lambda: Topology(3, [(1, 1)]), "found 1-1"),
        (lambda: Topology(3, [(0, 2**62)]), "found 0-4611686018427387904"),
        (lambda: Topology(3, [(0, 1, 2)]), r"pairs of broker numbers, found int64 of shape \(1, 3\)"),
        (lambda: Topology(3, [0, 1]), r"pairs of broker numbers, found int64 of shape \(2,\)"),
        (lambda: Topology(3, [(0.0, 1.0)]), "pairs of broker numbers, found float64"),
        (lambda: Topology(3, [], np.array([True])), r"a bool for each of the 3 brokers, found bool of shape \(1,\)"),
        (lambda: Topology(3, [], np.array([1, 1, 0])), "found int64"),
        (lambda: Topology(3, []).neighbours(3), "there is no broker 3"),
        (lambda: Topology(3, []).neighbours(-1), "there is no broker -1"),
        (lambda: Topology(3, []).path(0, 7), "there is no broker 7"),
        (lambda: Topology(3, [(0, 1)]).without(links=[(1, 2)]), "cannot drop the link 1-2: there is none"),
        (lambda: Topology(3, []).without(brokers=[3]), "there is no broker 3"),
        (lambda: Topology(3, [(0, 1)]).with_changes(add=[(1, 0)]), "cannot add the link 0-1: it already exists"),
        (lambda: Topology(3, []).without(brokers=[2]).with_changes(add=[(0, 2)]), "0-2: it has an end that is down"),
    ],
)
def test_errors(make: object, message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        make()


def test_a_large_overlay() -> None:
    overlay = random_graph(1_000, 9, seed=1)
    pairs = np.random.default_rng(2).integers(0, 1_000, (200, 2)).tolist()
    for start, end in pairs:
        path = overlay.path(start, end)
        assert len(path) == overlay.distance[start, end] + 1
        assert start == end or overlay.parent[start, end] == path[-2]
    line = Topology(1_000, np.stack((np.arange(999), np.arange(1, 1_000)), axis=1))
    assert line.distance[0, 999] == 999
    assert line.parent[0].tolist() == list(range(-1, 999))


def test_connected() -> None:
    line = Topology(4, [(0, 1), (1, 2), (2, 3)])
    assert line.connected
    assert not line.without(links=[(1, 2)]).connected
    assert line.without(brokers=[0]).connected  # those that are up
    assert not line.without(brokers=[1]).connected
    assert Topology(0, []).connected
    assert Topology(1, []).connected
    assert not Topology(2, []).connected
    assert Topology(2, [], [False, False]).connected
    for seed in range(10):
        rng = np.random.default_rng(seed)
        some = Topology(8, np.argwhere(np.triu(rng.random((8, 8)) < 0.25, 1)), rng.random(8) < 0.7)
        assert some.connected == bool((some.distance[np.ix_(some.up, some.up)] >= 0).all())
