"""GEM: the codes of a few dimensions cut into cells, and a bitset of clauses per cell (paper 003, cache method)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpumatch.coded import CodedEvents, Table
from gpumatch.codes import pointers
from gpumatch.errors import SchemaError
from gpumatch.index.flat import ArraySpec, FlatIndex, IndexParams, Input, Kind, bits_of, by_likelihood
from gpumatch.kernels import gem as kernels
from gpumatch.predicates import Array, Attributes

_MOST_DIMS = 32  # bitsets of more dimensions cost more than they exclude
_SHARE = 32  # a dimension is indexed if one clause in so many constrains it
_GRANULES = 4096  # entries of the table that leads from codes to cells
_LANES = 0x7FFC  # values that fit a lane of the packed bounds, besides those that mean absent and open


@dataclass(frozen=True, slots=True)
class Gem(IndexParams):
    """Cut dimensions into cells, and AND the bitsets of the cells that an event lies in."""

    kind: ClassVar[str] = "gem"
    cells: int = 64

    def __post_init__(self) -> None:
        if isinstance(self.cells, bool) or not isinstance(self.cells, int) or not 1 <= self.cells <= 255:
            raise SchemaError(f"Gem(cells=…) takes a whole number from 1 to 255, found {self.cells!r}")


ARRAYS = {
    "dims": ArraySpec("int32", "attributes that are indexed"),
    "dim_of": ArraySpec("int32", "per attribute: its dimension, or -1"),
    "cell_ptr": ArraySpec("int64", "per dimension: its first cell; the last one is of events that lack the attribute"),
    "cell_table": ArraySpec("uint8", "codes, shifted, to cells"),
    "table_ptr": ArraySpec("int64", "per dimension: where its part of cell_table starts"),
    "table_shift": ArraySpec("uint8", "per dimension: codes are shifted so far to its part of cell_table"),
    "lane_exact": ArraySpec("bool", "per dimension: do its codes fit the lanes of bounds?"),
    "lane_shift": ArraySpec("uint8", "per dimension: codes are shifted so far to lanes where they do not fit"),
    "bits": ArraySpec("uint64", "per tile, cell and word: the clauses that touch the cell or do not constrain it"),
    "summary": ArraySpec("uint64", "per tile and cell: which words are not zero"),
    "count": ArraySpec("int64", "per cell: its clauses"),
    "bounds": ArraySpec("uint64", "per clause: low bounds, then high bounds, in lanes of 16 bits"),
    "loose": ArraySpec("uint64", "a bit per clause: bounds do not tell all of it"),
    "ascending": ArraySpec("bool", "one flag: rows rise with clauses, so that results need no sorting"),
}


class _Dims:
    """The dimensions of some clauses, and what leads from their codes to cells."""

    def __init__(self, given: Input, clauses: Array) -> None:
        counts, table = given.book.counts(), given.table
        used, excluded = np.zeros(len(counts), np.int64), np.zeros(len(counts))
        predicates, multi = table.predicates(), given.attributes.multi
        self.rate = kernels.tally(clauses, table.clause_ptr, predicates, counts, multi, used, excluded)
        wanted = np.flatnonzero(used * _SHARE >= max(len(clauses), 1))
        if len(wanted) == 0:
            wanted = np.argsort(-excluded, kind="stable")[: int(used.any())]
        wanted = wanted[np.argsort(-excluded[wanted], kind="stable")][:_MOST_DIMS]
        self.dims = wanted.astype(np.int32)
        self.dim_of = np.full(len(counts), -1, np.int32)
        self.dim_of[wanted] = np.arange(len(wanted))
        self.counts = counts[wanted]
        self.shift = bits_of(-(-self.counts // _GRANULES))
        self.ptr = pointers(((self.counts - 1) >> self.shift) + 1)
        self.lows, self.highs = np.zeros(int(self.ptr[-1]), np.int64), np.zeros(int(self.ptr[-1]), np.int64)
        self.places = (self.dim_of, self.ptr, self.shift)
        kernels.weigh(clauses, table.clause_ptr, predicates, *self.places, self.lows, self.highs)

    def quantiles(self, weights: Array, parts: int) -> list[Array]:
        """For each dimension the part that each granule lies in, where parts have about the same weight."""
        found = []
        for first, last in zip(self.ptr[:-1].tolist(), self.ptr[1:].tolist(), strict=True):
            own = weights[first:last]
            below = np.cumsum(own) - own
            found.append(np.minimum(below * parts // max(int(own.sum()), 1), parts - 1))
        return found


def _place(params: Gem, given: Input, clauses: Array) -> Array:
    """Alike clauses together; but in the order of rows where so many match that sorting results would cost more."""
    dims = _Dims(given, clauses)
    if dims.rate * 64 >= 1 or len(clauses) <= kernels.TILE:
        return given.table.clause_row[clauses]
    low, high = (np.concatenate(dims.quantiles(w, 256)).astype(np.uint8) for w in (dims.lows, dims.highs))
    keys = np.empty(len(clauses), np.int64)
    kernels.interleave(clauses, given.table.clause_ptr, given.table.predicates(), *dims.places, low, high, keys)
    return keys


def _build(params: Gem, given: Input) -> dict[str, Array]:
    table, first, last = given.table, given.first, given.last
    dims = _Dims(given, np.arange(first, last))
    cells = [np.unique(part, return_inverse=True)[1] for part in dims.quantiles(dims.lows + dims.highs, params.cells)]
    cell_ptr = pointers(np.array([part[-1] + 2 for part in cells], np.int64))
    cell_table = np.concatenate([*cells, np.zeros(0)]).astype(np.uint8)
    tiles = -(-(last - first) // kernels.TILE)
    bits = np.zeros(tiles * int(cell_ptr[-1]) * kernels.WORDS, np.uint64)
    summary, count = np.zeros(tiles * int(cell_ptr[-1]), np.uint64), np.zeros(int(cell_ptr[-1]), np.int64)
    predicates = table.predicates()
    kernels.set_bits(
        first,
        last,
        table.clause_ptr,
        predicates,
        (dims.dim_of, cell_ptr),
        (cell_table, dims.ptr, dims.shift),
        bits,
        summary,
        count,
    )
    exact = 2 * dims.counts <= _LANES
    shift = bits_of(-(-dims.counts // _LANES))
    words = -(-len(dims.dims) // kernels.LANES)
    bounds = np.empty(2 * words * (last - first), np.uint64)
    loose = np.zeros(tiles * kernels.WORDS, np.uint64)
    kernels.pack_bounds(first, last, table.clause_ptr, predicates, dims.dim_of, exact, shift, words, bounds, loose)
    programs = np.flatnonzero(table.clause_program[first:last] >= 0)
    np.bitwise_or.at(loose, programs >> 6, np.uint64(1) << (programs & 63).astype(np.uint64))
    rows = table.clause_row[first:last]
    ascending = np.array([bool((rows[1:] > rows[:-1]).all())])
    arrays = (dims.dims, dims.dim_of, cell_ptr, cell_table, dims.ptr, dims.shift, exact, shift)
    return dict(zip(ARRAYS, (*arrays, bits, summary, count, bounds, loose, ascending), strict=True))


def _match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool
) -> tuple[Array, Array]:
    a = index.arrays
    dims, cells = (a["dim_of"], a["cell_ptr"]), (a["cell_table"], a["table_ptr"], a["table_shift"])
    found, ends = kernels.match_bits(
        events.arrays(),
        dims,
        cells,
        (a["lane_exact"], a["lane_shift"]),
        (a["bits"], a["summary"], a["count"], a["bounds"], a["loose"]),
    )
    depth = int(np.diff(table.program_ptr).max(initial=0))
    offsets, rows = kernels.gather(
        events.arrays(),
        found,
        ends,
        index.first,
        table.length,
        once,
        bool(a["ascending"][0]) and not once,
        (attributes.multi, attributes.presence),
        (table.clause_row, table.clause_ptr, table.clause_program),
        table.predicates(),
        (table.program_ptr, table.program_item, depth),
    )
    return offsets, rows


def _facts(index: FlatIndex) -> dict[str, Any]:
    return {"dimensions": len(index.arrays["dims"]), "cells": int(index.arrays["cell_ptr"][-1])}


GEM = Kind(Gem, ARRAYS, _build, _match, _place, by_likelihood, _facts)
