"""The removed rows of a segment: bits in pages, which versions share until a page changes."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.kernels import removed as kernels
from gpumatch.store.lazy import lazy

_SPARE = 16  # pages that a pool has room for at first

_writing = threading.Lock()  # held for microseconds: versions of two matchers may share a pool


def _after_fork() -> None:
    """The thread that held the lock may not be there."""
    global _writing
    _writing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Pool:
    """Pages, which are written once. The first has no bit set."""

    def __init__(self, pages: int) -> None:
        self.bits = np.zeros((pages, kernels.WORDS), np.uint64)
        self.ranks = np.zeros((pages, kernels.WORDS), np.uint16)
        self.used = 1


@dataclass(frozen=True)
class Removed:
    """Immutable. ``page`` and ``count`` are those of each span of rows."""

    length: int
    pool: _Pool
    page: Array
    count: Array

    @classmethod
    def of(cls, mask: Array) -> Removed | None:
        """From a boolean for each row; None if no row is removed."""
        rows = np.flatnonzero(mask)
        return cls.none(len(mask)).with_rows(rows) if len(rows) else None

    @classmethod
    def none(cls, length: int) -> Removed:
        spans = (length >> kernels.SPAN) + 1
        return cls(length, _Pool(1 + _SPARE), np.zeros(spans, np.int32), np.zeros(spans, np.int32))

    def __len__(self) -> int:
        """How many rows are removed."""
        return int(self.before[-1])

    @lazy
    def before(self) -> Array:
        """How many rows are removed before each span."""
        return pointers(self.count)

    def with_rows(self, rows: Array) -> Removed:
        """The same with more rows removed."""
        rows = np.unique(rows)
        needed = len(np.unique(rows >> kernels.SPAN))
        page, count, pool = self.page.copy(), self.count.copy(), self.pool
        with _writing:
            if pool.used + needed <= len(pool.bits):
                pool.used = kernels.remove(pool.bits, pool.ranks, page, count, pool.used, rows)
                return Removed(self.length, pool, page, count)
        pool = self._copied(page, needed)
        pool.used = kernels.remove(pool.bits, pool.ranks, page, count, pool.used, rows)
        return Removed(self.length, pool, page, count)

    def _copied(self, page: Array, more: int) -> _Pool:
        """Another pool with the pages in use, which ``page`` is changed to, and room for at least as many."""
        used = np.unique(page)
        pool = _Pool(2 * (len(used) + more) + _SPARE)
        kept = used[used > 0]
        pool.used = 1 + len(kept)
        pool.bits[1 : pool.used], pool.ranks[1 : pool.used] = self.pool.bits[kept], self.pool.ranks[kept]
        page[:] = np.where(page > 0, np.searchsorted(kept, page) + 1, 0)
        return pool

    @property
    def mask(self) -> Array:
        """A boolean for each row."""
        bits = np.unpackbits(self.pool.bits[self.page].view(np.uint8).ravel(), bitorder="little")
        return bits[: self.length].astype(np.bool_)

    def words(self) -> tuple[Array, Array]:
        """The bits of all rows as uint32, and how many rows are removed before each word; for a device."""
        words = self.pool.bits[self.page].ravel().view(np.uint32)
        before = pointers(np.bitwise_count(words))[:-1]
        return words, before.astype(np.int32)

    def _pages(self) -> tuple[Array, Array, Array, Array]:
        return self.pool.bits, self.pool.ranks, self.page, self.before

    def numbers(self, rows: Array) -> Array:
        """The number of each row among those that live, -1 if it is removed."""
        numbers = np.empty(len(rows), np.int64)
        kernels.number(*self._pages(), rows, numbers)
        return numbers

    def rows(self, numbers: Array) -> Array:
        """The rows that have these numbers among those that live."""
        rows = np.empty(len(numbers), np.int64)
        kernels.find(*self._pages(), numbers, rows)
        return rows

    def kept(self, offsets: Array, rows: Array, base: int) -> tuple[Array, Array]:
        """Matches without removed rows; the others by their numbers among those that live, from ``base`` on."""
        ends, kept = np.zeros(len(offsets), np.int64), np.empty(len(rows), np.int32)
        count = kernels.keep(*self._pages(), base, offsets, rows, ends, kept)
        return ends, kept[:count]
