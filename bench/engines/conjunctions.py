"""Baselines for conjunctions: what a good engineer writes in an afternoon with numpy or numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.base import Events, PerEvent, Predicates, Rows, each
from generators.programs import compiled
from gpumatch.workloads import RangeWorkload, Workload


class BruteForce(PerEvent):
    """All subscriptions against each event, in whole-array operations. Also the oracle for the other engines."""

    def build(self, workload: Workload) -> None:
        attr, lo, hi, self.dims = Predicates.of(workload)
        self.full = isinstance(workload, RangeWorkload)
        self.arrays = (attr, lo, hi)

    def rows_of(self, events: Events) -> list[Rows]:
        attr, lo, hi = self.arrays
        values = (row if self.full else row[attr] for _, _, row in each(events, self.dims))
        return [np.flatnonzero(((lo <= v) & (v <= hi)).all(axis=1)) for v in values]


class Bitmaps(PerEvent):
    """64 equal cells per dimension, each with a packed bitset of the subscriptions that touch it.

    The bitsets of the event's cells are ANDed, the rarest first, and the survivors are checked exactly.
    """

    cells = 64

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return isinstance(workload, RangeWorkload)  # with many dimensions the bitsets of all cells would not fit

    def build(self, workload: Workload) -> None:
        _, lo, hi, dims = Predicates.of(workload)
        self.low, self.width = lo.min(axis=0), (hi.max(axis=0) - lo.min(axis=0)) / self.cells
        first, last = (np.ascontiguousarray(self._cell(side).T.astype(np.uint8)) for side in (lo, hi))
        packed = np.zeros((dims, self.cells, -(-len(lo) // 64) * 8), np.uint8)
        for d in range(dims):
            for c in range(self.cells):
                bits = np.packbits((first[d] <= c) & (c <= last[d]), bitorder="little")
                packed[d, c, : len(bits)] = bits
        words = packed.view(np.uint64)
        # low <= v and -high <= -v: one row and one comparison for both sides
        self.arrays = (words, np.bitwise_count(words).sum(axis=2), np.hstack([lo, -hi]))

    def _cell(self, value: NDArray[Any]) -> NDArray[np.int64]:
        cell: NDArray[np.int64] = np.clip((value - self.low) / self.width, 0, self.cells - 1).astype(np.int64)
        return cell

    def rows_of(self, events: Events) -> list[Rows]:
        words, popcount, bounds = self.arrays
        dims, found = np.arange(len(words)), []
        for _, value, _ in each(events, len(words)):
            cell = self._cell(value)
            bitsets = [words[d, cell[d]] for d in np.argsort(popcount[dims, cell])]
            both = bitsets[0].copy()
            for bits in bitsets[1:]:
                both &= bits
            hit = np.flatnonzero(both)
            bit = np.flatnonzero(np.unpackbits(both[hit].view(np.uint8), bitorder="little"))
            rows = (hit[bit >> 6] << 6) | (bit & 63)
            inside = bounds.take(rows, axis=0) <= np.concatenate([value, -value])
            found.append(rows[np.ascontiguousarray(inside.T).all(axis=0)])  # reducing short rows is slow in numpy
        return found


class AccessLists(PerEvent):
    """Each subscription is in the list of its narrowest predicate's attribute.

    A list is filtered by that predicate; the survivors' other predicates are checked against a row of all attributes,
    the narrowest first. Subscriptions are stored in the order of the lists, which ascend by low bound.
    """

    short = 512  # mean length below which one gather over all lists is cheaper than a loop over them

    def build(self, workload: Workload) -> None:
        attr, lo, hi, self.dims = predicates = Predicates.of(workload)
        self.kind = predicates.value_type()
        order = np.argsort(hi - lo, axis=1, kind="stable")
        attr, lo, hi = (np.take_along_axis(side, order, axis=1) for side in (attr, lo, hi))
        sub = np.lexsort((lo[:, 0], attr[:, 0]))
        attr, lo, hi = (np.ascontiguousarray(side[sub].T) for side in (attr, lo, hi))
        ptr = np.searchsorted(attr[0], np.arange(self.dims + 1))
        self.arrays = (ptr, sub, attr, lo.astype(self.kind), hi.astype(self.kind))
        self.gather = len(sub) / self.dims < self.short

    def rows_of(self, events: Events) -> list[Rows]:
        ptr, sub, attr, lo, hi = self.arrays
        waiting, found = self._gather if self.gather else self._slices, []
        for attribute, value, row in each(events, self.dims, self.kind):
            at = waiting(ptr[attribute], ptr[attribute + 1], value)
            for j in (slice(1, 2), slice(2, None)):  # few survive the second predicate: test the others together
                v = row.take(attr[j].take(at, axis=1))
                at = at[((lo[j].take(at, axis=1) <= v) & (v <= hi[j].take(at, axis=1))).all(axis=0)]
            found.append(np.sort(sub[at]))
        return found

    def _slices(self, start: Rows, stop: Rows, value: NDArray[Any]) -> Rows:
        lo, hi, found = self.arrays[3][0], self.arrays[4][0], []
        for a, b, v in zip(start.tolist(), stop.tolist(), value, strict=True):
            end = a + int(lo[a:b].searchsorted(v, "right"))
            found.append(np.flatnonzero(hi[a:end] >= v) + a)
        return np.concatenate(found)

    def _gather(self, start: Rows, stop: Rows, value: NDArray[Any]) -> Rows:
        size = stop - start
        end = np.cumsum(size)
        at, v = np.repeat(stop - end, size) + np.arange(end[-1]), np.repeat(value, size)
        hit: Rows = at[(self.arrays[3][0].take(at) <= v) & (v <= self.arrays[4][0].take(at))]
        return hit


class NumbaScan(PerEvent):
    """A compiled loop over all subscriptions that drops each at the first predicate that fails."""

    def build(self, workload: Workload) -> None:
        attr, lo, hi, self.dims = predicates = Predicates.of(workload)
        self.kind = predicates.value_type()
        self.arrays = (np.ascontiguousarray(attr), lo.astype(self.kind), hi.astype(self.kind))

    def rows_of(self, events: Events) -> list[Rows]:
        out = np.empty(len(self.arrays[0]), np.int64)
        return [
            out[: compiled(_scan)(*self.arrays, row, out)].copy() for _, _, row in each(events, self.dims, self.kind)
        ]


def _scan(attr: Any, lo: Any, hi: Any, row: Any, out: Any) -> int:
    found = 0
    for i in range(attr.shape[0]):
        for j in range(attr.shape[1]):
            v = row[attr[i, j]]
            if not (lo[i, j] <= v <= hi[i, j]):  # false for NaN
                break
        else:
            out[found] = i
            found += 1
    return found
