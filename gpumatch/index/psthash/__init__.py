"""PSTHash: clauses found by two of their predicates together (thesis, chapter 8).

The thesis keeps a hash table from pairs of leaf spaces to subscriptions. Here the two attributes of a clause's access
predicates name a grid, the attributes' partners lead an event to existing grids only, and its two codes address a cell
of the grid directly: no keys are kept or compared. Wide ranges hang in a grid of coarser cells. Clauses that lack two
such predicates, would take too many cells, or are too few to pay for a look-up per event, hang on one predicate as in
PSTBloom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.arrayspec import HOOKED, SHIFTS, ArraySpec, Numbers, Pointers, Problem, between, refused
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.errors import SchemaError
from gpumatch.index import postings
from gpumatch.index.costs import Costs
from gpumatch.index.flat import Around, FlatIndex, IndexParams, Kind, Planning, Workspace, bits_of, by_access
from gpumatch.index.input import Input
from gpumatch.kernels import psthash as kernels
from gpumatch.kernels.postings import CELLS, CLAUSE
from gpumatch.kernels.rows import merge_rows
from gpumatch.subscriptions.block import Attributes

_CELLS = 16  # most cells that one clause may hang in
_POSTINGS = 6  # most postings in grids, times the number of clauses; clauses in few cells go first
_PER_CELL = 1  # clauses per cell; the size of the finest grid of two attributes is chosen for this
_PAYS = 128  # with fewer clauses, a grid does not pay for its look-ups
_PAIR, _RECORD = 75.0, 6.0  # nanoseconds per two attributes that are looked up together, and per posting
_BEHIND = 1 << 60  # added to sort keys of clauses outside grids, which come last


@dataclass(frozen=True, slots=True)
class PstHash(IndexParams):
    """Hang every subscription on its ``access`` most selective predicates, two or one; one works as ``PstBloom``."""

    kind: ClassVar[str] = "psthash"
    access: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.access, bool) or self.access not in (1, 2):
            raise SchemaError(f"PstHash hangs subscriptions on access=1 or access=2 predicates, found {self.access!r}")


ARRAYS = {
    **postings.ARRAYS,  # of the clauses outside grids
    "filter_shift": ArraySpec(
        "uint8", "attributes", "per attribute: bits by which codes are shifted to 8-bit cells", SHIFTS
    ),
    "grid_ptr": ArraySpec(
        "int64",
        "attributes + 1",
        "per attribute: the grids that it owns; of two, the one with fewer grids owns theirs",
        Pointers("grids"),
    ),
    "grid_partner": ArraySpec("int32", "grids", "per grid: its other attribute", Numbers("attributes")),
    "grid_facts": ArraySpec(
        "uint64", "grids", "per grid: first cell << 24, owner's shift << 16, partner's << 8, its bits", HOOKED
    ),
    "cell_ptr": ArraySpec("uint32", "cells + 1", "per cell: where its postings start", Pointers("pairs")),
    "pairs": ArraySpec(
        "uint32",
        "3 * pairs",
        "three per posting: two filters; the clause and whether nothing is left to verify",
        HOOKED,
    ),
}


class _Grids(NamedTuple):
    """Which of some clauses hang in grids, and where."""

    gridded: Array  # bool per clause; the others are per clause in a grid, or per grid
    grid: Array
    owner: Array  # position of the predicate on the grid's owner
    partner: Array
    ptr: Array  # as in ARRAYS
    partners: Array
    facts: Array
    cells: int


def _grids(access: int, given: Input, clauses: Array) -> _Grids:
    """Grids for the clauses for which they pay. The order of the clauses does not matter."""
    table, width = given.table, len(given.attributes)
    one, two = np.full(len(clauses), -1, np.int64), np.full(len(clauses), -1, np.int64)
    if access == 2:
        kernels.find_pairs(table.clause_ptr, table.predicate, given.attributes.multi, clauses, one, two)
    gridded = two >= 0
    one, two = one[gridded], two[gridded]
    swap = table.predicate[one] > table.predicate[two]
    one, two = np.where(swap, two, one), np.where(swap, one, two)
    depth = bits_of(given.book.counts())
    shape, count = np.empty(2 * len(one), np.uint8), np.empty(len(one), np.int64)
    finest = _finest(table.predicate[one], table.predicate[two], depth)
    kernels.choose_blocks(one, two, table.predicates(), depth, finest, _CELLS, shape, count)
    columns = (table.predicate[one], table.predicate[two], shape[::2], shape[1::2])
    _, first, grid, sizes = np.unique(
        _numbered(columns, (width, width, 32, 32)), return_index=True, return_inverse=True, return_counts=True
    )
    kept = sizes[grid] >= _PAYS
    kept &= count <= _most_cells(count[kept], _POSTINGS * len(clauses))
    gridded[gridded] = kept
    used, grid = np.unique(grid[kept], return_inverse=True)
    return _owned(width, depth, gridded, grid, (one[kept], two[kept]), tuple(c[first[used]] for c in columns))


def _numbered(columns: tuple[Array, ...], sizes: tuple[int, ...]) -> Array:
    """One number for each row of the columns."""
    number: Array = np.zeros(len(columns[0]), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        number = number * size + column
    return number


def _finest(one: Array, two: Array, depth: Array) -> Array:
    """Bits of the finest blocks on both attributes of each clause: a cell for every few clauses that share them."""
    _, pair, sizes = np.unique(_numbered((one, two), (len(depth),) * 2), return_inverse=True, return_counts=True)
    both = bits_of(sizes // _PER_CELL)[pair].astype(np.int64)
    fine = np.minimum(depth[one], np.maximum(both // 2, both - depth[two]))
    return np.stack([fine, np.minimum(both - fine, depth[two])], axis=1).astype(np.uint8).ravel()


def _most_cells(count: Array, room: int) -> int:
    """The most cells that a clause may have, so that all postings together fit the room."""
    room = min(room, np.iinfo(np.uint32).max)
    total = np.cumsum(np.bincount(count, minlength=_CELLS + 1) * np.arange(max(_CELLS, count.max(initial=0)) + 1))
    return int(np.searchsorted(total, room, side="right")) - 1


def _owned(
    width: int, depth: Array, gridded: Array, grid: Array, pairs: tuple[Array, Array], grids: tuple[Array, ...]
) -> _Grids:
    """Grids by owner. An attribute that has grids with very many others owns few: the others own them, a few each."""
    a, b, bits_a, bits_b = (column.astype(np.int64) for column in grids)
    load = np.bincount(a, minlength=width) + np.bincount(b, minlength=width)
    swap = load[a] > load[b]
    owner, partner = np.where(swap, b, a), np.where(swap, a, b)
    owner_bits, partner_bits = np.where(swap, bits_b, bits_a), np.where(swap, bits_a, bits_b)
    order = np.lexsort((partner_bits, owner_bits, partner, owner))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    owner, partner, owner_bits, partner_bits = (x[order] for x in (owner, partner, owner_bits, partner_bits))
    base = pointers(1 << (owner_bits + partner_bits))
    facts = base[:-1] << 24 | (depth[owner] - owner_bits) << 16 | (depth[partner] - partner_bits) << 8 | partner_bits
    turned, (one, two) = swap[grid], pairs
    return _Grids(
        gridded,
        number[grid],
        np.where(turned, two, one),
        np.where(turned, one, two),
        pointers(np.bincount(owner, minlength=width)),
        partner.astype(np.int32),
        facts.astype(np.uint64),
        int(base[-1]),
    )


def _first_cells(given: Input, grids: _Grids) -> tuple[Array, Array]:
    """The first cell of each clause in a grid, and where the postings of each cell start."""
    first, cell_ptr = np.empty(len(grids.grid), np.int64), np.zeros(grids.cells + 1, np.uint32)
    hung = (grids.grid, grids.owner, grids.partner)
    kernels.count_cells(hung, given.table.predicates(), grids.facts, _CELLS, first, cell_ptr)
    return first, np.cumsum(cell_ptr, dtype=np.uint32)


def _place(params: PstHash, given: Input, clauses: Array) -> Array:
    """Clauses in grids by their first cell, then those outside by their access predicate."""
    grids = _grids(params.access, given, clauses)
    behind = by_access(params, given, clauses)
    keys = np.where(behind == np.iinfo(np.int64).max, behind, behind + _BEHIND)
    keys[grids.gridded] = _first_cells(given, grids)[0]
    return keys


def _build(params: PstHash, given: Input) -> dict[str, Array]:
    """Arrays for clauses with their most selective predicates first, clauses in grids before the others."""
    attributes, book, table, first, last = given[:5]
    grids = _grids(params.access, given, np.arange(first, last))
    inside = len(grids.grid)
    assert grids.gridded[:inside].all(), "clauses in grids come first"
    cell_ptr = _first_cells(given, grids)[1]
    filter_shift = bits_of(-(-book.counts() // CELLS))
    pairs = np.empty(kernels.RECORD * int(cell_ptr[-1]), np.uint32)
    kernels.fill_cells(
        first,
        (grids.grid, grids.owner, grids.partner),
        (table.clause_ptr, table.clause_program),
        table.predicates(),
        attributes.multi,
        filter_shift,
        grids.facts,
        _CELLS,
        cell_ptr[:-1].copy(),
        pairs,
    )
    arrays = (filter_shift, grids.ptr, grids.partners, grids.facts, cell_ptr, pairs)
    outside = postings.build(given._replace(first=first + inside))
    return outside | dict(zip(list(ARRAYS)[len(postings.ARRAYS) :], arrays, strict=True))


def _validate(index: FlatIndex, around: Around) -> Iterator[Problem]:
    """Grids must lead to existing cells, and postings to attributes and clauses."""
    yield from postings.validate(index, around)
    a, counts, multi = index.arrays, around.counts, around.attributes.multi
    owner, partner = np.repeat(np.arange(len(counts)), np.diff(a["grid_ptr"])), a["grid_partner"]
    facts = a["grid_facts"].view(np.int64)
    base, shift, other, bits = facts >> 24, facts >> 16 & 0xFF, facts >> 8 & 0xFF, facts & 0xFF
    for one in (shift, other, bits):
        yield from between("grid_facts", one, 0, 31)
    reach = ((counts[owner] - 1) >> shift << bits) + ((counts[partner] - 1) >> other)
    yield from between("grid_facts", base, 0, around.sizes["cells"] - 1 - reach)
    yield from refused("grid_partner", partner, multi[owner] & multi[partner], "at most one list in a grid")
    one, two, clause = a["pairs"].reshape(-1, kernels.RECORD).T
    yield from postings.filter_problems("pairs", one, len(counts))
    yield from postings.filter_problems("pairs", two, len(counts))
    yield from between("pairs", clause & np.uint32(CLAUSE), index.first, index.last - 1)


def _match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    arrays = index.arrays
    outside = len(arrays["heads"]) + len(arrays["rest"]) > 0
    if outside and len(arrays["pairs"]) == 0:
        return postings.match(index, attributes, table, events, once, work)
    offsets, rows = kernels.match_pairs(
        events.arrays(),
        table.length,
        once,
        (attributes.multi, attributes.presence, arrays["filter_shift"]),
        (arrays["grid_ptr"], arrays["grid_partner"], arrays["grid_facts"], arrays["cell_ptr"]),
        arrays["pairs"],
        (table.clause_row, table.clause_ptr, table.clause_program),
        table.predicates(),
        table.programs,
    )
    if not outside:
        return offsets, rows
    offsets, rows = merge_rows(offsets, rows, *postings.match(index, attributes, table, events, once, work))
    return offsets, rows


def _facts(index: FlatIndex, counters: Mapping[str, int]) -> dict[str, Any]:
    arrays = index.arrays
    in_grids, outside = len(arrays["pairs"]) // kernels.RECORD, len(arrays["heads"])
    return {"postings": in_grids + outside, "in grids": in_grids, "grids": len(arrays["grid_facts"])}


def _cost(params: PstHash, costs: Costs, clauses: Array) -> Array:
    if params.access == 1:
        return postings.cost(params, costs, clauses)
    two, three = costs.chance[1:3, clauses]
    each: Array = two * _RECORD + three * costs.verify + costs.evaluated(clauses)
    return each


def _overhead(params: PstHash, costs: Costs) -> float:
    return costs.entries * (costs.entries - 1) / 2 * _PAIR if params.access == 2 else 0.0


PSTHASH = Kind(
    params=PstHash,
    arrays=ARRAYS,
    build=_build,
    match=_match,
    validate=_validate,
    place=_place,
    facts=_facts,
    cost=_cost,
    overhead=_overhead,
    bytes=lambda params, costs, clauses: 2 * postings.POSTING * postings.BLOCKS * len(clauses),
    planning=Planning(
        (PstHash(),),
        lambda costs, clauses: f"{len(clauses)} clauses, enough for finding them by two predicates to pay",
        doubt=1.25,
        varies=True,  # pairs pay only if there are many clauses
    ),
    drivers=(*postings.DRIVERS, kernels.match_pairs, merge_rows),
    forms=(PstHash(), PstHash(access=1)),
)
