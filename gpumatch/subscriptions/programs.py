"""Programs of a block: predicates and operators in postfix order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array, pointers, spans
from gpumatch.subscriptions.predicates import Predicates

_LARGE = 1 << 12  # from this many predicates on, it pays to merge equal ones right away
_SLICE = 1 << 18
_KINDS = 8  # more than there are kinds of predicates
_TABLE = 1 << 22  # for integers up to this, a table is faster than hashing


@dataclass(slots=True)
class Programs:
    """Programs in the order in which they were added. Items are operators, or positions among the leaves."""

    _count: int = 0
    _chunks: list[tuple[Array, Array, Predicates]] = field(default_factory=list)  # lengths, items, leaves

    def add_pattern(self, items: Sequence[int | Predicates], count: int) -> Array:
        """A program for each row: the same operators, the row's own predicates. Returns the programs' numbers."""
        item = np.empty((count, len(items)), np.int32)
        leaves: list[Predicates] = []
        for at, one in enumerate(items):
            if isinstance(one, int):
                item[:, at] = one
            else:
                item[:, at] = np.arange(len(leaves) * count, (len(leaves) + 1) * count)
                leaves.append(one)
        return self.add(np.full(count, len(items)), item.ravel(), Predicates.join(leaves))

    def add(self, lengths: Array, item: Array, leaves: Predicates) -> Array:
        """Add programs: an item below 0 is an operator, others are positions among the leaves.

        The items may be changed in place. Returns the numbers of the programs.
        """
        if len(leaves) >= _LARGE:
            first, number = distinct(leaves)
            leaves = leaves.take(first)
            renumber(item, number)
        self._chunks.append((lengths, item, leaves))
        numbers = np.arange(self._count, self._count + len(lengths), dtype=np.int32)
        self._count += len(lengths)
        return numbers

    def arrays(self, first: int, ranges: Predicates) -> tuple[Array, Array, Predicates]:
        """Where programs begin and end, their items, and their distinct leaves, numbered from ``first`` on."""
        if not self._chunks:
            return np.zeros(1, np.int64), np.zeros(0, np.int32), Predicates.join([])
        number, leaves = share(Predicates.join([chunk[2] for chunk in self._chunks]), ranges)
        number = number + first  # not in place: the memory may be Arrow's
        item = np.empty(sum(len(chunk[1]) for chunk in self._chunks), np.int32)
        base = end = 0
        for _, part, own in self._chunks:
            item[end : end + len(part)] = part
            renumber(item[end : end + len(part)], number[base : base + len(own)])
            base += len(own)
            end += len(part)
        return pointers(np.concatenate([chunk[0] for chunk in self._chunks])), item, leaves


def renumber(item: Array, number: Array, first: int = 0) -> None:
    """Renumber the leaves in programs, so far numbered from ``first`` on, in place."""
    for start in range(0, len(item), _SLICE):  # slices that stay in the cache
        part = item[start : start + _SLICE]
        at = np.flatnonzero(part >= 0)
        part[at] = number[part[at] - first]


def share(leaves: Predicates, ranges: Predicates) -> tuple[Array, Predicates]:
    """The number of each leaf among the distinct ones, and the distinct ones."""
    at = np.flatnonzero(leaves.has_ranges())
    if len(at):
        same = at[_first_equal(leaves.lo[at], leaves.hi[at], ranges)]
        leaves = leaves.with_ends(at, leaves.lo[same], leaves.hi[same])
    first, number = distinct(leaves)
    return number, leaves.take(first)


def equal_programs(ptr: Array, item: Array) -> tuple[Array, Array]:
    """The positions of distinct programs, and for each program which of them it equals."""
    return _firsts(_as_binary(ptr, item))


def _as_binary(ptr: Array, numbers: Array) -> Any:
    """Slices of an array of numbers as an Arrow array of binary values, which Arrow can compare."""
    offsets = ptr * numbers.strides[0]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ptr) - 1, buffers)


def _first_equal(lo: Array, hi: Array, ranges: Predicates) -> Array:
    """For each span of ranges, the first one with the same content."""
    taken = ranges.take(spans(lo, hi - lo))
    content = np.stack([taken.attribute.astype(np.int64), taken.lo, taken.hi], axis=1)
    first, number = _firsts(_as_binary(pointers(hi - lo), content))
    return first[number]


def distinct(leaves: Predicates) -> tuple[Array, Array]:
    """The positions of distinct leaves, and for each leaf which of them it equals."""
    numbered = [_firsts(pa.array(column)) for column in (leaves.lo, leaves.hi)]
    columns = int(leaves.attribute.max(initial=0)) + 1
    numbered.append(_dense(leaves.attribute.astype(np.int64) * _KINDS + leaves.kind, columns * _KINDS))
    first, number = numbered[0]
    for others, other in numbered[1:]:
        size = len(others)
        first, number = _dense(number.astype(np.int64) * size + other, len(first) * size)
    return first, number


def _dense(values: Array, size: int) -> tuple[Array, Array]:
    """As ``_firsts``, for integers below ``size``; with a table if that is small."""
    if size > _TABLE:
        return _firsts(pa.array(values))
    seen = np.empty(size, np.int32)
    seen[values[::-1]] = np.arange(len(values) - 1, -1, -1, dtype=np.int32)  # the first one is written last
    earliest = seen[values]
    first = np.flatnonzero(earliest == np.arange(len(values)))
    seen[values[first]] = np.arange(len(first), dtype=np.int32)
    return first, seen[values]


def _firsts(values: Any) -> tuple[Array, Array]:
    """The positions of first occurrences in an Arrow array, and for each value which of them it equals."""
    number = values.dictionary_encode().indices.to_numpy()
    # Numbers are given in the order of appearance, so a new one is above all before it.
    return np.flatnonzero(np.diff(np.maximum.accumulate(number), prepend=-1)), number
