"""The overlay as every broker knows it: who is linked to whom (TRT) and the next hop to everybody (SPRT).

All links cost the same. Where several neighbours lie on shortest paths, the lowest-numbered one is the next hop: every
message then takes the path that is first in dictionary order. Every section of such a path is again the first between
its ends, so the paths from one broker form a tree, and brokers on the way, which decide by their own tables, follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.checks import whole

MOST_BROKERS = 32_767  # broker numbers and distances are 16-bit


@dataclass(frozen=True, eq=False)
class Topology:
    """Brokers, numbered from 0, and the links between those that are up.

    ``links``: pairs of brokers in any order; kept as int64 of shape (m, 2), each once, lower number first, sorted.
    ``up``: bool per broker, None for all. Links of a broker that is down are left out.
    Tables are made when first needed: three of 2 bytes for each pair of brokers. They are read-only.
    """

    brokers: int
    links: Any  # an array once made, as is ``up``
    up: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "brokers", whole("brokers", self.brokers))
        if not 0 <= self.brokers <= MOST_BROKERS:
            raise RoutingError(f"expected 0 to {MOST_BROKERS:,} brokers, found {self.brokers:,}")
        up = np.ones(self.brokers, bool) if self.up is None else np.array(self.up)
        if up.shape != (self.brokers,) or up.dtype != bool:
            raise RoutingError(
                f"up: expected a bool for each of the {self.brokers} brokers, found {up.dtype} of shape {up.shape}"
            )
        pairs = _links(self.links, self.brokers)
        pairs = _pairs(np.unique(_keys(pairs, self.brokers)), self.brokers)
        object.__setattr__(self, "up", _fixed(up))
        object.__setattr__(self, "links", _fixed(pairs[up[pairs].all(axis=1)]))

    def __repr__(self) -> str:
        down = np.count_nonzero(~self.up)
        return f"<Topology: {self.brokers} brokers{f', {down} of them down' if down else ''}, {len(self.links)} links>"

    @cached_property
    def adjacency(self) -> tuple[Array, Array]:
        """The TRT as CSR: offsets (n + 1), and the neighbours of each broker, ascending."""
        ends = np.concatenate((self.links, self.links[:, ::-1]))
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        offsets = np.zeros(self.brokers + 1, np.int64)
        np.cumsum(np.bincount(ends[:, 0], minlength=self.brokers), out=offsets[1:])
        return _fixed(offsets), _fixed(ends[order, 1])

    @property
    def degrees(self) -> Array:
        return np.diff(self.adjacency[0])

    def neighbours(self, broker: int) -> Array:
        """The neighbours of a broker, ascending."""
        offsets, neighbours = self.adjacency
        self._check(broker)
        return neighbours[offsets[broker] : offsets[broker + 1]]

    @property
    def connected(self) -> bool:
        """Can all brokers that are up reach each other? True also if there are none."""
        if not self.up.any():
            return True
        component = connected_components(self._graph(), directed=False)[1][self.up]
        return bool((component == component[0]).all())

    def _graph(self) -> Any:
        offsets, neighbours = self.adjacency
        return csr_array((np.ones(len(neighbours)), neighbours, offsets), shape=(self.brokers, self.brokers))

    @cached_property
    def distance(self) -> Array:
        """Hops from each broker to each, int16 (n, n): ``distance[a, b]`` is the length of ``path(a, b)``.

        It is 0 from a broker that is up to itself, and -1 where there is no path: a broker that is down reaches nobody,
        not even itself.
        """
        if not self.brokers:
            return _fixed(np.empty((0, 0), np.int16))
        hops = shortest_path(self._graph(), method="D", unweighted=True)
        hops[np.isinf(hops)] = -1
        distance = hops.astype(np.int16)
        distance[~self.up, ~self.up] = -1
        return _fixed(distance)

    @cached_property
    def next_hop(self) -> Array:
        """The SPRTs, int16 (n, n): ``next_hop[at, to]`` is the neighbour to which ``at`` sends messages for ``to``.

        If several are on shortest paths, the lowest-numbered; -1 for the broker itself and where there is no path.
        """
        offsets, neighbours = self.adjacency
        distance, degrees = self.distance, self.degrees
        hop = np.full(distance.shape, -1, np.int16)
        for rank in reversed(range(int(degrees.max(initial=0)))):  # the lowest neighbour writes last
            at = np.flatnonzero(degrees > rank)
            neighbour = neighbours[offsets[at] + rank]
            nearer = distance[neighbour] == distance[at] - 1
            hop[at] = np.where(nearer, neighbour[:, None].astype(np.int16), hop[at])
        return _fixed(hop)

    @cached_property
    def parent(self) -> Array:
        """The trees of paths, int16 (n, n): ``parent[source, to]`` is the one before ``to`` on ``path(source, to)``.

        -1 for the source itself and where there is no path.
        """
        distance, hop = self.distance, self.next_hop
        parent = np.full(distance.shape, -1, np.int16)
        source, to = np.nonzero(distance > 0)
        length = distance[source, to]
        order = np.argsort(length, kind="stable")
        ends = np.searchsorted(length[order], np.arange(1, int(length.max(initial=0)) + 2))
        for level, (first, last) in enumerate(pairwise(ends), 1):
            at, v = source[order[first:last]], to[order[first:last]]
            parent[at, v] = at if level == 1 else parent[hop[at, v], v]  # the rest of the path is that of the next hop
        return _fixed(parent)

    def split(self, at: int, destinations: Any) -> dict[int, Array]:
        """The messages that a broker sends: next hop -> the destinations, ascending, that are reached through it.

        The broker itself needs no message and is left out.
        """
        wanted = broker_numbers(destinations, self.brokers)
        self._check(at)
        wanted = wanted[wanted != at]
        hops = self.next_hop[at, wanted]
        if len(hops) and hops.min() < 0:
            raise RoutingError(
                f"broker {at} has no path to {_few(wanted[hops < 0])}; leave out brokers whose distance is -1"
            )
        return {int(hop): wanted[hops == hop] for hop in np.unique(hops)}

    def path(self, start: int, end: int) -> list[int]:
        """The brokers that a message visits, both ends included."""
        self._check(start, end)
        if self.distance[start, end] < 0:
            raise RoutingError(f"broker {start} has no path to broker {end}")
        path = [int(start)]
        while path[-1] != end:
            path.append(int(self.next_hop[path[-1], end]))
        return path

    def without(self, links: Any = (), brokers: Any = ()) -> Topology:
        """The same brokers with these links lost and these brokers down."""
        up = self.up.copy()
        up[broker_numbers(brokers, self.brokers)] = False
        return Topology(self.brokers, self._minus(links), up)

    def with_changes(self, add: Any = (), drop: Any = ()) -> Topology:
        """The same brokers with links added and dropped."""
        new = _links(add, self.brokers)
        kept = self._minus(drop)
        there = np.isin(_keys(new, self.brokers), _keys(kept, self.brokers))
        down = ~self.up[new].all(axis=1)
        for bad, why in ((there, "already exists"), (down, "has an end that is down")):
            if bad.any():
                a, b = new[bad][0]
                raise RoutingError(f"cannot add the link {a}-{b}: it {why}")
        return Topology(self.brokers, np.concatenate((kept, new)), self.up)

    def _minus(self, links: Any) -> Array:
        """The links without these, which must be among them."""
        keys, lost = _keys(self.links, self.brokers), _keys(_links(links, self.brokers), self.brokers)
        strange = lost[~np.isin(lost, keys)]
        if len(strange):
            a, b = _pairs(strange, self.brokers)[0]
            raise RoutingError(f"cannot drop the link {a}-{b}: there is none; see Topology.links")
        left: Array = self.links[~np.isin(keys, lost)]
        return left

    def _check(self, *brokers: int) -> None:
        for broker in brokers:
            check_broker(broker, self.brokers)


def check_broker(broker: int, brokers: int) -> None:
    """Raise unless the number is one of ``brokers`` brokers."""
    if not 0 <= whole("broker", broker, "a broker number") < brokers:
        raise RoutingError(f"there is no broker {broker}: they are numbered 0 to {brokers - 1}")


def broker_numbers(given: Any, brokers: int) -> Array:
    """Numbers of some of ``brokers`` brokers, from an array or any iterable: int64, distinct, ascending."""
    numbers = _array(given, "broker numbers")
    if not numbers.size:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise RoutingError(f"expected broker numbers, found {numbers.dtype} of shape {numbers.shape}")
    numbers = np.unique(numbers.astype(np.int64))
    check_broker(int(numbers[0]), brokers)
    check_broker(int(numbers[-1]), brokers)
    return numbers


def _array(given: Any, expected: str) -> Array:
    """An array of an array or any iterable."""
    try:
        return np.asarray(given if isinstance(given, np.ndarray) else list(given))
    except (TypeError, ValueError):  # not iterable, or rows of different lengths
        raise RoutingError(f"expected {expected}, found {type(given).__name__} {given!r:.60}") from None


def _links(given: Any, brokers: int) -> Array:
    """Links as int64 of shape (m, 2), the lower number first."""
    pairs = _array(given, "pairs of broker numbers")
    if not pairs.size:
        return np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise RoutingError(f"links are pairs of broker numbers, found {pairs.dtype} of shape {pairs.shape}")
    pairs = np.sort(pairs.astype(np.int64), axis=1)
    bad = (pairs[:, 0] < 0) | (pairs[:, 1] >= brokers) | (pairs[:, 0] == pairs[:, 1])
    if bad.any():
        a, b = pairs[bad][0]
        raise RoutingError(f"a link is between two different brokers of 0 to {brokers - 1}, found {a}-{b}")
    return pairs


def _keys(links: Array, brokers: int) -> Array:
    """A number for each link, in the order of the links."""
    return links[:, 0] * brokers + links[:, 1]


def _pairs(keys: Array, brokers: int) -> Array:
    return np.stack(np.divmod(keys, max(brokers, 1)), axis=1)


def _fixed(array: Array) -> Array:
    array.setflags(write=False)
    return array


def _few(brokers: Array, most: int = 5) -> str:
    """``broker 7`` or ``brokers 1, 2, 3, 4, 5 and 12 more``."""
    names = ", ".join(map(str, brokers[:most]))
    more = f" and {len(brokers) - most} more" if len(brokers) > most else ""
    return f"broker{'s' * (len(brokers) > 1)} {names}{more}"
