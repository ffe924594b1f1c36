"""Scan and PSTBloom: postings of each clause's access predicate, by attribute alone or by dyadic blocks of its codes.

Both use one set of arrays. Scan keeps one list per attribute and tests all of it; PSTBloom (thesis, chapter 7) cuts the
code line into blocks, so an event meets only clauses whose access predicate it satisfies or nearly does. Instead of
Bloom signatures, which cost a look-up per candidate and leaf, a posting carries two more predicates of the clause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpumatch.arrays import Array, pointers, read_only
from gpumatch.arrayspec import ANYTHING, CLAUSES, HOOKED, SHIFTS, ArraySpec, Pointers, Problem, between, refused, sized
from gpumatch.codes.book import Codebook
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.index.blocks import tree_problems
from gpumatch.index.costs import Costs
from gpumatch.index.flat import Around, FlatIndex, IndexParams, Kind, Planning, Workspace, bits_of, by_access
from gpumatch.index.input import Input
from gpumatch.index.postings.compound import NO_COMPOUNDS, Compounds, find_compounds
from gpumatch.kernels import postings as kernels
from gpumatch.kernels.frames import Frame
from gpumatch.opcodes import RANGE, WIDTH
from gpumatch.subscriptions.block import Attributes

_TESTED = 16  # up to this many clauses of a Scan are tested faster than looked up in lists
POSTING, BLOCKS = 12, 3  # bytes of a posting, and blocks per range
_PER_LEAF = 4  # clauses per finest block; the depth of an attribute's tree is chosen for this


@dataclass(frozen=True, slots=True)
class Scan(IndexParams):
    """Test every subscription whose first predicate's attribute the event has."""

    kind: ClassVar[str] = "scan"


@dataclass(frozen=True, slots=True)
class PstBloom(IndexParams):
    """Hang every subscription on its most selective predicate, and look at it only where that can hold."""

    kind: ClassVar[str] = "pstbloom"


ARRAYS = {
    "cell_shift": ArraySpec(
        "uint8", "attributes", "per attribute: bits by which codes are shifted to 8-bit cells", SHIFTS
    ),
    "lines": ArraySpec(
        "int32", "3 * lines", "three per line of compounds: its owner, its partner, and its first group", HOOKED
    ),
    "group_ptr": ArraySpec(
        "int32", "groups + 1", "per group (a line and a code of its owner): where its cuts start", Pointers("cuts")
    ),
    "cuts": ArraySpec("int32", "cuts", "codes of the partner at which the codes of a group begin", ANYTHING),
    "directory": ArraySpec(
        "uint64",
        "2 * trees",
        "two words per attribute, then per group: root node; levels with postings, levels in all, shift",
        HOOKED,
    ),
    "node_ptr": ArraySpec("int64", "nodes + 1", "per node: where its postings start", Pointers("postings")),
    "filters": ArraySpec(
        "uint32", "postings", "per posting: a predicate of the clause as attribute, first cell, width", HOOKED
    ),
    "heads": ArraySpec(
        "uint64", "postings", "per posting: the clause, whether it is decided, and a second such predicate", HOOKED
    ),
    "rest": ArraySpec("int32", "rest", "clauses that no posting can hold: tested on every event", CLAUSES),
}


def _access(table: Table, first: int, last: int) -> Array:
    """Position of the predicate that each clause hangs on; negative for none, and for clauses before ``first``."""
    access = np.full(last, -1, np.int64)
    kernels.find_access(read_only(table.clause_ptr), read_only(table.predicate), first, access)
    return access


def _compounds(given: Input, clauses: Array) -> Compounds:
    access = _access(given.table, 0, len(given.table.clause_row))[clauses] // WIDTH
    return find_compounds(given, clauses, access)


def _rerank(params: IndexParams, given: Input, clauses: Array, keys: Array) -> Array:
    """A shared equality first, then ranges by the share of their group that they cover."""
    found = _compounds(given, clauses)
    if len(found.owner) == 0:
        return keys
    keys = keys.copy()
    keys[found.owner], keys[found.predicate] = -1, found.shares()
    return keys


