"""A network of brokers, message by message: what the protocols deliver, what it costs, and the effect of failures.

Time passes in steps: in a step every message under way crosses one link. Everything is deterministic.

D-DBR and MERC. After a failure all brokers of the overlay, or of the clusters concerned, immediately get new TRTs and
SPRTs; one overlay update message is counted for each of them. A broker holds a message until the next hop has it: if
the link or the next hop is lost, it sends the message another way. What a broker holds is gone if it fails; then the
source, which keeps a message until all its destinations have acknowledged it, sends it again. It also does so for
destinations that the holder no longer has a path to. What neither can send waits until one can (``pending``), and so do
messages to a broker that is down. Acknowledgements themselves are not modelled as messages. In MERC the source is the
edge broker through which a message entered the cluster, and a path must lie inside each cluster, and lead from cluster
to cluster through edge brokers that are up. A broker that fails cuts off its clients: they can neither issue nor
receive anything; when it is restored its tables are as they were.

FBR. Nothing is repaired, and messages over a lost link or broker are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np

from gpumatch.errors import RoutingError
from gpumatch.expr import Expr
from gpumatch.routing.overlays.brokers import Broker
from gpumatch.routing.overlays.checks import expect
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.fbr import FilterBroker
from gpumatch.routing.overlays.messages import Event, Message, Outcome
from gpumatch.routing.overlays.overlap import Overlaps
from gpumatch.routing.overlays.topology import Topology, check_broker
from gpumatch.schema import SchemaLike

Protocol: TypeAlias = Literal["d-dbr", "merc", "fbr"]
Link: TypeAlias = "tuple[int, int]"


class Delivery(NamedTuple):
    """An event that a client received."""

    event: int
    broker: int
    client: Hashable


class Network:
    """Brokers over an overlay. ``protocol``: ``"d-dbr"``, ``"merc"`` (which needs ``Clusters``) or ``"fbr"``.

    ``deliveries``: what clients received, in order. ``messages``: how many crossed a link, by kind, and the number of
    overlay updates. ``destination_lists``: by kind, how many messages had a list of each length. ``lost``: messages
    that FBR lost; ``resent``: messages that D-DBR and MERC sent again.
    """

    def __init__(self, overlay: Topology | Clusters, schema: SchemaLike, protocol: Protocol = "d-dbr") -> None:
        expect("overlay", overlay, Topology, Clusters)
        if protocol not in ("d-dbr", "merc", "fbr"):
            raise RoutingError(f"protocol: expected 'd-dbr', 'merc' or 'fbr', found {protocol!r}")
        if protocol == "merc" and not isinstance(overlay, Clusters):
            raise RoutingError("MERC needs Clusters(topology, members), found a topology without clusters")
        self.topology = overlay.topology if isinstance(overlay, Clusters) else overlay
        self.protocol = protocol
        self._clusters = (
            overlay
            if isinstance(overlay, Clusters) and protocol == "merc"
            else Clusters(self.topology, [np.arange(self.topology.brokers)])
        )
        self._whole = self.topology  # before any failure
        self._down: set[int] = set()
        self._cut: set[Link] = set()
        self.brokers: list[Broker | FilterBroker] = self._make_brokers(Overlaps(schema))
        self.deliveries: list[Delivery] = []
        self.messages: Counter[str] = Counter()
        self.destination_lists: dict[str, Counter[int]] = {}
        self.lost: Counter[str] = Counter()
        self.resent: Counter[str] = Counter()
        self._flying: list[tuple[int, int, Message]] = []  # from, to
        self._waiting: list[tuple[int, Message]] = []  # holder
        self._issued: dict[int, tuple[str, int]] = {}  # advertisement or subscription -> kind, broker
        self._next = 0

    def _make_brokers(self, overlaps: Overlaps) -> list[Broker | FilterBroker]:
        if self.protocol == "fbr":
            return [FilterBroker(b, overlaps, self.topology.neighbours(b)) for b in range(self.topology.brokers)]
        made: list[Broker | FilterBroker] = []
        for number in range(self.topology.brokers):
            mine = [int(cluster) for cluster in self._clusters.clusters_of(number)]
            made.append(Broker(number, overlaps, {c: (self._clusters.members[c], self._clusters.sub(c)) for c in mine}))
        return made

    def __repr__(self) -> str:
        up = int(np.count_nonzero(self.topology.up))
        return (
            f"<Network: {self.protocol}, {up} of {len(self.brokers)} brokers up, {len(self.deliveries):,} deliveries>"
        )

    # Clients

    def advertise(self, broker: int, client: Hashable, expression: Expr | str) -> int:
        """A client promises that its events satisfy the expression. Returns the advertisement's id."""
        id = self._new_id()
        self._do(broker, self._up(broker).advertise(id, client, expression))
        self._issued[id] = ("advertisement", broker)
        return id

    def subscribe(self, broker: int, client: Hashable, expression: Expr | str) -> int:
        """A client asks for the events that satisfy the expression. Returns the subscription's id."""
        id = self._new_id()
        self._do(broker, self._up(broker).subscribe(id, client, expression))
        self._issued[id] = ("subscription", broker)
        return id

    def unadvertise(self, id: int) -> None:
        """Withdraw an advertisement."""
        self._withdraw(id, "advertisement")

    def unsubscribe(self, id: int) -> None:
        """Withdraw a subscription."""
        self._withdraw(id, "subscription")

    @overload
    def publish(self, broker: int, client: Hashable, events: Mapping[str, Any]) -> int: ...
    @overload
    def publish(self, broker: int, client: Hashable, events: Sequence[Mapping[str, Any]]) -> list[int]: ...
    def publish(
        self, broker: int, client: Hashable, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> int | list[int]:
        """Publish an event, or several together. Returns its id, or theirs."""
        batch = deepcopy([events] if isinstance(events, Mapping) else list(events))  # they are under way for a while
        ids = [self._new_id() for _ in batch]
        if batch:
            self._do(broker, self._up(broker).publish(client, dict(zip(ids, batch, strict=True))))
        return ids[0] if isinstance(events, Mapping) else ids

    def _withdraw(self, id: int, kind: str) -> None:
        found, broker = self._issued.get(id, (None, 0))
        if found != kind:
            other = {"advertisement": "an advertisement", "subscription": "a subscription"}
            raise RoutingError(f"there is no {kind} {id!r}" + (f"; the id is of {other[found]}" if found else ""))
        self._do(broker, self._up(broker).withdraw(id))
        del self._issued[id]

    def _new_id(self) -> int:
        self._next += 1
        return self._next - 1

    def _up(self, broker: int) -> Broker | FilterBroker:
        check_broker(broker, len(self.brokers))
        if not self.topology.up[broker]:
            raise RoutingError(f"broker {broker} is down, and its clients are cut off; restore_broker({broker}) first")
        return self.brokers[broker]

    # Messages

    def step(self) -> int:
        """Every message under way crosses its link. Returns how many did."""
        # By broker and neighbour, so that of copies arriving together the lowest-numbered sender's comes first.
        moving = sorted(self._flying, key=lambda copy: (copy[1], copy[0]))
        self._flying = []
        for sender, receiver, message in moving:
            self._do(receiver, self.brokers[receiver].handle(message, sender))
        return len(moving)

    def run(self) -> int:
        """Steps until nothing is under way. Returns how many it took."""
        steps = 0
        while self._flying:
            self.step()
            steps += 1
        return steps

    @property
    def in_flight(self) -> int:
        """Messages that are under way."""
        return len(self._flying)

    @property
    def pending(self) -> list[Message]:
        """Messages that wait for a path to these destinations, which do not have them yet."""
        waiting = []
        for _, message in self._waiting:
            lacking = tuple(to for to in message.destinations if not self._has(to, message))
            if lacking:
                waiting.append(message.to(lacking))
        return waiting

    def _has(self, broker: int, message: Message) -> bool:
        """Whether a broker has an event, which may have come another way in MERC."""
        return isinstance(message, Event) and self.brokers[broker].saw(message.id)

    def _do(self, broker: int, outcome: Outcome) -> None:
        """Carry out what a broker decided."""
        self.deliveries += [Delivery(event, broker, client) for client, event in outcome.deliveries]
        for hop, message in outcome.sends:
            if self._is_cut(broker, hop):  # only FBR does not know
                self.lost[message.kind] += 1
                continue
            self.messages[message.kind] += 1
            self.destination_lists.setdefault(message.kind, Counter())[len(message.destinations)] += 1
            self._flying.append((broker, hop, message))
        for message in outcome.stranded:
            self._send_again(broker, message)

    def _send_again(self, holder: int, message: Message) -> None:
        """Resend a copy that was held up: from its holder by another route, or else from the source."""
        if not self.topology.up[holder]:
            holder = message.source  # which keeps it, even while it is down
        for number in (holder, message.source):
            broker = self.brokers[number]
            if isinstance(broker, FilterBroker):
                self.lost[message.kind] += 1
                return
            if self.topology.up[number]:
                outcome = broker.multicast(message)
                self.resent[message.kind] += len(outcome.sends)
                self._do(number, Outcome(outcome.sends))
                message = message.to(tuple(to for rest in outcome.stranded for to in rest.destinations))
        if message.destinations:
            self._waiting.append((holder, message))

    # Failures

    def fail_link(self, a: int, b: int) -> None:
        """A link is lost, with the messages on it."""
        link = self._link(a, b)
        if link in self._cut:
            raise RoutingError(f"the link {a}-{b} is already lost")
        self._cut.add(link)
        self._changed({a, b})

    def restore_link(self, a: int, b: int) -> None:
        """A lost link is restored."""
        if self._link(a, b) not in self._cut:
            raise RoutingError(f"the link {a}-{b} is not lost")
        self._cut.remove(self._link(a, b))
        self._changed({a, b})

    def fail_broker(self, broker: int) -> None:
        """A broker is down, and messages on their way to or from it are lost."""
        check_broker(broker, len(self.brokers))
        if not self.topology.up[broker]:
            raise RoutingError(f"broker {broker} is already down")
        self._down.add(broker)
        self._changed({broker})

    def restore_broker(self, broker: int) -> None:
        """A failed broker is up again with the tables that it had."""
        check_broker(broker, len(self.brokers))
        if broker not in self._down:
            raise RoutingError(f"broker {broker} has not failed")
        self._down.remove(broker)
        self._changed({broker})

    def _link(self, a: int, b: int) -> Link:
        for end in (a, b):
            check_broker(end, len(self.brokers))
        link = (min(a, b), max(a, b))
        if not (self._whole.links == link).all(axis=1).any():
            raise RoutingError(f"there is no link {a}-{b}; see Topology.links")
        return link

    def _is_cut(self, a: int, b: int) -> bool:
        return a in self._down or b in self._down or (min(a, b), max(a, b)) in self._cut

    def _changed(self, ends: set[int]) -> None:
        """Tell the clusters that all these brokers are in, and send again what got lost or waited."""
        self.topology = self._whole.without(list(self._cut), list(self._down))
        if self.protocol != "fbr":
            for cluster, members in enumerate(self._clusters.members):
                if ends <= set(members.tolist()):
                    self._update(cluster)
        flying, waiting = self._flying, self._waiting
        self._flying = [copy for copy in flying if not self._is_cut(copy[0], copy[1])]
        self._waiting = []
        for sender, receiver, message in flying:
            if self._is_cut(sender, receiver):
                self._send_again(sender, message)
        for holder, message in waiting:
            self._send_again(holder, message)

    def _update(self, cluster: int) -> None:
        """New TRT and SPRTs for the brokers of a cluster."""
        members = self._clusters.members[cluster]
        up = np.zeros(len(self.brokers), np.bool_)
        up[members] = self.topology.up[members]
        inside = Topology(len(self.brokers), self.topology.links, up)
        for number in members:
            broker = self.brokers[number]
            if isinstance(broker, Broker):
                broker.clusters[cluster].topology = inside
        self.messages["overlay update"] += len(members)

    # Results

    def reached(self, event: int) -> list[int]:
        """The brokers that matched an event: its source and its destinations (FBR: all on the way), ascending."""
        found = [broker.number for broker in self.brokers if broker.saw(event)]
        if not found:
            raise RoutingError(f"there is no event {event!r}; publish() returns their ids")
        return found

    @property
    def duplicates(self) -> Counter[str]:
        """Messages that brokers dropped because they had them already, by kind."""
        return sum((broker.duplicates for broker in self.brokers), Counter[str]())

    @property
    def matches(self) -> list[int]:
        """How often each broker matched an event."""
        return [broker.matches for broker in self.brokers]

    @property
    def stored(self) -> list[int]:
        """How many subscriptions each broker stores, of clients and of other brokers."""
        return [broker.stored for broker in self.brokers]
