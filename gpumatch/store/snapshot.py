"""The subscriptions at one moment: segments, their removed rows, and matching against them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array, pointers, read_only
from gpumatch.codes.table import Table
from gpumatch.errors import LimitError
from gpumatch.events.batch import EventBatch
from gpumatch.events.shapes import Packed
from gpumatch.events.single import Single
from gpumatch.index import merge
from gpumatch.results import Matches
from gpumatch.store.ids import LiveIds
from gpumatch.store.lazy import lazy
from gpumatch.store.removed import Removed
from gpumatch.store.room import Room
from gpumatch.store.segment import Segment
from gpumatch.store.source import Source
from gpumatch.subscriptions.destinations import Destinations, join_destinations
from gpumatch.subscriptions.weights import heaviest_first, join_weights, weight_array

_SHARE = 8  # with one in so many live rows to rank, all are, and stay so for later calls
_ITER_EVENTS = 8192  # events per result of match_slices


Piece: TypeAlias = "Segment | Source"


@dataclass(frozen=True)
class Snapshot:
    """Segments and which of their rows are removed. Immutable, so a result made from it stays right.

    It may end in sources, which are not indexed yet; ``Store.searchable`` makes them segments.
    """

    pieces: tuple[Piece, ...] = ()
    removed: tuple[Removed | None, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All pieces; none of them is a source."""
        return self.pieces  # type: ignore[return-value]

    @lazy
    def is_planned(self) -> bool:
        """Whether all pieces have an index that was planned, so that searching leaves nothing to do."""
        return all(isinstance(piece, Segment) and piece.fresh is None for piece in self.pieces)

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return int(self.bases[-1])

    @lazy
    def ids(self) -> LiveIds:
        """Live ids in insertion order."""
        arrays = [piece.ids for piece in self.pieces]
        return LiveIds(arrays[0].type if arrays else pa.int64(), arrays, self.removed, self.bases)

    @lazy
    def bases(self) -> Array:
        """The number of live rows before each piece; the last one is the number of all."""
        return pointers(np.array(self.live, np.int64))

    @lazy
    def live(self) -> list[int]:
        return [
            len(piece) - (0 if gone is None else len(gone))
            for piece, gone in zip(self.pieces, self.removed, strict=True)
        ]

    @lazy
    def destinations(self) -> Destinations | None:
        """Destinations of the live rows."""
        joined = []
        for piece, gone, live in zip(self.pieces, self.removed, self.live, strict=True):
            own = piece.destinations
            joined.append((None if own is None else own.filter(None if gone is None else ~gone.mask), live))
        return join_destinations(joined)

    @property
    def destination_type(self) -> type[int] | type[str] | None:
        """None while there are none."""
        kinds = (piece.destinations.names.type for piece in self.pieces if piece.destinations is not None)
        kind = next(kinds, None)
        return None if kind is None else int if kind == pa.int64() else str

    @lazy
    def weights(self) -> Array | None:
        """Of the live rows; None if there is none."""
        pieces = []
        for piece, gone, live in zip(self.pieces, self.removed, self.live, strict=True):
            own = piece.weights
            pieces.append((own if own is None or gone is None else own[~gone.mask], live))
        return join_weights(pieces)

    def ranks(self, numbers: Array) -> Array:
        """How heavy live rows are: ranks that compare them, the heaviest lowest."""
        if "_rank" in self.__dict__ or len(numbers) > len(self) // _SHARE:
            return self._rank[numbers]
        some, at = np.unique(numbers, return_inverse=True)
        return heaviest_first(self.ids.take(pa.array(some)), self._weights_at(*self.ids.places(some)))[at]

    @lazy
    def _rank(self) -> Array:
        weights = np.full(len(self), np.nan) if self.weights is None else self.weights
        return heaviest_first(self.ids.array, weights)

    def _weights_at(self, pieces: Array, rows: Array) -> Array:
        found = np.full(len(rows), np.nan)
        for number, piece in enumerate(self.pieces):
            if piece.weights is not None:
                found[pieces == number] = piece.weights[rows[pieces == number]]
        return found

    @lazy
    def by_destination(self) -> list[tuple[Segment, Table]]:
        """Segments that have destinations, with tables whose rows are the numbers of destinations."""
        if self.destinations is None:
            return []
        number, count = self.destinations.number, len(self.destinations.names)
        found = []
        for segment, gone, first, live in zip(self.segments, self.removed, self.bases[:-1], self.live, strict=True):
            if segment.destinations is not None:
                rows = np.full(len(segment), -1, np.int32)
                rows[slice(None) if gone is None else ~gone.mask] = number[first : first + live]
                found.append((segment, _shared(segment.table, rows, count)))
        return found

    @lazy
    def as_one(self) -> list[tuple[Segment, Table]]:
        """Segments with tables that have a single row, 0, for all live subscriptions."""
        found = []
        for segment, gone in zip(self.segments, self.removed, strict=True):
            rows = np.zeros(len(segment), np.int32) if gone is None else -gone.mask.astype(np.int32)
            found.append((segment, _shared(segment.table, rows, 1)))
        return found

    def one_row(self, number: int) -> Table:
        """That table of a segment."""
        return self.as_one[number][1]

    @lazy
    def dead(self) -> list[list[Array]]:
        """For each part of each segment, a bit for each clause whose row is removed, in words.

        There are none if no row is removed, or nobody asks for them.
        """
        found = []
        for segment, gone in zip(self.segments, self.removed, strict=True):
            rows = np.zeros(0, np.bool_)
            if gone is not None and segment.asks_dead:
                rows = gone.mask[segment.table.clause_row]
            parts = [rows[part.index.first : part.index.last] for part in segment.parts]
            packed = [np.packbits(np.pad(own, (0, -len(own) % 64)), bitorder="little") for own in parts]
            found.append([read_only(bits.view(np.uint64)) for bits in packed])
        return found

    def find(self, names: Any) -> tuple[Array, Array]:
        """Piece and row of live ids, -1 for those that are not there. ``names`` is an Arrow array of their type."""
        pieces, rows = np.full(len(names), -1), np.full(len(names), -1)
        left = np.arange(len(names))
        for number in sorted(range(len(self.pieces)), key=self.live.__getitem__, reverse=True):
            if len(left) == 0:
                break
            found = self.pieces[number].lookup.rows(names if len(left) == len(names) else names.take(pa.array(left)))
            there, gone = found >= 0, self.removed[number]
            if gone is not None:
                there[there] = gone.numbers(found[there]) >= 0
            pieces[left[there]], rows[left[there]] = number, found[there]
            left = left[~there]
        return pieces, rows

    def destinations_of(self, pieces: Array, rows: Array, new: Any) -> list[int | str | None]:
        """Destinations of rows of pieces; for -1, the one that ``new`` gives to the subscription."""
        given = Destinations.of(new, len(rows))
        found: list[int | str | None] = []
        for at, (number, row) in enumerate(zip(pieces.tolist(), rows.tolist(), strict=True)):
            own, of = (given, at) if number < 0 else (self.pieces[number].destinations, row)
            found.append(None if own is None else own[of])
        return found

    def weights_of(self, pieces: Array, rows: Array, new: Any) -> Array | None:
        """The weights of existing rows; of new subscriptions, those in ``new``."""
        given = weight_array(new, len(rows))
        found = self._weights_at(pieces, rows)
        if given is not None:
            found[pieces < 0] = given[pieces < 0]
        return None if np.isnan(found).all() else found

    def holds(self, pieces: Array, rows: Array, source: Source) -> Array:
        """Whether rows of pieces have text, destination and weight of each subscription; not for -1."""
        same = np.zeros(len(rows), np.bool_)
        for number in np.unique(pieces[pieces >= 0]).tolist():
            at, own = np.flatnonzero(pieces == number), self.pieces[number].texts
            if own is not None and source.texts is not None:
                equal = pc.equal(own.take(pa.array(rows[at])), source.texts.take(pa.array(at)))
                same[at] = pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
        at = np.flatnonzero(same)
        held = self.destinations_of(pieces[at], rows[at], None)
        wanted = [None if source.destinations is None else source.destinations[row] for row in at.tolist()]
        same[at] = [one == other for one, other in zip(held, wanted, strict=True)]
        weights = self._weights_at(pieces, rows)
        given = np.full(len(rows), np.nan) if source.weights is None else source.weights
        same &= (weights == given) | (np.isnan(weights) & np.isnan(given))
        return same

    def without(self, pieces: Array, rows: Array) -> Snapshot:
        """Without rows of pieces. Pieces of which nothing is left go, too."""
        removed = list(self.removed)
        for number in np.unique(pieces).tolist():
            gone = removed[number]
            held = Removed.none(len(self.pieces[number])) if gone is None else gone
            removed[number] = held.with_rows(rows[pieces == number])
        kept = [number for number, gone in enumerate(removed) if gone is None or len(gone) < gone.length]
        return Snapshot(tuple(self.pieces[number] for number in kept), tuple(removed[number] for number in kept))


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

    def count(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        """How many they are."""

    def totals(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        """How many events satisfy each subscription."""

    def any(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        """Whether there are any."""

    def match_shared(
        self, snapshot: Snapshot, tables: list[tuple[Segment, Table]], batch: EventBatch
    ) -> tuple[Array, Array]:
        """Offsets and shared rows of a batch, on the host; each event has a row once."""


class Host:
    """The engine of the CPU. Events on a device are copied to the host."""

    nbytes = 0

    def match(self, snapshot: Snapshot, batch: EventBatch) -> Matches:
        return match_batch(snapshot, batch.to_host())

    def count(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        batch = batch.to_host()
        counts = np.zeros(len(batch), np.int64)
        for segment, gone, dead in zip(snapshot.segments, snapshot.removed, snapshot.dead, strict=True):
            counts += segment.count(batch, gone, dead)
        return counts

    def totals(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        batch = batch.to_host()
        found = [np.zeros(0, np.int64)]
        for segment, gone, dead in zip(snapshot.segments, snapshot.removed, snapshot.dead, strict=True):
            own = segment.totals(batch, dead)
            found.append(own if gone is None else own[~gone.mask])
        return np.concatenate(found)

    def any(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        batch = batch.to_host()
        found = np.zeros(len(batch), np.bool_)
        for number, segment in enumerate(snapshot.segments):
            if not found.all():
                segment.mark_any(batch, snapshot.dead[number], partial(snapshot.one_row, number), found)
        return found

    def match_shared(
        self, snapshot: Snapshot, tables: list[tuple[Segment, Table]], batch: EventBatch
    ) -> tuple[Array, Array]:
        return match_shared(tables, batch.to_host())


def any_shared(engine: Engine, snapshot: Snapshot, batch: EventBatch) -> Array:
    """Whether each event satisfies any subscription: all have the same row, so that the first one is enough."""
    found: Array = np.diff(engine.match_shared(snapshot, snapshot.as_one, batch)[0]) > 0
    return found


def match_batch(snapshot: Snapshot, batch: EventBatch) -> Matches:
    """Match a batch against every segment, and combine the rows of each event."""
    room = Room(len(batch), len(snapshot))
    found = [
        _live(snapshot, number, segment.match(batch, room=room)) for number, segment in enumerate(snapshot.segments)
    ]
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


def ids_of_one(snapshot: Snapshot, event: Packed, otherwise: Callable[[], Single]) -> list[int | str]:
    """The ids of the subscriptions that one event satisfies."""
    found = []
    for number, segment in enumerate(snapshot.segments):
        rows = segment.rows_of_one(event, otherwise)
        ends = np.array([0, len(rows)]) if snapshot.removed[number] is not None else None
        found.append(rows if ends is None else _live(snapshot, number, [(ends, rows)])[1])
        if ends is None and number:
            found[-1] = rows + np.int32(snapshot.bases[number])
    return snapshot.ids.listed(found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.int32), *found]))


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
    gone, base = snapshot.removed[number], int(snapshot.bases[number])
    if gone is not None:
        return gone.kept(offsets, rows, base)
    return offsets, rows + np.int32(base) if base else rows


def match_slices(engine: Engine, snapshot: Snapshot, batches: Iterable[EventBatch]) -> Iterator[Matches]:
    """Results of consecutive slices of the batches."""
    for batch in slices(batches):
        yield from _in_pieces(engine, snapshot, batch)


def _in_pieces(engine: Engine, snapshot: Snapshot, batch: EventBatch) -> Iterator[Matches]:
    """The result of a batch, or of halves of it if there is no room for it."""
    try:
        found = engine.match(snapshot, batch)
    except LimitError:
        if len(batch) == 1:
            raise
    else:
        yield found
        return
    middle = len(batch) // 2
    for half in (batch.slice(0, middle), batch.slice(middle, len(batch))):
        yield from _in_pieces(engine, snapshot, half)


def slices(batches: Iterable[EventBatch]) -> Iterator[EventBatch]:
    """The events of the batches, fewer at a time."""
    for batch in batches:
        for start in range(0, len(batch), _ITER_EVENTS):
            yield batch.slice(start, start + _ITER_EVENTS)
