"""The subscriptions at one moment: segments, their removed rows, and matching against them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array, pointers, read_only
from gpumatch.codes.table import Table
from gpumatch.events.batch import EventBatch
from gpumatch.index import merge
from gpumatch.results import Matches
from gpumatch.store.segment import Segment
from gpumatch.subscriptions.destinations import Destinations, join_destinations
from gpumatch.subscriptions.weights import heaviest_first, join_weights, weight_array

_ITER_EVENTS = 8192  # events per result of match_slices


@dataclass(frozen=True)
class Snapshot:
    """Segments and which of their rows are removed. Immutable, so a result made from it stays right."""

    segments: tuple[Segment, ...] = ()
    dead: tuple[Array | None, ...] = ()

    @cached_property
    def ids(self) -> Any:
        """Live ids in insertion order, as an Arrow array."""
        arrays = [
            segment.ids if dead is None else segment.ids.filter(pa.array(~dead))
            for segment, dead in zip(self.segments, self.dead, strict=True)
        ]
        return pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())

    @cached_property
    def bases(self) -> list[int]:
        """The number of live rows before each segment."""
        return np.concatenate([[0], np.cumsum(self.live)]).tolist()[:-1] if self.segments else []

    @cached_property
    def live(self) -> list[int]:
        return [
            len(segment) - (0 if dead is None else int(dead.sum()))
            for segment, dead in zip(self.segments, self.dead, strict=True)
        ]

    @cached_property
    def numbers(self) -> list[Array | None]:
        """For segments with dead rows: the live number of each row within its segment, -1 if it is dead."""
        return [
            None if dead is None else np.where(dead, -1, np.cumsum(~dead) - 1).astype(np.int32) for dead in self.dead
        ]

    @cached_property
    def destinations(self) -> Destinations | None:
        """Destinations of the live rows."""
        joined = []
        for segment, dead, live in zip(self.segments, self.dead, self.live, strict=True):
            own = segment.destinations
            joined.append((None if own is None else own.filter(None if dead is None else ~dead), live))
        return join_destinations(joined)

    @cached_property
    def weights(self) -> Array | None:
        """Of the live rows; None if there is none."""
        pieces = []
        for segment, dead, live in zip(self.segments, self.dead, self.live, strict=True):
            own = segment.weights
            pieces.append((own if own is None or dead is None else own[~dead], live))
        return join_weights(pieces)

    @cached_property
    def rank(self) -> Array:
        """The live rows in the order of their weights, heaviest first: the position of each."""
        weights = np.full(len(self.ids), np.nan) if self.weights is None else self.weights
        return heaviest_first(self.ids, weights)

    @cached_property
    def by_destination(self) -> list[tuple[Segment, Table]]:
        """Segments that have destinations, with tables whose rows are the numbers of destinations."""
        if self.destinations is None:
            return []
        number, count = self.destinations.number, len(self.destinations.names)
        found = []
        for segment, dead, first, live in zip(self.segments, self.dead, self.bases, self.live, strict=True):
            if segment.destinations is not None:
                rows = np.full(len(segment), -1, np.int32)
                rows[slice(None) if dead is None else ~dead] = number[first : first + live]
                found.append((segment, _shared(segment.table, rows, count)))
        return found

    @cached_property
    def as_one(self) -> list[tuple[Segment, Table]]:
        """Segments with tables that have a single row, 0, for all live subscriptions."""
        found = []
        for segment, dead in zip(self.segments, self.dead, strict=True):
            rows = np.zeros(len(segment), np.int32) if dead is None else -dead.astype(np.int32)
            found.append((segment, _shared(segment.table, rows, 1)))
        return found

    @cached_property
    def live_rows(self) -> list[tuple[Segment, Array]]:
        """Segments with the live number of the row of each of their clauses, -1 if it is dead."""
        found = []
        for segment, numbers, base in zip(self.segments, self.numbers, self.bases, strict=True):
            rows = segment.table.clause_row
            if numbers is not None:
                rows = numbers[rows]
            if base:
                rows = np.where(rows < 0, rows, rows + np.int32(base))
            found.append((segment, rows))
        return found

    def find(self, name: int | str) -> tuple[int, int] | None:
        """Segment and row of a live id."""
        for number in range(len(self.segments) - 1, -1, -1):
            row = self.segments[number].row_of.get(name)
            dead = self.dead[number]
            if row is not None and (dead is None or not dead[row]):
                return number, row
        return None

    def destination(self, number: int, row: int) -> int | str | None:
        """Destination of a row of a segment."""
        own = self.segments[number].destinations
        return None if own is None else own[row]

    def destinations_of(self, rows: Sequence[tuple[int, int] | None], new: Any) -> list[int | str | None]:
        """Destinations of rows of segments; for None, the one that ``new`` gives to the subscription."""
        given = Destinations.of(new, len(rows))
        return [
            self.destination(*row) if row is not None else None if given is None else given[at]
            for at, row in enumerate(rows)
        ]

    def weights_of(self, rows: Sequence[tuple[int, int] | None], new: Any) -> Array | None:
        """The weights of existing rows; of new subscriptions, those in ``new``."""
        given = weight_array(new, len(rows))
        own = [None if row is None else self.segments[row[0]].weights for row in rows]
        if given is None and all(weights is None for weights in own):
            return None
        found = np.full(len(rows), np.nan) if given is None else given.copy()
        for at, (row, weights) in enumerate(zip(rows, own, strict=True)):
            if row is not None:
                found[at] = np.nan if weights is None else weights[row[1]]
        return found

    def without(self, rows: Iterable[tuple[int, int]]) -> Snapshot:
        dead = list(self.dead)
        copied: set[int] = set()
        for number, row in rows:
            if number not in copied:
                old = dead[number]
                dead[number] = np.zeros(len(self.segments[number]), np.bool_) if old is None else old.copy()
                copied.add(number)
            dead[number][row] = True  # type: ignore[index]
        kept = [number for number, gone in enumerate(dead) if gone is None or not gone.all()]
        return Snapshot(tuple(self.segments[number] for number in kept), tuple(dead[number] for number in kept))


def _shared(table: Table, rows: Array, count: int) -> Table:
    """The table with ``rows[i]``, below ``count`` or -1 for none, instead of row ``i``."""
    return replace(table, length=count, clause_row=read_only(rows[table.clause_row]))


class Engine(Protocol):
    """Where a matcher's snapshots are matched."""

    @property
    def nbytes(self) -> int:
        """Bytes on a CUDA device that stay there between calls."""

    def match(self, snapshot: Snapshot, batch: EventBatch) -> Matches:
        """The subscriptions that each event satisfies."""

    def match_shared(
        self, snapshot: Snapshot, tables: list[tuple[Segment, Table]], batch: EventBatch
    ) -> tuple[Array, Array]:
        """Offsets and shared rows of a batch, on the host; each event has a row once."""


