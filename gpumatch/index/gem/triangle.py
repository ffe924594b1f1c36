"""GEM's triangles (paper 003): clauses by cells of their low and high codes, and caches along the diagonal.

For ``0 <= caches < cells``; with a bitset for every cell no triangle is needed. Cells are cut by quantiles, since those
of equal width collapse under skew. Instead of two cumulative counts, of low and of high codes, one array holds what the
decision algorithm derives from them: the number of clauses that each code passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.arrayspec import ANYTHING, HOOKED, ArraySpec, Numbers, Pointers, Problem, between, equal, sized
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.index.flat import Around
from gpumatch.index.input import Input
from gpumatch.kernels import triangle as kernels
from gpumatch.subscriptions.block import Attributes

ARRAYS = {
    "triangle_dims": ArraySpec("int32", "sides", "single-valued attributes that are indexed", HOOKED),
    "triangle_starts": ArraySpec("int32", "starts", "per dimension and cell: the first code", ANYTHING),
    "triangle_ptr": ArraySpec(
        "int64",
        "lists + 1 or 0",
        "per dimension, row of high and column of low codes: where the cell starts",
        Pointers("held"),
    ),
    "triangle_sub": ArraySpec(
        "int32", "held", "clauses of the cells, numbered from the index's first", Numbers("clauses")
    ),
    "triangle_bounds": ArraySpec("int32", "ends", "per dimension and clause: low and high code", ANYTHING),
    "count_ptr": ArraySpec(
        "int64", "sides + 1 or 0", "per dimension: where its slice of pass_count starts", Pointers("codes")
    ),
    "pass_count": ArraySpec(
        "int32", "codes", "per code, the missing one first: how many clauses it passes in the dimension", HOOKED
    ),
    "decided": ArraySpec("bool", "clauses or 0", "per clause: do its bounds decide it?", ANYTHING),
    "cache_nearest": ArraySpec("int32", "nearest", "per cell: the nearest cache", Numbers("caches"), on_device=False),
    "cache_cell": ArraySpec("int32", "caches", "per cache: its cell", HOOKED, on_device=False),
    "cache_bits": ArraySpec(
        "uint64",
        "words_of_caches",
        "per dimension and cache: bitset of clauses that touch the cell or are unbound",
        ANYTHING,
        on_device=False,
    ),
    "cache_added": ArraySpec(
        "int32",
        "added",
        "per dimension and cell, then missing: clauses that the nearest cache lacks",
        ANYTHING,
        on_device=False,
    ),
}


class _Dimension(NamedTuple):
    """Arrays of one dimension."""

    starts: Array
    sizes: Array
    clauses: Array
    bits: Array
    added: Array


def build(cells: int, caches: int, given: Input, dims: Array) -> dict[str, Array]:
    """Triangles of ``cells`` cells a side in these single-valued attributes, and ``caches`` caches on the diagonal."""
    table, clauses = given.table, given.last - given.first
    counts = given.book.counts()
    dim_of = np.full(len(counts), -1, np.int64)
    dim_of[dims] = np.arange(len(dims))
    bounds, decided = np.empty(2 * len(dims) * clauses, np.int32), np.empty(clauses, np.bool_)
    heads = (table.clause_ptr, table.clause_program)
    kernels.fill_bounds(given.first, counts[dims], dim_of, heads, table.predicates(), bounds, decided)
    count_ptr = pointers(counts[dims] + 1)
    pass_count = np.zeros(int(count_ptr[-1]), np.int32)
    kernels.count_passing(bounds, clauses, count_ptr, pass_count)
    cached = (2 * np.arange(caches) + 1) * cells // (2 * max(caches, 1))
    nearest = np.abs(np.arange(cells)[:, None] - cached).argmin(axis=1) if caches else np.zeros(0, np.int64)
    pairs = bounds.reshape(len(dims), clauses, 2)
    built = [_dimension(cells, cached, nearest, pairs[d], int(counts[dims[d]])) for d in range(len(dims))]
    arrays = (
        dims,
        _joined([it.starts for it in built]),
        pointers(_joined([it.sizes for it in built])),
        _joined([it.clauses for it in built]),
        bounds,
        count_ptr,
        pass_count,
        decided,
        nearest,
        cached,
        _joined([it.bits for it in built]),
        _joined([it.added for it in built]),
    )
    specs = zip(ARRAYS.items(), arrays, strict=True)
    return {name: array.astype(spec.dtype, copy=False) for (name, spec), array in specs}


def _joined(arrays: list[Array]) -> Array:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _dimension(cells: int, cached: Array, nearest: Array, bounds: Array, codes: int) -> _Dimension:
    """One dimension, from the bounds of all clauses in it; no value reaches a bound equal to ``codes``."""
    low, high = bounds.T
    bound = low != kernels.MISSING
    starts = _quantiles(cells, np.concatenate([low[bound], high[bound]]), codes)
    cell_of = np.repeat(np.arange(cells), np.diff(starts, append=codes + 1))
    column, row = np.zeros(len(low), np.int64), np.full(len(low), cells - 1)
    column[bound], row[bound] = cell_of[low[bound]], cell_of[high[bound]]
    free = cells * (cells + 1) // 2
    cell = np.where(bound, row * (row + 1) // 2 + column, free)
    order = np.argsort(cell.astype(np.min_scalar_type(free)), kind="stable")  # 16 bits are sorted much faster
    sizes = np.bincount(cell, minlength=free + 1)
    words = np.zeros((len(cached), -(-len(low) // 64)), np.uint64)
    for mine, at in zip(words, cached, strict=True):
        packed = np.packbits((column <= at) & (row >= at), bitorder="little")
        mine.view(np.uint8)[: len(packed)] = packed
    return _Dimension(starts, sizes, order, words.ravel(), _added(cells, cached[nearest], sizes))


def _quantiles(cells: int, values: Array, codes: int) -> Array:
    """First codes of cells that hold about equally many of the values; some are empty where many values are equal."""
    below = np.cumsum(np.bincount(values, minlength=codes + 1))
    starts: Array = np.searchsorted(below, np.arange(cells) * len(values) // cells, side="right")
    starts[0] = 0
    return starts


def _added(cells: int, taken: Array, sizes: Array) -> Array:
    """Per cell, then for missing values: how many clauses touch it, but not the cell whose cache it uses."""
    if len(taken) == 0:
        return np.zeros(0, np.int64)
    below = np.zeros((cells + 1, cells + 1), np.int64)
    below[1:, 1:][np.tril_indices(cells)] = sizes[:-1]
    below = below.cumsum(axis=0).cumsum(axis=1)
    at = np.arange(cells)
    top, left = np.where(at < taken, taken, cells), np.where(at < taken, 0, taken + 1)
    between = below[top, at + 1] - below[at, at + 1] - below[top, left] + below[at, left]
    return np.append(between, sizes[-1])


def validate(cells: int, caches: int, a: dict[str, Array], around: Around) -> Iterator[Problem]:
    """Each dimension must have counts for all codes and list every clause once, so that candidates have room."""
    dims, clauses = a["dims"], around.sizes["clauses"]
    count, lists = len(dims), cells * (cells + 1) // 2 + 1
    nearest = cells if caches else 0
    lengths = {
        "triangle_dims": count,
        "triangle_starts": count * cells,
        "triangle_ptr": count * lists + 1,
        "triangle_bounds": 2 * count * clauses,
        "count_ptr": count + 1,
        "decided": clauses,
        "cache_nearest": nearest,
        "cache_cell": caches,
        "cache_bits": count * caches * -(-clauses // 64),
        "cache_added": count * (cells + 1) if caches else 0,
    }
    for name, length in lengths.items():
        yield from sized(name, a[name], length)
    yield from equal("triangle_dims", a["triangle_dims"], dims)
    yield from equal("triangle_ptr", a["triangle_ptr"][::lists], np.arange(count + 1) * clauses)
    yield from equal("count_ptr", np.diff(a["count_ptr"]), around.counts[dims] + 1)
    yield from between("pass_count", a["pass_count"], 0, clauses)
    yield from between("cache_cell", a["cache_cell"], 0, cells - 1)


def match(
    arrays: dict[str, Array],
    index_first: int,
    index_last: int,
    attributes: Attributes,
    table: Table,
    events: CodedEvents,
    once: bool,
) -> tuple[Array, Array]:
    """Offsets and rows of the events, ascending and without repeats."""
    dims, starts, *cells = (arrays[name] for name in list(ARRAYS)[:5])
    grid = (len(starts) // max(len(dims), 1), starts, *cells)
    counts = (arrays["count_ptr"], arrays["pass_count"])
    caches = (arrays["cache_nearest"], arrays["cache_cell"], arrays["cache_bits"], arrays["cache_added"])
    offsets, rows = kernels.match_triangles(
        events.arrays(),
        table.length,
        once,
        (index_first, index_last),
        (attributes.multi, attributes.presence),
        dims,
        (grid, counts, caches, arrays["decided"]),
        (table.clause_row, table.clause_ptr, table.clause_program),
        table.predicates(),
        table.programs,
    )
    return offsets, rows
