"""Compounds: an equality that many clauses share, and the ranges that go with it, on code lines of their own.

Where hundreds of alerts name the same symbol, the equality finds all of them and tells none apart, and the codes of
prices, which all symbols share, tell little. A *line* pairs an owner, the symbol, with a partner, the price; its
*groups*, one for each code of the owner, cut the partner's codes at the bounds that clauses with this symbol have. In a
group an event has one code, and a clause one range: it hangs there, and its further ranges are filters there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpumatch.arrays import Array, pointers, read_only
from gpumatch.codes.book import distinct_keys
from gpumatch.index.flat import bits_of
from gpumatch.index.input import Input
from gpumatch.kernels import compound as kernels
from gpumatch.kernels.postings import CELLS, FILTERED
from gpumatch.opcodes import RANGE

_SHARED = 32  # groups pay for at least this many clauses that share an equality, and on average on a line
_WIDE = 0.75  # share of a group's codes: a wider range is not worth hanging on
_CODES = 4  # of an owner per clause of a line; with more, most groups would be empty
_DIRECT = 4  # up to this many possible pairs of attributes per range, pairs are counted in a table, not sorted
_LINES = 64  # at most; lines with the most clauses are taken, as every event looks at all lines


class Compounds(NamedTuple):
    """Lines, and the ranges on them of clauses that share an equality; ranges of a clause are adjacent."""

    lines: Array  # as in postings.ARRAYS, like the next two
    group_ptr: Array
    cuts: Array
    clause: Array  # of each range: its clause, as an index into those asked for
    owner: Array  # the equality, by number of the predicate
    predicate: Array  # the range
    line: Array
    group: Array
    lo: Array
    hi: Array

    def sizes(self) -> Array:
        """How many codes each group has."""
        return np.diff(self.group_ptr)

    def shares(self) -> Array:
        """How much of its group each range covers."""
        share: Array = (self.hi - self.lo + 1) / self.sizes()[self.group]
        return share

    def hung(self) -> Array:
        """The range that each clause hangs on: its first, unless that is wide."""
        first = np.flatnonzero(np.diff(self.clause, prepend=-1))
        narrow: Array = first[self.shares()[first] <= _WIDE]
        return narrow

    def filters(self, attributes: int) -> tuple[Array, Array]:
        """Each range as a filter of postings, numbered after the ``attributes``; and whether that is exact."""
        shift = bits_of(-(-self.sizes() // CELLS))[self.group]
        first, last = self.lo >> shift, self.hi >> shift
        return ((attributes + self.line) | first << 16 | (last - first) << 24).astype(np.uint32), shift == 0


NO_COMPOUNDS = Compounds(
    np.zeros(0, np.int32), np.zeros(1, np.int32), np.zeros(0, np.int32), *[np.zeros(0, np.int64)] * 7
)


class _Ranges(NamedTuple):
    """Ranges that go with an equality that many clauses hang on."""

    clause: Array  # as an index into those asked for
    predicate: Array
    owner: Array  # the code of the equality
    pair: Array  # which of the pairs of attributes
    names: Array  # of pairs: the owner's attribute times the number of attributes, and the partner's
    sizes: Array  # of pairs: how many ranges


def find_compounds(given: Input, clauses: Array, access: Array) -> Compounds:
    """Compounds for the clauses for which they pay; ``access`` is the predicate that each hangs on, or -1."""
    width, counts = len(given.attributes), given.book.counts()
    ranges = _ranges(given, clauses, access)
    pays = _paying(ranges, width, counts)
    if not pays.any():
        return NO_COMPOUNDS
    kept = np.flatnonzero(pays[ranges.pair])
    clause, predicate, line = ranges.clause[kept], ranges.predicate[kept], (np.cumsum(pays) - 1)[ranges.pair[kept]]
    owners, partners = np.divmod(ranges.names[pays], width)
    starts = pointers(counts[owners])
    group = (starts[line] + ranges.owner[kept]).astype(np.int32)
    used = np.flatnonzero(np.bincount(group)).astype(np.int32)
    codes = given.table.predicate.reshape(-1, 4)[predicate, 2:].astype(np.int64)
    ended = codes[:, 1] + 1 < counts[partners][line]
    keys = np.concatenate([np.zeros(len(used), np.int64), codes[:, 0], codes[ended, 1] + 1])
    cuts, group_ptr = distinct_keys(np.concatenate([used, group, group[ended]]), keys, int(starts[-1]))
    inside = np.empty(codes.size, np.int64)
    kernels.encode_in_groups(np.repeat(group, 2), codes.ravel(), group_ptr, cuts, inside)
    lines = np.stack([owners, partners, starts[:-1]], axis=1).astype(np.int32).ravel()
    arrays = (lines, group_ptr.astype(np.int32), cuts.astype(np.int32))
    return Compounds(
        *arrays, clause, access[clause], predicate, line, group.astype(np.int64), inside[::2], inside[1::2]
    )


def _sharing(given: Input, access: Array) -> Array:
    """Indexes of clauses that hang on an equality with many others, on an attribute with few codes for its clauses."""
    counts = given.book.counts()
    hanging = np.flatnonzero(access >= 0)
    attribute, kind, lo, hi = given.table.predicate.reshape(-1, 4)[access[hanging]].T
    plain = (kind == RANGE) & (lo == hi) & ~given.attributes.multi[attribute]
    load = np.bincount(attribute[plain], minlength=len(counts))
    enough = (load >= _SHARED) & (counts <= _CODES * load)
    plain &= enough[attribute]
    equality = pointers(np.where(enough, counts, 0))[attribute[plain]] + lo[plain]
    sharing: Array = hanging[plain][np.bincount(equality)[equality] >= _SHARED]
    return sharing


def _ranges(given: Input, clauses: Array, access: Array) -> _Ranges:
    """Ranges of the clauses that hang on an equality with many others."""
    table, width = given.table, len(given.attributes)
    sharing = _sharing(given, access)
    arrays = (read_only(table.clause_ptr), read_only(table.predicate), given.attributes.multi)
    buffers = np.empty((3, int(np.diff(table.clause_ptr)[clauses[sharing]].sum())), np.int64)
    clause, predicate, pair = buffers[:, : kernels.list_ranges(sharing, clauses, access, *arrays, tuple(buffers))]
    owner = table.predicate[4 * access[clause] + 2]
    return _Ranges(clause, predicate, owner, *_numbered(pair, width * width))


def _numbered(keys: Array, top: int) -> tuple[Array, Array, Array]:
    """For each key, below ``top``, the number of its name; the names, ascending; and how many keys each has."""
    if top > _DIRECT * len(keys):
        names, number, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        return number, names, sizes
    sizes = np.bincount(keys, minlength=top)
    names = np.flatnonzero(sizes)
    return (np.cumsum(sizes > 0) - 1)[keys], names, sizes[names]


def _paying(ranges: _Ranges, width: int, counts: Array) -> Array:
    """Which pairs of attributes become lines."""
    sizes, codes = ranges.sizes, counts[ranges.names // width]
    pays: Array = (sizes >= _SHARED) & (codes <= _CODES * sizes)
    starts = pointers(np.where(pays, codes, 0))
    kept = np.flatnonzero(pays[ranges.pair])
    group = starts[ranges.pair[kept]] + ranges.owner[kept]
    equalities = np.diff(pointers(np.bincount(group, minlength=starts[-1]) > 0)[starts])
    pays &= sizes >= _SHARED * equalities
    most = max(min(_LINES, FILTERED - width), 0)  # room in filters
    several = np.flatnonzero(pays)
    pays[several[np.argsort(-sizes[several], kind="stable")[most:]]] = False
    return pays
