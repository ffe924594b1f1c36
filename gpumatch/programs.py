"""Programs of a block: predicates and operators in postfix order, collected one by one or for many rows at once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Row: TypeAlias = "tuple[int, int, int, int]"  # a predicate: attribute, kind, lo, hi
Columns: TypeAlias = "tuple[Array, Array, Array, Array]"  # the same of many

_TYPES = (np.int32, np.uint8, np.int64, np.int64)
_LARGE = 1 << 12  # predicates from which it pays to look for equal ones at once
_NUMBERS = 1 << 62  # combinations that fit into one integer


@dataclass(slots=True)
class Literals:
    """One predicate for each of some rows. ``lo > hi`` in a RANGE is a predicate that nothing satisfies."""

    attribute: int
    kind: Array
    lo: Array
    hi: Array

    def take(self, at: Array) -> Literals:
        return Literals(self.attribute, self.kind[at], self.lo[at], self.hi[at])


@dataclass(slots=True)
class Programs:
    """Programs in the order in which they were added. In them items are operators, or places among the leaves."""

    _count: int = 0
    _chunks: list[tuple[Array, Array, Columns]] = field(default_factory=list)  # lengths, items, leaves
    _lengths: array[int] = field(default_factory=lambda: array("q"))  # of those added one by one
    _items: array[int] = field(default_factory=lambda: array("i"))
    _leaves: dict[Row, int] = field(default_factory=dict)

    def add(self, items: Sequence[int | Row]) -> int:
        """A program of operators and predicates; returns its number."""
        leaves = self._leaves
        self._items.extend([item if isinstance(item, int) else leaves.setdefault(item, len(leaves)) for item in items])
        self._lengths.append(len(items))
        self._count += 1
        return self._count - 1

    def add_pattern(self, items: Sequence[int | Literals], count: int) -> Array:
        """A program for each of so many rows, of the same operators and the rows' predicates; returns their numbers."""
        item = np.empty((count, len(items)), np.int32)
        leaves = [one for one in items if isinstance(one, Literals)]
        first = 0
        for at, one in enumerate(items):
            if isinstance(one, int):
                item[:, at] = one
            else:
                item[:, at] = np.arange(first, first + count)
                first += count
        columns = _joined(
            [(np.full(count, leaf.attribute, np.int32), leaf.kind, leaf.lo, leaf.hi) for leaf in leaves],
        )
        return self.add_flat(np.full(count, len(items)), item.ravel(), columns)

    def add_flat(self, lengths: Array, item: Array, leaves: Columns) -> Array:
        """Programs one after another: an item below 0 is an operator, others are places among the leaves."""
        if len(leaves[0]) >= _LARGE:
            first, number = distinct(leaves)
            leaves = _taken(leaves, first)
            item = _renumbered(item, number)
        self._close()
        self._chunks.append((lengths, item, leaves))
        numbers = np.arange(self._count, self._count + len(lengths), dtype=np.int32)
        self._count += len(lengths)
        return numbers

    def _close(self) -> None:
        """Put the programs that were added one by one into a chunk of their own."""
        if not self._lengths:
            return
        rows = list(self._leaves)
        columns = [np.array([row[at] for row in rows], dtype) for at, dtype in enumerate(_TYPES)]
        leaves = (columns[0], columns[1], columns[2], columns[3])
        self._chunks.append((np.array(self._lengths, np.int64), np.array(self._items, np.int32), leaves))
        self._lengths, self._items, self._leaves = array("q"), array("i"), {}

    def arrays(self) -> tuple[Array, Array, Columns]:
        """Lengths and items of all programs, and the leaves that these point to, equal ones among them."""
        self._close()
        items, base = [np.zeros(0, np.int32)], 0
        for _, item, leaves in self._chunks:
            items.append(np.where(item >= 0, item + base, item).astype(np.int32) if base else item)
            base += len(leaves[0])
        lengths = [np.zeros(0, np.int64), *(chunk[0] for chunk in self._chunks)]
        return np.concatenate(lengths), np.concatenate(items), _joined([chunk[2] for chunk in self._chunks])


def share(item: Array, leaves: Columns, sets: Array, ranges: tuple[Array, Array, Array]) -> tuple[Array, Columns]:
    """Programs with one leaf for equal predicates. ``sets``: which leaves have ``lo:hi`` among the ranges."""
    attribute, kind, lo, hi = leaves
    at = np.flatnonzero(sets)
    if len(at):
        same = at[_first_equal(lo[at], hi[at], ranges)]
        lo, hi = lo.copy(), hi.copy()
        lo[at], hi[at] = lo[same], hi[same]
    first, number = distinct((attribute, kind, lo, hi))
    return _renumbered(item, number), _taken((attribute, kind, lo, hi), first)


def _first_equal(lo: Array, hi: Array, ranges: tuple[Array, Array, Array]) -> Array:
    """For each span of the ranges the first that holds the same."""
    lengths = hi - lo
    ends = np.cumsum(lengths)
    held = np.repeat(lo - ends + lengths, lengths) + np.arange(int(ends[-1]))
    content = np.stack([column[held].astype(np.int64) for column in ranges], axis=1)
    offsets = np.concatenate([np.zeros(1, np.int64), ends]) * (content.itemsize * content.shape[1])
    texts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lo), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    )
    first, number = _firsts(texts)
    return first[number]


def distinct(columns: Sequence[Array]) -> tuple[Array, Array]:
    """The places of distinct rows of columns of integers, in their order, and for each row which of them it equals."""
    number, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        most = int(column.max(initial=0)) + 1
        if most > 1 << 20 or column.min(initial=0) < 0:
            first, column = _firsts(pa.array(column))
            most = len(first)
        if size * most > _NUMBERS:
            first, number = _firsts(pa.array(number))
            number, size = number.astype(np.int64), len(first)
        number *= most
        number += column
        size *= most
    return _firsts(pa.array(number))


def _firsts(values: Any) -> tuple[Array, Array]:
    """The places where values of an Arrow array occur first, and for each which of them it equals."""
    number = values.dictionary_encode().indices.to_numpy()
    # Numbers are given in the order of appearance, so a new one is above all before it.
    return np.flatnonzero(np.diff(np.maximum.accumulate(number), prepend=-1)), number


def _renumbered(item: Array, number: Array) -> Array:
    if len(number) == 0:
        return item
    return np.where(item >= 0, number[np.maximum(item, 0)], item).astype(np.int32, copy=False)


def _taken(leaves: Columns, at: Array) -> Columns:
    attribute, kind, lo, hi = leaves
    return attribute[at], kind[at], lo[at], hi[at]


def _joined(parts: Sequence[Columns]) -> Columns:
    attribute, kind, lo, hi = (
        np.concatenate([np.zeros(0, dtype), *(part[at] for part in parts)]).astype(dtype, copy=False)
        for at, dtype in enumerate(_TYPES)
    )
    return attribute, kind, lo, hi
