"""Routing in each protocol: next hops, MERC's lists at the edges of clusters, and the costs.

D-DBR and FBR know one topology. MERC's brokers know their clusters: an edge broker adds the interested brokers of the
cluster that it sends into, and those of its edge brokers beyond which others are interested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gpumatch.arrays import Array, spans
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.topology import Topology

PROTOCOLS = ("d-dbr", "merc", "fbr")
_LONGEST = 10**12  # nanoseconds, a quarter of an hour
_MOST_SUBSCRIPTIONS = 10**6


@dataclass(frozen=True, slots=True)
class Costs:
    """Durations in nanoseconds.

    A broker is busy for ``receive`` with every message; for ``match``, and ``subscription`` for each stored one, where
    the protocol matches; for ``send`` with each message that leaves and ``entry`` with each destination in its list.
    All messages leave when the work is done, and reach the next broker after ``latency``. Every broker has
    ``subscriptions`` of its own. MERC's edge brokers are ``edge_speed`` times as fast: the thesis gave them 8 cores.
    """

    latency: int = 1_000_000
    receive: int = 20_000
    match: int = 100_000
    subscription: int = 8_000
    send: int = 50_000
    entry: int = 1_000
    subscriptions: int = 30
    edge_speed: int = 8

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in ("latency", "receive", "edge_speed") else 0
            most = _MOST_SUBSCRIPTIONS if field.name == "subscriptions" else _LONGEST
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
                raise RoutingError(f"{field.name}: expected a whole number from {least} to {most:,}, found {value!r}")

    def check(self, brokers: int) -> None:
        """Raise if a match takes so long that sums of times exceed 64 bits."""
        longest = int(self.match) + int(self.subscription) * int(self.subscriptions) * brokers
        if longest > _LONGEST:
            raise RoutingError(
                f"a match of {brokers} brokers' subscriptions takes {longest:,} nanoseconds: expected at most "
                f"{_LONGEST:,}; lower match, subscription or subscriptions"
            )


class PlainRoutes:
    """Next hops over the whole topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def hop(self, broker: Array, cluster: Array, destination: Array) -> Array:
        """The neighbour to send to, -1 if there is no path; ``cluster`` is ignored."""
        return self.topology.next_hop[broker, destination].astype(np.int64)


class ClusterRoutes:
    """Next hops inside clusters, and the brokers that an event must reach in each of them.

    A *cell* is a connected component of a cluster: the whole of it, unless links are lost. If a cell is taken out, the
    others fall into connected *groups*; an event enters a group through the edge brokers that it shares with the cell.
    """

    def __init__(self, topology: Topology, members: Sequence[Array]) -> None:
        self.topology = topology
        self.members = members
        n, clusters = topology.brokers, len(members)
        self.position = np.full((clusters, n), -1, np.int64)  # index of a broker among the members
        sizes = np.array([len(brokers) for brokers in members], np.int64)
        self.start = np.concatenate(([0], np.cumsum(sizes * sizes)))  # of each cluster's table of next hops
        self.size = sizes
        self.hops = np.empty(self.start[-1], np.int64)
        self.cell = np.full((clusters, n), -1, np.int64)
        cells: list[int] = []  # the cluster of each
        for cluster, brokers in enumerate(members):
            self.position[cluster, brokers] = np.arange(len(brokers))
            inner = self.inside(cluster)
            hop = inner.next_hop.astype(np.int64)
            self.hops[self.start[cluster] : self.start[cluster + 1]] = np.where(hop < 0, -1, brokers[hop]).ravel()
            alive = np.flatnonzero(inner.up)
            lowest, component = np.unique((inner.distance[alive] >= 0).argmax(axis=1), return_inverse=True)
            self.cell[cluster, brokers[alive]] = component + len(cells)
            cells += [cluster] * len(lowest)
        self.cluster_of_cell = np.array(cells, np.int64)
        self._find_groups()

    def inside(self, cluster: int) -> Topology:
        """One cluster, with its members numbered from 0 in order."""
        position, links = self.position[cluster], self.topology.links
        inner = position[links]
        return Topology(
            int(self.size[cluster]), inner[(inner >= 0).all(axis=1)], self.topology.up[self.members[cluster]]
        )

    def _find_groups(self) -> None:
        """For each cell the group of every other broker, and the cell's edge brokers that lead into each group."""
        n, cells = self.topology.brokers, len(self.cluster_of_cell)
        cluster, broker = np.nonzero(self.cell >= 0)
        cell = self.cell[cluster, broker]
        self.group = np.full((cells, n), -1, np.int64)
        pairs, groups = [np.empty((2, 0), np.int64)], 0
        for own in np.flatnonzero(np.bincount(cell, minlength=cells) > 1):
            other = cell != own
            graph = coo_array((np.ones(other.sum()), (cell[other], cells + broker[other])), shape=(cells + n,) * 2)
            count, component = connected_components(graph, directed=False)
            self.group[own, broker[other]] = component[cells + broker[other]] + groups
            inside = broker[~other]
            doors = inside[self.group[own, inside] >= 0]
            pairs.append(np.stack((self.group[own, doors], doors)))
            self.group[own, inside] = -1
            groups += count
        doors_of = np.concatenate(pairs, axis=1)
        doors_of = doors_of[:, np.lexsort(doors_of[::-1])]
        self.groups = groups
        self.door_start = np.searchsorted(doors_of[0], np.arange(groups + 1))
        self.door = doors_of[1]

    def hop(self, broker: Array, cluster: Array, destination: Array) -> Array:
        """The neighbour to send to inside the cluster, -1 where there is no path."""
        row = self.start[cluster] + self.position[cluster, broker] * self.size[cluster]
        hops: Array = self.hops[row + self.position[cluster, destination]]
        return hops

    def lists(self, cell: Array, row: Array, interested: Array) -> tuple[Array, Array]:
        """The brokers to send to in each of these cells: (row, broker), ascending.

        ``cell`` is per row; ``row`` and ``interested`` are the pairs of a row and a broker that is interested anywhere.
        """
        n, at = self.topology.brokers, cell[row]
        inside = self.cell[self.cluster_of_cell[at], interested] == at
        group = self.group[at, interested]
        away = group >= 0
        through = np.unique(row[away] * max(self.groups, 1) + group[away])
        of, group = np.divmod(through, max(self.groups, 1))
        counts = self.door_start[group + 1] - self.door_start[group]
        doors = self.door[spans(self.door_start[group], counts)]
        listed = np.unique(np.concatenate((row[inside] * n + interested[inside], np.repeat(of, counts) * n + doors)))
        rows, brokers = np.divmod(listed, max(n, 1))
        return rows, brokers
