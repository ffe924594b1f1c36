"""The simulation over arrays: small cases by hand, and random ones against one message at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from routing_plain import assert_agrees, random_case

import gpumatch as gm
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.graphs import random_graph, transit_stub_graph
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator.protocols import PROTOCOLS, ClusterRoutes, Costs
from gpumatch.routing.simulator.simulation import _departures, simulate
from gpumatch.routing.simulator.traffic import LATEST, Workload

LINE = Topology(4, [(0, 1), (1, 2), (2, 3)])
PLAIN = Costs(latency=100, receive=1, match=10, subscription=1, send=2, entry=3, subscriptions=5, edge_speed=1)


def one_event(destinations: list[int], source: int = 0, time: int = 0) -> Workload:
    return Workload(np.array([time]), np.array([source]), np.array([0, len(destinations)]), np.array(destinations))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_agrees_with_one_message_at_a_time(seed: int, protocol: str) -> None:
    found = assert_agrees(random_case(seed, protocol, failing=False))
    assert found.undelivered.shape[1] == 0
    assert found.counts.lost == found.counts.again == 0


def test_a_line_by_hand() -> None:
    """D-DBR matches everything at the source (10 + 20), and the own subscriptions (10 + 5) at destinations."""
    found = simulate(LINE, one_event([1, 3]), costs=PLAIN)
    at_source = 1 + 30 + 2 + 2 * 3
    at_1 = at_source + 100 + 1 + 15 + 2 + 3
    at_3 = at_1 + 100 + (1 + 2 + 3) + 100 + 1 + 15
    assert found.time.tolist() == [at_1, at_3]
    assert found.hops.tolist() == [1, 3]
    assert found.counts.sent.tolist() == [0, 1, 1, 1]
    assert found.counts.entries.tolist() == [0, 2, 1, 1]
    assert (found.mean_list, found.mean_source_list) == (4 / 3, 2)
    assert found.counts.matches.tolist() == [1, 1, 0, 1]
    assert found.counts.busy.tolist() == [at_source, 21, 6, 16]


def test_fbr_matches_at_every_hop() -> None:
    found = simulate(LINE, one_event([3]), "fbr", costs=PLAIN)
    assert found.counts.matches.tolist() == [1, 1, 1, 1]
    assert found.time.tolist() == [3 * (1 + 30 + 2 + 100) + 31]
    assert math.isnan(found.mean_list)
    assert found.messages == 3


def test_merc_matches_at_the_edge() -> None:
    """The thesis' line of two clusters: an event is matched three times, in D-DBR twice."""
    clusters = Clusters(LINE, [[0, 1, 2], [2, 3]])
    found = simulate(clusters, one_event([3]), "merc", PLAIN)
    assert found.counts.matches.tolist() == [1, 0, 1, 1]
    assert found.hops.tolist() == [3]
    fast = simulate(clusters, one_event([3]), "merc", Costs(100, 1, 10, 1, 2, 3, 5, edge_speed=8))
    assert found.counts.busy[2] // 8 == fast.counts.busy[2]


