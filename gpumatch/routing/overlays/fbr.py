"""Filter-based routing on overlays with cycles, the baseline: a tree per advertisement, events matched at every hop.

An advertisement is flooded; the neighbour from which a broker first gets it is the broker's parent in its tree. A
subscription goes up the tree of every advertisement that it overlaps and is stored at every broker on the way, once
for each tree. An event goes down the tree of one advertisement that covers it. Trees are not repaired: after a failure
messages over the lost link or broker are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from gpumatch.errors import RoutingError
from gpumatch.expr import Expr
from gpumatch.routing.overlays.brokers import check_covered
from gpumatch.routing.overlays.messages import Advertisement, Event, Message, Outcome, Subscription
from gpumatch.routing.overlays.overlap import Overlaps
from gpumatch.routing.overlays.tables import RoutingTable

Hop: TypeAlias = "tuple[bool, Hashable]"  # a client (True) or a broker
Route: TypeAlias = "tuple[int, int, Hop]"  # subscription, tree, last hop


class FilterBroker:
    """One broker, with the interface of ``Broker``. It knows only its neighbours, and not whether they are up."""

    def __init__(self, number: int, overlaps: Overlaps, neighbours: Iterable[int]) -> None:
        self.number = number
        self.neighbours = tuple(int(one) for one in neighbours)
        self.advertisements = RoutingTable(overlaps)  # SRT: the source is the last hop
        self.subscriptions = RoutingTable(overlaps)  # PRT: the ids are routes, the source is (tree, last hop)
        self.local_advertisements = RoutingTable(overlaps)
        self.local_subscriptions = RoutingTable(overlaps)
        self.matches = 0
        self.duplicates: Counter[str] = Counter()
        self._trees: dict[int, dict[Route, None]] = {}  # routes stored for each tree
        self._flooded: set[tuple[int, bool]] = set()
        self._events: set[int] = set()

    def saw(self, event: int) -> bool:
        """Did the event come through here?"""
        return event in self._events

    @property
    def stored(self) -> int:
        """How many subscriptions it stores, counted for each tree and last hop."""
        return len(self.subscriptions)

    # From local clients

    def advertise(self, id: int, client: Hashable, expression: Expr | str) -> Outcome:
        entry = self.local_advertisements.insert(id, expression, client)
        message = Advertisement(id, self.number, (), expression=entry.expression)
        return self._flood(message, (True, client))

    def subscribe(self, id: int, client: Hashable, expression: Expr | str) -> Outcome:
        entry = self.local_subscriptions.insert(id, expression, client)
        outcome = Outcome()
        for advertisement in self.advertisements.overlapping(entry.prepared):
            outcome.add(self._join(id, entry.expression, cast("int", advertisement.id), (True, client)))
        return outcome

    def withdraw(self, id: int) -> Outcome:
        """Withdraw an advertisement or a subscription of a local client."""
        if id in self.local_advertisements:
            gone = self.local_advertisements.remove(id)
            message = Advertisement(id, self.number, (), expression=gone.expression, ended=True)
            return self._flood(message, (True, gone.source))
        gone = self.local_subscriptions.remove(id)
        outcome = Outcome()
        for tree in list(self._trees):
            outcome.add(self._leave(id, gone.expression, tree, (True, gone.source)))
        return outcome

    def publish(self, client: Hashable, events: Mapping[int, Mapping[str, Any]]) -> Outcome:
        """Events by id, each along the tree of the client's first advertisement that covers it."""
        check_covered(self.local_advertisements, client, events)
        outcome = Outcome()
        covering = self.local_advertisements.match(list(events.values()))
        for (id, values), found in zip(events.items(), covering, strict=True):
            tree = next(one for one in found if self.local_advertisements[one].source == client)
            outcome.add(self._event(Event(id, self.number, (), values=values, tree=cast("int", tree))))
        return outcome

    # From neighbours

    def handle(self, message: Message, sender: int) -> Outcome:
        """One message from a neighbour."""
        if isinstance(message, Advertisement):
            return self._flood(message, (False, sender))
        if isinstance(message, Event):
            return self._event(message)
        if isinstance(message, Subscription) and message.tree is not None:
            change = self._leave if message.ended else self._join
            return change(message.id, message.expression, message.tree, (False, sender))
        raise RoutingError(f"broker {self.number} was sent {message!r}; filter-based routing needs the tree")

    def _flood(self, message: Advertisement, origin: Hop) -> Outcome:
        key = (message.id, message.ended)
        if key in self._flooded:
            self.duplicates[message.kind] += 1
            return Outcome()
        self._flooded.add(key)
        sends = [(hop, cast("Message", message)) for hop in self.neighbours if origin != (False, hop)]
        outcome = Outcome(sends)
        if message.ended:
            if message.id in self.advertisements:  # not if the advertisement was lost on its way
                self.advertisements.remove(message.id)
            for route in self._trees.pop(message.id, {}):
                self.subscriptions.remove(route)
            return outcome
        stored = self.advertisements.insert(message.id, message.expression, origin)
        for entry in self.local_subscriptions.overlapping(stored.prepared):
            outcome.add(self._join(cast("int", entry.id), entry.expression, message.id, (True, entry.source)))
        return outcome

    def _join(self, id: int, expression: Expr, tree: int, origin: Hop) -> Outcome:
        """Store a subscription for a tree, and send it on to the parent in the tree."""
        route = (id, tree, origin)
        if tree not in self.advertisements or route in self.subscriptions:  # withdrawn by now, or known
            return Outcome()
        self.subscriptions.insert(route, expression, (tree, origin))
        self._trees.setdefault(tree, {})[route] = None
        return self._up(Subscription(id, self.number, (), expression=expression, tree=tree))

    def _leave(self, id: int, expression: Expr, tree: int, origin: Hop) -> Outcome:
        route = (id, tree, origin)
        if route not in self.subscriptions:
            return Outcome()
        self.subscriptions.remove(route)
        del self._trees[tree][route]
        return self._up(Subscription(id, self.number, (), expression=expression, tree=tree, ended=True))

    def _up(self, message: Subscription) -> Outcome:
        is_client, parent = cast("Hop", self.advertisements[message.tree].source)
        return Outcome() if is_client else Outcome([(cast("int", parent), message)])

    def _event(self, message: Event) -> Outcome:
        self._events.add(message.id)
        self.matches += 1
        outcome = Outcome()
        for tree, hop in cast("list[tuple[int, Hop]]", self.subscriptions.sources([message.values])[0]):
            if tree != message.tree:
                continue
            is_client, name = hop
            if is_client:
                outcome.deliveries.append((name, message.id))
            else:
                outcome.sends.append((cast("int", name), message))
        return outcome
