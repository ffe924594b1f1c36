"""An overlay of brokers one message at a time: what the simulation over arrays must agree with to the nanosecond."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.graphs import random_graph
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator.failures import Change, Failures
from gpumatch.routing.simulator.protocols import Costs
from gpumatch.routing.simulator.simulated import Simulated
from gpumatch.routing.simulator.simulation import simulate
from gpumatch.routing.simulator.traffic import Workload

CHANGE, DEPART, SOURCE, ARRIVE = range(4)  # what comes first at the same time


@dataclass
class Message:
    event: int
    task: int
    version: int
    wanted: frozenset[int]  # of the task
    broker: int
    sender: int
    cluster: int
    hops: int
    entries: frozenset[int]
    arrive: int = 0
    depart: int = 0
    service: int = 0
    fresh: bool = False
    opens: bool = False
    dropped: bool = False
    matched: bool = False
    goes_back: bool = False
    stuck: frozenset[int] = frozenset()  # entries without a path
    sends: list[Message] = field(default_factory=list)

    def at(self, broker: int, sender: int, cluster: int, hops: int, entries: frozenset[int]) -> Message:
        """The same elsewhere, as it arrives."""
        return Message(self.event, self.task, self.version, self.wanted, broker, sender, cluster, hops, entries)


class Plain:
    """Runs at once; the attributes are the answer."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        protocol: str,
        clusters: Clusters | None,
        costs: Costs,
        failures: Failures,
    ) -> None:
        self.base = self.known = topology
        self.workload, self.protocol, self.clusters, self.costs = workload, protocol, clusters, costs
        self.detection = failures.detection
        self.version = 0
        self.now = clusters  # over the topology that is known
        self.heap: list[Any] = []
        self.number = count()
        self.tasks = count()
        n = topology.brokers
        self.free = [0] * n
        self.queues: list[list[Message]] = [[] for _ in range(n)]
        self.held: list[list[Message]] = [[] for _ in range(n)]  # what did not get on
        self.flying: dict[int, tuple[Message, int]] = {}
        self.down: set[Any] = set()
        self.since: dict[Any, int] = {}  # links and brokers that are down, with their ends counted in
        self.delivered: dict[tuple[int, int], tuple[int, int]] = {}
        self.accepted: set[tuple[int, int]] = set()
        self.opened: set[tuple[int, int]] = set()
        self.parked: set[tuple[int, int]] = set()
        self.interested = [
            frozenset(workload.destinations[workload.offsets[e] : workload.offsets[e + 1]].tolist())
            for e in range(len(workload))
        ]
        self.sent: Counter[int] = Counter()
        self.sizes: Counter[int] = Counter()
        self.matches, self.busy = [0] * n, [0] * n
        self.duplicates = self.lost = self.again = 0
        for event, time in enumerate(workload.times.tolist()):
            self.push(time, ARRIVE, "publish", event, key=(-1, event))
        self.learns = sorted({change.time + self.detection for change in failures.changes})
        for time in sorted({change.time for change in failures.changes}):
            changes = [change for change in failures.changes if change.time == time]
            self.push(time, CHANGE, "change", changes)
            self.push(time + self.detection, SOURCE, "learn", changes, key=(0,))
        self.known_down: set[Any] = set()
        self.looks: dict[int, set[int]] = {}
        self.news = -1
        self.go()

    def push(self, time: int, phase: int, what: str, *args: Any, key: tuple[int, ...] = ()) -> None:
        heapq.heappush(self.heap, (time, phase, key, next(self.number), what, args))

    def go(self) -> None:
        while self.heap:
            self.time, _, _, _, what, args = heapq.heappop(self.heap)
            getattr(self, what)(*args)

    # failures

    def change(self, changes: list[Any]) -> None:
        for change in changes:
            what = tuple(sorted(change.what)) if isinstance(change.what, tuple) else change.what
            (self.down.discard if change.up else self.down.add)(what)
        links = [tuple(link) for link in self.base.links.tolist()]
        now = {what for what in self.down if not isinstance(what, tuple)}
        now |= {link for link in links if link in self.down or link[0] in self.down or link[1] in self.down}
        for what in set(self.since) - now:
            del self.since[what]
        for what in now - set(self.since):
            self.since[what] = self.time
        for change in changes:
            if not isinstance(change.what, tuple):
                self.crash(change.what)
        for number, (message, depart) in list(self.flying.items()):
            link = tuple(sorted((message.sender, message.broker)))
            if link in self.since:
                del self.flying[number]
                self.lose_on_link(message, depart, self.since[link])

    def crash(self, broker: int) -> None:
        """The queue is empty after it, and free again when it is repaired."""
        for message in self.queues[broker]:
            start = message.depart - message.service
            self.busy[broker] += max(self.time - start, 0)
            self.lost += 1
            if message.fresh:
                self.accepted.discard((message.event, broker))
            if message.opens:
                self.opened.discard((message.task, broker))
        for message in self.queues[broker] + self.held[broker]:
            self.look_again(self.time + self.detection, message.event)
        self.queues[broker], self.held[broker] = [], []
        self.free[broker] = 0

    def lose_on_link(self, message: Message, depart: int, since: int) -> None:
        self.lost += 1
        if message.sender in self.down:
            self.look_again(self.time + self.detection, message.event)
        elif self.protocol != "fbr":
            lost = message.at(message.sender, message.broker, message.cluster, message.hops - 1, message.entries)
            self.hold(max(since + self.detection, self.back(depart)), lost)

    def hold(self, until: int, message: Message) -> None:
        self.held[message.broker].append(message)
        key = (message.broker, message.event, message.sender, message.cluster)
        self.push(until, ARRIVE, "take_up", message, key=key)

    def take_up(self, message: Message) -> None:
        mine = self.held[message.broker]
        if any(message is one for one in mine):
            self.held[message.broker] = [one for one in mine if one is not message]
            self.again += 1
            self.arrive(message)

    def back(self, depart: int) -> int:
        latency = self.costs.latency
        return -(-(depart + latency) // latency) * latency

    # sources

    def look_again(self, time: int, event: int) -> None:
        if self.protocol == "fbr":
            return
        if time not in self.looks:
            self.looks[time] = set()
            self.push(time, SOURCE, "look", key=(1,))
        self.looks[time].add(event)

    def known_links(self, changes: list[Any]) -> None:
        for change in changes:
            what = tuple(sorted(change.what)) if isinstance(change.what, tuple) else change.what
            (self.known_down.discard if change.up else self.known_down.add)(what)
        links = [what for what in self.known_down if isinstance(what, tuple)]
        brokers = [what for what in self.known_down if not isinstance(what, tuple)]
        self.known = self.base.without(links, brokers)
        self.now = None if self.clusters is None else Clusters(self.known, self.clusters.members)

    def learn(self, changes: list[Any]) -> None:
        """A change becomes known: what had no path is looked at again, together with all else at this time."""
        if self.protocol == "fbr":
            return
        self.known_links(changes)
        self.version += 1
        self.news = self.time
        if self.time not in self.looks:
            self.looks[self.time] = set()
            self.push(self.time, SOURCE, "look", key=(1,))

    def publish(self, event: int) -> None:
        source = int(self.workload.sources[event])
        self.parked |= {(event, broker) for broker in self.interested[event] if not self.reaches(source, broker)}
        if self.known.up[source]:
            self.inject(event, frozenset(b for b in self.interested[event] if self.reaches(source, b)))

    def reaches(self, source: int, broker: int) -> bool:
        return bool(self.known.distance[source, broker] >= 0)

    def resend(self, pairs: set[tuple[int, int]]) -> None:
        """Of these pairs those that are not delivered yet."""
        pairs = {pair for pair in pairs if pair not in self.delivered}
        self.parked -= pairs
        for event in sorted({event for event, _ in pairs}):
            source = int(self.workload.sources[event])
            wanted = frozenset(broker for of, broker in pairs if of == event)
            reached = frozenset(broker for broker in wanted if self.reaches(source, broker))
            self.parked |= {(event, broker) for broker in wanted - reached}
            if reached:
                self.again += 1
                self.inject(event, reached)

    def inject(self, event: int, wanted: frozenset[int]) -> None:
        source = int(self.workload.sources[event])
        entries = wanted if self.clusters is None else wanted & {source}
        message = Message(event, next(self.tasks), self.version, wanted, source, -1, -1, 0, entries)
        self.push(self.time, ARRIVE, "arrive", message, key=(source, event, -1, -1))

    def look(self) -> None:
        """All that is looked at at this time, together with what a repair brings."""
        events = self.looks.pop(self.time, set())
        pairs = {(event, broker) for event in events for broker in self.interested[event]}
        if self.news == self.time:
            pairs |= self.parked
        self.resend(pairs)

    # brokers

    def arrive(self, message: Message, number: int | None = None) -> None:
        if number is not None and self.flying.pop(number, None) is None:
            return  # lost on the way
        broker = message.broker
        if broker in self.down:  # a client's
            self.lost += 1
            self.look_again(self.since[broker] + self.detection, message.event)
            return
        message.arrive = self.time
        self.understand(message)
        self.fan_out(message)
        message.service = self.service(message)
        message.depart = max(self.time, self.free[broker]) + message.service
        self.free[broker] = message.depart
        self.queues[broker].append(message)
        self.push(message.depart, DEPART, "depart", message)

    def understand(self, message: Message) -> None:
        broker, event = message.broker, message.event
        mine = broker in message.entries
        client = message.sender < 0
        message.fresh = mine and broker in self.interested[event] and (event, broker) not in self.accepted
        if message.fresh:
            self.accepted.add((event, broker))
        if self.clusters is not None and (client or (mine and broker in self.clusters.edge_brokers)):
            opens = (message.task, broker) not in self.opened
            message.goes_back = opens and message.version != self.version
            message.opens = opens and not message.goes_back
        message.dropped = mine and not (message.fresh or message.opens or message.goes_back)
        message.matched = self.protocol == "fbr" or client or message.fresh or message.opens
        if message.opens:
            self.opened.add((message.task, broker))

    def fan_out(self, message: Message) -> None:
        broker = message.broker
        lists: dict[tuple[int, int], set[int]] = {}
        going = {message.cluster: set(message.entries - {broker})}
        if message.opens:
            assert self.now is not None
            for cluster in self.now.clusters_of(broker).tolist():
                if cluster != message.cluster:
                    going[cluster] = open_cluster(self.now, cluster, broker, message.wanted) - {broker}
        for cluster, brokers in going.items():
            topology = self.topology_of(cluster)
            for entry in brokers:
                hop = int(topology.next_hop[broker, entry])
                if hop < 0:
                    message.goes_back = True
                    message.stuck |= {entry}
                else:
                    lists.setdefault((cluster, hop), set()).add(entry)
        for (cluster, hop), several in sorted(lists.items()):
            message.sends.append(message.at(hop, broker, cluster, message.hops + 1, frozenset(several)))

    def topology_of(self, cluster: int) -> Topology:
        if self.protocol == "fbr":
            return self.base
        if cluster < 0:
            return self.known
        assert self.now is not None
        return self.now.sub(cluster)

    def service(self, message: Message) -> int:
        costs = self.costs
        everything = self.protocol == "fbr" or message.sender < 0 or message.opens
        stored = costs.subscriptions * (self.base.brokers if everything else 1)
        time = costs.receive + (costs.match + costs.subscription * stored if message.matched else 0)
        time += costs.send * len(message.sends)
        if self.protocol != "fbr":
            time += costs.entry * sum(len(sent.entries) for sent in message.sends)
        if self.clusters is not None and message.broker in self.clusters.edge_brokers:
            time = max(time // costs.edge_speed, 1)
        return time

    def depart(self, message: Message) -> None:
        broker = message.broker
        if not any(message is held for held in self.queues[broker]):
            return  # lost with the broker
        self.queues[broker].remove(message)
        self.busy[broker] += message.service
        self.matches[broker] += message.matched
        self.duplicates += message.dropped
        if message.fresh:
            self.delivered[message.event, broker] = (self.time, message.hops)
        if message.goes_back:
            self.look_again(self.back(self.time), message.event)
        later = [time for time in self.learns if time > message.arrive]
        if message.stuck and later and self.protocol != "fbr":
            held = message.at(broker, broker, message.cluster, message.hops, message.stuck)
            self.hold(max(later[0], self.back(self.time)), held)
        for copy in message.sends:
            self.sent[copy.hops] += 1
            if self.protocol != "fbr":
                self.sizes[len(copy.entries)] += 1
            link = tuple(sorted((broker, copy.broker)))
            if link in self.since:
                self.lose_on_link(copy, self.time, self.since[link])
                continue
            number = next(self.number)
            self.flying[number] = (copy, self.time)
            key = (copy.broker, copy.event, broker, copy.cluster)
            self.push(self.time + self.costs.latency, ARRIVE, "arrive", copy, number, key=key)


def open_cluster(clusters: Clusters, cluster: int, at: int, wanted: frozenset[int]) -> set[int]:
    """The interested brokers of a cluster, and its edge brokers behind which there are others."""
    cell = cell_of(clusters, cluster, at)
    found = set(cell & wanted)
    for door in cell & set(clusters.edge_brokers.tolist()):
        behind: set[int] = set()
        seen = {(cluster, cell)}  # two clusters may have the same brokers left
        todo = [door]
        for broker in todo:  # grows
            for number in clusters.clusters_of(broker).tolist():
                other = cell_of(clusters, number, broker)
                if (number, other) not in seen:
                    seen.add((number, other))
                    behind |= other
                    todo += other
        if (behind - cell) & wanted:
            found.add(door)
    return found


@lru_cache(100_000)
def cell_of(clusters: Clusters, cluster: int, broker: int) -> frozenset[int]:
    """The brokers that one reaches inside a cluster."""
    distance = clusters.sub(cluster).distance[broker]
    return frozenset(int(b) for b in clusters.members[cluster] if distance[b] >= 0)


def random_case(seed: int, protocol: str, failing: bool) -> tuple[Any, ...]:
    """Small overlays with cycles, clusters that overlap at random, times with many ties in every second case."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    links = int(rng.integers(n - 1, min(n * (n - 1) // 2, 2 * n) + 1))
    topology = random_graph(n, 2 * links / n, seed)
    clusters = random_clusters(rng, topology) if protocol == "merc" else None
    ties = seed % 2 == 0
    horizon = 40 if ties else 300
    speed = int(rng.integers(1, 4))
    if ties:
        costs = Costs(4, 1, int(rng.integers(3)), 0, int(rng.integers(3)), 0, 1, speed)
    else:
        costs = Costs(*(int(rng.integers(low, high)) for low, high in COSTS), 2, speed)
    events = int(rng.integers(0, 10))
    wanted = [np.flatnonzero(rng.random(n) < rng.random()) for _ in range(events)]
    offsets = np.cumsum([0, *map(len, wanted)])
    times = np.sort(rng.integers(horizon, size=events))
    brokers = np.concatenate((*wanted, np.empty(0, np.int64)))
    workload = Workload(times, rng.integers(n, size=events), offsets, brokers)
    changes = []
    for what in (*map(tuple, topology.links.tolist()), *range(n)) if failing else ():
        if rng.random() < 0.25:
            moments = np.unique(rng.integers(2 * horizon, size=int(rng.integers(1, 5))))
            changes += [Change(int(time), what, bool(place % 2)) for place, time in enumerate(moments)]
    return topology, workload, protocol, clusters, costs, Failures(changes, int(rng.integers(0, 30)))


COSTS = ((5, 50), (1, 30), (0, 40), (0, 3), (0, 10), (0, 4))


def random_clusters(rng: np.random.Generator, topology: Topology) -> Clusters:
    """Every broker has a cluster at random; of a link between two clusters, one end joins the other's."""
    count = int(rng.integers(1, 5))
    home = rng.integers(count, size=topology.brokers)
    members = [set(np.flatnonzero(home == cluster).tolist()) for cluster in range(count)]
    for link in topology.links:
        a, b = rng.permutation(link).tolist()
        members[home[b]].add(a)
    return Clusters(topology, [sorted(brokers) for brokers in members if brokers])


def assert_agrees(case: tuple[Any, ...]) -> Simulated:
    """The simulation of a case, if it is what one message at a time gives."""
    topology, workload, protocol, clusters, costs, failures = case
    found, plain = simulate(clusters or topology, workload, protocol, costs, failures), Plain(*case)
    pairs = zip(found.event.tolist(), found.broker.tolist(), strict=True)
    answers = zip(found.time.tolist(), found.hops.tolist(), strict=True)
    assert dict(zip(pairs, answers, strict=True)) == plain.delivered
    counts = found.counts
    assert {hop: sent for hop, sent in enumerate(counts.sent.tolist()) if sent} == plain.sent
    assert {size: sent for size, sent in enumerate(counts.sizes.tolist()) if sent} == plain.sizes
    assert (counts.duplicates, counts.lost, counts.again) == (plain.duplicates, plain.lost, plain.again)
    assert counts.matches.tolist() == plain.matches
    assert counts.busy.tolist() == plain.busy
    assert found.utilisation.max(initial=0) <= 1
    missing = {
        (event, broker)
        for event, brokers in enumerate(plain.interested)
        for broker in brokers
        if (event, broker) not in plain.delivered
    }
    assert set(zip(*found.undelivered.tolist(), strict=True)) == missing
    return found
