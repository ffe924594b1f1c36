"""Overlays to experiment on: as many links as asked, connected, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.graphs import from_networkx, random_graph, to_networkx, transit_stub_graph, waxman_graph
from gpumatch.routing.overlays.topology import Topology

Make = Callable[..., Topology]
both = pytest.mark.parametrize("make", [random_graph, waxman_graph])


def connected(topology: Topology) -> bool:
    return bool((topology.distance >= 0).all())


@both
@given(st.data())
def test_connected_and_of_the_degree_asked(make: Make, data: st.DataObject) -> None:
    brokers = data.draw(st.integers(1, 30))
    links = data.draw(st.integers(brokers - 1, brokers * (brokers - 1) // 2))
    overlay = make(brokers, 2 * links / brokers, data.draw(st.integers(0, 2**32)))
    assert overlay.brokers == brokers
    assert len(overlay.links) == links
    assert connected(overlay)


@both
@pytest.mark.parametrize(("brokers", "degree"), [(70, 3), (100, 6), (700, 6), (1_000, 9)])
def test_the_sizes_of_the_thesis(make: Make, brokers: int, degree: int) -> None:
    overlay = make(brokers, degree, 1)
    assert len(overlay.links) == brokers * degree // 2
    assert connected(overlay)


@both
def test_a_seed_is_a_graph(make: Make) -> None:
    assert make(50, 3, 5).links.tolist() == make(50, 3, 5).links.tolist()
    assert make(50, 3, 5).links.tolist() != make(50, 3, 6).links.tolist()


def test_random_links_prefer_nobody() -> None:
    """Drawn or mended, each of the 45 pairs is a link in a third of the graphs."""
    graphs = [random_graph(10, 3, seed) for seed in range(900)]
    times = np.zeros((10, 10))
    for graph in graphs:
        times[graph.links[:, 0], graph.links[:, 1]] += 1
    seen = times[np.triu_indices(10, 1)]
    assert seen.sum() == 900 * 15
    assert abs(seen - 300).max() < 75  # over five standard deviations


def test_as_many_links_as_a_tree_has_make_a_tree() -> None:
    """Hardly a draw is one: they are mended."""
    for seed in range(50):
        overlay = random_graph(6, 10 / 6, seed)
        assert len(overlay.links) == 5
        assert connected(overlay)


def test_waxman_links_are_short_and_the_shorter_the_smaller_alpha() -> None:
    mean = [
        np.mean([waxman_graph(80, 4, seed, alpha).distance.mean() for seed in range(5)]) for alpha in (0.05, 0.2, 50)
    ]
    uniform = np.mean([random_graph(80, 4, seed).distance.mean() for seed in range(5)])
    assert mean[0] > mean[1] > mean[2]
    assert mean[2] == pytest.approx(uniform, rel=0.05)
    assert connected(waxman_graph(30, 3, 0, alpha=1e-6))


@pytest.mark.parametrize("make", [random_graph, waxman_graph, lambda n, d: transit_stub_graph(n, 1, d)])
@pytest.mark.parametrize(
    ("brokers", "degree"), [(10, 1.5), (10, 9.5), (2, 0), (0, 0), (10, -1), (10, float("nan")), (10, float("inf"))]
)
def test_degrees_that_no_connected_graph_has(make: Make, brokers: int, degree: float) -> None:
    with pytest.raises(RoutingError, match=r"no connected graph has|expected 1 to 0 brokers in a cluster"):
        make(brokers, degree)


@pytest.mark.parametrize("alpha", [0, -1, float("nan")])
def test_alpha_is_above_0(alpha: float) -> None:
    with pytest.raises(RoutingError, match="alpha: expected a number above 0"):
        waxman_graph(10, 3, alpha=alpha)


def check_transit_stub(clusters: Clusters, brokers: int, links: int) -> None:
    """Every broker has one cluster, the transit nodes are in the backbone too, and each cluster is connected."""
    count = len(clusters) - 1
    assert clusters.topology.brokers == brokers
    assert len(clusters.topology.links) == links
    assert clusters.members[-1].tolist() == clusters.edge_brokers.tolist() == list(range(count))
    homes = np.concatenate(clusters.members[:-1])
    assert sorted(homes.tolist()) == list(range(brokers))
    for cluster, members in enumerate(clusters.members):
        assert cluster == count or (members < count).sum() == 1
        inside = clusters.sub(cluster).distance[np.ix_(members, members)]
        assert (inside >= 0).all()


def test_the_100_brokers_of_the_thesis() -> None:
    clusters = transit_stub_graph(100, 10, 6, seed=1)
    check_transit_stub(clusters, 100, 300)
    assert [len(members) for members in clusters.members] == [10] * 11
    assert len(clusters.sub(10).links) == 30


def test_the_1000_brokers_of_the_thesis() -> None:
    clusters = transit_stub_graph(1_000, 100, 9, seed=1)
    check_transit_stub(clusters, 1_000, 4_500)
    assert [len(members) for members in clusters.members] == [100] * 10 + [10]
    assert len(clusters.sub(10).links) == 45


@given(st.integers(2, 40), st.integers(1, 10), st.floats(1.9, 6), st.integers(0, 2**32))
def test_transit_stub_graphs_of_any_size(brokers: int, size: int, degree: float, seed: int) -> None:
    size = min(size, brokers // 2)
    try:
        clusters = transit_stub_graph(brokers, size, degree, seed)
    except RoutingError as error:
        assert "no connected graph" in str(error) or "take larger clusters" in str(error)  # noqa: PT017
        return
    check_transit_stub(clusters, brokers, round(brokers * degree / 2))


def test_one_cluster_has_no_backbone() -> None:
    clusters = transit_stub_graph(10, 10, 3)
    assert len(clusters) == 1
    assert clusters.edge_brokers.tolist() == []
    assert len(clusters.topology.links) == 15


def test_transit_stub_seeds_and_errors() -> None:
    one, again, other = (transit_stub_graph(40, 10, 4, seed).topology.links.tolist() for seed in (1, 1, 2))
    assert one == again != other
    with pytest.raises(RoutingError, match="leaves 50 links to 5 clusters of about 4 brokers, which hold 30 at most"):
        transit_stub_graph(20, 4, 6)
    for size in (0, 21):
        with pytest.raises(RoutingError, match=f"size: expected 1 to 20 brokers in a cluster, found {size}"):
            transit_stub_graph(20, size, 3)


def test_networkx_both_ways() -> None:
    graph = nx.Graph([("c", "a"), ("a", "b"), ("b", "b")])
    topology = from_networkx(graph)
    assert topology.brokers == 3
    assert topology.links.tolist() == [[0, 1], [1, 2]]
    back = to_networkx(topology.without(brokers=[0]))
    assert sorted(back.nodes) == [1, 2]
    assert list(back.edges) == [(1, 2)]
    assert from_networkx(nx.MultiGraph([(0, 1), (0, 1)])).links.tolist() == [[0, 1]]
    assert from_networkx(nx.Graph()).brokers == 0
    with pytest.raises(RoutingError, match="expected an undirected graph"):
        from_networkx(nx.DiGraph([(0, 1)]))


def test_nodes_are_numbered_in_the_graphs_order() -> None:
    graph = nx.Graph([("b", "a"), ("a", "c")])
    names = list(graph.nodes)
    topology = from_networkx(graph)
    assert names == ["b", "a", "c"]
    assert {(names[a], names[b]) for a, b in topology.links.tolist()} == {("b", "a"), ("a", "c")}
