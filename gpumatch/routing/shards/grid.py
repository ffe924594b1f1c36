"""Cells of values, coarse and the same for all shards, and the conditions of subscriptions in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.codes.book import Codebook, encode_keys, make_book
from gpumatch.codes.decode import range_keys
from gpumatch.codes.encode import EventEncoder
from gpumatch.codes.table import CodedEvents, Table, encode_block
from gpumatch.events.batch import EventBatch
from gpumatch.expr.keys import MAX, MIN
from gpumatch.kernels.encode import search_strings
from gpumatch.opcodes import NULL, RANGE
from gpumatch.routing.sieve.interest import Conditions
from gpumatch.subscriptions.block import Attributes, Block

COLUMNS = 0xFFFE  # that can have conditions: numbers of two bytes, apart from that of no column
_CELLS = 1 << 16  # of a column, at most
_EVENTS = 4096  # made up, if there is no sample
_ENTRIES = 1 << 18  # values of these


@dataclass(frozen=True)
class Grid:
    """Cells, and what share of events has a value below each."""

    attributes: Attributes
    book: Codebook
    below: Array  # float64: the cells of all columns in sequence, and for each column its end

    @classmethod
    def of(cls, attributes: Attributes, block: Block, events: EventBatch | None = None) -> Grid:
        """Cells between the constants of some subscriptions. Without events all cells are equally likely."""
        book = _thinned(encode_block(block, attributes.covering(block.columns))[0], attributes)
        base = pointers(book.counts() + 1)
        below = np.arange(base[-1]) - np.repeat(base[:-1], np.diff(base))
        grid = cls(attributes, book, below / np.repeat(book.counts(), np.diff(base)))
        if events is None or not len(events):
            return grid
        coded = grid.encode(events)
        seen = np.cumsum(np.bincount(base[coded.attribute] + coded.code + 1, minlength=base[-1]))
        seen -= np.repeat(seen[base[:-1]], np.diff(base))
        return replace(grid, below=(seen + grid.below) / (len(events) + 1))  # one made-up event, for what was not seen

    @cached_property
    def base(self) -> Array:
        """The first cell of each column in ``below``."""
        return pointers(self.book.counts() + 1)

    @cached_property
    def shift(self) -> Array:
        """By how many bits codes are shifted to fit in a byte, for each column that can have conditions."""
        shift: Array = np.maximum(bits(self.book.counts()[:COLUMNS] - 1) - 8, 0)
        return shift

    def encode(self, events: EventBatch) -> CodedEvents:
        return self.encoder(events).encode(0, len(events))

    def encoder(self, events: EventBatch) -> EventEncoder:
        everything = np.ones(len(self.attributes), np.bool_)
        return EventEncoder(self.book, self.attributes, everything, events)

    def made_up(self) -> CodedEvents:
        """Events that have all attributes, with cells that are equally likely."""
        counts = self.book.counts()
        events = max(1, min(_EVENTS, _ENTRIES // max(len(counts), 1)))
        code = np.random.default_rng(0).integers(0, counts, (events, len(counts)), dtype=np.int32)
        column = np.tile(np.arange(len(counts), dtype=np.int32), events)
        return CodedEvents(np.arange(events + 1) * len(counts), column, code.ravel())

    def conditions(self, book: Codebook, table: Table) -> Conditions:
        """Conditions of a table's clauses on single values, as one range of cells each, and how likely they hold.

        Ranges are rounded up to whole cells, and sets to one range.
        """
        found = Conditions.of(table, np.zeros(len(table.predicate) // 4))
        usable = np.flatnonzero((found.kind != NULL) & (found.column < len(self.shift)))
        column = found.column[usable]
        lo, hi = self._cells(book, column.astype(np.int32), *(ends[usable] for ends in found.hulls()))
        likelihood = self.below[self.base[column] + hi + 1] - self.below[self.base[column] + lo]
        kind = np.full(len(usable), RANGE)
        return replace(
            found, clause=found.clause[usable], column=column, kind=kind, lo=lo, hi=hi, likelihood=likelihood
        )

    def _cells(self, book: Codebook, column: Array, lo: Array, hi: Array) -> tuple[Array, Array]:
        """First and last cells of ranges of another book's codes."""
        strings = self.attributes.of_kind("string")
        low, high = range_keys(book, strings, column, lo, hi)
        text = strings[column]
        high = np.where(text & (high == MIN), MAX, high)  # open
        keys = np.empty(len(book.pool_offsets) - 1, np.int64)
        search_strings(book.pool_data, book.pool_offsets, self.book.pool_data, self.book.pool_offsets, keys)
        for end, none in ((low, MIN), (high, MAX)):
            cut = np.flatnonzero(text & (end != none))
            end[cut] = keys[np.clip(end[cut] >> 1, 0, len(keys) - 1)]  # of the string next to the cut: never too narrow
        first, last = (encode_keys(self.book, column, end).astype(np.int64) for end in (low, high))
        return first, np.maximum(first, last)


def _thinned(book: Codebook, attributes: Attributes) -> Codebook:
    """The book with fewer cells, and without columns of patterns."""
    cuts = []
    for column in range(len(attributes)):
        own = book.cuts[book.cut_ptr[column] : book.cut_ptr[column + 1]]
        if len(own) >= _CELLS:
            own = own[np.linspace(0, len(own) - 1, _CELLS - 1).astype(np.int64)]
        cuts.append(own)
    ptr, pool = pointers(np.array([len(own) for own in cuts])), (book.pool_data, book.pool_offsets)
    return make_book(attributes.of_kind("float"), np.concatenate([np.zeros(0, np.int64), *cuts]), ptr, pool)


def bits(numbers: Array) -> Array:
    """How many bits each number takes."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def distinct(rows: Array) -> Array:
    """The distinct rows of an array, sorted as bytes."""
    rows = np.ascontiguousarray(rows)
    width = rows.shape[1]
    return np.unique(rows.view(f"V{rows.dtype.itemsize * width}").ravel()).view(rows.dtype).reshape(-1, width)