def test_two_edge_brokers_deliver_once() -> None:
    """A square: 0 and 3 are joined by the edge brokers 1 and 2, both of which carry the event across."""
    square = Topology(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    found = simulate(Clusters(square, [[0, 1, 2], [1, 2, 3]]), one_event([3]), "merc", PLAIN)
    assert found.broker.tolist() == [3]
    assert found.counts.duplicates == 1


def test_a_cycle_of_clusters_delivers_once() -> None:
    ring = Topology(6, [(a, (a + 1) % 6) for a in range(6)])
    clusters = Clusters(ring, [[0, 1, 2], [2, 3, 4], [4, 5, 0]])
    for source in range(6):
        found = simulate(clusters, one_event(list(range(6)), source), "merc", PLAIN)
        assert found.broker.tolist() == list(range(6))


def test_the_source_alone_and_nobody() -> None:
    own = simulate(LINE, one_event([2], source=2), costs=PLAIN)
    assert (own.time.tolist(), own.hops.tolist(), own.messages) == ([31], [0], 0)
    nobody = simulate(LINE, one_event([]), costs=PLAIN)
    assert (len(nobody.event), nobody.counts.matches.tolist()) == (0, [1, 0, 0, 0])
    assert math.isnan(nobody.delivered)
    nothing = simulate(LINE, Workload.random(4, 0, 1.0, 0.5, 1))
    assert len(nothing.event) == 0
    assert math.isnan(nothing.latency_ms(99))
    assert nothing.to_dict()["messages"] == 0


def test_brokers_without_a_path_are_named() -> None:
    parts = Topology(4, [(0, 1), (2, 3)])
    found = simulate(parts, one_event([1, 2, 3]))
    assert found.broker.tolist() == [1]
    assert found.undelivered.tolist() == [[0, 0], [2, 3]]
    assert found.delivered == 1 / 3


def test_queues_are_served_in_order() -> None:
    """Against the recursion itself, brokers busy at the start or not."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        m = int(rng.integers(1, 40))
        broker = np.sort(rng.integers(5, size=m))
        arrive = rng.integers(30, size=m)
        arrive = arrive[np.lexsort((arrive, broker))]
        service = rng.integers(1, 9, size=m)
        free = rng.integers(40, size=5)
        ready, expected = free.tolist(), []
        for b, a, s in zip(broker.tolist(), arrive.tolist(), service.tolist(), strict=True):
            ready[b] = max(a, ready[b]) + s
            expected.append(ready[b])
        assert _departures(broker, arrive, service, free).tolist() == expected
        assert free.tolist() == ready


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_larger_overlays_deliver_to_the_interested_once(protocol: str) -> None:
    clusters = transit_stub_graph(120, 20, 4, seed=4)
    topology = clusters.topology if protocol == "merc" else random_graph(120, 4, seed=4)
    workload = Workload.random(120, 60, 2000.0, 0.3, seed=2)
    seen: list[int] = []
    found = simulate(clusters if protocol == "merc" else topology, workload, protocol, progress=seen.append)
    assert found.broker.tolist() == workload.destinations.tolist()
    assert found.undelivered.shape == (2, 0)
    assert found.delivered == 1
    assert seen[-1] == len(workload.destinations)
    assert (found.latency > 0).all()
    if protocol != "merc":
        assert found.hops.tolist() == topology.distance[workload.sources[found.event], found.broker].tolist()
        assert found.counts.duplicates == 0


def test_fbr_saturates_first() -> None:
    topology, workload = random_graph(30, 4, 1), Workload.random(30, 150, 1000.0, 0.5, 1)
    d_dbr, fbr = (simulate(topology, workload, protocol) for protocol in ("d-dbr", "fbr"))
    assert fbr.latency_ms() > 5 * d_dbr.latency_ms()
    assert fbr.utilisation.max() > 0.9
    assert fbr.utilisation.max() <= 1


def test_groups_behind_a_cell() -> None:
    """Clusters in a line A-B-C: from B both sides lie behind their own edge broker, from A all lies behind one."""
    routes = ClusterRoutes(
        Topology(5, [(0, 1), (1, 2), (2, 3), (3, 4)]), [np.array(m) for m in ([0, 1], [1, 2, 3], [3, 4])]
    )
    cells = routes.cell[[0, 1, 2], [0, 1, 4]]
    for cell, interested, listed in (
        (0, [4], [1]),
        (1, [0, 4], [1, 3]),
        (1, [0], [1]),
        (2, [2, 3, 4], [3, 4]),
        (1, [], []),
    ):
        row = np.zeros(len(interested), np.int64)
        found = routes.lists(cells[[cell]], row, np.array(interested, np.int64))[1]
        assert found.tolist() == listed


def test_workload_of_a_matcher() -> None:
    matcher = gm.Matcher({"px": "float64"}, index="scan")
    matcher.add({1: "px > 5", 2: "px > 8"}, destination=[3, 0])
    matcher.add({3: "px < 2"}, destination=2)
    events = [{"px": 9.0}, {"px": 6.0}, {"px": 3.0}, {"px": 1.0}]
    workload = Workload.of_matcher(matcher, events, np.arange(4) * 1000, [1, 1, 1, 2])
    assert workload.offsets.tolist() == [0, 2, 3, 3, 4]
    assert workload.destinations.tolist() == [0, 3, 3, 2]
    found = simulate(LINE, workload)
    assert list(zip(found.event.tolist(), found.broker.tolist(), strict=True)) == [(0, 0), (0, 3), (1, 3), (3, 2)]
    named = gm.Matcher({"px": "float64"}, index="scan")
    named.add({1: "px > 5"}, destination="d1")
    with pytest.raises(RoutingError, match="expected broker numbers"):
        Workload.of_matcher(named, events, np.arange(4), np.zeros(4, int))


def test_random_workloads_repeat() -> None:
    a, b, other = (Workload.random(50, 40, 10.0, 0.3, seed) for seed in (1, 1, 2))
    assert a.destinations.tolist() == b.destinations.tolist() != other.destinations.tolist()
    assert np.diff(a.offsets).tolist() == [15] * 40
    assert Workload.random(5, 3, 1.0, 1.0, 1).destinations.tolist() == [0, 1, 2, 3, 4] * 3
    assert len(Workload.random(5, 3, 1.0, 0.0, 1).destinations) == 0


@pytest.mark.parametrize(
    ("times", "sources", "offsets", "destinations", "message"),
    [
        ([0.5], [0], [0, 0], [], "whole numbers"),
        ([0], [0, 1], [0, 0], [], "expected 1 sources and 2 offsets, found 2 sources and 2 offsets"),
        ([5, 4], [0, 0], [0, 0, 0], [], "must not fall"),
        ([-1], [0], [0, 0], [], "must not fall"),
        ([LATEST], [0], [0, 0], [], "must not fall"),
        ([0], [0], [0, 2], [1], "offsets must rise"),
        ([0], [0], [0, 2], [2, 1], "distinct and ascending"),
        ([0], [0], [0, 2], [1, 1], "distinct and ascending"),
    ],
)
def test_bad_workloads(times: list, sources: list, offsets: list, destinations: list, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(RoutingError, match=message):
        Workload(times, sources, offsets, destinations)  # type: ignore[arg-type]


def test_bad_arguments() -> None:
    work = one_event([1])
    with pytest.raises(RoutingError, match="one of d-dbr, merc, fbr, found 'flood'"):
        simulate(LINE, work, "flood")
    with pytest.raises(RoutingError, match=r"merc needs Clusters\(topology, members\) as overlay, found a Topology"):
        simulate(LINE, work, "merc")
    with pytest.raises(RoutingError, match="destinations: there is no broker 4"):
        simulate(LINE, one_event([4]))
    with pytest.raises(RoutingError, match="sources: there is no broker 9"):
        simulate(LINE, one_event([1], source=9))
    with pytest.raises(RoutingError, match="latency: expected a whole number from 1 to 1,000,000,000,000, found 0"):
        Costs(latency=0)
    for bad in ({"rate": 0.0}, {"rate": math.nan}, {"interested": 1.5}, {"brokers": 0}, {"events": -1}):
        given = {"brokers": 4, "events": 1, "rate": 1.0, "interested": 0.5, "seed": 1, **bad}
        with pytest.raises(RoutingError):
            Workload.random(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["d-dbr", "fbr"])
def test_without_merc_clusters_are_their_topology(protocol: str) -> None:
    clusters = transit_stub_graph(20, 5, 3, seed=1)
    workload = Workload.random(20, 10, 100.0, 0.5, seed=1)
    whole, plain = (simulate(overlay, workload, protocol) for overlay in (clusters, clusters.topology))
    assert whole.time.tolist() == plain.time.tolist()
    assert whole.counts.busy.tolist() == plain.counts.busy.tolist()


def test_utilisation_is_of_the_time_there_is_work() -> None:
    """From the first event, though it comes late, to the last work, though nothing is delivered."""
    own = simulate(LINE, one_event([2], source=2, time=1_000_000), costs=PLAIN)
    assert own.utilisation.tolist() == [0, 0, 1, 0]
    nobody = simulate(LINE, one_event([]), costs=PLAIN)
    assert nobody.utilisation.tolist() == [1, 0, 0, 0]
    far = simulate(LINE, one_event([1]), costs=PLAIN)
    assert far.utilisation.tolist() == (far.counts.busy / far.time[0]).tolist()
    assert simulate(LINE, Workload.random(4, 0, 1.0, 0.5, 1)).utilisation.tolist() == [0] * 4


def test_short_reprs() -> None:
    parts = Topology(4, [(0, 1), (2, 3)])
    work = one_event([1, 2, 3])
    assert repr(work) == "<Workload: 1 events in 0 s, 3 deliveries asked for>"
    assert repr(simulate(parts, work)) == "<Simulated: d-dbr, 1 events, 33.3% of 3 delivered, 1 messages>"
    assert repr(simulate(parts, one_event([]))) == "<Simulated: d-dbr, 1 events, nothing to deliver, 0 messages>"
    assert repr(Workload.random(4, 0, 1.0, 0.5, 1)) == "<Workload: 0 events in 0 s, 0 deliveries asked for>"
