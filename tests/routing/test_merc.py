"""MERC: the thesis' example, several edge brokers, cycles of clusters, failures of edge brokers."""

from __future__ import annotations

import random

import pytest
from random_networks import SCHEMA, World, come_and_go, publish_under_failures, random_clusters, unsettle

from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.network import Delivery, Network
from gpumatch.routing.overlays.topology import Topology

# Fig. 5.0.1: A1..A4 are 0..3, AB is 4, B1..B6 are 5..10.
A1, A2, A3, A4, AB, B1, B2, B3, B4, B5, B6 = range(11)
LINKS = [(A1, A2), (A2, A3), (A3, AB), (A4, AB), (A1, A4)]
LINKS += [(AB, B1), (B1, B2), (B2, B3), (AB, B4), (B4, B5), (B5, B6), (B3, B6)]
EXAMPLE = Clusters(Topology(11, LINKS), [[A1, A2, A3, A4, AB], [AB, B1, B2, B3, B4, B5, B6]])


def example() -> tuple[Network, dict[int, int]]:
    network = Network(EXAMPLE, SCHEMA, "merc")
    ids = {A1: network.advertise(A1, "p1", "TRUE"), B5: network.advertise(B5, "p2", "TRUE")}
    network.run()
    for broker in (A3, B2, B6):
        ids[broker] = network.subscribe(broker, f"c{broker}", "px > 10")
    network.run()
    return network, ids


def test_tables_of_the_example() -> None:
    network, ids = example()
    edge = network.brokers[AB]
    assert {entry.id for entry in edge.clusters[0].advertisements} == {(ids[A1], A1)}
    assert {entry.id for entry in edge.clusters[1].advertisements} == {(ids[B5], B5)}
    assert {entry.id for entry in edge.clusters[0].subscriptions} == {(ids[A3], A3)}
    assert {entry.id for entry in edge.clusters[1].subscriptions} == {(ids[B2], B2), (ids[B6], B6)}
    # Of what comes from the other cluster the edge broker is the source.
    assert {entry.id for entry in network.brokers[A2].clusters[0].advertisements} == {(ids[A1], A1), (ids[B5], AB)}
    assert {entry.id for entry in network.brokers[A1].clusters[0].subscriptions} == {
        (ids[A3], A3),
        (ids[B2], AB),
        (ids[B6], AB),
    }
    assert {entry.id for entry in network.brokers[B5].clusters[1].subscriptions} == {
        (ids[A3], AB),
        (ids[B2], B2),
        (ids[B6], B6),
    }
    assert not network.duplicates


def test_an_event_of_the_example() -> None:
    network, _ = example()
    event = network.publish(A1, "p1", {"px": 11})
    network.run()
    assert set(network.deliveries) == {(event, broker, f"c{broker}") for broker in (A3, B2, B6)}
    assert len(network.deliveries) == 3
    assert network.reached(event) == [A1, A3, AB, B2, B6]  # matched at the source, the edge and the destinations
    assert sum(network.matches) == 5
    assert network.destination_lists["event"] == {1: 9}  # A1-A2-A3, A1-A4-AB, AB-B1-B2, AB-B4-B5-B6


def test_clients_of_an_edge_broker() -> None:
    network = Network(EXAMPLE, SCHEMA, "merc")
    network.subscribe(AB, "edge", "px > 10")
    network.subscribe(A2, "a", "px > 10")
    network.subscribe(B3, "b", "px > 10")
    network.advertise(AB, "p", "TRUE")
    network.advertise(A1, "q", "px > 0")
    network.run()
    first = network.publish(AB, "p", {"px": 11})
    second = network.publish(A1, "q", {"px": 12})
    network.run()
    homes = [(AB, "edge"), (A2, "a"), (B3, "b")]
    assert sorted(network.deliveries) == sorted((event, *home) for event in (first, second) for home in homes)
    assert not network.duplicates


def test_an_edge_broker_that_fails_cuts_its_clusters_apart_until_it_is_back() -> None:
    network, _ = example()
    network.fail_broker(AB)
    assert network.messages["overlay update"] == 5 + 7
    event = network.publish(A1, "p1", {"px": 11})
    network.run()
    assert network.deliveries == [Delivery(event, A3, "c2")]
    assert [message.destinations for message in network.pending] == [(AB,)]
    network.restore_broker(AB)
    network.run()
    assert len(network.deliveries) == 3


def test_changes_in_a_cluster_are_told_there_only() -> None:
    network, _ = example()
    network.fail_link(A1, A2)
    assert network.messages["overlay update"] == 5
    network.restore_link(A1, A2)
    network.fail_link(B1, B2)
    assert network.messages["overlay update"] == 5 + 5 + 7


def two_edges() -> Network:
    """Clusters {0, 1, 2, 3} and {2, 3, 4, 5} share the edge brokers 2 and 3."""
    links = [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5)]
    network = Network(Clusters(Topology(6, links), [[0, 1, 2, 3], [2, 3, 4, 5]]), SCHEMA, "merc")
    network.advertise(0, "p", "TRUE")
    network.subscribe(5, "far", "px > 0")
    network.subscribe(1, "near", "px > 0")
    network.subscribe(3, "edge", "px > 0")
    network.run()
    return network


