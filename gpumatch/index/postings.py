"""Scan and PSTBloom: postings of each clause's access predicate, by attribute alone or by dyadic blocks of its codes.

Both use one set of arrays. Scan keeps one list per attribute and tests all of it; PSTBloom (thesis, chapter 7) cuts the
code line into blocks, so that an event meets only clauses whose access predicate it satisfies or nearly does. In place
of Bloom signatures, which cost a look-up per candidate and leaf, a posting carries two more predicates of the clause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpumatch.coded import CodedEvents, Table
from gpumatch.index.flat import ArraySpec, FlatIndex, IndexParams, Input, Kind, bits_of, by_access, by_likelihood
from gpumatch.kernels import postings as kernels
from gpumatch.predicates import Array, Attributes

_PER_LEAF = 4  # clauses per finest block that the depth of an attribute's tree aims at
_CELLS = 0xFE  # a filter's cells are 0 .. _CELLS - 1: the two above mean never and absent


@dataclass(frozen=True, slots=True)
class Scan(IndexParams):
    """Test every subscription whose first predicate's attribute the event has."""

    kind: ClassVar[str] = "scan"


@dataclass(frozen=True, slots=True)
class PstBloom(IndexParams):
    """Hang every subscription on its most selective predicate, and meet it only where that can hold."""

    kind: ClassVar[str] = "pstbloom"


ARRAYS = {
    "cell_shift": ArraySpec("uint8", "per attribute: codes are shifted so far to 8-bit cells of filters"),
    "directory": ArraySpec("uint64", "two words per attribute: root node; levels with postings, levels in all, shift"),
    "node_ptr": ArraySpec("int64", "per node: where its postings start"),
    "filters": ArraySpec("uint32", "per posting: a predicate of the clause as attribute, first cell, width"),
    "heads": ArraySpec("uint64", "per posting: the clause, whether it is decided, and a second such predicate"),
    "rest": ArraySpec("int32", "clauses that no posting can hold: tested on every event"),
}


def build(params: IndexParams, given: Input) -> dict[str, Array]:
    """Arrays for clauses that have their most selective predicate first."""
    attributes, book, table, first, last = given[:5]
    access = np.full(last, -1, np.int64)
    kernels.find_access(table.clause_ptr, table.predicate, first, access)
    hanging = access >= 0
    counts = book.counts()
    depth = bits_of(counts)
    levels = np.zeros(len(attributes), np.uint8)
    if isinstance(params, PstBloom):
        load = np.bincount(table.predicate[access[hanging]], minlength=len(attributes))
        levels = np.minimum(bits_of(load // _PER_LEAF), depth)
    node_base = np.concatenate([np.zeros(1, np.int64), np.cumsum((2 << levels.astype(np.int64)) - 1)])
    directory = (node_base[:-1].copy(), levels, depth - levels)
    predicates = table.predicates()
    node_ptr = np.zeros(node_base[-1] + 1, np.int64)
    kernels.count_postings(access, predicates, directory, node_ptr)
    np.cumsum(node_ptr, out=node_ptr)
    cell_shift = bits_of(-(-counts // _CELLS))
    filters, heads = np.empty(node_ptr[-1], np.uint32), np.empty(node_ptr[-1], np.uint64)
    kernels.fill_postings(
        access,
        table.clause_ptr,
        table.clause_program,
        predicates,
        directory,
        attributes.multi,
        cell_shift,
        node_ptr[:-1].copy(),
        (filters, heads),
    )
    packed = np.empty(2 * len(attributes), np.uint64)
    kernels.pack_directory(directory, node_ptr, packed)
    rest = (first + np.flatnonzero(~hanging[first:])).astype(np.int32)
    arrays = (cell_shift, packed, node_ptr, filters, heads, rest)
    return dict(zip(ARRAYS, arrays, strict=True))


def match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool
) -> tuple[Array, Array]:
    arrays = index.arrays
    offsets, rows = kernels.match_postings(
        events.arrays(),
        table.length,
        once,
        (attributes.multi, attributes.presence, arrays["cell_shift"]),
        arrays["directory"],
        (arrays["node_ptr"], arrays["filters"], arrays["heads"]),
        arrays["rest"],
        (table.clause_row, table.clause_ptr, table.clause_program),
        table.predicates(),
        table.programs,
    )
    return offsets, rows


def _facts(index: FlatIndex) -> dict[str, Any]:
    return {"postings": len(index.arrays["heads"])}


SCAN = Kind(Scan, ARRAYS, build, match, by_access, by_likelihood, _facts)
PSTBLOOM = Kind(PstBloom, ARRAYS, build, match, by_access, by_likelihood, _facts)
