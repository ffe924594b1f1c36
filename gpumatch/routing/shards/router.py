"""A small index that says which shards may match an event.

Each clause is relaxed to its three most selective conditions, rounded to cells, with its shard instead of the
subscription; equal ones are merged. That takes about 12 bytes per subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array, pointers, read_only
from gpumatch.codes.book import Codebook
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.events.batch import EventBatch
from gpumatch.kernels import router as kernels
from gpumatch.parallel import threads
from gpumatch.results import Matches
from gpumatch.routing.shards.grid import Grid, bits, distinct

if TYPE_CHECKING:
    from gpumatch.matcher import Matcher

_FIELDS = 7  # of an entry on its way: column, first and last cell; column and two bytes of cells, twice
_PER_LIST = 4  # entries, about: with fewer the lists' bounds would be large
_LEVELS = 3  # from one level in use to the next: fewer lists to visit
_MARKS = 1 << 22  # events times shards that are routed at a time


@dataclass(frozen=True)
class Entries:
    """The entries of a shard, and whether some clause has no entry: then it gets every event."""

    rows: Array  # uint16 (entries, _FIELDS)
    always: bool

    @classmethod
    def of(cls, grid: Grid, matcher: Matcher) -> Entries:
        snapshot = matcher._seal()
        found = []
        for segment, gone in zip(snapshot.segments, snapshot.removed, strict=True):
            living = np.ones(len(segment), np.bool_) if gone is None else ~gone.mask
            found.append(Relaxed.of(grid, segment.book, segment.table).some(living))
        rows = [np.zeros((0, _FIELDS), np.uint16), *(one.rows for one in found)]
        return cls(distinct(np.concatenate(rows)), any(one.always for one in found))

    @classmethod
    def of_bytes(cls, rows: Array, always: bool) -> Entries:
        """From the numbers of all rows in sequence."""
        return cls(rows.reshape(-1, _FIELDS), always)


@dataclass(frozen=True)
class Relaxed:
    """The entries of clauses, each with its subscription; and the subscriptions of clauses that have none."""

    rows: Array  # uint16 (entries, _FIELDS)
    subscription: Array
    free: Array

    @classmethod
    def of(cls, grid: Grid, book: Codebook, table: Table, tree: Array | None = None) -> Relaxed:
        """``tree``: for each subscription, the only column that counts; all others are relaxed away."""
        found = grid.conditions(book, table)
        order = np.lexsort((found.likelihood, found.clause))
        if tree is not None:
            order = order[found.column[order] == tree[found.row[order]]]
        clause, column, lo, hi = (one[order] for one in (found.clause, found.column, found.lo, found.hi))
        starts = np.flatnonzero(np.diff(clause, prepend=-1))
        counts = np.diff(starts, append=len(clause))
        number, rank = np.repeat(np.arange(len(starts)), counts), np.arange(len(clause)) - np.repeat(starts, counts)
        rows = np.zeros((len(starts), _FIELDS), np.uint16)
        rows[:, 0], rows[:, 1], rows[:, 2] = column[starts], lo[starts], hi[starts]
        rows[:, [3, 5]] = len(grid.shift)  # no column
        rows[:, [4, 6]] = 0xFF00  # all of its cells
        for nth in (1, 2) if tree is None else ():
            at = np.flatnonzero(rank == nth)
            shift = grid.shift[column[at]]
            rows[number[at], 2 * nth + 1] = column[at]
            rows[number[at], 2 * nth + 2] = lo[at] >> shift | hi[at] >> shift << 8
        known = np.zeros(len(table.clause_row), np.bool_)
        known[clause[starts]] = True
        return cls(rows, table.clause_row[clause[starts]], np.unique(table.clause_row[~known]))

    def some(self, chosen: Array) -> Entries:
        """The entries of the marked subscriptions."""
        return Entries(self.rows[chosen[self.subscription]], bool(chosen[self.free].any()))


@dataclass(frozen=True, eq=False)
class Router:
    """Decides where events go. It has no subscriptions, so those who send events can have it."""

    grid: Grid
    column_ptr: Array  # int32: slots of each column
    slot_level: Array  # uint8
    slot_first: Array  # int32: its first list
    list_ptr: Array  # int32 or int64: entries of each list
    entry: Array  # uint8 (entries, bytes); see kernels.router
    always: Array  # bool: shards that get every event

    @classmethod
    def of(cls, grid: Grid, shards: Sequence[Entries]) -> Router:
        given = np.concatenate([np.zeros((0, _FIELDS), np.uint16), *(one.rows for one in shards)]).astype(np.int64)
        column, lo, hi = given[:, 0], given[:, 1], given[:, 2]
        cells = grid.book.counts()[: len(grid.shift)]
        lists = np.maximum(np.bincount(column, minlength=len(cells)) // _PER_LIST, 1)  # few cells in each
        least = bits((cells - 1) // lists)[column]
        level = least + -(-np.maximum(bits(hi - lo) - least, 0) // _LEVELS) * _LEVELS
        slots, slot = np.unique(column << 8 | level, return_inverse=True)
        first = pointers(((cells[slots >> 8] - 1) >> (slots & 0xFF)) + 1)
        finest = np.maximum(level - kernels.FINEST, 0)
        shard = np.repeat(np.arange(len(shards)), [len(one.rows) for one in shards])
        parts = [lo >> finest, hi >> finest]
        parts += [given[:, 4] & 0xFF, given[:, 4] >> 8, given[:, 6] & 0xFF, given[:, 6] >> 8]
        for at in (0, 2, 4):
            parts[at + 1] = parts[at + 1] - parts[at]
        parts += [given[:, 3] & 0xFF, given[:, 3] >> 8, given[:, 5] & 0xFF, given[:, 5] >> 8, shard & 0xFF]
        parts += [shard >> 8] if len(shards) > 256 else []
        number = (first[slot] + (lo >> level)).astype(">u8").view(np.uint8).reshape(-1, 8)
        sorted_rows = distinct(np.concatenate([number, np.stack(parts, axis=1).astype(np.uint8)], axis=1))
        number = np.ascontiguousarray(sorted_rows[:, :8]).view(">u8").ravel().astype(np.int64)
        ends = pointers(np.bincount(number, minlength=int(first[-1])))
        arrays: tuple[Array, ...] = (
            np.searchsorted(slots >> 8, np.arange(len(cells) + 1)).astype(np.int32),
            (slots & 0xFF).astype(np.uint8),
            first[:-1].astype(np.int32),
            ends.astype(np.int32 if ends[-1] < 2**31 else np.int64),
            np.ascontiguousarray(sorted_rows[:, 8:]),
            np.array([one.always for one in shards], np.bool_),
        )
        return cls(grid, *map(read_only, arrays))

    def __repr__(self) -> str:
        return f"Router({self.shards} shards, {self.nbytes / 1e6:.1f} MB)"

    @property
    def shards(self) -> int:
        return len(self.always)

    @property
    def _lists(self) -> tuple[Array, ...]:
        return self.column_ptr, self.slot_level, self.slot_first, self.list_ptr, self.entry.ravel()

    @property
    def nbytes(self) -> int:
        """Bytes of the lists; cells come on top of them."""
        return sum(array.nbytes for array in self._lists)

    @cached_property
    def _room(self) -> int:
        return kernels.AT_ONCE + 2 * int(np.diff(self.list_ptr).max(initial=0)) + 1

    def route(self, events: Any) -> Matches:
        """The shards that each event must be matched in; ids are the shards' numbers.

        No match is ever lost: a shard left out has no subscription that the event satisfies.
        """
        batch = EventBatch.of(events, self.grid.attributes.schema).to_host()
        encoder = self.grid.encoder(batch)
        size = max(1, min(_MARKS // max(self.shards, 1), -(-len(batch) // threads.get_num_threads())))
        chunks = [(first, min(first + size, len(batch))) for first in range(0, len(batch), size)]
        marks = threads.run(lambda chunk: self.marks(encoder.encode(*chunk)), chunks)
        counts = [np.zeros(0, np.int64), *(some.sum(axis=1, dtype=np.int64) for some in marks)]
        rows = [np.zeros(0, np.int32), *(np.nonzero(some)[1].astype(np.int32) for some in marks)]
        names = pa.array(np.arange(self.shards))
        return Matches(pointers(np.concatenate(counts)), np.concatenate(rows), names, "shard")

    def marks(self, events: CodedEvents) -> Array:
        """The shards of events as booleans (events, shards)."""
        found = np.empty((len(events.ptr) - 1, self.shards), np.bool_)
        candidates, width = np.empty(self._room, np.uint64), np.uint64(self.entry.shape[1])
        kernels.route(*events.arrays(), *self._lists, width, self.grid.shift, self.always, candidates, found)
        return found
