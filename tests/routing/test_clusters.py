"""Clusters: who is in which, and the topology inside each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.graphs import random_graph, waxman_graph
from gpumatch.routing.overlays.topology import Topology

LINE = Topology(5, [(0, 1), (1, 2), (2, 3), (3, 4)])


def test_a_line_of_two_clusters() -> None:
    clusters = Clusters(LINE, [[2, 1, 0], [2, 3, 4]])
    assert len(clusters) == 2
    assert [members.tolist() for members in clusters.members] == [[0, 1, 2], [2, 3, 4]]
    assert clusters.edge_brokers.tolist() == [2]
    assert [clusters.clusters_of(broker).tolist() for broker in range(5)] == [[0], [0], [0, 1], [1], [1]]
    first, second = clusters.sub(0), clusters.sub(1)
    assert first.links.tolist() == [[0, 1], [1, 2]]
    assert first.up.tolist() == [True, True, True, False, False]
    assert second.links.tolist() == [[2, 3], [3, 4]]
    assert second.path(2, 4) == [2, 3, 4]
    assert clusters.sub(0) is first
    assert repr(clusters) == "<Clusters: 2 over 5 brokers, 1 at the edge>"


def test_several_edge_brokers_and_a_cycle_of_clusters() -> None:
    ring = Topology(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2)])
    clusters = Clusters(ring, [[0, 1, 2], [2, 3, 4], [4, 5, 0], [0, 2]])
    assert clusters.edge_brokers.tolist() == [0, 2, 4]
    assert clusters.clusters_of(0).tolist() == [0, 2, 3]
    assert clusters.sub(0).links.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert clusters.sub(3).links.tolist() == [[0, 2]]


def test_a_broker_that_is_down_stays_a_member() -> None:
    clusters = Clusters(LINE.without(brokers=[2]), [[0, 1, 2], [2, 3, 4]])
    assert clusters.edge_brokers.tolist() == [2]
    assert clusters.sub(0).up.tolist() == [True, True, False, False, False]
    assert clusters.sub(1).distance[3, 4] == 1


def test_members_are_distinct_and_fixed() -> None:
    given = np.array([1, 0, 1])
    clusters = Clusters(Topology(2, [(0, 1)]), [given, {0}])
    assert [members.tolist() for members in clusters.members] == [[0, 1], [0]]
    with pytest.raises(ValueError, match="read-only"):
        clusters.members[0][0] = 1
    given[0] = 0


def test_nothing_and_one() -> None:
    assert len(Clusters(Topology(0, []), [])) == 0
    assert Clusters(Topology(0, []), []).edge_brokers.tolist() == []
    assert Clusters(Topology(1, []), [[0]]).clusters_of(0).tolist() == [0]
    assert Clusters(Topology(1, []), [[0], []]).sub(1).up.tolist() == [False]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([[0, 1, 2], [3, 4]], "the link 2-3 is in no cluster: make one of its ends an edge broker"),
        ([[0, 1, 2], [2, 3]], "broker 4 is in no cluster"),
        ([], "broker 0 is in no cluster"),
        ([[0, 1, 2, 3, 4, 5]], "there is no broker 5: they are numbered 0 to 4"),
        ([[0, 1, 2, 3, 4], [-1]], "there is no broker -1"),
        ([[0.5]], "expected broker numbers, found float64"),
    ],
)
def test_errors(members: list[list[int]], message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        Clusters(LINE, members)


def test_errors_of_lookups() -> None:
    clusters = Clusters(LINE, [range(5)])
    for cluster in (-1, 1):
        with pytest.raises(RoutingError, match=f"there is no cluster {cluster}: they are numbered 0 to 0"):
            clusters.sub(cluster)
    for broker in (-1, 5):
        with pytest.raises(RoutingError, match=f"there is no broker {broker}: they are numbered 0 to 4"):
            clusters.clusters_of(broker)
    with pytest.raises(RoutingError, match="size: expected at least one broker in a cluster, found 0"):
        Clusters.grow(LINE, 0)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32), st.booleans())
def test_grown_clusters_are_connected_and_hold_every_link(brokers: int, size: int, seed: int, local: bool) -> None:
    links = min(brokers * (brokers - 1) // 2, brokers * 3 // 2)
    degree = 2 * links / brokers
    topology = waxman_graph(brokers, degree, seed, alpha=0.05) if local else random_graph(brokers, degree, seed)
    clusters = Clusters.grow(topology, size, seed)  # which checks that every broker and link is in one
    for cluster, members in enumerate(clusters.members):
        inside = clusters.sub(cluster).distance[np.ix_(members, members)]
        assert (inside >= 0).all()
        assert len(members)
        others = [set(each.tolist()) for each in clusters.members[:cluster]]
        assert all(not set(members.tolist()) <= other for other in others)
    again = Clusters.grow(topology, size, seed)
    assert [each.tolist() for each in again.members] == [each.tolist() for each in clusters.members]


def test_grown_clusters_share_several_edge_brokers_and_lie_in_cycles() -> None:
    clusters = Clusters.grow(waxman_graph(100, 4, 1, alpha=0.05), 10, seed=1)
    shared: dict[tuple[int, int], int] = {}
    for broker in clusters.edge_brokers.tolist():
        mine = clusters.clusters_of(broker).tolist()
        for pair in {(a, b) for a in mine for b in mine if a < b}:
            shared[pair] = shared.get(pair, 0) + 1
    assert max(shared.values()) > 1
    assert len(shared) >= len(clusters)


def test_growing_what_is_apart_or_down() -> None:
    topology = LINE.without(links=[(1, 2)], brokers=[4])
    clusters = Clusters.grow(topology, 10)
    assert sorted(members.tolist() for members in clusters.members) == [[0, 1], [2, 3], [4]]
    assert len(Clusters.grow(Topology(0, []), 3)) == 0
    assert sorted(each.tolist() for each in Clusters.grow(LINE, 99).members) == [[0, 1, 2, 3, 4]]
