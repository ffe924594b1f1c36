"""Results of a simulation: deliveries, messages and their lists, and the work of each broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator.traffic import Workload


@dataclass(slots=True)
class Counts:
    """Running sums over messages.

    ``sent``: messages over links, including lost ones, and ``entries``: destinations in their lists, both by hop
    from 1 on. ``sizes``: messages by the length of their lists. ``matches`` and ``busy`` (nanoseconds): by broker.
    ``duplicates``: copies of an event to a broker that had it already. ``lost``: messages lost on links or in the
    queues of brokers that failed. ``again``: messages resent by brokers that hold them, and events by their sources.
    ``last``: when the last work was done.
    """

    sent: Array
    entries: Array
    sizes: Array
    matches: Array
    busy: Array
    duplicates: int = 0
    lost: int = 0
    again: int = 0
    last: int = 0

    @classmethod
    def of(cls, brokers: int) -> Counts:
        none = np.zeros(0, np.int64)
        return cls(none, none, none, np.zeros(brokers, np.int64), np.zeros(brokers, np.int64))

    def add_sent(self, hop: Array, size: Array | None) -> None:
        """Messages of these hops, counted from 1, with lists of these sizes; None if the protocol has no lists."""
        self.sent = _sum(self.sent, np.bincount(hop))
        if size is not None:
            self.entries = _sum(self.entries, np.bincount(hop, size).astype(np.int64))
            self.sizes = _sum(self.sizes, np.bincount(size))


@dataclass(frozen=True, eq=False)
class Simulated:
    """Result of a simulation. Times are nanoseconds.

    One entry per delivery, by event, then by broker: ``event`` (its number in the workload), ``broker``, ``time``, when
    the broker was done with it, and ``hops`` that the delivered copy travelled. ``undelivered``: int64 (2, m), the
    events and below them the brokers that are interested and did not get them. ``counts``: sums of messages, matches
    and work, see ``Counts``. ``topology``: the overlay after all failures and repairs.
    """

    protocol: str
    workload: Workload
    event: Array
    broker: Array
    time: Array
    hops: Array
    undelivered: Array
    counts: Counts
    topology: Topology

    def __repr__(self) -> str:
        pairs = len(self.event) + self.undelivered.shape[1]
        share = f"{self.delivered:.1%} of {pairs:,} delivered" if pairs else "nothing to deliver"
        return f"<Simulated: {self.protocol}, {len(self.workload):,} events, {share}, {self.messages:,} messages>"

    @property
    def messages(self) -> int:
        """Messages over links."""
        return int(self.counts.sent.sum())

    @property
    def mean_list(self) -> float:
        """Destinations per message; NaN without messages, and for FBR, which has no lists."""
        return _ratio(self.counts.entries.sum(), self.counts.sent.sum()) if len(self.counts.entries) else float("nan")

    @property
    def mean_source_list(self) -> float:
        """Destinations per message that a source sends."""
        entries = self.counts.entries
        return _ratio(entries[1], self.counts.sent[1]) if len(entries) > 1 else float("nan")

    @property
    def delivered(self) -> float:
        """The share of the pairs of event and interested broker that were delivered; NaN without any."""
        return _ratio(len(self.event), len(self.event) + self.undelivered.shape[1])

    @property
    def delivered_with_path(self) -> float:
        """The same, among pairs whose source and broker are up and have a path when all failures are over.

        A path for any protocol: FBR misses pairs for which it is not the path that it had.
        """
        got, missing = (
            int(np.count_nonzero(self.topology.distance[self.workload.sources[event], broker] >= 0))
            for event, broker in ((self.event, self.broker), self.undelivered)
        )
        return _ratio(got, got + missing)

    @property
    def latency(self) -> Array:
        """Nanoseconds from publication to delivery."""
        return self.time - self.workload.times[self.event]

    def latency_ms(self, percentile: float | None = None) -> float:
        """The mean, or a percentile, in milliseconds; NaN without deliveries."""
        if not len(self.event):
            return float("nan")
        value = self.latency.mean() if percentile is None else np.percentile(self.latency, percentile)
        return float(value) / 1e6

    @property
    def utilisation(self) -> Array:
        """By broker: the share of the time, from the first event until the last work is done, that it was busy."""
        first = int(self.workload.times[0]) if len(self.workload) else 0
        return self.counts.busy / max(self.counts.last - first, 1)

    def to_dict(self) -> dict[str, Any]:
        """The most important figures."""
        events = max(len(self.workload), 1)
        busiest = int(self.counts.busy.argmax()) if len(self.counts.busy) else -1
        return {
            "protocol": self.protocol,
            "events": len(self.workload),
            "messages": self.messages,
            "messages_per_event": self.messages / events,
            "mean_list": self.mean_list,
            "mean_source_list": self.mean_source_list,
            "mean_hops": float(self.hops.mean()) if len(self.hops) else float("nan"),
            "matches_per_event": int(self.counts.matches.sum()) / events,
            "latency_mean_ms": self.latency_ms(),
            "latency_p50_ms": self.latency_ms(50),
            "latency_p99_ms": self.latency_ms(99),
            "delivered": self.delivered,
            "delivered_with_path": self.delivered_with_path,
            "duplicates": self.counts.duplicates,
            "lost": self.counts.lost,
            "sent_again": self.counts.again,
            "busiest_broker": busiest,
            "busiest_share": float(self.utilisation[busiest]) if busiest >= 0 else float("nan"),
        }


def _sum(a: Array, b: Array) -> Array:
    """Sums of two sequences, the shorter of which is padded with zeros."""
    longer, shorter = (a.copy(), b) if len(a) > len(b) else (b.copy(), a)
    longer[: len(shorter)] += shorter
    return longer


def _ratio(share: int | np.integer[Any], whole: int | np.integer[Any]) -> float:
    return float(share) / float(whole) if whole else float("nan")
