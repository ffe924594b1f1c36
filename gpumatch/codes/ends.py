"""The ends of a block's ranges by attribute: they first make the cuts, then become codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gpumatch.arrays import Array, pointers, read_only
from gpumatch.codes.book import Codebook, distinct_runs
from gpumatch.kernels import ends as kernels
from gpumatch.opcodes import WIDTH
from gpumatch.parallel import threads
from gpumatch.subscriptions.predicates import Predicates

_AT_ONCE = 1 << 18  # keys per thread


class Given(NamedTuple):
    """Predicates whose ranges have ends; ``empty``: empty ranges have ends too. ``floats``: by attribute."""

    predicates: Predicates
    floats: Array
    empty: bool


class _Piece(NamedTuple):
    """The predicates that one thread takes."""

    columns: tuple[Array, ...]
    first: int
    last: int
    floats: Array
    empty: bool


class Ends:
    """Ends as keys, grouped by attribute."""

    def __init__(self, given: Sequence[Given], attributes: int) -> None:
        self._pieces = [
            [_Piece(_columns(one), *share, *one[1:]) for share in threads.shares(len(one.predicates))] for one in given
        ]
        counts = np.zeros((sum(map(len, self._pieces)), attributes), np.int64)
        self._each(kernels.count_ends, counts)
        self._ptr = pointers(counts.sum(axis=0))
        self._place = self._ptr[:-1] + np.cumsum(counts, axis=0) - counts
        self._keys = np.empty(int(self._ptr[-1]), np.int64)
        self._each(kernels.group_ends, self._place.copy(), self._keys)

    def _each(self, kernel: Callable[..., None], by_piece: Array, *more: Array) -> None:
        """Call a kernel for each piece, with its own row of an array. Few predicates need no other thread."""
        rows = iter(by_piece)
        for own in self._pieces:
            threads.run(lambda one: kernel(*one[0], one[1], *more), [(piece, next(rows)) for piece in own])

    def cuts(self) -> tuple[Array, Array]:
        """The cuts that they make, and where those of each attribute start."""
        return distinct_runs(self._keys.copy(), self._ptr)

    def rows(self, book: Codebook) -> list[Array]:
        """The predicates of each ``Given`` as rows of a table, in codes of the book. This drops the keys."""
        codes, places = self._codes(book), iter(self._place)
        return [_rows([(piece, next(places)) for piece in own], book, codes) for own in self._pieces]

    def _codes(self, book: Codebook) -> Array:
        keys, self._keys = self._keys, np.zeros(0, np.int64)
        codes = np.empty(len(keys), np.int32)
        chunks = [(start, min(start + _AT_ONCE, len(keys))) for start in range(0, len(keys), _AT_ONCE)]
        threads.run(lambda chunk: kernels.rank_ends(keys, self._ptr, *chunk, *book.search(), codes), chunks)
        return codes


def _rows(work: Sequence[tuple[_Piece, Array]], book: Codebook, codes: Array) -> Array:
    """Rows of consecutive pieces, given where the codes of each piece are by attribute."""
    out = np.empty(WIDTH * work[-1][0].last, np.int32)
    threads.run(lambda one: kernels.code_ends(*one[0], book.cut_ptr, codes, one[1], out), work)
    return out


def _columns(given: Given) -> tuple[Array, ...]:
    """Read-only and contiguous, so that kernels are compiled once."""
    return tuple(read_only(np.ascontiguousarray(column)) for column in given.predicates.columns())
