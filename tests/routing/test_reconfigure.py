"""Reconfiguration against its rule written out over networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.graphs import random_graph, to_networkx
from gpumatch.routing.overlays.reconfigure import mean_hops, reconfigure
from gpumatch.routing.overlays.topology import Topology


def around(graph: nx.Graph, a: int, b: int) -> float:
    """Hops from a to b without their link."""
    less = graph.copy()
    less.remove_edge(a, b)
    return nx.shortest_path_length(less, a, b) if nx.has_path(less, a, b) else float("inf")


def least_loss(graph: nx.Graph, rate: Array, at: int, max_degree: int) -> tuple[float, int]:
    if graph.degree[at] < max_degree:
        return 0, -1
    hops = {to: around(graph, at, to) for to in graph[at]}
    return min((float("inf") if hops[to] == float("inf") else rate[at, to] * (hops[to] - 1), to) for to in graph[at])


def written_out(topology: Topology, rates: Array, max_degree: int, rounds: int) -> list[list[int]]:
    graph, rate = to_networkx(topology), rates + rates.T
    parts = {frozenset(part) for part in nx.connected_components(graph)}
    for _ in range(rounds):
        for at in sorted(graph):
            hops = nx.single_source_shortest_path_length(graph, at)
            gains = [(rate[at, to] * (hops[to] - 1), -to) for to in hops if to != at and to not in graph[at]]
            gain, other = max(gains, default=(0, -at))
            (own_loss, own), (its_loss, its) = (least_loss(graph, rate, end, max_degree) for end in (at, -other))
            if not gain > own_loss + its_loss:
                continue
            after = graph.copy()
            after.remove_edges_from([(end, gone) for end, gone in ((at, own), (-other, its)) if gone >= 0])
            after.add_edge(at, -other)
            if {frozenset(part) for part in nx.connected_components(after)} == parts:
                graph = after
    return sorted(sorted(link) for link in graph.edges)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, Array]:
    brokers = draw(st.integers(1, 10))
    links = draw(st.integers(brokers - 1, min(brokers * (brokers - 1) // 2, 2 * brokers)))
    topology = random_graph(brokers, 2 * links / brokers, draw(st.integers(0, 999)))
    if draw(st.booleans()) and brokers > 2:
        topology = topology.without(brokers=[draw(st.integers(0, brokers - 1))])
    highest = draw(st.sampled_from([1, 2, 5, 100]))
    rates = np.random.default_rng(draw(st.integers(0, 999))).integers(0, highest + 1, (brokers, brokers))
    return topology, rates


@given(cases(), st.integers(1, 6), st.integers(0, 3))
def test_links_are_those_of_the_rule(case: tuple[Topology, Array], max_degree: int, rounds: int) -> None:
    topology, rates = case
    found = reconfigure(topology, rates, max_degree, rounds)
    assert found.topology.links.tolist() == written_out(topology, rates, max_degree, found.rounds)
    assert found.rounds == rounds or found.settled


@given(cases(), st.integers(1, 6), st.one_of(st.none(), st.integers(0, 99)), st.booleans())
def test_nobody_is_parted_and_no_degree_passes_the_most(
    case: tuple[Topology, Array], max_degree: int, seed: int | None, only_better: bool
) -> None:
    topology, rates = case
    found = reconfigure(topology, rates, max_degree, rounds=5, seed=seed, only_better=only_better)
    after = found.topology
    assert ((after.distance >= 0) == (topology.distance >= 0)).all()
    assert (after.degrees <= np.maximum(topology.degrees, max_degree)).all()
    assert after.up.tolist() == topology.up.tolist()
    old, new = (set(map(tuple, each.links.tolist())) for each in (topology, after))
    assert set(map(tuple, found.added.tolist())) == new - old
    assert set(map(tuple, found.dropped.tolist())) == old - new
    assert len(found.added) <= found.exchanges
    np.testing.assert_allclose(found.hops_before, mean_hops(topology, rates))
    np.testing.assert_allclose(found.hops_after, mean_hops(after, rates))
    if only_better:
        assert not found.hops_after > found.hops_before
        assert found.hops_after < found.hops_before or found.exchanges == 0


@given(cases())
def test_mean_hops(case: tuple[Topology, Array]) -> None:
    topology, rates = case
    hops = dict(nx.all_pairs_shortest_path_length(to_networkx(topology)))
    pairs = [(a, b) for a in hops for b in hops[a] if a != b]
    total = sum(rates[a, b] for a, b in pairs)
    expected = sum(rates[a, b] * hops[a][b] for a, b in pairs) / total if total else float("nan")
    np.testing.assert_allclose(mean_hops(topology, rates), expected)
    plain = np.mean([hops[a][b] for a, b in pairs]) if pairs else float("nan")
    np.testing.assert_allclose(mean_hops(topology), plain)


def test_two_that_talk_get_a_link() -> None:
    ring = Topology(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)])
    rates = np.ones((6, 6))
    rates[0, 3] = 50
    with_room = reconfigure(ring, rates, max_degree=3, rounds=1)
    assert [0, 3] in with_room.added.tolist()
    assert with_room.dropped.tolist() == []
    full = reconfigure(ring, np.diag([50.0, 50.0, 50.0], 3), max_degree=2)
    assert {(0, 3), (1, 4)} <= set(map(tuple, full.topology.links.tolist()))
    assert full.topology.degrees.max() == 2
    assert full.hops_after < full.hops_before == 3


def test_a_link_that_is_the_only_way_is_never_dropped() -> None:
    line = Topology(4, [(0, 1), (1, 2), (2, 3)])
    rates = np.zeros((4, 4))
    rates[0, 2] = 1000
    for max_degree in (1, 2):  # with 2, broker 0 has a place, but 2 has none and needs both of its links
        found = reconfigure(line, rates, max_degree)
        assert found.topology.links.tolist() == line.links.tolist()
        assert (found.exchanges, found.rounds, found.settled) == (0, 1, True)
    assert reconfigure(line, rates, max_degree=3).added.tolist() == [[0, 2]]


def test_two_links_that_only_together_are_the_way_stay() -> None:
    """0 and 1 would each drop their link to the pair 3-4, which either could lose alone."""
    overlay = Topology(5, [(0, 2), (1, 2), (0, 3), (1, 4), (3, 4)])
    rates = np.zeros((5, 5))
    rates[0, 1], rates[0, 2], rates[1, 2] = 100, 1, 1
    found = reconfigure(overlay, rates, max_degree=2)
    assert found.topology.links.tolist() == overlay.links.tolist()
    assert (found.exchanges, found.rounds, found.settled) == (0, 1, True)
    assert [0, 1] in reconfigure(overlay, rates, max_degree=3).added.tolist()


def test_without_traffic_rounds_or_brokers_nothing_changes() -> None:
    overlay = random_graph(20, 3, seed=1)
    quiet = reconfigure(overlay, np.zeros((20, 20)), max_degree=5)
    assert quiet.topology.links.tolist() == overlay.links.tolist()
    assert np.isnan(quiet.hops_before)
    none = reconfigure(overlay, np.ones((20, 20)), max_degree=5, rounds=0)
    assert (none.exchanges, none.rounds, none.settled) == (0, 0, False)
    empty = reconfigure(Topology(0, []), np.empty((0, 0)), max_degree=3)
    assert empty.added.shape == empty.dropped.shape == (0, 2)


def test_a_seed_is_an_order() -> None:
    overlay, rates = random_graph(30, 3, seed=1), np.random.default_rng(1).integers(1, 101, (30, 30))
    by_seed = [reconfigure(overlay, rates, 3, rounds=2, seed=seed).topology.links.tolist() for seed in (None, 1, 1, 2)]
    assert by_seed[1] == by_seed[2]
    assert by_seed[0] != by_seed[1] != by_seed[3]


def test_the_hops_of_70_brokers_fall_as_in_the_thesis() -> None:
    before, after = [], []
    for seed in range(10):
        rates = np.triu(np.random.default_rng(1_000 + seed).integers(1, 101, (70, 70)), 1)
        found = reconfigure(random_graph(70, 3, seed), rates, max_degree=3, rounds=1)
        before.append(found.hops_before)
        after.append(found.hops_after)
    assert np.mean(before) == pytest.approx(3.97, rel=0.05)
    assert np.mean(after) == pytest.approx(3.51, rel=0.05)


@pytest.mark.parametrize(
    ("rates", "options", "message"),
    [
        (np.ones((2, 3)), {}, r"rates: expected a matrix of shape \(3, 3\), found \(2, 3\)"),
        (np.full((3, 3), -1), {}, "rates: expected numbers from 0 up"),
        (np.full((3, 3), np.nan), {}, "rates: expected numbers from 0 up"),
        (np.full((3, 3), np.inf), {}, "rates: expected numbers from 0 up"),
        (np.ones((3, 3)), {"max_degree": 0}, "max_degree of at least 1 and rounds of at least 0, found 0, 10"),
        (np.ones((3, 3)), {"rounds": -1}, "found 3, -1"),
    ],
)
def test_errors(rates: Array, options: dict[str, int], message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        reconfigure(Topology(3, [(0, 1), (1, 2)]), rates, **{"max_degree": 3, **options})


def test_hops_may_rise_unless_asked_not_to() -> None:
    """The docstring's ring: what two brokers gain, two others lose."""
    ring = Topology(6, [(at, (at + 1) % 6) for at in range(6)])
    rates = np.zeros((6, 6))
    rates[0, 3], rates[1, 4] = 100, 5
    freely, better = (reconfigure(ring, rates, max_degree=1, only_better=only) for only in (False, True))
    assert (freely.hops_before, round(freely.hops_after, 1)) == (3, 4.8)
    assert better.hops_after <= 3
    assert better.settled
