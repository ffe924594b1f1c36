"""Leaf codes: the cuts that predicates make in an attribute's values, numbered.

The code of a value is the number of cuts at or below it, so a predicate's range of keys becomes a range of codes and
every index works on small integers. These are PS-Tree's predicate spaces (thesis, 6.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array, bytes_of, freeze, pointers, read_only
from gpumatch.arrayspec import ANYTHING, HOOKED, ArraySpec, Pointers, Problem, between, equal, refused, sized
from gpumatch.codes.search import Patterns
from gpumatch.errors import ParseError
from gpumatch.expr.keys import MAX
from gpumatch.kernels import encode as kernels
from gpumatch.kernels.frames import Frame
from gpumatch.parallel import threads
from gpumatch.subscriptions.block import Attributes

_AT_ONCE = 1 << 18  # keys per thread
_SHORT = 32  # runs of at least this many keys are sorted by NumPy
_LONG = 4096  # and of at least this many by several threads; such attributes have few buckets
_CUTS_PER_BUCKET = 4  # in large codebooks, where buckets would cost more memory than they save time


BOOK_TYPES = {
    "cuts": ArraySpec("int64", "cuts", "keys where ranges begin, or just past their end", HOOKED),
    "cut_ptr": ArraySpec("int64", "attributes + 1", "per attribute: where its cuts start", Pointers("cuts")),
    "buckets": ArraySpec("int32", "buckets", "per bucket: how many cuts of its attribute lie below it", HOOKED),
    "guide": ArraySpec(
        "int64", f"{kernels.GUIDE} * attributes", "per attribute: what the search needs, see kernels.encode", HOOKED
    ),
    "pool_data": ArraySpec("uint8", "pool", "bytes of strings", ANYTHING),
    "pool_offsets": ArraySpec("int64", "strings + 1", "where each string starts", Pointers("pool")),
}


@dataclass(frozen=True)
class Codebook:
    """The cuts of all attributes in sequence, tables that speed up the search, and the sorted pool of strings."""

    cuts: Array  # int64 keys
    cut_ptr: Array  # int64
    buckets: Array  # int32
    guide: Array  # int64: per attribute, what the search needs; see kernels.encode
    pool_data: Array  # uint8
    pool_offsets: Array  # int64

    def counts(self) -> Array:
        """How many codes each attribute has."""
        return np.diff(self.cut_ptr) + 1

    def patterns(self, column: int) -> Patterns:
        """The patterns of a column of patterns, ready to be searched for, with their codes."""
        if column not in self._patterns:
            first, last = self.cut_ptr[column : column + 2].tolist()
            cuts = self.cuts[first:last]
            at = np.flatnonzero(cuts % 2 == 0)  # the cut below a name
            starts, ends = self.pool_offsets[cuts[at] >> 1].tolist(), self.pool_offsets[(cuts[at] >> 1) + 1].tolist()
            names = [self.pool_data[start:end].tobytes().decode() for start, end in zip(starts, ends, strict=True)]
            self._patterns[column] = Patterns(names, (at + 1).astype(np.int32))
        return self._patterns[column]

    @cached_property
    def _patterns(self) -> dict[int, Patterns]:
        return {}

    @property
    def frame(self) -> Frame:
        """What encoding asks of it, in one argument; the same for all threads, since compiled code does not hold it."""
        found: Frame | None = self.__dict__.get("_frame")
        if found is None:
            arrays = (self.guide, self.cuts, self.buckets, self.pool_data, self.pool_offsets)
            found = self.__dict__.setdefault("_frame", Frame(arrays))
        return found

    def search(self) -> tuple[Array, Array, Array]:
        """Arguments for the encoding kernels."""
        return self.guide, self.cuts, self.buckets


def sort_pool(pool: list[bytes]) -> tuple[Array, Array, Array]:
    """The pool's bytes in sorted order, their offsets, and the position of each string in that order."""
    strings = pa.array(pool, pa.large_binary())
    sorting = pc.array_sort_indices(strings)
    position = np.empty(len(pool), np.int64)
    position[sorting.to_numpy()] = np.arange(len(pool))
    return (*bytes_of(strings.take(sorting)), position)


def make_book(is_float: Array, cuts: Array, cut_ptr: Array, pool: tuple[Array, Array]) -> Codebook:
    """The codebook of the cuts of each attribute, ascending and distinct. ``pool``: sorted strings."""
    book = Codebook(cuts, cut_ptr, *_make_buckets(cuts, cut_ptr, is_float), *pool)
    freeze(book)
    return book


def distinct_keys(owners: Array, keys: Array, count: int) -> tuple[Array, Array]:
    """The distinct keys of each owner, ascending, and where those of each owner start."""
    ptr = pointers(np.bincount(owners, minlength=count))
    grouped = np.empty(len(keys), np.int64)
    kernels.group_keys(owners, keys, ptr, grouped)
    return distinct_runs(grouped, ptr)


