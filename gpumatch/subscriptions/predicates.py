"""Predicates on keys as one struct of arrays, for all that read, join or encode them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.expr.keys import MIN
from gpumatch.opcodes import ANY, NULL, RANGE, SET

EMPTY = (0, -1)  # a RANGE without any key, whatever the type
_TYPES = (np.int32, np.uint8, np.int64, np.int64)


@dataclass(frozen=True, slots=True)
class Predicates:
    """RANGE has its first and last key (strings: lower and upper cut); SET, ANY and NONE have ranges ``lo:hi``.

    Those ranges are in a second struct like this one, all of kind RANGE.
    """

    attribute: Array  # int32: a column of Attributes
    kind: Array  # uint8
    lo: Array  # int64
    hi: Array  # int64

    @classmethod
    def of(cls, attribute: Array | int, kind: Array | int, lo: Array, hi: Array) -> Predicates:
        """From arrays of any integer type; attribute and kind may be one number for all."""
        pairs = zip((attribute, kind, lo, hi), _TYPES, strict=True)
        return cls(
            *(np.full(len(lo), one, t) if isinstance(one, int) else one.astype(t, copy=False) for one, t in pairs)
        )

    @classmethod
    def join(cls, pieces: Sequence[Predicates]) -> Predicates:
        pieces = [piece for piece in pieces if len(piece)]
        if len(pieces) == 1:
            return pieces[0]
        columns = zip(*[piece.columns() for piece in pieces], strict=True) if pieces else [()] * len(_TYPES)
        return cls(*(np.concatenate([np.zeros(0, t), *column]) for t, column in zip(_TYPES, columns, strict=True)))

    def __len__(self) -> int:
        return len(self.lo)

    def columns(self) -> tuple[Array, Array, Array, Array]:
        return self.attribute, self.kind, self.lo, self.hi

    def take(self, at: Array | slice) -> Predicates:
        return Predicates(*(column[at] for column in self.columns()))

    def put(self, at: Array, others: Predicates) -> None:
        """Overwrite the predicates at some positions."""
        for mine, theirs in zip(self.columns(), others.columns(), strict=True):
            mine[at] = theirs

    def repeat(self, times: Array) -> Predicates:
        return Predicates(*(np.repeat(column, times) for column in self.columns()))

    def with_ends(self, at: Array, lo: Array, hi: Array) -> Predicates:
        """A copy with other ends at some positions."""
        changed = Predicates(self.attribute, self.kind, self.lo.copy(), self.hi.copy())
        changed.lo[at], changed.hi[at] = lo, hi
        return changed

    def has_ranges(self) -> Array:
        """Which predicates have ranges in the second struct."""
        marks: Array = (self.kind != RANGE) & (self.kind != NULL)
        return marks

    def never(self, strings: Array) -> Array:
        """Which predicates no value satisfies; ``strings`` marks the columns of strings.

        Cuts of strings are not sorted yet: their only empty range is EMPTY.
        """
        empty: Array = (self.kind == RANGE) & (self.lo > self.hi)
        if empty.any():
            empty &= ((self.lo == EMPTY[0]) & (self.hi == EMPTY[1])) | ~strings[self.attribute]
        several = (self.kind == SET) | (self.kind == ANY)
        if several.any():
            empty |= several & (self.lo >= self.hi)
        return empty

    def with_own(self, ranges: Predicates) -> tuple[Predicates, Predicates]:
        """The predicates and their ranges, without unused ranges."""
        if len(ranges) == 0:
            return self, ranges
        sets = np.flatnonzero(self.has_ranges())
        count = len(ranges)
        opened = np.bincount(self.lo[sets], minlength=count + 1) - np.bincount(self.hi[sets], minlength=count + 1)
        used = np.cumsum(opened)[:count] > 0
        if used.all():
            return self, ranges
        position = pointers(used)
        return self.with_ends(sets, position[self.lo[sets]], position[self.hi[sets]]), ranges.take(used)

    def with_cuts(self, strings: Array, numbers: Array) -> Predicates:
        """A copy after strings were renumbered."""
        at = self.cuts(strings)
        if len(at) == 0:
            return self
        return self.with_ends(at, _moved(self.lo[at], numbers), _moved(self.hi[at], numbers))

    def cuts(self, strings: Array) -> Array:
        """Positions of predicates whose ends are cuts of strings."""
        if not strings.any():
            return np.zeros(0, np.int64)
        is_empty = (self.lo == EMPTY[0]) & (self.hi == EMPTY[1])
        return np.flatnonzero((self.kind == RANGE) & strings[self.attribute] & ~is_empty)


def _moved(cuts: Array, numbers: Array) -> Array:
    moved = cuts.copy()
    at = np.flatnonzero(cuts != MIN)  # MIN is the open end
    moved[at] = 2 * numbers[cuts[at] >> 1] + (cuts[at] & 1)
    return moved
