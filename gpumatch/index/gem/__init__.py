"""GEM: the codes of a few dimensions cut into cells, and bitsets of the clauses that touch a cell (paper 003).

With a bitset for every cell, the default, matching is an AND of bitsets. With fewer or none it follows the paper: see
``triangle``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.arrayspec import (
    ANYTHING,
    HOOKED,
    SHIFTS,
    ArraySpec,
    Numbers,
    Pointers,
    Problem,
    between,
    equal,
    refused,
    sized,
    whole,
)
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.errors import SchemaError
from gpumatch.index.costs import Costs, sample
from gpumatch.index.flat import Around, FlatIndex, IndexParams, Kind, Planning, Workspace, ascent, bits_of
from gpumatch.index.gem import triangle
from gpumatch.index.input import Input
from gpumatch.kernels import gem as kernels
from gpumatch.kernels import gem_build as building
from gpumatch.kernels import gem_dense as dense
from gpumatch.kernels.frames import Frame
from gpumatch.kernels.plan import survival
from gpumatch.opcodes import HI, LO
from gpumatch.subscriptions.block import Attributes

_MOST_DIMS = 32  # bitsets of more dimensions cost more than they exclude
_SHARE = 32  # a dimension is indexed if at least one clause in this many constrains it
_GRANULES = 4096  # most entries of the table from codes to cells
_ROWS = 1 << 20  # most rows of results that one call should give
_MANY_ROWS = 1 << 24  # the same where tiles are not reused: results of several calls are copied to be joined
_LEAST_EVENTS, _MOST_EVENTS = 64, 4096  # of one call
_WORD = 0.16  # nanoseconds per word of a bitset
_SURVIVOR, _DENSE = 25.0, 6.5  # and per clause that bitsets leave: if these are few, and if they are many
_LOOSE = 100.0  # the same, if bounds do not decide the clause
_LANES = 0x7FFC  # values that fit in a lane of the packed bounds, without those that mean absent and open


@dataclass(frozen=True, slots=True)
class Gem(IndexParams):
    """Cut each dimension into ``cells``, and intersect the clauses that touch the event's cells.

    ``caches``: how many cells of a dimension have a bitset; None for all, 0 for the paper's triangles alone.
    """

    kind: ClassVar[str] = "gem"
    cells: int = 64
    caches: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.cells, bool) or not isinstance(self.cells, int) or not 1 <= self.cells <= 255:
            raise SchemaError(f"Gem(cells=…) takes a whole number from 1 to 255, found {self.cells!r}")
        if self.caches is None:
            return
        if isinstance(self.caches, bool) or not isinstance(self.caches, int) or not 0 <= self.caches <= self.cells:
            raise SchemaError(
                f"Gem(caches=…) takes a whole number from 0 to the number of cells, {self.cells}, or None for all of "
                f"them, found {self.caches!r}"
            )

    @property
    def has_all(self) -> bool:
        """Does every cell have its bitset?"""
        return self.caches is None or self.caches == self.cells


_BITSETS = {
    "dims": ArraySpec("int32", "dims", "attributes that are indexed", Numbers("attributes")),
    "dim_of": ArraySpec("int32", "attributes or 0", "per attribute: its dimension, or -1", HOOKED),
    "cell_ptr": ArraySpec(
        "int64",
        "lines + 1 or 0",
        "per dimension: its first cell; its last one is for events that lack the attribute",
        Pointers("cells"),
    ),
    "cell_table": ArraySpec("uint8", "granules", "cell of each shifted code", HOOKED),
    "table_ptr": ArraySpec(
        "int64", "lines + 1 or 0", "per dimension: where its slice of cell_table starts", Pointers("granules")
    ),
    "table_shift": ArraySpec(
        "uint8", "lines or 0", "per dimension: bits by which codes are shifted for cell_table", SHIFTS
    ),
    "lane_exact": ArraySpec("bool", "lines or 0", "per dimension: do its codes fit in the lanes of bounds?", ANYTHING),
    "lane_shift": ArraySpec(
        "uint8", "lines or 0", "per dimension: bits by which codes are shifted for lanes where they do not fit", SHIFTS
    ),
    "bits": ArraySpec(
        "uint64", "words", "per tile, cell and word: the clauses that touch the cell or do not constrain it", HOOKED
    ),
    "cover": ArraySpec(
        "uint64",
        "words or 0",
        "as bits: the clauses that hold for all of the cell; empty where few would match",
        ANYTHING,
    ),
    "summary": ArraySpec(
        "uint64", "cells_of_tiles", "per tile and cell: which words are not zero", ANYTHING, on_device=False
    ),
    "count": ArraySpec("int64", "cells", "per cell: number of its clauses", ANYTHING),
    "bounds": ArraySpec("uint64", "bounds", "per clause: low bounds, then high bounds, in lanes of 16 bits", ANYTHING),
    "loose": ArraySpec("uint64", "words_of_tiles", "a bit per clause: its bounds do not decide it", ANYTHING),
}
_FRAMED = tuple(name for name in _BITSETS if name not in ("dims", "cover"))
ARRAYS = _BITSETS | triangle.ARRAYS
META = {
    "expected": "clauses that match an event, if all codes are equally likely",
    "ascending": "rows rise with clauses (1), without gaps (2), or do not (0)",
}


class Dims:
    """The dimensions of some clauses, and the tables from their codes to cells."""

    def __init__(self, given: Input, clauses: Array) -> None:
        counts, table = given.book.counts(), given.table
        used, excluded = np.zeros(len(counts), np.int64), np.zeros(len(counts))
        predicates, multi = table.predicates(), given.attributes.multi
        self.rate = building.tally(clauses, table.clause_ptr, predicates, counts, multi, used, excluded)
        self.many = self.rate * 64 >= 1  # a match in every word of bitsets
        wanted = np.flatnonzero(used * _SHARE >= max(len(clauses), 1))
        if len(wanted) == 0:
            wanted = np.argsort(-excluded, kind="stable")[: int(used.any())]
        wanted = wanted[np.argsort(-excluded[wanted], kind="stable")][:_MOST_DIMS]
        self.dims = wanted.astype(np.int32)
        self.dim_of = np.full(len(counts), -1, np.int32)
        self.dim_of[wanted] = np.arange(len(wanted))
        # Where nothing is constrained, one dimension that no event has a value in keeps the arrays from being empty.
        self.counts = counts[wanted] if len(wanted) else np.ones(1, np.int64)
        self.shift = bits_of(-(-self.counts // _GRANULES))
        self.ptr = pointers(((self.counts - 1) >> self.shift) + 1)
        self.lows, self.highs = np.zeros(int(self.ptr[-1]), np.int64), np.zeros(int(self.ptr[-1]), np.int64)
        self.granules = (self.dim_of, self.ptr, self.shift)
        building.weigh(clauses, table.clause_ptr, predicates, *self.granules, self.lows, self.highs)

    def quantiles(self, weights: Array, count: int) -> list[Array]:
        """The quantile of each granule, by dimension, where ``count`` quantiles have about the same weight."""
        found = []
        for first, last in zip(self.ptr[:-1].tolist(), self.ptr[1:].tolist(), strict=True):
            own = weights[first:last]
            below = np.cumsum(own) - own
            found.append(np.minimum(below * count // max(int(own.sum()), 1), count - 1))
        return found


def _place(params: Gem, given: Input, clauses: Array) -> Array:
    """Similar clauses together, or row order if so many match that sorting results would cost more."""
    dims = Dims(given, clauses)
    if not params.has_all or dims.many or len(clauses) <= kernels.TILE:
        return given.table.clause_row[clauses]
    low, high = (np.concatenate(dims.quantiles(w, 256)).astype(np.uint8) for w in (dims.lows, dims.highs))
    keys = np.empty(len(clauses), np.int64)
    building.interleave(clauses, given.table.clause_ptr, given.table.predicates(), *dims.granules, low, high, keys)
    return keys


def _build(params: Gem, given: Input) -> dict[str, Any]:
    """Arrays of bitsets or of triangles; those of the other form are empty."""
    dims = Dims(given, np.arange(given.first, given.last))
    empty: dict[str, Any] = {name: np.zeros(0, spec.dtype) for name, spec in ARRAYS.items()}
    empty |= {"expected": float(dims.rate * (given.last - given.first)), "ascending": 0}
    if params.has_all:
        return empty | _bitsets(params.cells, given, dims)
    assert params.caches is not None
    return empty | {"dims": dims.dims} | triangle.build(params.cells, params.caches, given, dims.dims)


def _bitsets(most: int, given: Input, dims: Dims) -> dict[str, Any]:
    table, first, last = given.table, given.first, given.last
    cells = [np.unique(own, return_inverse=True)[1] for own in dims.quantiles(dims.lows + dims.highs, most)]
    cell_ptr = pointers(np.array([own[-1] + 2 for own in cells], np.int64))
    cell_table = np.concatenate([*cells, np.zeros(0)]).astype(np.uint8)
    tiles = -(-(last - first) // kernels.TILE)
    bits = np.zeros(tiles * int(cell_ptr[-1]) * kernels.WORDS, np.uint64)
    cover = np.zeros(len(bits) if dims.many else 0, np.uint64)
    summary, count = np.zeros(tiles * int(cell_ptr[-1]), np.uint64), np.zeros(int(cell_ptr[-1]), np.int64)
    predicates = table.predicates()
    building.set_bits(
        first,
        last,
        table.clause_ptr,
        predicates,
        (dims.dim_of, cell_ptr),
        (cell_table, dims.ptr, dims.shift),
        bits,
        cover,
        summary,
        count,
    )
    exact = 2 * dims.counts <= _LANES
    shift = bits_of(-(-dims.counts // _LANES))
    words = -(-len(dims.counts) // kernels.LANES)
    bounds = np.empty(2 * words * (last - first), np.uint64)
    loose = np.zeros(tiles * kernels.WORDS, np.uint64)
    building.pack_bounds(first, last, table.clause_ptr, predicates, dims.dim_of, exact, shift, words, bounds, loose)
    programs = np.flatnonzero(table.clause_program[first:last] >= 0)
    np.bitwise_or.at(loose, programs >> 6, np.uint64(1) << (programs & 63).astype(np.uint64))
    arrays = (dims.dims, dims.dim_of, cell_ptr, cell_table, dims.ptr, dims.shift, exact, shift)
    named = dict(zip(_BITSETS, (*arrays, bits, cover, summary, count, bounds, loose), strict=True))
    return {**named, "ascending": ascent(table.clause_row[first:last])}


def _validate(index: FlatIndex, around: Around) -> Iterator[Problem]:
    a, multi = index.arrays, around.attributes.multi
    yield from refused("dims", a["dims"], multi[a["dims"]], "single-valued attributes")
    if len(a["dims"]) > _MOST_DIMS:
        yield "dims", f"should have at most {_MOST_DIMS} numbers, has {len(a['dims'])}"
    assert isinstance(index.params, Gem)
    expected, rows = index.meta["expected"], around.table.clause_row[index.first : index.last]
    if not 0 <= expected <= len(rows) + 1:  # one more than can be, by rounding
        yield "expected", f"should be a number from 0 to {len(rows)}, is {expected}"
    yield from whole("ascending", index.meta["ascending"], 0, ascent(rows))
    if not index.params.has_all:
        yield from triangle.validate(index.params.cells, index.params.caches or 0, a, around)
        return
    yield from _validate_cells(a, around)
    yield from _validate_bitsets(a, around)


def _validate_cells(a: Mapping[str, Array], around: Around) -> Iterator[Problem]:
    """Each code of a dimension must have one of the dimension's cells."""
    dims, dim_of = a["dims"], np.full(len(around.counts), -1, np.int32)
    dim_of[dims] = np.arange(len(dims))
    yield from sized("dim_of", a["dim_of"], len(dim_of))
    yield from equal("dim_of", a["dim_of"], dim_of)
    yield from sized("dims", np.flatnonzero(dim_of >= 0), len(dims))  # all different
    lines = max(len(dims), 1)  # without dimensions, there is one that no event has
    for name, more in (("cell_ptr", 1), ("table_ptr", 1), ("table_shift", 0), ("lane_exact", 0), ("lane_shift", 0)):
        yield from sized(name, a[name], lines + more)
    cells, granules = np.diff(a["cell_ptr"]), np.diff(a["table_ptr"])
    yield from refused("cell_ptr", a["cell_ptr"][1:], cells < 1, "a cell for each dimension")
    codes = np.ones(lines, np.int64)
    codes[: len(dims)] = around.counts[dims]
    yield from equal("table_ptr", granules, ((codes - 1) >> a["table_shift"]) + 1)
    yield from between("cell_table", np.maximum.reduceat(a["cell_table"], a["table_ptr"][:-1]), 0, cells - 1)