def distinct_runs(keys: Array, ptr: Array) -> tuple[Array, Array]:
    """The distinct keys of each run ``keys[ptr[a]:ptr[a + 1]]``, ascending, and where those of each run start.

    In the memory of the keys, which are gone then.
    """
    kernels.sort_runs(keys, ptr, _SHORT)
    lengths = np.diff(ptr)
    for a in np.flatnonzero((lengths >= _SHORT) & (lengths < _LONG)).tolist():
        keys[ptr[a] : ptr[a + 1]].sort()
    threads.run(lambda a: keys[ptr[a] : ptr[a + 1]].sort(), np.flatnonzero(lengths >= _LONG).tolist())
    distinct_ptr = np.empty(len(ptr), np.int64)
    keys.resize(kernels.unique_runs(keys, ptr, keys, distinct_ptr), refcheck=False)  # no copy: nobody has a view of it
    return keys, distinct_ptr


def _make_buckets(cuts: Array, cut_ptr: Array, is_float: Array) -> tuple[Array, Array]:
    """Bucket tables of all attributes, and the guide to them."""
    counts = np.diff(cut_ptr)
    has_cuts = np.flatnonzero(counts)
    first_cut, last_cut = cuts[cut_ptr[:-1][has_cuts]], cuts[cut_ptr[1:][has_cuts] - 1]
    floats = is_float[has_cuts]
    limit = np.finfo(np.float64).max
    low = np.clip(_numbers(first_cut, floats), -limit, limit)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        span = np.clip(_numbers(last_cut, floats), -limit, limit) - low
        direct = ~floats & (span < 4 * counts[has_cuts])
        sizes = np.where(counts < _LONG, 2 * counts, counts // _CUTS_PER_BUCKET)
        sizes[has_cuts[direct]] = (last_cut - first_cut)[direct] + 1
        scale = np.where(span > 0, sizes[has_cuts] / span, 0)
    scale[~np.isfinite(scale)] = 0  # too close together to tell apart: one bucket and a plain search
    bucket_ptr = pointers(np.where(counts > 0, sizes + 1, 0))
    guide = np.zeros((len(counts), kernels.GUIDE), np.int64)
    guide[:, 0], guide[:, 1], guide[:, 2], guide[:, 3] = cut_ptr[:-1], counts, bucket_ptr[:-1], sizes
    guide[has_cuts, 4] = np.where(direct, first_cut, low.view(np.int64))
    guide[has_cuts, 5] = scale.view(np.int64)
    guide[:, 6] = np.where(is_float, kernels.FLOAT, 0)
    guide[has_cuts[direct], 6] |= kernels.DIRECT
    buckets = np.zeros(bucket_ptr[-1], np.int32)
    kernels.fill_buckets(guide.ravel(), cuts, buckets)
    return buckets, guide.ravel()


def _numbers(keys: Array, floats: Array) -> Array:
    as_floats = (keys ^ ((keys >> 63) & MAX)).view(np.float64)
    return np.where(floats, as_floats, keys.astype(np.float64))


def encode_keys(book: Codebook, owner: Array, keys: Array) -> Array:
    owner = read_only(owner)
    codes = np.empty(len(keys), np.int32)
    chunks = [(start, min(start + _AT_ONCE, len(keys))) for start in range(0, len(keys), _AT_ONCE)]
    threads.run(lambda c: kernels.encode_keys(owner, keys, c[0], c[1], *book.search(), codes), chunks)
    return codes


def problems(book: Codebook, attributes: Attributes) -> Iterator[Problem]:
    """What is wrong with a loaded codebook that its arrays' specs do not cover."""
    counts, guide = book.counts() - 1, book.guide.reshape(-1, kernels.GUIDE)
    strings, floats = attributes.of_kind("string"), attributes.of_kind("float")
    falls = book.cuts[1:] <= book.cuts[:-1]
    falls[book.cut_ptr[(book.cut_ptr > 0) & (book.cut_ptr < len(book.cuts))] - 1] = False  # the next one starts there
    yield from refused("cuts", book.cuts[1:], falls, "ascending cuts")
    for at in np.flatnonzero(strings).tolist():
        own = book.cuts[book.cut_ptr[at] : book.cut_ptr[at + 1]]
        yield from between("cuts", own, 0, 2 * len(book.pool_offsets) - 3)  # two for each string
    sizes = guide[:, 3]
    yield from between("guide", sizes, np.minimum(counts, 1), len(book.buckets))
    ptr = pointers(np.where(counts > 0, sizes + 1, 0))
    yield from sized("buckets", book.buckets, int(ptr[-1]))
    for column, wanted in enumerate((book.cut_ptr[:-1], counts, ptr[:-1])):
        yield from equal("guide", guide[:, column], wanted)
    yield from equal("guide", guide[:, 6] & ~kernels.DIRECT, np.where(floats, kernels.FLOAT, 0))
    yield from between("buckets", book.buckets, 0, np.repeat(counts, np.diff(ptr)))
    for at in attributes.owners:
        try:
            book.patterns(int(attributes.patterns[at]))
        except (ParseError, UnicodeDecodeError, IndexError) as error:
            yield "pool_data", f"should have patterns that can be read: {error}"
