"""D-DBR message by message: the thesis' example, exactly-once delivery on random overlays, failures."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_networks import (
    SCHEMA,
    Duties,
    World,
    publish_under_failures,
    random_clusters,
    random_topology,
    unsettle,
)

import gpumatch as gm
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.messages import Event
from gpumatch.routing.overlays.network import Delivery, Network
from gpumatch.routing.overlays.topology import Topology

A, B, C, D, E, F, G, H = range(8)
# Brokers A to H as the text of Fig. 4.1.1 has them: B reaches H through F or G by F; without B-F, A reaches G by E.
EXAMPLE = Topology(8, [(A, B), (A, C), (A, E), (C, D), (B, F), (E, G), (F, G), (F, H), (G, H)])


def example() -> tuple[Network, dict[int, int]]:
    """The network with a1 at A and s1, s2, s3 at B, E and G; the ids of these by broker."""
    network = Network(EXAMPLE, SCHEMA)
    ids = {A: network.advertise(A, "pub-c1", "px >= 0")}
    network.run()
    for broker, client in ((B, "sub-c1"), (E, "sub-c2"), (G, "sub-c3")):
        ids[broker] = network.subscribe(broker, client, "px > 10")
    network.run()
    return network, ids


def test_tables_of_the_example() -> None:
    network, ids = example()
    source = network.brokers[A]
    assert [entry.id for entry in source.local_advertisements] == [ids[A]]
    assert {entry.id for entry in source.clusters[0].subscriptions} == {(ids[b], b) for b in (B, E, G)}
    for broker in range(1, 8):
        held = network.brokers[broker]
        assert [entry.id for entry in held.clusters[0].advertisements] == [(ids[A], A)]
        assert [entry.id for entry in held.local_subscriptions] == ([ids[broker]] if broker in ids else [])
        assert len(held.clusters[0].subscriptions) == 0
    assert network.stored == [3, 1, 0, 0, 1, 0, 1, 0]
    assert network.messages["advertisement"] == 7  # a tree over all brokers: no duplicates
    assert network.messages["subscription"] == 1 + 1 + 2
    assert not network.duplicates


def test_an_event_of_the_example() -> None:
    network, _ = example()
    event = network.publish(A, "pub-c1", {"px": 11})
    assert network.run() == 2
    assert network.deliveries == [
        Delivery(event, B, "sub-c1"),
        Delivery(event, E, "sub-c2"),
        Delivery(event, G, "sub-c3"),
    ]
    assert network.reached(event) == [A, B, E, G]
    assert network.matches == [1, 1, 0, 0, 1, 0, 1, 0]  # at the source and at the destinations, nowhere between
    assert network.destination_lists["event"] == {1: 2, 2: 1}  # A to B, A to E with E and G, E to G
    quiet = network.publish(A, "pub-c1", {"px": 5})
    assert network.run() == 0
    assert network.reached(quiet) == [A]


def test_next_hops_of_the_example() -> None:
    assert EXAMPLE.next_hop[B, H] == F
    assert EXAMPLE.without([(B, F)]).path(A, G) == [A, E, G]


def test_a_lost_link_of_the_example() -> None:
    network = Network(EXAMPLE, SCHEMA)
    network.advertise(A, "p", "TRUE")
    network.run()
    network.subscribe(H, "c", "px > 10")
    network.run()
    event = network.publish(A, "p", {"px": 11})
    network.step()  # it is at B now, and on its way to F
    network.fail_link(B, F)
    assert network.messages["overlay update"] == 8
    assert network.run() == 4  # on from B: by A, E and G
    assert network.deliveries == [Delivery(event, H, "c")]
    assert network.resent == {"event": 1}
    assert network.stored == [1, 0, 0, 0, 0, 0, 0, 1]  # no table of the matching layer has changed


def test_a_subscription_before_its_advertisement() -> None:
    network = Network(EXAMPLE, SCHEMA)
    subscription = network.subscribe(H, "early", "px > 10 AND px < 20")
    assert network.in_flight == 0
    network.advertise(A, "p", "px > 15")
    network.advertise(D, "q", "px > 19")  # cannot match
    network.run()
    assert network.stored == [1, 0, 0, 0, 0, 0, 0, 1]
    event = network.publish(A, "p", {"px": 16})
    network.run()
    assert network.deliveries == [Delivery(event, H, "early")]
    network.unsubscribe(subscription)
    network.run()
    assert network.stored == [0] * 8


def test_an_advertisement_that_ends() -> None:
    network = Network(EXAMPLE, SCHEMA)
    first, second = network.advertise(A, "p", "px > 15"), network.advertise(A, "p", "px < 15")
    network.subscribe(H, "c", "px > 10 AND px < 20")
    network.subscribe(G, "c", "px > 20")
    network.run()
    assert network.stored[A] == 2
    network.unadvertise(first)
    network.run()
    assert network.stored[A] == 1  # that of H overlaps the second
    with pytest.raises(RoutingError, match="satisfies no advertisement of client 'p'"):
        network.publish(A, "p", {"px": 16})
    network.unadvertise(second)
    network.run()
    assert network.stored == [0, 0, 0, 0, 0, 0, 1, 1]
    network.advertise(A, "p", "TRUE")
    network.run()
    event = network.publish(A, "p", {"px": 16})
    network.run()
    assert network.deliveries == [Delivery(event, H, "c")]


def test_clients_of_the_source_and_of_one_broker() -> None:
    network = Network(Topology(1, []), SCHEMA)
    network.advertise(0, 7, "TRUE")
    network.subscribe(0, 7, "px = 1")
    network.subscribe(0, 7, "px < 5")
    network.subscribe(0, "x", "px = 2")
    ids = network.publish(0, 7, [{"px": 1}, {"px": 2}, {"px": 9}])
    assert network.in_flight == 0
    # A client whose two subscriptions match gets the event once.
    assert network.deliveries == [(ids[0], 0, 7), (ids[1], 0, 7), (ids[1], 0, "x")]
    assert network.publish(0, 7, []) == []


def test_withdrawals_overtake_what_they_withdraw() -> None:
    # The subscription is at 1 when the link on is lost: it goes back by 2 and round the ring, behind the withdrawal.
    network = Network(Topology(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]), SCHEMA)
    network.advertise(0, "p", "TRUE")
    network.run()
    subscription = network.subscribe(2, "c", "TRUE")
    network.step()
    network.fail_link(0, 1)
    network.unsubscribe(subscription)
    network.run()
    assert network.stored == [0] * 5
    assert network.duplicates == {"subscription": 1}


def test_what_has_no_path_waits() -> None:
    network = Network(Topology(4, [(0, 1), (1, 2), (1, 3)]), SCHEMA)
    network.advertise(0, "p", "TRUE")
    network.subscribe(2, "c", "TRUE")
    network.subscribe(3, "d", "TRUE")
    network.run()
    network.fail_broker(2)
    event = network.publish(0, "p", {"px": 1})
    network.run()
    assert network.deliveries == [Delivery(event, 3, "d")]
    assert network.pending == [Event(event, 0, (2,), 0, frozenset({0}), network.pending[0].serial, values={"px": 1})]
    with pytest.raises(RoutingError, match="broker 2 is down"):
        network.subscribe(2, "c", "TRUE")
    network.restore_broker(2)
    network.run()
    assert network.deliveries == [Delivery(event, 3, "d"), Delivery(event, 2, "c")]
    assert not network.pending


def test_a_source_that_fails_sends_again_when_it_is_back() -> None:
    network = Network(Topology(3, [(0, 1), (1, 2)]), SCHEMA)
    network.advertise(0, "p", "TRUE")
    network.subscribe(2, "c", "TRUE")
    network.run()
    event = network.publish(0, "p", {"px": 1})
    network.fail_broker(0)
    assert network.run() == 0
    network.restore_broker(0)
    network.run()
    assert network.deliveries == [Delivery(event, 2, "c")]


DOINGS = ["fail", "fail", "restore", "publish", "step"]


def forked() -> tuple[Network, int]:
    """An event from 0 to 2 that is at 1, which may also send it by 3."""
    network = Network(Topology(4, [(0, 1), (1, 2), (1, 3), (2, 3)]), SCHEMA)
    network.advertise(0, "p", "TRUE")
    network.subscribe(2, "c", "TRUE")
    network.run()
    event = network.publish(0, "p", {"px": 1})
    network.step()
    return network, event


def test_a_broker_that_loses_the_next_hop_sends_by_another_way() -> None:
    network, event = forked()
    network.fail_broker(0)
    network.fail_link(1, 2)
    assert network.run() == 2
    assert network.deliveries == [Delivery(event, 2, "c")]
    assert network.resent == {"event": 1}
    network.restore_broker(0)
    assert network.in_flight == 0


def test_a_broker_without_a_path_holds_what_it_has() -> None:
    network, event = forked()
    network.fail_broker(0)
    network.fail_broker(2)
    assert [(message.id, message.destinations) for message in network.pending] == [(event, (2,))]
    network.restore_broker(2)
    network.run()
    assert network.deliveries == [Delivery(event, 2, "c")]


def test_what_a_broker_holds_is_gone_with_it() -> None:
    network, event = forked()
    network.fail_broker(0)
    network.fail_broker(1)
    network.restore_broker(1)
    assert network.run() == 0
    assert len(network.pending) == 1
    network.restore_broker(0)
    assert network.run() == 2
    assert network.deliveries == [Delivery(event, 2, "c")]


def test_the_source_sends_where_the_holder_has_no_path() -> None:
    network = Network(Topology(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]), SCHEMA)
    network.advertise(0, "p", "TRUE")
    network.subscribe(2, "c", "TRUE")
    network.run()
    event = network.publish(0, "p", {"px": 1})
    network.step()
    network.fail_link(0, 1)
    network.fail_link(1, 2)  # 1 is alone with it
    assert network.run() == 3
    assert network.deliveries == [Delivery(event, 2, "c")]
    network.restore_link(1, 2)
    assert network.in_flight == 0


@given(st.integers(0, 1 << 32), st.booleans(), st.lists(st.sampled_from(DOINGS), min_size=15, max_size=30))
def test_whoever_holds_a_message_delivers_it(seed: int, merc: bool, doings: list[str]) -> None:
    rng = random.Random(seed)
    overlay = random_clusters(rng, rng.randint(1, 4)) if merc else random_topology(rng)
    world = World(Network(overlay, SCHEMA, "merc" if merc else "d-dbr"), rng)
    world.populate(2, 6)
    world.network.run()
    world.publish(3)
    duties = Duties(world.network)
    do = {
        "fail": lambda: world.fail_something(split=True),
        "restore": world.restore_something,
        "publish": lambda: world.publish(1),
        "step": duties.step,
    }
    duties.check()
    for doing in doings:
        do[doing]()
        duties.check()
    while world.network.in_flight:
        duties.step()
        duties.check()
    assert world.given() <= world.expected
    world.restore_all()
    world.network.run()
    assert not world.network.pending
    assert world.given() == world.expected
    assert merc or not world.network.duplicates


@pytest.mark.parametrize("seed", range(8))
def test_random_overlays(seed: int) -> None:
    rng = random.Random(seed)
    world = World(Network(random_topology(rng), SCHEMA), rng)
    world.populate(5, 14)
    world.network.run()
    world.check_tables()
    world.publish(8)
    world.network.run()
    assert world.given() == world.expected
    for event, source in world.sources.items():
        assert world.network.reached(event) == sorted({source} | {b for e, b, _ in world.expected if e == event})
    assert not world.network.duplicates
    for _ in range(3):
        world.withdraw()
    world.network.step()
    world.advertise()
    world.subscribe()
    world.network.run()
    world.check_tables()
    world.publish(6)
    world.network.run()
    assert world.given() == world.expected


@pytest.mark.parametrize("seed", range(12))
def test_random_overlays_with_failures(seed: int) -> None:
    rng = random.Random(100 + seed)
    world = World(Network(random_topology(rng), SCHEMA), rng)
    unsettle(world)
    world.check_tables()
    publish_under_failures(world)
    assert not world.network.duplicates["event"]


def test_errors() -> None:
    network = Network(EXAMPLE, SCHEMA)
    with pytest.raises(RoutingError, match="expected 'd-dbr', 'merc' or 'fbr', found 'x'"):
        Network(EXAMPLE, SCHEMA, "x")  # type: ignore[arg-type]
    with pytest.raises(RoutingError, match="no broker 8"):
        network.subscribe(8, "c", "TRUE")
    with pytest.raises(gm.SchemaError, match="unknown attribute 'z'"):
        network.subscribe(A, "c", "z = 1")
    advertisement = network.advertise(A, "p", "px > 5")
    with pytest.raises(RoutingError, match="no subscription 2; the id is of an advertisement"):
        network.unsubscribe(advertisement)
    with pytest.raises(RoutingError, match="no advertisement 99"):
        network.unadvertise(99)
    with pytest.raises(RoutingError, match=r"\{'px': 5\}, satisfies no advertisement of client 'p'"):
        network.publish(A, "p", [{"px": 6}, {"px": 5}])
    with pytest.raises(RoutingError, match="client 'other'"):
        network.publish(A, "other", {"px": 6})
    assert not network.deliveries
    with pytest.raises(RoutingError, match="no link 0-7"):
        network.fail_link(A, H)
    network.fail_link(B, A)
    with pytest.raises(RoutingError, match="already lost"):
        network.fail_link(A, B)
    network.restore_link(A, B)
    with pytest.raises(RoutingError, match="not lost"):
        network.restore_link(A, B)
    with pytest.raises(RoutingError, match="has not failed"):
        network.restore_broker(C)
    network.fail_broker(C)
    with pytest.raises(RoutingError, match="broker 2 is already down"):
        network.fail_broker(C)
    assert isinstance(Network(Clusters(EXAMPLE, [range(8)]), SCHEMA).topology, Topology)


def test_slips_are_named() -> None:
    with pytest.raises(RoutingError, match=r"overlay: expected Topology or Clusters, found Graph; from_networkx"):
        Network(nx.path_graph(3), SCHEMA)  # type: ignore[arg-type]
    network = Network(EXAMPLE, SCHEMA)
    with pytest.raises(RoutingError, match="expression: expected str or Expr, found dict"):
        network.subscribe(0, "c", {"px": 3})  # type: ignore[arg-type]
    with pytest.raises(RoutingError, match="broker: expected a broker number, found str 'a'"):
        network.advertise("a", "p", "TRUE")  # type: ignore[arg-type]
    network.advertise(A, "p", "px > 3")
    wrong = r"event 1 of 2, \{'px': 1\}, satisfies no advertisement of client 'p': it advertises px > 3; advertise"
    with pytest.raises(RoutingError, match=wrong):
        network.publish(A, "p", [{"px": 5}, {"px": 1}])
    with pytest.raises(RoutingError, match="of client 'p': it has none here; advertise"):
        network.publish(B, "p", {"px": 5})
    with pytest.raises(RoutingError, match="there is no broker 17"):
        network.restore_broker(17)
    network.fail_broker(H)
    with pytest.raises(RoutingError, match="broker 7 is already down"):
        network.fail_broker(H)
    with pytest.raises(RoutingError, match="there is no event 999"):
        network.reached(999)
    assert repr(network) == "<Network: d-dbr, 7 of 8 brokers up, 0 deliveries>"


@pytest.mark.parametrize("protocol", ["d-dbr", "fbr"])
def test_integers_beyond_the_width_of_their_type(protocol: Any) -> None:
    network = Network(EXAMPLE, {"n": "int8"}, protocol)
    network.advertise(A, "p", "TRUE")
    network.run()
    network.subscribe(H, "c", "n > 200")
    network.run()
    event = network.publish(A, "p", {"n": 300})
    network.run()
    assert network.deliveries == [Delivery(event, H, "c")]


def test_events_may_change_after_they_are_published() -> None:
    network, _ = example()
    event = {"px": 11}
    id = network.publish(A, "pub-c1", event)
    event["px"] = 0
    network.run()
    assert {found.broker for found in network.deliveries if found.event == id} == {B, E, G}
