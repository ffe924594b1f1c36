"""Programs of a block: predicates and operators in postfix order, collected one by one or for many rows at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array

Row: TypeAlias = "tuple[int, int, int, int]"  # a predicate: attribute, kind, lo, hi
Columns: TypeAlias = "tuple[Array, Array, Array, Array]"  # the same of many
Ranges: TypeAlias = "tuple[Array, Array, Array]"  # attribute, lo and hi of the ranges of sets

_TYPES = (np.int32, np.uint8, np.int64, np.int64)
_LARGE = 1 << 12  # predicates from which it pays to look for equal ones at once
_SLICE = 1 << 18
_KINDS = 8  # more than kinds of predicates
_TABLE = 1 << 22  # integers up to which a table of all is faster than hashing


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
        """Programs one after another: an item below 0 is an operator, others are places among the leaves.

        The items are taken over, and may be changed.
        """
        if len(leaves[0]) >= _LARGE:
            first, number = distinct(leaves)
            leaves = _taken(leaves, first)
            renumber(item, number)
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

    def arrays(self, first: int, has_ranges: Callable[[Array], Array], ranges: Ranges) -> tuple[Array, Array, Columns]:
        """Lengths of all programs, their items, and their leaves, of which none are equal: numbered from ``first`` on.

        ``has_ranges`` tells of kinds of predicates which have ``lo:hi`` among the ranges.
        """
        self._close()
        leaves = _joined([chunk[2] for chunk in self._chunks])
        number, leaves = share(leaves, has_ranges(leaves[1]), ranges)
        number = number + first  # not in place: it may be Arrow's
        item = np.empty(sum(len(chunk[1]) for chunk in self._chunks), np.int32)
        base = end = 0
        for _, part, own in self._chunks:
            item[end : end + len(part)] = part
            renumber(item[end : end + len(part)], number[base : base + len(own[0])])
            base += len(own[0])
            end += len(part)
        return np.concatenate([np.zeros(0, np.int64), *(chunk[0] for chunk in self._chunks)]), item, leaves


def renumber(item: Array, number: Array, first: int = 0) -> None:
    """Give the leaves in programs, which are numbered from ``first`` on, other numbers, in place."""
    for start in range(0, len(item), _SLICE):  # of a size that stays in the cache
        part = item[start : start + _SLICE]
        at = np.flatnonzero(part >= 0)
        part[at] = number[part[at] - first]


def share(leaves: Columns, sets: Array, ranges: Ranges) -> tuple[Array, Columns]:
    """For each leaf its number among those that differ, and these. ``sets``: which have ``lo:hi`` among the ranges."""
    attribute, kind, lo, hi = leaves
    at = np.flatnonzero(sets)
    if len(at):
        same = at[_first_equal(lo[at], hi[at], ranges)]
        lo, hi = lo.copy(), hi.copy()
        lo[at], hi[at] = lo[same], hi[same]
    first, number = distinct((attribute, kind, lo, hi))
    return number, _taken((attribute, kind, lo, hi), first)


def equal_programs(ptr: Array, item: Array) -> tuple[Array, Array]:
    """The places of distinct programs, in their order, and for each program which of them it equals."""
    return _firsts(_as_binary(ptr, item))


def _as_binary(ptr: Array, numbers: Array) -> Any:
    """Stretches of an array of numbers as an Arrow array of binary values, which it can tell apart."""
    offsets = ptr * numbers.strides[0]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ptr) - 1, buffers)


def _first_equal(lo: Array, hi: Array, ranges: Ranges) -> Array:
    """For each span of the ranges the first that holds the same."""
    lengths = hi - lo
    ends = np.cumsum(lengths)
    held = np.repeat(lo - ends + lengths, lengths) + np.arange(int(ends[-1]))
    content = np.stack([column[held].astype(np.int64) for column in ranges], axis=1)
    first, number = _firsts(_as_binary(np.concatenate([np.zeros(1, np.int64), ends]), content))
    return first[number]


def distinct(leaves: Columns) -> tuple[Array, Array]:
    """The places of distinct leaves, in their order, and for each leaf which of them it equals."""
    attribute, kind, lo, hi = leaves
    numbered = [_firsts(pa.array(column)) for column in (lo, hi)]
    numbered.append(_dense(attribute.astype(np.int64) * _KINDS + kind, (int(attribute.max(initial=0)) + 1) * _KINDS))
    first, number = numbered[0]
    for others, other in numbered[1:]:
        size = len(others)
        first, number = _dense(number.astype(np.int64) * size + other, len(first) * size)
    return first, number


def _dense(values: Array, size: int) -> tuple[Array, Array]:
    """As ``_firsts``, of integers below ``size``; where that is small, by a table."""
    if size > _TABLE:
        return _firsts(pa.array(values))
    seen = np.empty(size, np.int32)
    seen[values[::-1]] = np.arange(len(values) - 1, -1, -1, dtype=np.int32)  # the last one written is the first
    earliest = seen[values]
    first = np.flatnonzero(earliest == np.arange(len(values)))
    seen[values[first]] = np.arange(len(first), dtype=np.int32)
    return first, seen[values]


def _firsts(values: Any) -> tuple[Array, Array]:
    """The places where values of an Arrow array occur first, in their order, and for each value which of them it is."""
    number = values.dictionary_encode().indices.to_numpy()
    # Numbers are given in the order of appearance, so a new one is above all before it.
    return np.flatnonzero(np.diff(np.maximum.accumulate(number), prepend=-1)), number


def _taken(leaves: Columns, at: Array) -> Columns:
    attribute, kind, lo, hi = leaves
    return attribute[at], kind[at], lo[at], hi[at]


def _joined(parts: Sequence[Columns]) -> Columns:
    attribute, kind, lo, hi = (
        np.concatenate([np.zeros(0, dtype), *(part[at] for part in parts)]).astype(dtype, copy=False)
        for at, dtype in enumerate(_TYPES)
    )
    return attribute, kind, lo, hi
