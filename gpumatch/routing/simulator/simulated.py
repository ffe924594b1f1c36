"""What came of a simulation: deliveries, messages and their lists, and the work of each broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.routing.overlays.topology import Array
from gpumatch.routing.simulator.traffic import Workload


@dataclass(slots=True)
class Counts:
    """Sums over messages, as they go along."""

    sent: Array  # by hop: messages over links, those that are lost too
    entries: Array  # by hop: destinations in their lists
    sizes: Array  # messages by the length of their lists
    matches: Array  # by broker
    busy: Array  # by broker, nanoseconds
    duplicates: int = 0  # copies that found the event there already
    lost: int = 0  # messages lost on links or in the queues of brokers that failed
    again: int = 0  # events sent again by their sources

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
    """Deliveries are by event, then by broker; times are nanoseconds."""

    protocol: str
    workload: Workload
    event: Array
    broker: Array
    time: Array  # when the broker was done with the event
    hops: Array  # that the delivered copy travelled
    undelivered: Array  # (2, m): event and broker
    counts: Counts

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
        """By broker: the share of the time, up to the last delivery, that it was busy."""
        last = int(self.time.max(initial=0))
        return self.counts.busy / max(last, 1)

    def to_dict(self) -> dict[str, Any]:
        """The figures that one looks at first."""
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
            "duplicates": self.counts.duplicates,
            "lost": self.counts.lost,
            "sent_again": self.counts.again,
            "busiest_broker": busiest,
            "busiest_share": float(self.utilisation[busiest]) if busiest >= 0 else float("nan"),
        }


def _sum(a: Array, b: Array) -> Array:
    """Sums of two lines, the shorter of which ends in zeros."""
    longer, shorter = (a.copy(), b) if len(a) > len(b) else (b.copy(), a)
    longer[: len(shorter)] += shorter
    return longer


def _ratio(part: int | np.integer[Any], whole: int | np.integer[Any]) -> float:
    return float(part) / float(whole) if whole else float("nan")