def _validate_bitsets(a: Mapping[str, Array], around: Around) -> Iterator[Problem]:
    """Bitsets must have words for all tiles and cells, and no bits beyond the last clause."""
    clauses, cells, words = around.sizes["clauses"], around.sizes["cells"], kernels.WORDS
    tiles = -(-clauses // kernels.TILE)
    yield from sized("bits", a["bits"], tiles * cells * words)
    yield from sized("cover", a["cover"], len(a["bits"]) if len(a["cover"]) else 0)
    yield from sized("summary", a["summary"], tiles * cells)
    yield from sized("bounds", a["bounds"], 2 * -(-len(a["lane_exact"]) // kernels.LANES) * clauses)
    yield from sized("loose", a["loose"], tiles * words)
    last = a["bits"][max(tiles - 1, 0) * cells * words :].reshape(-1, words)
    used = np.clip(clauses - max(tiles - 1, 0) * kernels.TILE - 64 * np.arange(words), 0, 64)
    beyond = np.where(used < 64, ~np.uint64(0) << np.minimum(used, 63).astype(np.uint64), np.uint64(0))
    yield from refused("bits", last.ravel(), ((last & beyond) != 0).ravel(), f"bits for {clauses} clauses")


def _match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    a, ascending = index.arrays, index.meta["ascending"]
    if isinstance(index.params, Gem) and not index.params.has_all:
        return triangle.match(a, index.first, index.last, attributes, table, events, once)
    asked = _asked(index, attributes, table, events)
    expected, targets = float(index.meta["expected"]), (table.length, once, bool(ascending) and not once)
    if len(a["cover"]):
        shift = int(table.clause_row[index.first]) if ascending == 2 and not once else -1
        room = int(1.25 * expected * (len(events.ptr) - 1)) + 64 * len(a["loose"]) + dense.AT_ONCE
        offsets, rows = dense.match_dense(*asked, targets, shift, np.empty(room, np.int32))  # NumPy takes huge pages
    else:
        offsets, rows = kernels.match_sparse(*asked, expected, targets)
    return offsets, rows


def _count(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, dead: Array, totals: Array
) -> Array:
    count = dense.count_dense if len(index.arrays["cover"]) else kernels.count_sparse
    counts: Array = count(*_asked(index, attributes, table, events), dead, totals)
    return counts


def _any(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, dead: Array, found: Array
) -> None:
    kernels.any_bits(*_asked(index, attributes, table, events), dead, found)


def _asked(index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents) -> tuple[Any, ...]:
    """Arguments of all drivers over bitsets."""
    frames = (_frame(index, attributes, table).numbers, table.frame.numbers)
    return events.arrays(), *frames, table.programs[2], index.first


def _frame(index: FlatIndex, attributes: Attributes, table: Table) -> Frame:
    """The bitsets, and if many clauses match the bounds of each cell."""
    found: Frame | None = index.kept.get("frame")
    if found is None:
        bounds, arrays = {}, [index.arrays[name] for name in _FRAMED] + [attributes.multi, attributes.presence]
        if len(index.arrays["cover"]):
            own = Frame(arrays)
            for name, side in (("lows", LO), ("highs", HI)):
                ptr = np.zeros(len(index.arrays["count"]) + 1, np.int64)
                bounds[name] = dense.sort_bounds(index.first, index.last, own.numbers, table.frame.numbers, side, ptr)
                arrays += [bounds[name], ptr]
        made = Frame(arrays)
        found = index.keep("frame", made)
        if found is made:
            index.kept.update(bounds)
    return found


def _facts(index: FlatIndex, counters: Mapping[str, int]) -> dict[str, Any]:
    return {"dimensions": len(index.arrays["dims"])}


def _events(index: FlatIndex) -> int:
    """Enough to reuse tiles while they are in cache, but not so many that results evict them."""
    most = _MANY_ROWS if len(index.arrays["cover"]) else _ROWS
    return min(max(int(most / max(float(index.meta["expected"]), 1.0)), _LEAST_EVENTS), _MOST_EVENTS)


def _cost(params: Gem, costs: Costs, clauses: Array) -> Array:
    return _cost_of(Dims(costs.given, clauses), costs, clauses)


def _cost_of(dims: Dims, costs: Costs, clauses: Array) -> Array:
    """Nanoseconds per clause in bitsets over these dimensions."""
    table, left, loose = costs.given.table, np.empty(len(clauses)), np.empty(len(clauses), np.bool_)
    heads = (table.clause_ptr, table.clause_program, table.predicate)
    survival(clauses, *heads, costs.likelihood, dims.dim_of, left, loose)
    words = max(len(dims.dims), 4) * (2 if dims.many else 1) / 64
    each: Array = words * _WORD + left * ((_DENSE if dims.many else _SURVIVOR) + loose * _LOOSE)
    return each


def _bytes(params: Gem, costs: Costs, clauses: Array) -> int:
    dims = Dims(costs.given, sample(clauses))
    tiles, count = -(-len(clauses) // kernels.TILE), len(dims.counts)
    cells = int(np.minimum(dims.counts, params.cells).sum()) + count
    words = tiles * cells * (kernels.WORDS * (2 if dims.many else 1) + 1) + tiles * kernels.WORDS
    bounds = 2 * (-(-count // kernels.LANES) + (count if dims.many else 0)) * len(clauses)
    return 8 * (words + bounds + cells) + int(dims.ptr[-1]) + 4 * len(dims.dim_of) + 64 * (count + 1)


def _reason(costs: Costs, clauses: Array) -> str:
    dimensions = len(Dims(costs.given, sample(clauses)).dims)
    return f"{len(clauses)} clauses have wide predicates on {dimensions} common dimensions"


def _takes(costs: Costs, clauses: Array) -> Array:
    """The clauses that bitsets find cheaper than postings do."""
    others = costs.postings(clauses)
    wide = others > 4 * _WORD / 64
    found, others = clauses[wide], others[wide]
    if len(found) == 0:
        return found
    kept: Array = found[_cost_of(Dims(costs.given, sample(found)), costs, found) < others]
    return kept


GEM = Kind(
    params=Gem,
    arrays=ARRAYS,
    meta=META,
    build=_build,
    match=_match,
    count=lambda params: _count if params.has_all else None,
    any=lambda params: _any if params.has_all else None,
    validate=_validate,
    place=_place,
    facts=_facts,
    events=_events,
    cost=_cost,
    bytes=_bytes,
    planning=Planning(tuple(map(Gem, (64, 32, 16))), _reason, doubt=1.25, takes=_takes, leads=True),
    drivers=(kernels.match_sparse, kernels.count_sparse, kernels.any_bits, dense.match_dense, dense.count_dense),
    forms=(Gem(), Gem(cells=8, caches=2)),
    variants={"triangle": Gem(caches=0)},
)
