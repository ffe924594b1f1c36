"""Sources in a simulation: which brokers have which event, what is sent when, and what is sent again."""

from __future__ import annotations

import heapq

import numpy as np

from gpumatch.arrays import Array, spans
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator.calendar import Batch
from gpumatch.routing.simulator.traffic import LATEST, Workload

NOT_YET = 2 * LATEST


class Sources:
    """Keeps events until all interested brokers have them.

    A *pair* is an event and a broker that is interested in it. A *task* is one transmission of an event, to the brokers
    that do not have it yet.
    """

    def __init__(self, workload: Workload, brokers: int, keep_lists: bool) -> None:
        self.workload = workload
        self._brokers, self._keep_lists = brokers, keep_lists
        self._event = np.repeat(np.arange(len(workload)), np.diff(workload.offsets))  # of each pair
        pairs = len(self._event)
        self._keys = np.append(self._event * brokers + workload.destinations, LATEST)  # and one after all
        self.reached = np.full(pairs, NOT_YET)  # by pair: when it was delivered
        self.hops = np.zeros(pairs, np.int64)
        self._parked = np.zeros(pairs, bool)  # pairs without a path, or with a source that is down
        self._published = 0
        self._offers: dict[int, list[Array]] = {}  # time -> events to look at again
        self._times: list[int] = []  # a heap of these times
        self.tasks = 0
        self.task_event = np.empty(0, np.int64)
        self.task_version = np.empty(0, np.int64)
        self._starts = np.zeros(1, np.int64)
        self._wanted = np.empty(0, np.int32)  # by task, if lists are kept

    def next(self) -> int | None:
        """When the next event is published or looked at again."""
        times = self.workload.times[self._published : self._published + 1].tolist() + self._times[:1]
        return min(times, default=None)

    def pair(self, event: Array, broker: Array) -> Array:
        """The pair of each event and broker, -1 where the broker is not interested."""
        key = event * self._brokers + broker
        at = np.searchsorted(self._keys, key)
        return np.where(self._keys[at] == key, at, -1)

    def deliver(self, pair: Array, time: Array, hops: Array) -> None:
        self.reached[pair], self.hops[pair] = time, hops

    def notice(self, time: Array, event: Array) -> None:
        """Look at these events again at these times."""
        for one in np.unique(time).tolist():
            if one not in self._offers:
                self._offers[one] = []
                heapq.heappush(self._times, one)
            self._offers[one].append(event[time == one])

    def start(self, lo: int, hi: int, topology: Topology, version: int, news: bool) -> tuple[Batch, int]:
        """Messages that sources hand to their brokers from ``lo`` to before ``hi``, and how many are sent again.

        The known topology stays the same meanwhile; ``news``: it is new at ``lo``.
        """
        work = self.workload
        again = self._again(lo, news)
        first, last = self._published, int(np.searchsorted(work.times, hi))
        self._published = last
        pair = np.concatenate((again, np.arange(work.offsets[first], work.offsets[last])))
        if not len(pair) and first == last:
            return Batch.of(()), 0
        event, broker = self._event[pair], work.destinations[pair]
        ok = topology.distance[work.sources[event], broker] >= 0
        self._parked[pair[~ok]] = True
        repeated = np.unique(event[: len(again)][ok[: len(again)]])
        new = np.arange(first, last)
        new = new[topology.up[work.sources[new]]]
        events = np.concatenate((repeated, new))
        time = np.concatenate((np.full(len(repeated), lo), work.times[new]))
        return self._begin(events, time, event[ok], broker[ok], version), len(repeated)

    def _again(self, lo: int, news: bool) -> Array:
        """The pairs to send again: of noticed events, and parked ones if the topology has changed."""
        pair = np.empty(0, np.int64)
        if self._times and self._times[0] == lo:
            events = np.unique(np.concatenate(self._offers.pop(heapq.heappop(self._times))))
            starts = self.workload.offsets[events]
            pair = spans(starts, self.workload.offsets[events + 1] - starts)
        if news:
            pair = np.union1d(pair, np.flatnonzero(self._parked))
        pair = pair[self.reached[pair] > lo]
        self._parked[pair] = False
        return pair

    def _begin(self, events: Array, time: Array, event: Array, broker: Array, version: int) -> Batch:
        """New tasks: a message from a client to its broker for each. Pairs are given by event, in the events' order."""
        size = np.zeros(len(self.workload), np.int64)
        np.add.at(size, event, 1)
        size = size[events]
        task = np.arange(self.tasks, self.tasks + len(events))
        self.tasks += len(events)
        self.task_event = _put(self.task_event, task, events)
        self.task_version = _put(self.task_version, task, np.full(len(task), version))
        source = self.workload.sources[events]
        alone = np.full(len(events), -1)
        if self._keep_lists:  # the lists are made cluster by cluster
            self._starts = _put(self._starts, task + 1, self._starts[task[:1]] + np.cumsum(size))
            end = int(self._starts[self.tasks])
            self._wanted = _put(self._wanted, np.arange(end - len(broker), end), broker)
            own = broker == self.workload.sources[event]
            size = np.zeros(len(self.workload), np.int64)
            np.add.at(size, event[own], 1)
            size, broker = size[events], broker[own]
        return Batch(time, source, alone, alone, task, np.zeros(len(events), np.int64), size, broker)

    def wanted(self, task: Array) -> tuple[Array, Array]:
        """The brokers of these tasks, as pairs: the index into ``task``, and the broker."""
        starts = self._starts[task]
        counts = self._starts[task + 1] - starts
        return np.repeat(np.arange(len(task)), counts), self._wanted[spans(starts, counts)].astype(np.int64)


def _put(array: Array, positions: Array, values: Array) -> Array:
    """Values at positions that may lie after the end: the array grows by doubling."""
    if len(positions) and positions[-1] >= len(array):
        grown = np.zeros(max(int(positions[-1]) + 1, 2 * len(array)), array.dtype)
        grown[: len(array)] = array
        array = grown
    array[positions] = values
    return array