def test_two_edge_brokers_deliver_once() -> None:
    network = two_edges()
    event = network.publish(0, "p", {"px": 1})
    network.run()
    assert sorted(network.deliveries) == [(event, 1, "near"), (event, 3, "edge"), (event, 5, "far")]
    assert network.duplicates["event"] >= 1  # broker 5 has it from both


@pytest.mark.parametrize("edge", [2, 3])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_one_of_two_edge_brokers_fails(edge: int, steps: int) -> None:
    network = two_edges()
    event = network.publish(0, "p", {"px": 1})
    for _ in range(steps):
        network.step()
    network.fail_broker(edge)
    network.run()
    expected = [(event, 1, "near"), (event, 3, "edge"), (event, 5, "far")]
    due = [one for one in expected if one[1] != edge or one in network.deliveries]
    assert sorted(network.deliveries) == due
    network.restore_broker(edge)
    network.run()
    assert sorted(network.deliveries) == expected


def test_a_cycle_of_clusters() -> None:
    """Three clusters in a ring, an edge broker between each two: 1 is A-B, 3 is B-C, 5 is C-A."""
    links = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 3), (3, 5), (1, 5)]
    ring = Clusters(Topology(6, links), [[5, 0, 1], [1, 2, 3], [3, 4, 5]])
    for failing in (None, 1, 3, 5):
        network = Network(ring, SCHEMA, "merc")
        network.advertise(0, "p", "TRUE")
        subscription = network.subscribe(2, "b", "px > 0")
        network.subscribe(4, "c", "px > 0")
        network.run()
        event = network.publish(0, "p", {"px": 1})
        if failing is not None:
            network.fail_broker(failing)
        network.run()
        assert sorted(network.deliveries) == [(event, 2, "b"), (event, 4, "c")]
        if failing is not None:
            network.restore_broker(failing)
        network.unsubscribe(subscription)
        network.run()
        assert sorted(network.deliveries) == [(event, 2, "b"), (event, 4, "c")]
        assert network.stored == [2, 1, 0, 1, 1, 1]  # at 4, at the edge brokers, and at 0 from both sides


def test_advertisements_and_subscriptions_that_end_leave_nothing() -> None:
    network, ids = example()
    network.unadvertise(ids[B5])
    network.run()
    assert network.stored[B5] == 0
    assert (ids[A3], A3) in network.brokers[AB].clusters[0].subscriptions  # an edge broker keeps it until it ends
    network.unsubscribe(ids[A3])
    network.unsubscribe(ids[B2])
    network.unadvertise(ids[A1])
    network.run()
    kept = {number: count for number, count in enumerate(network.stored) if count}
    assert kept == {AB: 1, B6: 1}  # the subscription that is left, at its broker and at the edge broker
    network.advertise(A2, "p", "TRUE")
    network.run()
    event = network.publish(A2, "p", {"px": 11})
    network.run()
    assert network.deliveries == [Delivery(event, B6, "c10")]


def test_an_advertisement_that_ends_among_cycles_of_clusters() -> None:
    links = [(0, 7), (0, 8), (1, 9), (2, 6), (2, 8), (3, 7), (4, 8), (5, 7), (6, 7), (7, 8), (8, 9)]
    members = [[3, 5, 7], [0, 7], [2, 5, 6, 7], [2, 4, 7, 8], [0, 1, 8, 9]]
    network = Network(Clusters(Topology(10, links), members), SCHEMA, "merc")
    network.subscribe(0, "c", "TRUE")
    network.advertise(1, "p", "TRUE")
    ending = network.advertise(2, "p", "TRUE")
    for _ in range(3):
        network.step()
    network.unadvertise(ending)
    for _ in range(100):
        network.step()
    assert network.in_flight == 0  # trails do not change for ever
    event = network.publish(1, "p", {"px": 1})
    network.run()
    assert network.deliveries == [Delivery(event, 0, "c")]


@pytest.mark.parametrize("seed", range(8))
def test_random_clusters(seed: int) -> None:
    rng = random.Random(300 + seed)
    world = World(Network(random_clusters(rng, rng.randint(1, 5)), SCHEMA, "merc"), rng)
    world.populate(5, 12)
    come_and_go(world)


@pytest.mark.parametrize("seed", range(10))
def test_random_clusters_with_failures(seed: int) -> None:
    rng = random.Random(400 + seed)
    world = World(Network(random_clusters(rng, rng.randint(2, 5)), SCHEMA, "merc"), rng)
    unsettle(world)
    publish_under_failures(world)


def test_needs_clusters() -> None:
    with pytest.raises(RoutingError, match="MERC needs Clusters"):
        Network(EXAMPLE.topology, SCHEMA, "merc")


def test_what_has_come_by_another_way_does_not_wait() -> None:
    clusters = Clusters(Topology(4, [(0, 1), (1, 2), (2, 3), (0, 3)]), [[0, 1, 2], [2, 3, 0]])
    network = Network(clusters, SCHEMA, "merc")
    network.advertise(1, "p", "TRUE")
    network.subscribe(3, "c", "TRUE")
    network.run()
    network.fail_link(0, 1)
    event = network.publish(1, "p", {"px": 1})
    network.run()
    assert network.deliveries == [Delivery(event, 3, "c")]
    assert all(event != message.id or message.destinations == (0,) for message in network.pending)
