"""Links and brokers that fail and are repaired at given times, and when others know of it.

A failure or a repair is noticed ``detection`` after it happens (heart-beats); then all brokers know it. Until then they
send as before, and messages over a lost link or to a broker that is down are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.checks import expect, nanoseconds, whole
from gpumatch.routing.overlays.topology import Topology, check_broker
from gpumatch.routing.simulator.traffic import LATEST

_NEVER = LATEST - 1  # the repair time of what is never repaired


@dataclass(frozen=True, slots=True)
class Change:
    """A link ``(a, b)`` or a broker that goes down, or up again, at a time in whole nanoseconds."""

    time: int
    what: Any  # a tuple of two, or an int, once made
    up: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", nanoseconds("time", self.time))
        ends = self.what if isinstance(self.what, (tuple, list, np.ndarray)) else (self.what,)
        expected = "a broker number or a link (a, b)"
        if len(np.shape(ends)) != 1 or not (len(ends) == 2 or ends is not self.what):
            raise RoutingError(f"what: expected {expected}, found {self.what!r:.60}")
        numbers = tuple(whole("what", end, expected) for end in ends)
        object.__setattr__(self, "what", numbers if len(numbers) == 2 else numbers[0])


@dataclass(frozen=True, slots=True)
class Losses:
    """Links and brokers lost together."""

    links: Array  # (m, 2)
    brokers: Array

    def changes(self, time: int, up: bool = False) -> list[Change]:
        """One ``Change`` for each: all go down or, with ``up``, up again at this time in whole nanoseconds.

        ``Failures(losses.changes(t) + losses.changes(later, up=True))`` loses and repairs them.
        """
        links = [Change(time, (int(a), int(b)), up) for a, b in self.links]
        return links + [Change(time, int(broker), up) for broker in self.brokers]


def random_failures(topology: Topology, links: float = 0.0, brokers: float = 0.0, seed: int = 0) -> Losses:
    """A share of the links and a share of the brokers that are up, drawn at random."""
    expect("topology", topology, Topology)
    for name, share in (("links", links), ("brokers", brokers)):
        if not 0 <= share <= 1:
            raise RoutingError(f"{name}: expected a share from 0 to 1 to be lost, found {share}")
    rng = np.random.default_rng(seed)
    alive = np.flatnonzero(topology.up)
    lost = rng.permutation(len(topology.links))[: round(links * len(topology.links))]
    return Losses(topology.links[np.sort(lost)], np.sort(rng.permutation(alive)[: round(brokers * len(alive))]))


@dataclass(frozen=True, slots=True)
class Failures:
    """Changes in any order, and how long it takes until they are noticed, in whole nanoseconds."""

    changes: Sequence[Change] = ()
    detection: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.changes, Iterable):
            hint = "; pass losses.changes(time)" if isinstance(self.changes, Losses) else ""
            raise RoutingError(f"changes: expected a list of Change, found {type(self.changes).__name__}{hint}")
        object.__setattr__(self, "changes", tuple(self.changes))
        for change in self.changes:
            expect("changes", change, Change)
        object.__setattr__(self, "detection", nanoseconds("detection", self.detection))
        if not 0 <= self.detection < LATEST:
            raise RoutingError(f"detection: expected 0 to {LATEST:,} nanoseconds, found {self.detection}")

    def outages(self, topology: Topology) -> Outages:
        """Their effect on a topology in which none has happened yet. Of changes at one time, repairs come first."""
        return Outages(topology, sorted(self.changes, key=lambda change: (change.time, not change.up)), self.detection)


class Outages:
    """When links and brokers are down, for many queries together; and the topology as known at each time."""

    def __init__(self, topology: Topology, changes: Sequence[Change], detection: int) -> None:
        self.topology, self.detection = topology, detection
        self._check(changes)
        down = _intervals(changes)
        self.times = np.unique([change.time for change in changes]).astype(np.int64)
        self.barriers = np.unique(np.concatenate((self.times, self.times + detection)))
        self.changed: dict[int, Array] = {}  # time -> the brokers that go down or up then
        for time in self.times.tolist():
            brokers = {it.what for it in changes if it.time == time and not isinstance(it.what, tuple)}
            self.changed[time] = np.array(sorted(brokers), np.int64)
        self._brokers = _Table({what: intervals for what, intervals in down.items() if not isinstance(what, tuple)})
        self._links = _Table(self._of_links(down))
        self._down = down

    def _check(self, changes: Sequence[Change]) -> None:
        links = set(map(tuple, self.topology.links.tolist()))
        for change in changes:
            if not 0 <= change.time < _NEVER:
                raise RoutingError(f"a failure at {change.time}: times lie between 0 and {_NEVER:,} nanoseconds")
            if not isinstance(change.what, tuple):
                check_broker(change.what, self.topology.brokers)
                if not self.topology.up[change.what]:
                    raise RoutingError(f"broker {change.what} cannot fail: it is down from the start")
            elif _link(change.what) not in links:
                raise RoutingError(
                    f"the link {change.what[0]}-{change.what[1]} cannot fail: there is none; see Topology.links"
                )

    def _of_links(self, down: dict[tuple[int, int] | int, list[tuple[int, int]]]) -> dict[int, list[tuple[int, int]]]:
        """A link is down whenever it or one of its ends is."""
        found = {}
        for a, b in self.topology.links.tolist():
            intervals = [interval for what in ((a, b), a, b) for interval in down.get(what, ())]
            if intervals:
                found[a * self.topology.brokers + b] = _merged(intervals)
        return found

    def lost_on_link(self, a: Array, b: Array, depart: Array, arrive: Array) -> Array:
        """The time of the failure that loses a message between two brokers; -1 if the message arrives.

        It is lost if the link is down when it departs or goes down up to its arrival.
        """
        key = np.minimum(a, b) * self.topology.brokers + np.maximum(a, b)
        return self._links.first(key, depart, arrive)

    def lost_at_broker(self, broker: Array, arrive: Array, depart: Array) -> Array:
        """When the broker failed before finishing a message; -1 if it did not."""
        return self._brokers.first(broker, arrive, depart)

    def version(self, time: int) -> int:
        """How many changes of the topology are known at a time."""
        return int(np.searchsorted(self.times + self.detection, time, side="right"))

    def known(self, version: int) -> Topology:
        """The topology after the first ``version`` changes."""
        if version == 0:
            return self.topology
        time = int(self.times[version - 1])
        lost = [what for what, intervals in self._down.items() if any(a <= time < b for a, b in intervals)]
        return self.topology.without(
            links=[what for what in lost if isinstance(what, tuple)],
            brokers=[what for what in lost if not isinstance(what, tuple)],
        )


class _Table:
    """Disjoint intervals of time ``[start, end)`` for each key."""

    def __init__(self, intervals: dict[int, list[tuple[int, int]]]) -> None:
        flat = sorted((key, end, start) for key, several in intervals.items() for start, end in several)
        key, end, start = np.array(flat, np.int64).reshape(-1, 3).T
        self._keys = np.unique(key)
        self._sorted = np.searchsorted(self._keys, key) * LATEST + end
        self._start = np.append(start, -1)
        self._key = np.append(key, -1)

    def first(self, key: Array, since: Array, until: Array) -> Array:
        """The start of the first interval of each key that ends after ``since``, if it starts by ``until``; else -1."""
        number = np.searchsorted(self._keys, key)
        if not len(self._keys):
            return np.full(len(key), -1)
        at = np.searchsorted(self._sorted, number * LATEST + np.minimum(since, _NEVER - 1), side="right")
        start = self._start[at]
        return np.where((self._key[at] == key) & (start <= until), start, -1)


def _intervals(changes: Iterable[Change]) -> dict[tuple[int, int] | int, list[tuple[int, int]]]:
    """The intervals of time for which each link and broker is down."""
    down: dict[tuple[int, int] | int, list[tuple[int, int]]] = {}
    for change in changes:
        what = _link(change.what) if isinstance(change.what, tuple) else change.what
        intervals = down.setdefault(what, [])
        is_down = bool(intervals) and intervals[-1][1] == _NEVER
        if is_down != change.up:
            name = f"the link {what[0]}-{what[1]}" if isinstance(what, tuple) else f"broker {what}"
            state = "already down" if is_down else "not down"
            verb = "be repaired" if change.up else "fail"
            raise RoutingError(f"{name} cannot {verb} at {change.time}: it is {state}")
        if change.up:
            intervals[-1] = (intervals[-1][0], change.time)
        else:
            intervals.append((change.time, _NEVER))
    return down


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time as disjoint intervals."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _link(what: tuple[int, int]) -> tuple[int, int]:
    return (min(what), max(what))
