"""Which shard each subscription goes to: those that ask for similar values of one attribute stay together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpumatch.arrays import Array
from gpumatch.opcodes import NULL
from gpumatch.routing.sieve.interest import Conditions

NOWHERE = -1  # the tree of subscriptions that may be true whatever value any attribute has
_TREES = 4  # attributes per shard that are chosen with care; the others are the best for few subscriptions
# How much worse than a subscription's best attribute another may be and still count as good: this multiple of the best
# share of events, or this share. If events have few attributes, each subscription's best one serves, else common ones.
SLACKS = ((1.0, 0.0), (4.0, 0.2))


@dataclass(frozen=True)
class Candidates:
    """The columns that subscriptions may be placed by: all clauses of a subscription must have a condition on them."""

    row: Array  # int64
    column: Array  # int64
    share: Array  # of events that satisfy one of the conditions
    middle: Array  # of the codes that the conditions span, doubled

    @classmethod
    def of(cls, conditions: Conditions, rows: int, columns: int) -> Candidates:
        usable = np.flatnonzero(conditions.kind != NULL)
        clause, column, row = conditions.clause[usable], conditions.column[usable], conditions.row[usable]
        key, at, group = np.unique(row * columns + column, return_index=True, return_inverse=True)
        once = np.unique(clause * columns + column, return_index=True)[1]  # a clause may have two of one column
        tested = np.bincount(group[once], minlength=len(key))
        needed = np.bincount(conditions.clause_row, minlength=rows)
        share = np.minimum(np.bincount(group[once], conditions.likelihood[usable][once], minlength=len(key)), 1.0)
        lo, hi = (ends[usable] for ends in conditions.hulls())
        low, high = np.full(len(key), np.iinfo(np.int64).max), np.full(len(key), -1)
        np.minimum.at(low, group, lo)
        np.maximum.at(high, group, hi)
        kept = tested == needed[row[at]]
        return cls(row[at][kept], column[at][kept], share[kept], (low + high)[kept])


@dataclass(frozen=True)
class Ordering:
    """By what subscriptions are sorted, so that neighbours ask for similar values of the same attribute.

    An event goes to all shards that have a subscription placed by one of its attributes, so few attributes should
    serve many subscriptions: columns are ranked by how many they serve, as long as they do so well.
    """

    rank: Array  # int64: of each column
    finest: Array  # float64: most levels of width in each column
    slack: tuple[float, float]

    @classmethod
    def of(cls, candidates: Candidates, rows: int, columns: int, shards: int, slack: tuple[float, float]) -> Ordering:
        unranked = cls(np.zeros(columns, np.int64), np.zeros(columns), slack)
        left = unranked._good(candidates, rows)
        served = np.bincount(candidates.column[left], minlength=columns)
        rank = columns + np.argsort(np.argsort(-served, kind="stable"))
        for step in range(min(columns, _TREES * shards)):
            if len(left) == 0:
                break
            column = np.bincount(candidates.column[left], 1 - candidates.share[left], minlength=columns).argmax()
            rank[column] = step
            has_one = np.zeros(rows, np.bool_)
            has_one[candidates.row[left[candidates.column[left] == column]]] = True
            left = left[~has_one[candidates.row[left]]]
        ranked = cls(rank, unranked.finest, slack)
        sizes = np.bincount(candidates.column[ranked._chosen(candidates, rows)], minlength=columns)
        # What is narrower than a shard's share of the values is narrow enough.
        return cls(rank, np.ceil(np.log2(sizes * shards / max(rows, 1) + 1)), slack)

    def keys(self, candidates: Candidates, rows: int) -> tuple[Array, tuple[Array, Array, Array]]:
        """The column that each subscription is placed by (-1: none), and its keys, the first one first."""
        chosen = self._chosen(candidates, rows)
        row, column = candidates.row[chosen], candidates.column[chosen]
        tree, rank = np.full(rows, NOWHERE), np.full(rows, 2 * len(self.rank))
        level, middle = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        tree[row], rank[row], middle[row] = column, self.rank[column], candidates.middle[chosen]
        # Wide conditions would widen every shard that they are spread over, so those of similar width stay together.
        width = np.floor(-np.log2(np.maximum(candidates.share[chosen], 1e-9)))
        level[row] = np.clip(width, 0, self.finest[column])
        return tree, (rank, level, middle)

    def _good(self, candidates: Candidates, rows: int) -> Array:
        """Numbers of the candidates that are nearly as good as a subscription's best."""
        best = np.full(rows, np.inf)
        np.minimum.at(best, candidates.row, candidates.share)
        return np.flatnonzero(candidates.share <= np.maximum(self.slack[0] * best[candidates.row], self.slack[1]))

    def _chosen(self, candidates: Candidates, rows: int) -> Array:
        """The good candidate of each subscription whose column has the lowest rank."""
        good = self._good(candidates, rows)
        order = good[np.lexsort((self.rank[candidates.column[good]], candidates.row[good]))]
        return order[np.unique(candidates.row[order], return_index=True)[1]]


def place(
    candidates: Candidates, rows: int, columns: int, shards: int, slack: tuple[float, float]
) -> tuple[Array, Array]:
    """The shard of each subscription, all of equal size, and the column that it is placed by (-1: none)."""
    tree, keys = Ordering.of(candidates, rows, columns, shards, slack).keys(candidates, rows)
    shard = np.empty(rows, np.int32)
    shard[np.lexsort(keys[::-1])] = np.arange(rows) * shards // max(rows, 1)
    return shard, tree
