"""Which values of an attribute a shard can match, in codes: the bits that events are routed by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpumatch.coded import Table
from gpumatch.codes import spans
from gpumatch.predicates import NULL, RANGE, SET, Array
from gpumatch.routing.groups import Groups


@dataclass(frozen=True)
class Conditions:
    """What clauses ask of single-valued columns, one row for each clause and column; programs are left out."""

    clause: Array  # int64
    column: Array  # int32
    kind: Array
    lo: Array
    hi: Array
    likelihood: Array  # float64: that an event satisfies it
    clause_row: Array  # int32: the subscription of each clause
    range_lo: Array
    range_hi: Array

    @classmethod
    def of(cls, table: Table, likelihood: Array) -> Conditions:
        own = int(table.clause_ptr[-1])
        clause = np.repeat(np.arange(len(table.clause_row)), np.diff(table.clause_ptr))
        column, kind, lo, hi = (part[:own] for part in table.columns())
        usable = np.flatnonzero((kind == RANGE) | (kind == SET) | (kind == NULL))
        return cls(
            clause[usable],
            column[usable],
            kind[usable],
            lo[usable],
            hi[usable],
            likelihood[:own][usable],
            table.clause_row,
            table.range_lo,
            table.range_hi,
        )

    @cached_property
    def columns(self) -> Array:
        """The columns that there is a condition on."""
        return np.unique(self.column)

    def on(self, column: int) -> Array:
        """The numbers of the conditions on a column."""
        found: Array = self._by_column[self._starts[column] : self._starts[column + 1]]
        return found

    @cached_property
    def _by_column(self) -> Array:
        return np.argsort(self.column, kind="stable")

    @cached_property
    def _starts(self) -> Array:
        most = int(self.column.max(initial=-1)) + 2
        return np.searchsorted(self.column[self._by_column], np.arange(most))

    def hulls(self) -> tuple[Array, Array]:
        """First and last code of each condition; those that hold for no value have none: 0 and -1."""
        lo, hi = self.lo.astype(np.int64), self.hi.astype(np.int64)
        sets = np.flatnonzero((self.kind == SET) & (self.lo < self.hi))
        lo[sets], hi[sets] = self.range_lo[self.lo[sets]], self.range_hi[self.hi[sets] - 1]
        nothing = (self.kind == NULL) | ((self.kind == SET) & (self.lo >= self.hi))
        lo[nothing], hi[nothing] = 0, -1
        return lo, hi

    def ranges(self, numbers: Array) -> tuple[Array, Array, Array]:
        """All ranges of codes of some conditions: the condition's place in ``numbers``, first and last code."""
        kind = self.kind[numbers]
        plain, sets = np.flatnonzero(kind == RANGE), np.flatnonzero(kind == SET)
        first, count = self.lo[numbers[sets]], np.maximum(self.hi[numbers[sets]] - self.lo[numbers[sets]], 0)
        held = spans(first, count)
        place = np.concatenate([plain, np.repeat(sets, count)])
        lo = np.concatenate([self.lo[numbers[plain]], self.range_lo[held]])
        hi = np.concatenate([self.hi[numbers[plain]], self.range_hi[held]])
        some = lo <= hi
        return place[some], lo[some].astype(np.int64), hi[some].astype(np.int64)


@dataclass(frozen=True)
class Interest:
    """Who wants which codes of a column: ranges of codes between ``edges``, and a row of shards for each."""

    groups: Groups
    wanted: Array  # bool (groups, shards)
    missing: Array  # bool (shards,): can match an event that lacks the attribute


def interest_in(conditions: Conditions, column: int, codes: int, shard: Array, shards: int) -> Interest:
    """The interest of shards in a column of so many codes; ``shard`` is that of each subscription.

    A clause without a condition on the column is for all its values, and for none. Of several conditions of a clause
    on it, which must all hold, any one is enough here: a shard may get too much, never too little.
    """
    numbers = conditions.on(column)
    owner = shard[conditions.clause_row]
    clauses = np.bincount(owner, minlength=shards)
    asking = np.bincount(owner[np.unique(conditions.clause[numbers])], minlength=shards)
    free = clauses > asking
    of_condition = owner[conditions.clause[numbers]]
    missing = free.copy()
    missing[of_condition[conditions.kind[numbers] == NULL]] = True
    place, lo, hi = conditions.ranges(numbers)
    asked = ~free[of_condition[place]]
    everything = np.flatnonzero(free)
    who = np.concatenate([of_condition[place][asked], everything])
    first = np.concatenate([lo[asked], np.zeros(len(everything), np.int64)])
    after = np.concatenate([hi[asked] + 1, np.full(len(everything), codes)])
    groups = _few(Groups.of(first, after, who, shards))
    return Interest(groups, _matrix(groups, shards), missing)


def _few(groups: Groups) -> Groups:
    """The groups with those made one that the same shards want: where no run begins or ends there is no edge."""
    owner, first, last = groups.runs
    kept = np.unique(np.concatenate([first, last + 1]))
    begin, end = np.searchsorted(kept, first), np.searchsorted(kept, last + 1) - 1
    return Groups.of_runs(groups.edges[kept], owner, begin, end, groups.owners)


def _matrix(groups: Groups, shards: int) -> Array:
    """Who wants each group."""
    count = len(groups)
    steps = np.zeros((count + 1, shards), np.int8)
    owner, first, last = groups.runs
    np.add.at(steps, (first, owner), 1)
    np.add.at(steps, (last + 1, owner), -1)
    wanted: Array = np.cumsum(steps, axis=0, dtype=np.int8)[:count] > 0
    return wanted
