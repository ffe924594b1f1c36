"""Things of the wrong type: an error that says what was expected, and what to do where that is clear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

import gpumatch as gm
from gpumatch.errors import RoutingError
from gpumatch.routing import (
    Change,
    Clusters,
    Costs,
    Failures,
    Network,
    Topology,
    Workload,
    destination_lists,
    from_networkx,
    mean_hops,
    random_failures,
    random_graph,
    reconfigure,
    simulate,
    to_networkx,
    transit_stub_graph,
    waxman_graph,
)

RING = Topology(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
WORK = Workload.random(4, 2, 1.0, 0.5, 1)
CLUSTERS = Clusters(RING, [[0, 1, 2, 3]])
RATES = np.ones((4, 4))


@pytest.mark.parametrize(
    "call",
    [
        lambda graph: simulate(graph, WORK),
        lambda graph: Clusters(graph, [[0, 1]]),
        lambda graph: Clusters.grow(graph, 2),
        lambda graph: destination_lists(graph, [0], np.ones((1, 4), bool)),
        lambda graph: reconfigure(graph, RATES, 3),
        mean_hops,
        random_failures,
        to_networkx,
    ],
)
def test_a_graph_is_no_topology(call: Callable[[Any], Any]) -> None:
    with pytest.raises(RoutingError, match=r"expected Topology.*, found Graph; from_networkx\(graph\) turns"):
        call(nx.path_graph(4))
    with pytest.raises(RoutingError, match=r"expected Topology.*, found list$"):
        call([(0, 1)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reconfigure(CLUSTERS, RATES, 3), "topology: expected Topology, found Clusters; pass the .topology of"),
        (lambda: reconfigure(RING, RATES, 2.5), "max_degree: expected a whole number, found float 2.5"),
        (lambda: from_networkx([(0, 1)]), "expected a graph of networkx, found list"),
        (lambda: Topology("3", []), "brokers: expected a whole number, found str '3'"),
        (lambda: Topology(3, 5), "expected pairs of broker numbers, found int 5"),
        (lambda: Topology(3, [(0, 1), (2,)]), "expected pairs of broker numbers, found list"),
        (lambda: RING.path("a", 1), "broker: expected a broker number, found str 'a'"),
        (lambda: RING.without(brokers=2), "expected broker numbers, found int 2"),
        (lambda: random_graph("5", 3), "brokers: expected a whole number, found str '5'"),
        (lambda: random_graph(5, "3"), "degree: expected a number, found str '3'"),
        (lambda: waxman_graph(5, 3, alpha="x"), "alpha: expected a number"),
        (lambda: transit_stub_graph(20, 2.5, 3), "size: expected a whole number, found float 2.5"),
        (lambda: Clusters.grow(RING, 2.5), "size: expected a whole number, found float 2.5"),
        (lambda: Clusters(RING, [0, 1, 2, 3]), r"members: expected the brokers of each cluster, such as \[\["),
        (lambda: Clusters(RING, 4), "members: expected the brokers of each cluster"),
        (lambda: Workload.random("4", 1, 1.0, 0.5, 1), "brokers: expected a whole number"),
        (lambda: Workload.random(4, 1.5, 1.0, 0.5, 1), "events: expected a whole number"),
        (lambda: Workload.random(4, 1, "1", 0.5, 1), "rate: expected a number"),
        (lambda: simulate(RING, gm.Matcher({"x": "int64"})), r"found Matcher; Workload.of_matcher\(matcher, events"),
        (lambda: simulate(RING, WORK, costs={"latency": 5}), r"costs: expected Costs, found dict; .*Costs\(latency="),
        (lambda: simulate(RING, WORK, "d-dbr", CLUSTERS), "found Clusters; .*clusters are the overlay"),
        (lambda: simulate(RING, WORK, failures=[Change(1, 2)]), r"failures: expected Failures, found list; Failures\("),
        (lambda: simulate(RING, WORK, failures=random_failures(RING)), r"found Losses; .*losses.changes\(time\)"),
        (
            lambda: Failures(random_failures(RING)),
            r"changes: expected a list of Change, found Losses; .*changes\(time\)",
        ),
        (lambda: Failures(Change(1, 2)), "changes: expected a list of Change, found Change"),
        (lambda: Failures([Change(1, 2), (3, 4)]), "changes: expected Change, found tuple"),
        (lambda: Costs(latency=1.5), "latency: expected a whole number"),
    ],
)
def test_slips(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        call()


def test_numbers_of_numpy_are_welcome() -> None:
    four = np.int64(4)
    assert Topology(four, RING.links).brokers == 4
    assert type(Topology(four, RING.links).brokers) is int
    assert random_graph(np.int32(5), np.float32(3)).brokers == 5
    assert len(Clusters.grow(RING, np.int64(4))) == 1
    assert reconfigure(RING, RATES, np.int64(3)).rounds > 0
    assert RING.path(np.int16(0), np.uint8(2)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("destinations", "message"),
    [
        (([0, 1], [1.7]), "destinations: expected whole numbers, found float64"),
        (([0, 1], ["2"]), "destinations: expected whole numbers"),
        (([0, 1], [True]), "destinations: expected whole numbers, found bool"),
        ([[1], [2, 3]], "destinations: expected an array, found rows of different lengths"),
    ],
)
def test_destinations_are_not_rounded(destinations: Any, message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        destination_lists(Topology(4, [(0, 1), (1, 2), (2, 3)]), [0], destinations)


@pytest.mark.parametrize("latency", [True, 1.5, 0, 2**62])
def test_costs_have_bounds(latency: Any) -> None:
    with pytest.raises(RoutingError, match=r"latency: expected a whole number from 1 to 1,000,000,000,000"):
        Costs(latency=latency)


def test_ends_of_links_are_brokers() -> None:
    network = Network(Topology(2, [(0, 1)]), {"px": "int64"})
    for wrong in ("a", None, True, 1.0):
        with pytest.raises(RoutingError, match="broker: expected a broker number"):
            network.fail_link(0, wrong)  # type: ignore[arg-type]


def test_a_match_takes_a_bounded_time() -> None:
    with pytest.raises(RoutingError, match="takes 4,000,000,000,000,100,000 nanoseconds: expected at most"):
        simulate(RING, WORK, "d-dbr", Costs(subscription=10**12, subscriptions=10**6))


def test_graphs_of_too_many_brokers() -> None:
    with pytest.raises(RoutingError, match=r"brokers: expected at most 10,000, .* found 40,000"):
        random_graph(40_000, 3)


def test_what_is_repaired_may_fail_again_at_the_same_time() -> None:
    changes = [Change(5, 1), Change(10, 1), Change(10, 1, up=True)]
    for order in (changes, changes[::-1]):
        assert simulate(RING, WORK, failures=Failures(order)).delivered <= 1.0
