"""Random overlays, clients and failures, and who should get what."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import gpumatch as gm
from gpumatch.expr import evaluate, parse
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.messages import Message
from gpumatch.routing.overlays.network import Network
from gpumatch.routing.overlays.overlap import Overlaps
from gpumatch.routing.overlays.topology import Topology

SCHEMA = {"sym": "string", "px": "int64", "qty": "int64"}
TYPED = gm.Schema.of(SCHEMA)


def random_links(rng: random.Random, brokers: list[int], extra: int) -> set[tuple[int, int]]:
    """A tree over the brokers and some links more."""
    order = rng.sample(brokers, len(brokers))
    links = {tuple(sorted((order[at], rng.choice(order[:at])))) for at in range(1, len(order))}
    if len(brokers) > 1:
        links |= {tuple(sorted(rng.sample(brokers, 2))) for _ in range(extra)}
    return links  # type: ignore[return-value]


def random_topology(rng: random.Random) -> Topology:
    brokers = rng.randint(8, 25)
    return Topology(brokers, sorted(random_links(rng, list(range(brokers)), rng.randint(3, 2 * brokers))))


def random_clusters(rng: random.Random, count: int) -> Clusters:
    """Clusters joined in a tree or with cycles, by one, two or three edge brokers each."""
    members: list[set[int]] = []
    brokers = 0
    for _ in range(count):
        size = rng.randint(2, 4)
        members.append(set(range(brokers, brokers + size)))
        brokers += size
    for a, b in sorted(random_links(rng, list(range(count)), rng.randint(0, 2))):
        for _ in range(rng.randint(1, 2)):
            edge = rng.choice([brokers, rng.randrange(brokers)])  # a new one, or one more cluster for one that is there
            members[a].add(edge)
            members[b].add(edge)
            brokers = max(brokers, edge + 1)
    links: set[tuple[int, int]] = set()
    for cluster in members:
        links |= random_links(rng, sorted(cluster), rng.randint(1, 2 * len(cluster)))
    return Clusters(Topology(brokers, sorted(links)), [np.array(sorted(cluster)) for cluster in members])


def random_expression(rng: random.Random) -> str:
    low, width, qty = rng.randint(0, 80), rng.randint(5, 60), rng.randint(0, 10)
    return rng.choice(
        [
            f"px BETWEEN {low} AND {low + width}",
            f"px >= {low} AND qty < {qty}",
            f"sym IN ('A', 'B') AND px < {low + width}",
            f"sym = 'C' OR qty = {qty}",
            f"NOT (sym = 'A' AND px > {low})",
            f"px > {low} XOR qty > {qty}",
        ]
    )


def random_event(rng: random.Random) -> dict[str, Any]:
    event = {"sym": rng.choice("ABCD"), "px": rng.randint(0, 100), "qty": rng.randint(0, 10)}
    return {name: value for name, value in event.items() if rng.random() < 0.9}


class Duty(NamedTuple):
    source: int
    serial: int  # with the source, what message it is
    cluster: int
    destination: int


def duties(message: Message) -> list[Duty]:
    return [Duty(message.source, message.serial, message.cluster, to) for to in message.destinations]


@dataclass
class World:
    """A network, what its clients have said, and what they should be given."""

    network: Network
    rng: random.Random
    subscriptions: dict[int, tuple[int, str, str]] = field(default_factory=dict)  # id -> broker, client, expression
    advertisements: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    expected: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    sources: dict[int, int] = field(default_factory=dict)  # event -> broker

    def up(self) -> list[int]:
        return np.flatnonzero(self.network.topology.up).tolist()

    def subscribe(self) -> None:
        broker, client, text = self.rng.choice(self.up()), f"c{self.rng.randrange(3)}", random_expression(self.rng)
        self.subscriptions[self.network.subscribe(broker, client, text)] = (broker, client, text)

    def advertise(self) -> None:
        broker, client = self.rng.choice(self.up()), f"p{self.rng.randrange(2)}"
        text = random_expression(self.rng) if self.rng.random() < 0.8 else "TRUE"
        self.advertisements[self.network.advertise(broker, client, text)] = (broker, client, text)

    def populate(self, advertisements: int, subscriptions: int) -> None:
        """In random order, with steps between."""
        doings = [self.advertise] * advertisements + [self.subscribe] * subscriptions
        for doing in self.rng.sample(doings, len(doings)):
            doing()
            if self.rng.random() < 0.3:
                self.network.step()

    def withdraw(self) -> None:
        """One thing, of a broker that is up."""
        for held, end in (
            (self.subscriptions, self.network.unsubscribe),
            (self.advertisements, self.network.unadvertise),
        ):
            ids = [id for id, (broker, _, _) in held.items() if self.network.topology.up[broker]]
            if ids:
                id = self.rng.choice(ids)
                end(id)
                del held[id]

    def publish(self, events: int) -> None:
        """Random events from advertisements of brokers that are up."""
        offers = [offer for offer in self.advertisements.values() if self.network.topology.up[offer[0]]]
        for _ in range(events if offers else 0):
            broker, client, text = self.rng.choice(offers)
            drawn = (random_event(self.rng) for _ in range(20))
            event = next((one for one in drawn if evaluate(parse(text), one, TYPED) is True), None)
            if event is not None:
                id = self.network.publish(broker, client, event)
                self.sources[id] = broker
                self.expected.update({(id, home, name) for home, name in self.interested(event)})

    def interested(self, event: dict[str, Any]) -> set[tuple[int, str]]:
        return {
            (broker, client)
            for broker, client, text in self.subscriptions.values()
            if evaluate(parse(text), event, TYPED) is True
        }

    def given(self) -> Counter[tuple[int, int, Any]]:
        return Counter(tuple(delivery) for delivery in self.network.deliveries)

    def check_tables(self) -> None:
        """Once all is quiet, D-DBR stores a subscription at its own broker and at those that advertised for it."""
        overlaps = Overlaps(SCHEMA)
        stored = [0] * len(self.network.brokers)
        for broker, _, text in self.subscriptions.values():
            homes = {home for home, _, offer in self.advertisements.values() if overlaps.overlap(offer, text)}
            for home in homes - {broker}:
                stored[home] += 1
            stored[broker] += 1
        assert self.network.stored == stored

    def fail_something(self, split: bool = False) -> None:
        """A link or a broker; unless the network may ``split``, none that some which are up need for a path."""
        network, rng = self.network, self.rng
        links = [tuple(link) for link in network.topology.links.tolist()]
        if rng.random() < 0.6 and links:
            a, b = rng.choice(links)
            network.fail_link(a, b)
            if not split and not connected(network):
                network.restore_link(a, b)
        elif self.up():
            broker = rng.choice(self.up())
            network.fail_broker(broker)
            if not split and not connected(network):
                network.restore_broker(broker)

    def restore_something(self) -> None:
        network = self.network
        if network._cut and self.rng.random() < 0.5:
            network.restore_link(*self.rng.choice(sorted(network._cut)))
        elif network._down:
            network.restore_broker(self.rng.choice(sorted(network._down)))

    def restore_all(self) -> None:
        for a, b in sorted(self.network._cut):
            self.network.restore_link(a, b)
        for broker in sorted(self.network._down):
            self.network.restore_broker(broker)


@dataclass
class Duties:
    """Who has to deliver what: the last broker that a message came to, or its source if that one failed."""

    network: Network
    holders: dict[Duty, int] = field(default_factory=dict)
    done: set[Duty] = field(default_factory=set)

    def step(self) -> None:
        for _, receiver, message in self.network._flying:
            for duty in duties(message):
                self.holders[duty] = receiver
        self.network.step()
        arrived = {duty for duty, holder in self.holders.items() if duty.destination == holder}
        assert self.done.isdisjoint(arrived)
        self.done |= arrived
        for duty in arrived:
            del self.holders[duty]

    def check(self) -> None:
        """Each message is under way once, or waits and neither its holder nor its source has a path."""
        up = self.network.topology.up
        for duty in (duty for message in self.network.pending for duty in duties(message)):
            self.holders.setdefault(duty, duty.source)
        flying = {duty: sender for sender, _, message in self.network._flying for duty in duties(message)}
        assert len(flying) == sum(len(message.destinations) for _, _, message in self.network._flying)
        self.holders |= flying
        for duty, holder in self.holders.items():
            self.holders[duty] = holder if up[holder] else duty.source
            distance = self.network.brokers[duty.source].clusters[duty.cluster].topology.distance
            senders = [broker for broker in (self.holders[duty], duty.source) if up[broker]]
            assert duty in flying or all(distance[sender, duty.destination] < 0 for sender in senders)


def connected(network: Network) -> bool:
    """Do brokers that are up reach each other, inside their clusters and from cluster to cluster?"""
    up = network.topology.up
    groups = []
    for members in network._clusters.members:
        alive = [int(one) for one in members if up[one]]
        inside = np.zeros(len(up), bool)
        inside[alive] = True
        distance = Topology(len(up), network.topology.links, inside).distance
        if alive and (distance[np.ix_(alive, alive)] < 0).any():
            return False
        groups.append(set(alive))
    groups = [group for group in groups if group]
    while len(groups) > 1:
        first = groups.pop()
        other = next((group for group in groups if group & first), None)
        if other is None:
            return False
        other |= first
    return bool(groups)


def unsettle(world: World) -> None:
    """Advertisements and subscriptions come and go while links and brokers fail and return."""
    world.populate(5, 12)
    for _ in range(6):
        world.fail_something()
        world.network.step()
        if world.rng.random() < 0.4:
            world.restore_something()
        world.rng.choice([world.subscribe, world.withdraw, world.advertise, lambda: None])()
    world.restore_all()
    world.network.run()
    assert not world.network.pending


def publish_under_failures(world: World) -> None:
    """Events reach everybody that is up, once, and the others when they are back."""
    network = world.network
    for _ in range(4):
        world.publish(4)
        world.fail_something()
        network.step()
        world.fail_something()
        if world.rng.random() < 0.3:
            world.restore_something()
    network.run()
    up, given = set(world.up()), world.given()
    due = {one for one in world.expected if one[1] in up and world.sources[one[0]] in up}
    assert due <= set(given)
    assert given <= world.expected
    world.restore_all()
    network.run()
    assert not network.pending
    assert world.given() == world.expected


def come_and_go(world: World) -> None:
    """Events reach everybody, also after some clients have left and others have come; nothing is left of what ended."""
    world.network.run()
    world.publish(8)
    world.network.run()
    assert world.given() == world.expected
    for _ in range(3):
        world.withdraw()
    world.network.step()
    world.advertise()
    world.subscribe()
    world.network.run()
    world.publish(6)
    world.network.run()
    assert world.given() == world.expected
    while world.subscriptions or world.advertisements:
        world.withdraw()
    world.network.run()
    assert not any(world.network.stored)
