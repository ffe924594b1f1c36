"""Filter-based routing: trees of advertisements, copies of subscriptions, matching at every hop, losses."""

from __future__ import annotations

import random

import pytest
from random_networks import SCHEMA, World, come_and_go, random_topology

from gpumatch.errors import RoutingError
from gpumatch.expr import parse
from gpumatch.routing.overlays.fbr import FilterBroker
from gpumatch.routing.overlays.messages import Subscription
from gpumatch.routing.overlays.network import Delivery, Network
from gpumatch.routing.overlays.overlap import Overlaps
from gpumatch.routing.overlays.topology import Topology

LINE = Topology(4, [(0, 1), (1, 2), (2, 3)])


def test_an_advertisement_is_flooded() -> None:
    # Each broker sends the first copy to all neighbours but the sender: degrees - 1 in sum, and one more at the source.
    rng = random.Random(7)
    links: set[tuple[int, int]] = {(at, at + 1) for at in range(99)}
    while len(links) < 300:
        a, b = sorted(rng.sample(range(100), 2))
        links.add((a, b))
    network = Network(Topology(100, sorted(links)), SCHEMA, "fbr")
    for broker in range(100):
        network.advertise(broker, "p", "TRUE")
    network.run()
    assert network.messages["advertisement"] == 100 * (2 * 300 - 99)
    # Thesis, 10.1.1: more than 38,000 duplicates of 100 advertisements in such an overlay.
    assert network.duplicates["advertisement"] == 100 * (2 * 300 - 99 - 99) == 40_200


def test_parents_are_the_first_and_lowest_senders() -> None:
    network = Network(Topology(4, [(0, 1), (0, 2), (1, 3), (2, 3)]), SCHEMA, "fbr")
    tree = network.advertise(0, "p", "TRUE")
    network.run()
    assert [broker.advertisements[tree].source for broker in network.brokers] == [
        (True, "p"),
        (False, 0),
        (False, 0),
        (False, 1),
    ]
    assert network.duplicates == {"advertisement": 2}


def test_subscriptions_are_stored_on_the_way_once_for_each_tree() -> None:
    network = Network(LINE, SCHEMA, "fbr")
    for _ in range(2):
        network.advertise(0, "p", "px > 0")
    network.advertise(0, "p", "px < 0")  # never matches
    network.run()
    subscription = network.subscribe(3, "c", "px > 10")
    network.run()
    assert network.stored == [2, 2, 2, 2]
    event = network.publish(0, "p", {"px": 11})
    assert network.run() == 3
    assert network.deliveries == [Delivery(event, 3, "c")]
    assert network.matches == [1, 1, 1, 1]  # at every hop
    assert network.reached(event) == [0, 1, 2, 3]
    network.unsubscribe(subscription)
    network.run()
    assert network.stored == [0, 0, 0, 0]


def test_a_subscription_before_its_advertisement_and_an_advertisement_that_ends() -> None:
    network = Network(LINE, SCHEMA, "fbr")
    network.subscribe(3, "c", "px > 10")
    network.subscribe(0, "near", "px > 10")
    advertisement = network.advertise(0, "p", "TRUE")
    network.run()
    event = network.publish(0, "p", {"px": 11})
    network.run()
    assert set(network.deliveries) == {(event, 3, "c"), (event, 0, "near")}
    network.unadvertise(advertisement)
    network.run()
    assert network.stored == [0, 0, 0, 0]
    with pytest.raises(RoutingError, match="satisfies no advertisement"):
        network.publish(0, "p", {"px": 11})


@pytest.mark.parametrize("seed", range(8))
def test_random_overlays(seed: int) -> None:
    rng = random.Random(200 + seed)
    world = World(Network(random_topology(rng), SCHEMA, "fbr"), rng)
    world.populate(5, 14)
    come_and_go(world)


def test_a_failure_loses_events() -> None:
    network = Network(Topology(3, [(0, 1), (0, 2), (1, 2)]), SCHEMA, "fbr")
    network.advertise(0, "p", "TRUE")
    network.run()
    network.subscribe(2, "c", "TRUE")
    network.run()
    network.publish(0, "p", {"px": 1})
    network.fail_link(0, 2)  # under way: lost
    network.publish(0, "p", {"px": 2})  # and so is what follows, though there is a path by broker 1
    network.run()
    assert not network.deliveries
    assert not network.pending
    assert network.lost == {"event": 2}
    assert network.messages["overlay update"] == 0
    network.restore_link(0, 2)
    event = network.publish(0, "p", {"px": 3})
    network.run()
    assert network.deliveries == [Delivery(event, 2, "c")]
    network.fail_broker(2)
    network.publish(0, "p", {"px": 4})
    assert network.lost["event"] == 3


def test_what_was_lost_before_a_failure_ended_does_no_harm() -> None:
    network = Network(LINE, SCHEMA, "fbr")
    network.fail_link(1, 2)
    advertisement = network.advertise(0, "p", "TRUE")
    subscription = network.subscribe(3, "c", "TRUE")
    network.run()
    network.restore_link(1, 2)
    network.unadvertise(advertisement)
    network.unsubscribe(subscription)
    network.run()
    assert network.stored == [0, 0, 0, 0]


def test_a_subscription_needs_a_tree() -> None:
    broker = FilterBroker(0, Overlaps(SCHEMA), [1])
    with pytest.raises(RoutingError, match="needs the tree"):
        broker.handle(Subscription(1, 1, (0,), expression=parse("TRUE")), 1)