class Host:
    """The engine of the CPU. Events on a device are copied to the host."""

    nbytes = 0

    def match(self, snapshot: Snapshot, batch: EventBatch) -> Matches:
        return match_batch(snapshot, batch.to_host())

    def match_shared(
        self, snapshot: Snapshot, tables: list[tuple[Segment, Table]], batch: EventBatch
    ) -> tuple[Array, Array]:
        return match_shared(tables, batch.to_host())


def match_batch(snapshot: Snapshot, batch: EventBatch) -> Matches:
    """Match a batch against every segment, and combine the rows of each event."""
    found = [_live(snapshot, number, segment.match(batch)) for number, segment in enumerate(snapshot.segments)]
    if len(found) == 1:
        offsets, rows = found[0]
        return Matches(offsets, rows, snapshot.ids)
    offsets = np.zeros(len(batch) + 1, np.int64)
    for own, _ in found:
        offsets += own
    rows = np.empty(int(offsets[-1]), np.int32)
    start = offsets[:-1].copy()
    for own, numbers in found:
        counts = np.diff(own)
        at = np.repeat(start - own[:-1], counts) + np.arange(len(numbers))
        rows[at] = numbers
        start += counts
    return Matches(offsets, rows, snapshot.ids)


def match_shared(tables: list[tuple[Segment, Table]], batch: EventBatch) -> tuple[Array, Array]:
    """Offsets and shared rows of a batch; each event has a row once, whatever segments it is found in."""
    if not tables:
        return np.zeros(len(batch) + 1, np.int64), np.zeros(0, np.int32)
    return merge([_joined(segment.match(batch, table)) for segment, table in tables])


def _joined(chunks: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Consecutive chunks as one result."""
    if len(chunks) == 1:
        return chunks[0]
    counts = np.concatenate([np.diff(ends) for ends, _ in chunks]) if chunks else np.zeros(0, np.int64)
    rows = np.concatenate([found for _, found in chunks]) if chunks else np.zeros(0, np.int32)
    return pointers(counts), rows


def _live(snapshot: Snapshot, number: int, chunks: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """One segment's result over all chunks, in live row numbers of the snapshot."""
    offsets, rows = _joined(chunks)
    numbers = snapshot.numbers[number]
    if numbers is not None:
        rows = numbers[rows]
        alive = rows >= 0
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(alive)])
        offsets, rows = before[offsets], rows[alive]
    return offsets, rows + np.int32(snapshot.bases[number]) if snapshot.bases[number] else rows


def match_slices(engine: Engine, snapshot: Snapshot, batches: Iterable[EventBatch]) -> Iterator[Matches]:
    """Results of consecutive slices of the batches."""
    for batch in batches:
        for start in range(0, len(batch), _ITER_EVENTS):
            yield engine.match(snapshot, batch.slice(start, start + _ITER_EVENTS))
