"""The messages of many events together: who sends to whom, and how long the destination lists are (D-DBR).

A list has the destinations below its receiver in the tree of paths from the source. They are counted for many events
together, from the farthest brokers inwards; no message is followed on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.checks import as_array, expect, whole_numbers
from gpumatch.routing.overlays.topology import Topology

CELLS = 1 << 20  # pairs of event and broker that are processed together


@dataclass(frozen=True, slots=True)
class DestinationLists:
    """One entry per message, by event, then by receiver; and the destinations that no message can reach."""

    event: Array  # int64
    sender: Array  # int64
    receiver: Array  # int64
    size: Array  # int32: destinations in its list
    hop: Array  # int16: 1 for those that the source sends
    unreachable_event: Array  # int64, by event, then by broker
    unreachable: Array  # int64: the broker that the event does not reach

    def __len__(self) -> int:
        return len(self.event)

    def __repr__(self) -> str:
        lost = f", {len(self.unreachable):,} destinations unreachable" if len(self.unreachable) else ""
        return f"<DestinationLists: {len(self):,} messages, {self.mean_list:.2f} destinations each{lost}>"

    @property
    def mean_list(self) -> float:
        """Destinations per message; NaN without messages."""
        return _mean(self.size)

    @property
    def mean_source_list(self) -> float:
        """Destinations per message that a source sends."""
        return _mean(self.size[self.hop == 1])


def destination_lists(topology: Topology, sources: Any, destinations: Any) -> DestinationLists:
    """Messages that D-DBR sends for events from these sources.

    ``destinations``: a bool matrix (events, brokers), or CSR as a tuple (offsets, brokers). A source that is among its
    own destinations needs no message; a source that is down reaches nobody.
    """
    expect("topology", topology, Topology)
    n = topology.brokers
    source = np.asarray(sources)
    if source.ndim != 1 or (source.dtype.kind not in "iu" and source.size):
        raise RoutingError(f"sources: expected a broker per event, found {source.dtype} of shape {source.shape}")
    source = source.astype(np.int64)
    _within("sources", source, n)
    rows = _Rows.of(destinations, len(source), n)
    step = max(1, CELLS // max(n, 1))
    chunks = [_chunk(topology, source, rows, at, min(at + step, len(source))) for at in range(0, len(source), step)]
    chunks = chunks or [_chunk(topology, source, rows, 0, 0)]
    return DestinationLists(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))


def _chunk(topology: Topology, source: Array, rows: _Rows, first: int, last: int) -> tuple[Array, ...]:
    """The columns of ``DestinationLists`` for some of the events."""
    n = topology.brokers
    source = source[first:last]
    wanted = rows.matrix(first, last)
    distance = topology.distance[source]
    lost_event, lost = np.nonzero(wanted & (distance < 0))
    size = (wanted & (distance > 0)).astype(np.int32).ravel()
    length = distance.ravel()
    order = np.argsort(length, kind="stable")
    deepest = int(length.max(initial=0))
    level = np.searchsorted(length[order], np.arange(1, deepest + 2))
    for hop in range(deepest, 1, -1):
        cell = order[level[hop - 1] : level[hop]]
        cell = cell[size[cell] > 0]
        event, broker = np.divmod(cell, n)
        above = topology.parent[source[event], broker]
        np.add.at(size, event * n + above, size[cell])
    cell = np.flatnonzero((size > 0) & (length > 0))
    event, receiver = np.divmod(cell, max(n, 1))
    sender = topology.parent[source[event], receiver].astype(np.int64)
    return event + first, sender, receiver, size[cell], length[cell], lost_event + first, lost


@dataclass(frozen=True, slots=True)
class _Rows:
    """Destinations of all events; some at a time become a matrix."""

    whole: Array | None
    offsets: Array
    brokers: Array
    columns: int

    @classmethod
    def of(cls, given: Any, events: int, brokers: int) -> _Rows:
        nothing = np.empty(0, np.int64)
        if isinstance(given, tuple):
            return cls(None, *_csr(given, events, brokers), brokers)
        whole = as_array("destinations", given)
        if whole.dtype != bool or whole.shape != (events, brokers):
            raise RoutingError(
                f"destinations: expected bools of shape ({events}, {brokers}) or a tuple (offsets, brokers), "
                f"found {whole.dtype} of shape {whole.shape}"
            )
        return cls(whole, nothing, nothing, brokers)

    def matrix(self, first: int, last: int) -> Array:
        if self.whole is not None:
            return self.whole[first:last]
        made = np.zeros((last - first, self.columns), bool)
        sizes = np.diff(self.offsets[first : last + 1])
        made[np.repeat(np.arange(last - first), sizes), self.brokers[self.offsets[first] : self.offsets[last]]] = True
        return made


def _csr(given: tuple[Any, ...], events: int, brokers: int) -> tuple[Array, Array]:
    if len(given) != 2:
        raise RoutingError(f"destinations: expected a tuple (offsets, brokers), found one of {len(given)}")
    offsets, wanted = (whole_numbers("destinations", one) for one in given)
    if offsets.shape != (events + 1,) or wanted.ndim != 1:
        raise RoutingError(
            f"destinations: expected {events + 1} offsets, and brokers in one dimension, "
            f"found shapes {offsets.shape} and {wanted.shape}"
        )
    if offsets[0] != 0 or offsets[-1] != len(wanted) or (np.diff(offsets) < 0).any():
        raise RoutingError(f"destinations: offsets must rise from 0 to the number of brokers, {len(wanted)}")
    _within("destinations", wanted, brokers)
    return offsets, wanted


def _within(what: str, numbers: Array, brokers: int) -> None:
    bad = numbers[(numbers < 0) | (numbers >= brokers)]
    if len(bad):
        raise RoutingError(f"{what}: there is no broker {bad[0]}: they are numbered 0 to {brokers - 1}")


def _mean(sizes: Array) -> float:
    return float(sizes.mean()) if len(sizes) else float("nan")
