"""Events for an overlay: when each is published, at which broker, and which brokers are interested."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.matcher import Matcher
from gpumatch.routing.overlays.checks import expect, whole

SECOND = 1_000_000_000  # times are whole nanoseconds, so that a simulation is exact
LATEST = 1 << 48  # some 78 hours
_CELLS = 1 << 20  # random numbers drawn together


@dataclass(frozen=True, eq=False)
class Workload:
    """Events in the order of their times.

    ``times`` are nanoseconds from the start; the brokers interested in event ``e`` are
    ``destinations[offsets[e] : offsets[e + 1]]``: distinct, ascending. The source may be one of them.
    """

    times: Array
    sources: Array
    offsets: Array
    destinations: Array

    def __post_init__(self) -> None:
        for name in ("times", "sources", "offsets", "destinations"):
            given = np.asarray(getattr(self, name))
            if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
                raise RoutingError(f"{name}: expected a list of whole numbers, found {given.dtype} of {given.shape}")
            object.__setattr__(self, name, given.astype(np.int64))
        events = len(self.times)
        if len(self.sources) != events or len(self.offsets) != events + 1:
            found = f"{len(self.sources)} sources and {len(self.offsets)} offsets"
            raise RoutingError(f"{events} times: expected {events} sources and {events + 1} offsets, found {found}")
        if events and (self.times[0] < 0 or self.times[-1] >= LATEST or (np.diff(self.times) < 0).any()):
            raise RoutingError(f"times must not fall, and lie between 0 and {LATEST:,} nanoseconds")
        sizes = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.destinations) or (sizes < 0).any():
            raise RoutingError(f"offsets must rise from 0 to the number of destinations, {len(self.destinations)}")
        falls = np.diff(self.destinations) <= 0
        inner = self.offsets[1:-1]
        falls[inner[(inner > 0) & (inner < len(self.destinations))] - 1] = False
        if falls.any():
            raise RoutingError("the destinations of an event must be distinct and ascending")

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        seconds = float(self.times[-1] - self.times[0]) / SECOND if len(self) else 0.0
        return f"<Workload: {len(self):,} events in {seconds:.3g} s, {len(self.destinations):,} deliveries asked for>"

    def check(self, brokers: int) -> None:
        """Raise unless all sources and destinations are among ``brokers`` brokers."""
        for name in ("sources", "destinations"):
            numbers = getattr(self, name)
            bad = numbers[(numbers < 0) | (numbers >= brokers)]
            if len(bad):
                raise RoutingError(f"{name}: there is no broker {bad[0]}: they are numbered 0 to {brokers - 1}")

    @classmethod
    def random(cls, brokers: int, events: int, rate: float, interested: float, seed: int) -> Workload:
        """Events at random times, ``rate`` per second, from random sources, each to a random share of the brokers."""
        brokers, events = whole("brokers", brokers), whole("events", events)
        expect("rate", rate, Real)
        expect("interested", interested, Real)
        if brokers < 1:
            raise RoutingError(f"expected at least one broker, found {brokers}")
        if events < 0:
            raise RoutingError(f"expected a number of events, found {events}")
        if not 0 < rate < float("inf"):
            raise RoutingError(f"expected a rate above 0, in events a second, found {rate}")
        if not 0 <= interested <= 1:
            raise RoutingError(f"expected an interested share of the brokers from 0 to 1, found {interested}")
        rng = np.random.default_rng(seed)
        times = np.minimum(np.cumsum(rng.exponential(SECOND / rate, events)), LATEST).astype(np.int64)
        sources = rng.integers(brokers, size=events)
        chosen = round(interested * brokers)
        destinations = random_brokers(rng, events, brokers, chosen)
        return cls(times, sources, np.arange(events + 1) * chosen, destinations)

    @classmethod
    def of_matcher(cls, matcher: Matcher, events: Any, times: Any, sources: Any) -> Workload:
        """Events that go where a matcher says: the destinations of its subscriptions are broker numbers."""
        found = matcher.destinations(events)
        table = found.to_arrow()
        event, broker = (table.column(name) for name in ("event", "destination"))
        if broker.type != pa.int64():
            raise RoutingError("the destinations of the matcher's subscriptions are strings, expected broker numbers")
        pairs = np.stack((event.to_numpy().astype(np.int64), broker.to_numpy()))
        return cls(times, sources, found.offsets, pairs[1, np.lexsort(pairs[::-1])])


def random_brokers(rng: np.random.Generator, events: int, brokers: int, chosen: int) -> Array:
    """``chosen`` distinct brokers for each event, ascending, in the order of events."""
    if chosen == brokers:
        return np.tile(np.arange(brokers), events)
    step = max(1, _CELLS // brokers)
    found = [np.empty(0, np.int64)]
    for first in range(0, events, step):
        drawn = rng.random((min(step, events - first), brokers))
        found.append(np.sort(np.argpartition(drawn, chosen, axis=1)[:, :chosen], axis=1).ravel())
    return np.concatenate(found)
