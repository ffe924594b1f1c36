"""TAMA's hierarchy of cells over any line of numbers: ranges and values as cells, and their compact codes.

Level 0 is the whole line, and every cell is split into two of the next level. A range becomes the largest cells that it
contains; its ends are rounded outward to cells of the last level (paper, III-A). Cells include their lower end but not
their upper one, so that a value lies in one cell of each level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import SchemaError

Cells: TypeAlias = "dict[int, tuple[int, ...]]"  # the cells of each level that has any, ascending

_MOST_LEVELS = 62  # cells are numbered by int64


@dataclass(frozen=True, eq=False)
class Line:
    """Numbers from ``low`` to ``high`` in ``2 ** levels`` finest cells: equally wide, or separated by ``cuts``."""

    low: float
    high: float
    levels: int
    cuts: Array | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.levels <= _MOST_LEVELS:
            raise SchemaError(f"a line has 0 to {_MOST_LEVELS} levels, found {self.levels}")
        if not self.low < self.high:
            raise SchemaError(f"a line must go from a number to a larger one, found {self.low} to {self.high}")
        if self.cuts is not None and len(self.cuts) != (1 << self.levels) - 1:
            raise SchemaError(f"{1 << self.levels} cells need one cut less than cells, found {len(self.cuts)}")

    def finest(self, values: Any) -> Array:
        """The finest cell of each value; never falls as values rise."""
        values = np.asarray(values, np.float64)
        outside = ~((values >= self.low) & (values <= self.high))
        if outside.any():
            value = values[outside].flat[0]
            raise SchemaError(f"{value} is not on the line from {self.low} to {self.high}; make the line wider")
        cells: Array
        if self.cuts is not None:
            cells = np.searchsorted(self.cuts, values, side="right")
            return cells
        count = 1 << self.levels
        cells = ((values - self.low) / (self.high - self.low) * count).astype(np.int64)
        return np.minimum(cells, count - 1)

    def cells_of(self, value: float) -> tuple[int, ...]:
        """The cells that contain a value, from level 0 to the last."""
        cell = int(self.finest(value))
        return tuple(cell >> (self.levels - level) for level in range(self.levels + 1))

    def discretise(self, low: float, high: float) -> Cells:
        """The cells of the range from ``low`` to ``high``, both included; it may reach beyond the line."""
        low, high = max(low, self.low), min(high, self.high)
        if low > high:
            return {}
        first, last = (int(cell) for cell in self.finest([low, high]))
        opens = low == self.low or int(self.finest(np.nextafter(low, -np.inf))) < first
        closes = high == self.high or int(self.finest(np.nextafter(high, np.inf))) > last
        return cover(first, last, opens, closes, self.levels)


def cover(first: int, last: int, opens: bool, closes: bool, levels: int) -> Cells:
    """The cells of a range that touches the finest cells ``first`` to ``last``.

    ``opens`` and ``closes`` say if it starts where ``first`` does and ends where ``last`` does. A range has at most
    two cells in each level before the last; there it may have two at either end.
    """
    found: dict[int, set[int]] = {levels: set()}
    if not opens:
        found[levels].add(first)
    if not closes:
        found[levels].add(last)
    lo, hi, level = first + (not opens), last - (not closes), levels
    while lo <= hi:
        cells = found.setdefault(level, set())
        if lo & 1:
            cells.add(lo)
            lo += 1
        if lo <= hi and not hi & 1:
            cells.add(hi)
            hi -= 1
        lo, hi, level = lo >> 1, hi >> 1, level - 1
    return {level: tuple(sorted(found[level])) for level in sorted(found) if found[level]}


def median_cuts(sample: Array, low: float, high: float, levels: int) -> Array:
    """Cuts of a line at the medians of the values that lie in each cell (Algorithm 3).

    A cell whose median is its start is cut at the next larger value; one without such values is cut in the middle.
    """
    sample = np.sort(np.asarray(sample, np.float64))
    edges = np.array([low, high], np.float64)
    for _ in range(levels):
        start, end = edges[:-1], edges[1:]
        middle = start + (end - start) / 2
        if len(sample):
            position = np.searchsorted(sample, edges)
            position[-1] = len(sample)  # the last cell includes its upper end
            first, last = position[:-1], position[1:]
            median = sample[np.minimum((first + last) // 2, len(sample) - 1)]
            above = np.searchsorted(sample, start, side="right")
            following = sample[np.minimum(above, len(sample) - 1)]
            cut = np.where((first < last) & (median > start), median, np.where(above < last, following, middle))
        else:
            cut = middle
        edges = np.insert(edges, np.arange(1, len(edges)), cut)
    return edges[1:-1]


class _Bits:
    """A vector of bits, written and read from its start, after a byte that holds its length."""

    def __init__(self, code: bytes = b"\0") -> None:
        self.length, padding = code[0], -code[0] % 8
        self._bits = int.from_bytes(code[1:], "big") >> padding
        self._read = 0

    def write(self, number: int, width: int) -> None:
        self._bits = (self._bits << width) | number
        self.length += width

    def read(self, width: int) -> int:
        self._read += width
        return (self._bits >> (self.length - self._read)) & ((1 << width) - 1)

    def left(self) -> int:
        return self.length - self._read

    def to_bytes(self) -> bytes:
        padding = -self.length % 8
        return bytes([self.length]) + (self._bits << padding).to_bytes((self.length + padding) // 8, "big")


def encode_range(cells: Cells, levels: int) -> bytes:
    """The compact code of a discretised range (III-E2) on a line of ``levels`` levels.

    Six bits for its first level, one for whether there are two cells or one, and these; then, level by level, a bit for
    each end that has one more cell. The last level may add two at each end and takes two bits for each. A range that
    begins at the last level has up to four neighbouring cells there: two more bits count those beyond the second.
    """
    if not cells:
        raise SchemaError("a range without cells has no compact code; it lies off the line and matches nothing")
    start = min(cells)
    first = cells[start][:2]
    bits = _Bits()
    bits.write(start, 6)
    bits.write(len(first) - 1, 1)
    for cell in first:
        bits.write(cell, start)
    if start == levels:
        bits.write(len(cells[start]) - len(first), 2)
        return bits.to_bytes()
    left = first[0]
    for level in range(start + 1, levels + 1):
        left *= 2
        found = cells.get(level, ())
        before = sum(cell < left for cell in found)
        for count in (before, len(found) - before):
            bits.write(count, 1 if level < levels else 2)
        left -= before
    return bits.to_bytes()


def decode_range(code: bytes) -> Cells:
    """The cells that ``encode_range`` was given."""
    bits = _Bits(code)
    start = bits.read(6)
    first = [bits.read(start) for _ in range(bits.read(1) + 1)]
    left, right = first[0], first[-1]
    if bits.left() == 2:
        return {start: tuple(range(left, right + bits.read(2) + 1))}
    cells = {start: tuple(first)}
    level = start
    while bits.left():
        level += 1
        width = 1 if bits.left() > 4 else 2
        left, right = 2 * left, 2 * right + 1
        before, behind = bits.read(width), bits.read(width)
        found = (*range(left - before, left), *range(right + 1, right + 1 + behind))
        left, right = left - before, right + behind
        if found:
            cells[level] = found
    return cells


def encode_value(cells: Sequence[int], first: int = 0) -> bytes:
    """The compact code of a value's cells from level ``first`` on: that level, its cell, a bit for each further one.

    The cell takes the paper's 32 bits, or as many as its level has.
    """
    bits = _Bits()
    bits.write(first, 8)
    bits.write(cells[0], max(first, 32))
    for cell in cells[1:]:
        bits.write(cell & 1, 1)
    return bits.to_bytes()


def decode_value(code: bytes) -> tuple[int, tuple[int, ...]]:
    """The first level and the cells that ``encode_value`` was given."""
    bits = _Bits(code)
    first = bits.read(8)
    cells = [bits.read(max(first, 32))]
    while bits.left():
        cells.append(2 * cells[-1] + bits.read(1))
    return first, tuple(cells)
