"""Which values of attributes a shard can match: ranges of positions on one line, and bits that events are routed by.

The line holds the codes of all columns in sequence: code ``c`` of column ``a`` is at ``base[a] + c``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpumatch.arrays import Array, spans
from gpumatch.codes.table import Table
from gpumatch.opcodes import NULL, RANGE, SET
from gpumatch.routing.sieve.groups import Groups


@dataclass(frozen=True)
class Conditions:
    """Conditions of clauses on single-valued columns, one row for each clause and column; programs are left out."""

    clause: Array  # int64
    column: Array  # int64
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
        column, kind, lo, hi = (values[:own] for values in table.columns())
        usable = np.flatnonzero((kind == RANGE) | (kind == SET) | (kind == NULL))
        return cls(
            clause[usable],
            column[usable].astype(np.int64),
            kind[usable],
            lo[usable],
            hi[usable],
            likelihood[:own][usable],
            table.clause_row,
            table.range_lo,
            table.range_hi,
        )

    @cached_property
    def row(self) -> Array:
        """The subscription of each condition."""
        return self.clause_row[self.clause].astype(np.int64)

    @cached_property
    def by_column(self) -> Array:
        """Numbers of conditions, in the order of columns."""
        return np.argsort(self.column, kind="stable")

    def on(self, column: int) -> Array:
        """Numbers of the conditions on a column."""
        first, after = np.searchsorted(self.column[self.by_column], [column, column + 1])
        return self.by_column[first:after]

    def hulls(self) -> tuple[Array, Array]:
        """First and last code of each condition; 0 and -1 for those that hold for no value."""
        lo, hi = self.lo.astype(np.int64), self.hi.astype(np.int64)
        sets = np.flatnonzero((self.kind == SET) & (self.lo < self.hi))
        lo[sets], hi[sets] = self.range_lo[self.lo[sets]], self.range_hi[self.hi[sets] - 1]
        nothing = (self.kind == NULL) | ((self.kind == SET) & (self.lo >= self.hi))
        lo[nothing], hi[nothing] = 0, -1
        return lo, hi

    def ranges(self, numbers: Array) -> tuple[Array, Array, Array]:
        """All ranges of codes of some conditions: the condition's number, first code, and the code after the last."""
        kind = self.kind[numbers]
        plain, sets = numbers[kind == RANGE], numbers[kind == SET]
        count = np.maximum(self.hi[sets] - self.lo[sets], 0)
        inside = spans(self.lo[sets], count)
        number = np.concatenate([plain, np.repeat(sets, count)])
        lo = np.concatenate([self.lo[plain], self.range_lo[inside]]).astype(np.int64)
        after = np.concatenate([self.hi[plain], self.range_hi[inside]]).astype(np.int64) + 1
        return number, lo, after


def value_stage(conditions: Conditions, tree: Array, base: Array, shard: Array, shards: int) -> Groups:
    """Who wants which values in the columns that subscriptions are placed by, ``tree`` (-1: by none).

    An event without a position that a shard wants satisfies none of its subscriptions, except those without a tree.
    """
    numbers = np.flatnonzero(conditions.column == tree[conditions.row])
    number, low, after = conditions.ranges(numbers)
    start = base[conditions.column[number]]
    return few(Groups.of(start + low, start + after, shard[conditions.row[number]], shards))


def full_columns(conditions: Conditions, columns: int, shard: Array, shards: int) -> Array:
    """The columns on which all clauses of some shard have a condition: filters on these can spare the shard events."""
    pairs = np.unique(conditions.clause * columns + conditions.column)
    owner, column = shard[conditions.clause_row[pairs // columns]].astype(np.int64), pairs % columns
    pair, asking = np.unique(owner * columns + column, return_counts=True)
    clauses = np.bincount(shard[conditions.clause_row], minlength=shards)
    return np.unique((pair % columns)[asking == clauses[pair // columns]])


def column_interest(conditions: Conditions, column: int, codes: int, shard: Array, shards: int) -> tuple[Groups, Array]:
    """Who wants which codes of a column, and who wants events that lack it.

    A clause without a condition on the column wants all its values, and events that lack it. Of several conditions of
    a clause on it, which must all hold, any one is enough here: a shard may get too much, but never too little.
    """
    numbers = conditions.on(column)
    owner = shard[conditions.clause_row]
    asking = np.bincount(owner[np.unique(conditions.clause[numbers])], minlength=shards)
    free = np.bincount(owner, minlength=shards) > asking
    missing = free.copy()
    missing[shard[conditions.row[numbers[conditions.kind[numbers] == NULL]]]] = True
    number, low, after = conditions.ranges(numbers)
    who = shard[conditions.row[number]]
    asked = ~free[who]
    everything = np.flatnonzero(free)
    who = np.concatenate([who[asked], everything])
    low = np.concatenate([low[asked], np.zeros(len(everything), np.int64)])
    after = np.concatenate([after[asked], np.full(len(everything), codes)])
    return few(Groups.of(low, after, who, shards)), missing


def few(groups: Groups) -> Groups:
    """The groups, merged where the same shards want them: where no run begins or ends there is no edge."""
    owner, first, last = groups.runs
    kept = np.unique(np.concatenate([first, last + 1]))
    begin, end = np.searchsorted(kept, first), np.searchsorted(kept, last + 1) - 1
    return Groups.of_runs(groups.edges[kept], owner, begin, end, groups.owners)


@dataclass(frozen=True)
class Lookup:
    """A row of bits, one per shard, for every position: row ``i`` is for positions below ``edges[i]``."""

    edges: Array  # int64
    rows: Array  # uint8 (edges + 1, bytes)

    @classmethod
    def of(cls, groups: Groups) -> Lookup:
        steps = np.zeros((len(groups.edges) + 1, groups.owners), np.int8)
        owner, first, last = groups.runs
        np.add.at(steps, (first + 1, owner), 1)
        np.add.at(steps, (last + 2, owner), -1)
        return cls(groups.edges.astype(np.int64), np.packbits(np.cumsum(steps, axis=0, dtype=np.int8) > 0, axis=1))

    def at(self, positions: Array) -> Array:
        """The rows of positions."""
        found: Array = self.rows[np.searchsorted(self.edges, positions, "right")]
        return found
