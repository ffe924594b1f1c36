"""Brokers of D-DBR and MERC as state machines: a message in, messages out (thesis, chapters 4 and 5).

A broker knows its own clusters; D-DBR is MERC with one cluster. Algorithm 1, the matching engine, and Algorithm 3, the
forwarding by edge brokers, are written here as one rule about state instead of about arrivals, so that no order of
arrival can break it:

* an advertisement from a client, or from another cluster, is known to all brokers of a cluster;
* a subscription from a client, or from another cluster, is known to those brokers of a cluster that sent an overlapping
  advertisement;
* neither enters a cluster that every route to it has passed: messages carry this trail.

Whenever something comes or goes, the broker compares what others should know with what it has told them, and sends the
difference. An edge broker keeps its entries per cluster, and forwards them with its own number as the source. It keeps
a subscription until its client withdraws it, even if the broker that sent it says that it is no longer needed: if
routes could go as well as come, trails could change for ever in a cycle of clusters; this way they only get shorter.
Several edge brokers between the same clusters all do this, and clusters may form a cycle: entries then exist along all
routes, and events arrive as long as one of these is left. Destinations drop events that they have seen.

An event is matched against the subscriptions of the *other* clusters (Algorithm 3 prints the tables of advertisements).
It enters a cluster for a subscription whose trail does not contain the cluster that it came from, and goes from one
broker to each destination only once. It may enter a cluster that it has already passed: otherwise a first copy on a
detour could block the one for which a subscription has opened the route.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from gpumatch.errors import RoutingError
from gpumatch.expr import Expr
from gpumatch.routing.overlays.merc import NOWHERE, ClusterTables, Known, Member, Trail
from gpumatch.routing.overlays.messages import Advertisement, Event, Message, Outcome, Subscription
from gpumatch.routing.overlays.overlap import Overlaps, Prepared
from gpumatch.routing.overlays.tables import RoutingTable
from gpumatch.routing.overlays.topology import Topology

_Kind: TypeAlias = "type[Advertisement] | type[Subscription]"


class Broker:
    """One broker. Ids of advertisements, subscriptions and events are given to it and must all differ.

    ``clusters``: by number, the brokers of each of its clusters, and the topology inside.
    It permanently remembers the events that it has seen, and the last serial number of everything it was told.
    """

    def __init__(self, number: int, overlaps: Overlaps, clusters: Mapping[int, tuple[Iterable[int], Topology]]) -> None:
        self.number = number
        self.local_advertisements = RoutingTable(overlaps)  # L-SRT
        self.local_subscriptions = RoutingTable(overlaps)  # L-PRT
        self.clusters = {
            cluster: ClusterTables(tuple(int(one) for one in members if one != number), topology, overlaps)
            for cluster, (members, topology) in clusters.items()
        }
        self.matches = 0  # how often an event was matched here
        self.duplicates: Counter[str] = Counter()  # messages dropped, by kind
        self._overlaps = overlaps
        self._known: dict[int, Known] = {}
        self._ended: set[int] = set()  # advertisements and subscriptions that clients have withdrawn
        self._latest: dict[tuple[int, int, int], int] = {}  # id, cluster, source -> serial number
        self._serial = 0
        self._arrived: dict[int, set[int]] = {}  # event -> clusters from which it came
        self._passed: dict[int, set[Member]] = {}  # event -> destinations that it was sent to from here

    def saw(self, event: int) -> bool:
        """Was the event published here, or was this broker one of its destinations?"""
        return event in self._arrived

    @property
    def stored(self) -> int:
        """How many subscriptions it stores: those of clients and, per cluster and source, those of others."""
        return len(self.local_subscriptions) + sum(len(tables.subscriptions) for tables in self.clusters.values())

    # From local clients

    def advertise(self, id: int, client: Hashable, expression: Expr | str) -> Outcome:
        return self._from_client(self.local_advertisements, id, client, expression)

    def subscribe(self, id: int, client: Hashable, expression: Expr | str) -> Outcome:
        return self._from_client(self.local_subscriptions, id, client, expression)

    def withdraw(self, id: int) -> Outcome:
        """Withdraw an advertisement or a subscription of a local client."""
        is_advertisement = id in self.local_advertisements
        (self.local_advertisements if is_advertisement else self.local_subscriptions).remove(id)
        return self._end(id, Advertisement if is_advertisement else Subscription)

    def publish(self, client: Hashable, events: Mapping[int, Mapping[str, Any]]) -> Outcome:
        """Events by id. One that no advertisement of the client covers is an error, and then none is published."""
        values = list(events.values())
        check_covered(self.local_advertisements, client, events)
        interested = self.local_subscriptions.sources(values)
        remote = {cluster: tables.subscriptions.sources(values) for cluster, tables in self.clusters.items()}
        self.matches += len(values)
        outcome = Outcome()
        for at, (id, value) in enumerate(events.items()):
            outcome.deliveries += [(name, id) for name in interested[at]]
            self._arrived[id] = set(self.clusters)
            for cluster, found in remote.items():
                brokers = {cast("tuple[int, Trail]", source)[0] for source in found[at]}
                outcome.add(self._pass_on(id, value, cluster, brokers, NOWHERE))
        return outcome

    def _from_client(self, table: RoutingTable, id: int, client: Hashable, expression: Expr | str) -> Outcome:
        if id in self._known or id in self._ended:
            raise RoutingError(f"broker {self.number} already knows an advertisement or subscription {id}")
        entry = table.insert(id, expression, client)
        self._known[id] = Known(entry.prepared, local=True)
        return self._tell(id, Advertisement if table is self.local_advertisements else Subscription)

    # From other brokers

    def handle(self, message: Message, sender: int) -> Outcome:
        """Algorithm 2: take what is for this broker and send the rest on, whoever sent it."""
        outcome = Outcome()
        rest = tuple(broker for broker in message.destinations if broker != self.number)
        if len(rest) < len(message.destinations):
            if isinstance(message, Event):
                outcome.add(self._event(message))
            elif isinstance(message, (Advertisement, Subscription)):
                outcome.add(self._news(message))
        outcome.add(self.multicast(message.to(rest)))
        return outcome

    def multicast(self, message: Message) -> Outcome:
        """A message with a shorter destination list to each next hop; destinations without a path are stranded."""
        outcome = Outcome()
        topology = self.clusters[message.cluster].topology
        distance = topology.distance[self.number]
        reached = tuple(broker for broker in message.destinations if distance[broker] > 0)
        if len(reached) < len(message.destinations):
            lost = tuple(broker for broker in message.destinations if distance[broker] < 0)
            outcome.stranded.append(message.to(lost))
        if reached:
            hops = topology.split(self.number, reached)
            outcome.sends += [(hop, message.to(tuple(brokers.tolist()))) for hop, brokers in hops.items()]
        return outcome

    def _news(self, message: Advertisement | Subscription) -> Outcome:
        """News from another broker about an advertisement or subscription."""
        key = (message.id, message.cluster, message.source)
        if message.id in self._ended or message.serial <= self._latest.get(key, -1):  # overtaken by a later one
            self.duplicates[message.kind] += 1
            return Outcome()
        if message.ended:
            return self._end(message.id, type(message))
        self._latest[key] = message.serial
        member = (message.cluster, message.source)
        tables, known = self.clusters[message.cluster], self._known.get(message.id)
        if isinstance(message, Subscription) and message.unneeded:
            if len(self.clusters) > 1:  # an edge broker keeps its routes
                return Outcome()
            tables.remove(message.id, message.source)
            if known is not None:
                known.entries.pop(member, None)
        else:
            tables.insert(message)
            if known is None:
                known = self._known[message.id] = Known(self._overlaps.prepare(message.expression))
            known.entries[member] = message.trail
        outcome = Outcome()
        if known is not None:
            if isinstance(message, Advertisement):
                outcome.add(self._tell_subscriptions(known.prepared, member))
            outcome.add(self._tell(message.id, type(message)))
        return outcome

    def _end(self, id: int, kind: _Kind) -> Outcome:
        """Forget an advertisement or subscription, and tell everyone who may have it from here."""
        self._ended.add(id)
        known = self._known.pop(id, None)
        outcome = Outcome()
        if known is None:  # the end has overtaken the beginning
            return outcome
        for cluster, broker in known.entries:
            self.clusters[cluster].remove(id, broker)
        if kind is Advertisement:
            for member in known.entries:
                outcome.add(self._tell_subscriptions(known.prepared, member))
        brokers: dict[int, list[int]] = {}
        for cluster, broker in known.ever_told:
            brokers.setdefault(cluster, []).append(broker)
        for cluster, told in brokers.items():
            header = self._header(id, told, cluster, NOWHERE)
            outcome.add(self.multicast(kind(*header, expression=known.prepared.expression, ended=True)))
        return outcome

    def _tell_subscriptions(self, advertisement: Prepared, member: Member) -> Outcome:
        """An advertisement came from a broker, or ended: send that broker subscriptions that overlap, or their end."""
        outcome = Outcome()
        for id in self._subscriptions_for(advertisement, member[0]):
            outcome.add(self._tell(id, Subscription, member))
        return outcome

    def _subscriptions_for(self, advertisement: Prepared, cluster: int) -> list[int]:
        """Subscriptions that overlap an advertisement from a cluster: those of clients and of the other clusters."""
        found = [entry.id for entry in self.local_subscriptions.overlapping(advertisement)]
        for other, tables in self.clusters.items():
            if other != cluster:
                keys = (entry.id for entry in tables.subscriptions.overlapping(advertisement))
                found += [cast("tuple[int, int]", key)[0] for key in keys]
        return list(dict.fromkeys(cast("list[int]", found)))

    def _event(self, message: Event) -> Outcome:
        outcome = Outcome()
        id, origin = message.id, message.cluster
        arrived = self._arrived.setdefault(id, set())
        if arrived:
            self.duplicates[message.kind] += 1
        others = [cluster for cluster in self.clusters if cluster != origin] if origin not in arrived else []
        if not arrived or others:
            self.matches += 1
        if not arrived:
            outcome.deliveries += [(client, id) for client in self.local_subscriptions.sources([message.values])[0]]
        arrived.add(origin)
        for cluster in others:
            sources = cast("list[tuple[int, Trail]]", self.clusters[cluster].subscriptions.sources([message.values])[0])
            brokers = {broker for broker, trail in sources if origin not in trail}
            outcome.add(self._pass_on(id, message.values, cluster, brokers, message.trail))
        return outcome

    # To other brokers

    def _pass_on(self, id: int, values: Mapping[str, Any], cluster: int, brokers: set[int], trail: Trail) -> Outcome:
        """Send an event to those brokers of a cluster that this broker has not sent it to yet."""
        passed = self._passed.setdefault(id, set())
        new = [broker for broker in brokers if (cluster, broker) not in passed]
        passed.update((cluster, broker) for broker in new)
        if not new:
            return Outcome()
        return self.multicast(Event(*self._header(id, new, cluster, trail | {cluster}), values=values))

    def _tell(self, id: int, kind: _Kind, only: Member | None = None) -> Outcome:
        """Tell others, or only one of them, what they should know about something, or no longer need to know."""
        known = self._known[id]
        wanted = self._wanted(known, kind, only)
        told = [member for member in known.told if only in (None, member)]
        news: dict[tuple[int, Trail], list[int]] = {}
        for (cluster, broker), trail in wanted.items():
            if known.told.get((cluster, broker)) != trail:
                news.setdefault((cluster, trail), []).append(broker)
                known.told[cluster, broker] = trail
                known.ever_told[cluster, broker] = None
        gone: dict[int, list[int]] = {}
        for cluster, broker in told:
            if (cluster, broker) not in wanted:
                gone.setdefault(cluster, []).append(broker)
                del known.told[cluster, broker]
        outcome, expression = Outcome(), known.prepared.expression
        for (cluster, trail), brokers in news.items():
            outcome.add(self.multicast(kind(*self._header(id, brokers, cluster, trail), expression=expression)))
        for cluster, brokers in gone.items():  # only subscriptions: an advertisement keeps its routes until it ends
            header = self._header(id, brokers, cluster, NOWHERE)
            outcome.add(self.multicast(Subscription(*header, expression=expression, unneeded=True)))
        return outcome

    def _wanted(self, known: Known, kind: _Kind, only: Member | None) -> dict[Member, Trail]:
        """Who should know of it, and by which trail: everyone else, for an advertisement."""
        wanted: dict[Member, Trail] = {}
        for cluster, tables in self.clusters.items():
            trail = known.trail_into(cluster) if only is None or only[0] == cluster else None
            if trail is None:
                continue
            brokers: Iterable[int] = tables.members if only is None else [only[1]]
            if kind is Subscription:
                brokers = [one for one in brokers if tables.wants(one, known.prepared, trail)]
            wanted.update(((cluster, broker), trail | {cluster}) for broker in brokers)
        return wanted

    def _header(
        self, id: int, brokers: Iterable[int], cluster: int, trail: Trail
    ) -> tuple[int, int, tuple[int, ...], int, Trail, int]:
        self._serial += 1
        return id, self.number, tuple(sorted(brokers)), cluster, trail, self._serial


def check_covered(advertisements: RoutingTable, client: Hashable, events: Mapping[int, Mapping[str, Any]]) -> None:
    """Refuse events that satisfy none of the client's advertisements."""
    covering = advertisements.sources(list(events.values()))
    for at, (values, clients) in enumerate(zip(events.values(), covering, strict=True)):
        if client not in clients:
            offered = [str(entry.expression) for entry in advertisements if entry.source == client]
            known = f"it advertises {' | '.join(offered)}" if offered else "it has none here"
            raise RoutingError(
                f"event {at} of {len(events)}, {dict(values)!r}, satisfies no advertisement of client {client!r}: "
                f"{known}; advertise events before publishing them, at the same broker"
            )
