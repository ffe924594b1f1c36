"""What a broker remembers of its clusters, and of what it has told whom there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from gpumatch.routing.overlays.messages import Advertisement, Subscription
from gpumatch.routing.overlays.overlap import Overlaps, Prepared
from gpumatch.routing.overlays.tables import RoutingTable
from gpumatch.routing.overlays.topology import Topology

Trail: TypeAlias = "frozenset[int]"  # clusters
Member: TypeAlias = "tuple[int, int]"  # cluster, broker

NOWHERE: Trail = frozenset()


class ClusterTables:
    """A broker's tables of one cluster. The ids of entries are (id, broker), their sources (broker, trail)."""

    def __init__(self, members: tuple[int, ...], topology: Topology, overlaps: Overlaps) -> None:
        self.members = members  # the other brokers
        self.topology = topology  # TRT and SPRT
        self.advertisements = RoutingTable(overlaps)  # R-SRT
        self.subscriptions = RoutingTable(overlaps)  # R-PRT
        self._advertised: dict[int, dict[int, Trail]] = {}  # broker -> its advertisements

    def insert(self, message: Advertisement | Subscription) -> None:
        """Record what a broker says, replacing what it said about the same thing before."""
        is_advertisement = isinstance(message, Advertisement)
        self.remove(message.id, message.source)
        table = self.advertisements if is_advertisement else self.subscriptions
        table.insert((message.id, message.source), message.expression, (message.source, message.trail))
        if is_advertisement:
            self._advertised.setdefault(message.source, {})[message.id] = message.trail

    def remove(self, id: int, broker: int) -> None:
        """Forget what a broker said about something, if it did."""
        for table in (self.advertisements, self.subscriptions):
            if (id, broker) in table:
                table.remove((id, broker))
        self._advertised.get(broker, {}).pop(id, None)

    def wants(self, broker: int, subscription: Prepared, trail: Trail) -> bool:
        """Has the broker advertised anything that overlaps a subscription with this trail?

        An advertisement that came through a cluster of the trail does not count: the subscription has met it there.
        """
        return any(
            way.isdisjoint(trail) and subscription.overlaps(self.advertisements[(id, broker)].prepared)
            for id, way in self._advertised.get(broker, {}).items()
        )


@dataclass(slots=True)
class Known:
    """An advertisement or a subscription: from whom a broker has it, and whom it has told."""

    prepared: Prepared
    local: bool = False  # from a client
    entries: dict[Member, Trail] = field(default_factory=dict)
    told: dict[Member, Trail] = field(default_factory=dict)
    ever_told: dict[Member, None] = field(default_factory=dict)

    def trail_into(self, cluster: int) -> Trail | None:
        """The common trail of all routes on which it may enter a cluster; None if there is no route.

        Forbidding only what *every* route has passed keeps all others open in case brokers fail.
        """
        routes = [trail for (origin, _), trail in self.entries.items() if origin != cluster and cluster not in trail]
        if self.local:
            return NOWHERE
        return frozenset.intersection(*routes) if routes else None
