"""MERC's clusters: sets of brokers that know each other, joined by edge brokers that are in several.

Two clusters may share several edge brokers, and clusters may form a cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.checks import expect, whole
from gpumatch.routing.overlays.topology import Topology, broker_numbers, check_broker


@dataclass(frozen=True, eq=False)
class Clusters:
    """A topology and the brokers of each of its clusters.

    ``members``: a sequence of broker numbers per cluster; kept as int64, ascending. Every broker is in at least one
    and every link inside at least one. A cluster need not be connected in itself, for instance after a failure.
    """

    topology: Topology
    members: Sequence[Any]  # arrays once made

    def __post_init__(self) -> None:
        expect("topology", self.topology, Topology)
        if not isinstance(self.members, Iterable) or not all(isinstance(each, Iterable) for each in self.members):
            raise RoutingError("members: expected the brokers of each cluster, such as [[0, 1, 2], [2, 3]]")
        members = [broker_numbers(brokers, self.topology.brokers) for brokers in self.members]
        for brokers in members:
            brokers.setflags(write=False)
        object.__setattr__(self, "members", tuple(members))
        self._check()

    @classmethod
    def grow(cls, topology: Topology, size: int, seed: int = 0) -> Clusters:
        """Clusters for a topology without any: each grows from a random broker to its neighbours, up to ``size``.

        A cluster enclosed by others stays smaller. For each link between two clusters, the end with more links to the
        other cluster joins that one too, so clusters end up larger than ``size``, and much larger if links are not
        local. Each cluster is connected in itself, and none is inside another.
        """
        expect("topology", topology, Topology)
        if whole("size", size) < 1:
            raise RoutingError(f"size: expected at least one broker in a cluster, found {size}")
        home = _homes(topology, size, seed)
        members = [set(np.flatnonzero(home == cluster).tolist()) for cluster in range(int(home.max(initial=-1)) + 1)]
        between = topology.links[home[topology.links[:, 0]] != home[topology.links[:, 1]]].tolist()
        pull = Counter((end, int(home[other])) for link in between for end, other in (link, link[::-1]))
        for a, b in between:
            if a not in members[home[b]] and b not in members[home[a]]:
                joins, other = (a, b) if pull[a, int(home[b])] >= pull[b, int(home[a])] else (b, a)
                members[home[other]].add(joins)
        groups = list(dict.fromkeys(map(frozenset, members)))
        kept = [group for group in groups if not any(group < other for other in groups)]
        return cls(topology, [np.array(sorted(group)) for group in kept])

    def _check(self) -> None:
        alone = np.flatnonzero(np.diff(self._by_broker[0]) == 0)
        if len(alone):
            raise RoutingError(f"broker {alone[0]} is in no cluster: every broker must be in at least one")
        inside = np.zeros(len(self.topology.links), bool)
        for brokers in self.members:
            inside |= self._within(brokers)
        if not inside.all():
            a, b = self.topology.links[~inside][0]
            raise RoutingError(
                f"the link {a}-{b} is in no cluster: make one of its ends an edge broker, a member of both clusters"
            )

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"<Clusters: {len(self)} over {self.topology.brokers} brokers, {len(self.edge_brokers)} at the edge>"

    @cached_property
    def _by_broker(self) -> tuple[Array, Array]:
        """CSR: offsets (n + 1), and the clusters of each broker, ascending."""
        sizes = np.array([len(brokers) for brokers in self.members], np.int64)
        broker = np.concatenate((*self.members, np.empty(0, np.int64)))
        order = np.argsort(broker, kind="stable")
        offsets = np.zeros(self.topology.brokers + 1, np.int64)
        np.cumsum(np.bincount(broker, minlength=self.topology.brokers), out=offsets[1:])
        return offsets, np.repeat(np.arange(len(sizes)), sizes)[order]

    def clusters_of(self, broker: int) -> Array:
        """The clusters that a broker is in, ascending."""
        check_broker(broker, self.topology.brokers)
        offsets, clusters = self._by_broker
        return clusters[offsets[broker] : offsets[broker + 1]]

    @cached_property
    def edge_brokers(self) -> Array:
        """The brokers that are in more than one cluster, ascending."""
        return np.flatnonzero(np.diff(self._by_broker[0]) > 1)

    def sub(self, cluster: int) -> Topology:
        """The topology inside one cluster: the same numbers, all other brokers down."""
        if not 0 <= cluster < len(self.members):
            raise RoutingError(f"there is no cluster {cluster}: they are numbered 0 to {len(self.members) - 1}")
        return self._subs[cluster]

    @cached_property
    def _subs(self) -> list[Topology]:
        made = []
        for brokers in self.members:
            up = np.zeros(self.topology.brokers, bool)
            up[brokers] = self.topology.up[brokers]
            made.append(Topology(self.topology.brokers, self.topology.links, up))
        return made

    def _within(self, brokers: Array) -> Array:
        """For each link: are both of its ends among these brokers?"""
        there = np.zeros(self.topology.brokers, bool)
        there[brokers] = True
        inside: Array = np.all(there[self.topology.links], axis=1)
        return inside


def _homes(topology: Topology, size: int, seed: int) -> Array:
    """The first cluster of each broker: connected, and of at most ``size`` brokers."""
    home = np.full(topology.brokers, -1, np.int64)
    cluster = 0
    for start in np.random.default_rng(seed).permutation(topology.brokers).tolist():
        if home[start] >= 0:
            continue
        home[start] = cluster
        grown = [start]
        for at in grown:  # nearest first, as it grows
            near = [other for other in topology.neighbours(at).tolist() if home[other] < 0][: size - len(grown)]
            home[near] = cluster
            grown += near
        cluster += 1
    return home
