"""Compounds: an equality that many clauses share, and the ranges behind it, on code lines of their own.

Where hundreds of alerts name the same symbol, the equality finds all of them and tells none apart, and the codes of
prices, which are those of all symbols, tell little. A *line* pairs an owner, the symbol, with a partner, the price; its
*groups*, one for each code of the owner, cut the partner's codes at the bounds that clauses with this symbol have. In a
group an event has one code, and a clause one range: it hangs there, and there its further ranges are filters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpumatch.codes import pointers, spans
from gpumatch.index.flat import Input, bits_of
from gpumatch.kernels.postings import CELLS
from gpumatch.predicates import RANGE, Array

_SHARED = 32  # clauses that share an equality, and on average those of a line, for which groups pay
_WIDE = 0.75  # share of a group's codes: a wider range is not worth hanging on
_CODES = 4  # of an owner for each clause of a line; with more, most groups would be empty


class Compounds(NamedTuple):
    """Lines, and the ranges on them of clauses that share an equality; those of a clause lie side by side."""

    lines: Array  # as in postings.ARRAYS, like the next two
    group_ptr: Array
    cuts: Array
    clause: Array  # of each range: its clause, as a place among those that were asked for
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
        """Each range as a filter of postings, behind so many attributes; and whether that is exact."""
        shift = bits_of(-(-self.sizes() // CELLS))[self.group]
        first, last = self.lo >> shift, self.hi >> shift
        return ((attributes + self.line) | first << 16 | (last - first) << 24).astype(np.uint32), shift == 0


def find_compounds(given: Input, clauses: Array, access: Array) -> Compounds:
    """Compounds for those of the clauses for which they pay; ``access`` is the predicate that each hangs on, or -1."""
    attribute, _, lo, hi = given.table.columns()
    counts = given.book.counts()
    clause, owner, partner = _candidates(given, clauses, access)
    pair = attribute[owner].astype(np.int64) * len(counts) + attribute[partner]
    names, pair, sizes = np.unique(pair, return_inverse=True, return_counts=True)
    equalities = np.bincount(np.unique(pair << 32 | lo[owner]) >> 32, minlength=len(names))
    pays = (sizes >= _SHARED * equalities) & (counts[names // len(counts)] <= _CODES * sizes)
    kept = pays[pair]
    clause, owner, partner, line = clause[kept], owner[kept], partner[kept], (np.cumsum(pays) - 1)[pair[kept]]
    owners, partners = np.divmod(names[pays], len(counts))
    starts = pointers(counts[owners])
    group = starts[line] + lo[owner]
    first, behind = group << 32 | lo[partner], (group << 32) + hi[partner] + 1
    keys = np.unique(np.concatenate([group << 32, first, behind]))
    group_ptr = np.searchsorted(keys, np.arange(starts[-1] + 1) << 32)
    codes = np.searchsorted(keys, first) - group_ptr[group], np.searchsorted(keys, behind) - 1 - group_ptr[group]
    lines = np.stack([owners, partners, starts[:-1]], axis=1).astype(np.int32).ravel()
    arrays = (lines, group_ptr.astype(np.int32), keys.astype(np.int32))
    return Compounds(*arrays, clause, owner, partner, line, group, *codes)


def _candidates(given: Input, clauses: Array, access: Array) -> tuple[Array, Array, Array]:
    """Clauses that hang on an equality with many others, that predicate, and each of their ranges behind it."""
    attribute, kind, lo, hi = given.table.columns()
    plain = (kind == RANGE) & ~given.attributes.multi[attribute]
    held = np.flatnonzero(access >= 0)
    held = held[plain[access[held]] & (lo[access[held]] == hi[access[held]])]
    equality = attribute[access[held]].astype(np.int64) << 32 | lo[access[held]]
    _, equality, load = np.unique(equality, return_inverse=True, return_counts=True)
    held = held[load[equality] >= _SHARED]
    ptr = given.table.clause_ptr
    counts = np.diff(ptr)[clauses[held]]
    clause, partner = np.repeat(held, counts), spans(ptr[clauses[held]], counts)
    owner = access[clause]
    kept = plain[partner] & (lo[partner] <= hi[partner]) & (attribute[owner] != attribute[partner])
    return clause[kept], owner[kept], partner[kept]