def _place(params: IndexParams, given: Input, clauses: Array) -> Array:
    """Clauses by attribute and first code of their first predicate, or by group and first code there."""
    found = _compounds(given, clauses)
    hung = found.hung()
    keys = by_access(params, given, clauses)
    keys[found.clause[hung]] = (len(given.attributes) + found.group[hung] << 32) + found.lo[hung]
    return keys


def _scan(params: IndexParams, given: Input) -> dict[str, Array]:
    return _without_postings(given) if given.last - given.first <= _TESTED else build(given, False)


def build(given: Input, trees: bool = True) -> dict[str, Array]:
    """Arrays for clauses that start with their most selective predicate: lists by block, or by attribute alone."""
    attributes, book, table, first, last = given[:5]
    found = _compounds(given, np.arange(first, last)) if trees else NO_COMPOUNDS
    hung = found.hung()
    predicates = _with_ranges(table, found, hung, len(attributes))
    access = _access(table, first, last)
    access[first + found.clause[hung]] = len(table.predicate) + WIDTH * np.arange(len(hung))
    hanging = access >= 0
    directory, node_ptr = _tree(trees, access[hanging], predicates[0], np.concatenate([book.counts(), found.sizes()]))
    kernels.count_postings(access, predicates, directory, node_ptr)
    np.cumsum(node_ptr, out=node_ptr)
    cell_shift = _cell_shift(book)
    local, exact = np.zeros(len(table.predicate) // WIDTH, np.uint32), np.zeros(len(table.predicate) // WIDTH, np.bool_)
    local[found.predicate], exact[found.predicate] = found.filters(len(attributes))
    filters, heads = np.empty(node_ptr[-1], np.uint32), np.empty(node_ptr[-1], np.uint64)
    kernels.fill_postings(
        access,
        WIDTH * np.stack([found.owner[hung], found.predicate[hung]], axis=1).ravel(),
        (table.clause_ptr, table.clause_program),
        predicates,
        directory,
        attributes.multi,
        (cell_shift, local, exact),
        node_ptr[:-1].copy(),
        (filters, heads),
    )
    packed = np.empty(2 * len(directory[0]), np.uint64)
    kernels.pack_directory(directory, node_ptr, packed)
    rest = (first + np.flatnonzero(~hanging[first:])).astype(np.int32)
    arrays = (cell_shift, *found[:3], packed, node_ptr, filters, heads, rest)
    return dict(zip(ARRAYS, arrays, strict=True))


def _without_postings(given: Input) -> dict[str, Array]:
    rest = np.arange(given.first, given.last, dtype=np.int32)
    directory, node_ptr = np.zeros(2 * len(given.attributes), np.uint64), np.zeros(1, np.int64)
    nothing = np.zeros(0, np.uint32), np.zeros(0, np.uint64)
    arrays = (_cell_shift(given.book), *NO_COMPOUNDS[:3], directory, node_ptr, *nothing, rest)
    return dict(zip(ARRAYS, arrays, strict=True))


def _cell_shift(book: Codebook) -> Array:
    return bits_of(-(-book.counts() // kernels.CELLS))


def _with_ranges(table: Table, found: Compounds, hung: Array, attributes: int) -> tuple[Array, ...]:
    """The table's predicates, followed by the ranges in groups that clauses hang on."""
    if len(hung) == 0:
        return table.predicates()
    columns = (attributes + found.group[hung], np.full(len(hung), RANGE), found.lo[hung], found.hi[hung])
    ranges = np.stack(columns, axis=1).astype(np.int32)
    return read_only(np.concatenate([table.predicate, ranges.ravel()])), *table.predicates()[1:]


def _tree(trees: bool, access: Array, predicate: Array, counts: Array) -> tuple[tuple[Array, ...], Array]:
    """The directory of attributes and groups with ``counts`` codes each, and room for where postings of nodes start."""
    depth, levels = bits_of(counts), np.zeros(len(counts), np.uint8)
    if trees:
        load = np.bincount(predicate[access], minlength=len(counts))
        levels = np.minimum(bits_of(load // _PER_LEAF), depth)
    base = pointers((2 << levels.astype(np.int64)) - 1)
    return (base[:-1].copy(), levels, depth - levels), np.zeros(base[-1] + 1, np.int64)


def validate(index: FlatIndex, around: Around) -> Iterator[Problem]:
    """Lines and trees must lead to existing groups and nodes, and postings to attributes, lines and clauses."""
    a, sizes = index.arrays, around.sizes
    owner, partner, first = a["lines"].reshape(-1, 3).astype(np.int64).T
    yield from between("lines", owner, 0, sizes["attributes"] - 1)
    yield from between("lines", partner, 0, sizes["attributes"] - 1)
    yield from refused("lines", owner, around.attributes.multi[owner], "single-valued owners")
    yield from between("lines", first, 0, sizes["groups"] - around.counts[owner])
    yield from sized("directory", a["directory"], 2 * (sizes["attributes"] + sizes["groups"]))
    counts = np.maximum(np.concatenate([around.counts, np.diff(a["group_ptr"])]), 1)
    yield from tree_problems(a["directory"], counts, sizes["nodes"])
    columns = sizes["attributes"] + sizes["lines"]
    yield from filter_problems("filters", a["filters"], columns)
    yield from filter_problems("heads", (a["heads"] >> kernels.U32).astype(np.uint32), columns)
    yield from between("heads", (a["heads"] & np.uint64(kernels.CLAUSE)).view(np.int64), index.first, index.last - 1)


def filter_problems(name: str, filters: Array, columns: int) -> Iterator[Problem]:
    """Filters on columns that do not exist."""
    return between(name, filters & np.uint32(0xFFFF), 0, columns - 1)


def match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    arrays, asked = index.arrays, (events.arrays(), table.length, once)
    if len(arrays["heads"]) == 0:
        attributes_of = (attributes.multi, attributes.presence, arrays["cell_shift"])
        clauses = (table.clause_row, table.clause_ptr, table.clause_program)
        tests = (clauses, table.predicates(), table.programs)
        offsets, rows = kernels.match_rest(*asked, attributes_of, arrays["rest"], *tests)
    else:
        frame: Frame | None = index.kept.get("frame")
        if frame is None:
            named = (arrays[name] for name in ARRAYS)
            frame = index.keep("frame", Frame((attributes.multi, attributes.presence, *named)))
        offsets, rows = kernels.match_postings(*asked, frame.numbers, table.frame.numbers, table.programs[2])
    return offsets, rows


def _facts(index: FlatIndex, counters: Mapping[str, int]) -> dict[str, Any]:
    return {"postings": len(index.arrays["heads"]), "groups": len(index.arrays["group_ptr"]) - 1}


def cost(params: IndexParams, costs: Costs, clauses: Array) -> Array:
    return costs.postings(clauses) + costs.evaluated(clauses)


def _scan_cost(params: IndexParams, costs: Costs, clauses: Array) -> Array:
    return costs.scanned(clauses) + cost(params, costs, clauses)


DRIVERS = (kernels.match_postings,)
SCAN = Kind(
    params=Scan,
    arrays=ARRAYS,
    build=_scan,
    match=match,
    validate=validate,
    facts=_facts,
    cost=_scan_cost,
    bytes=lambda params, costs, clauses: POSTING * len(clauses),
    planning=Planning(
        (Scan(),), lambda costs, clauses: f"{len(clauses)} clauses are tested faster than looked up", last_resort=True
    ),
    drivers=DRIVERS,
)
PSTBLOOM = Kind(
    params=PstBloom,
    arrays=ARRAYS,
    build=lambda params, given: build(given),
    match=match,
    validate=validate,
    rerank=_rerank,
    place=_place,
    facts=_facts,
    cost=cost,
    bytes=lambda params, costs, clauses: POSTING * BLOCKS * len(clauses),
    planning=Planning(
        (PstBloom(),), lambda costs, clauses: f"{len(clauses)} clauses, found by their most selective predicate"
    ),
    drivers=DRIVERS,
)
