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
        having = np.bincount(group[once], minlength=len(key))
        needed = np.bincount(conditions.clause_row, minlength=rows)
        share = np.minimum(np.bincount(group[once], conditions.likelihood[usable][once], minlength=len(key)), 1.0)
        lo, hi = (ends[usable] for ends in conditions.hulls())
        low, high = np.full(len(key), np.iinfo(np.int64).max), np.full(len(key), -1)
        np.minimum.at(low, group, lo)
        np.maximum.at(high, group, hi)
        kept = having == needed[row[at]]
        return cls(row[at][kept], column[at][kept], share[kept], (low + high)[kept])


def trees(
    candidates: Candidates, rows: int, columns: int, shards: int, slack: tuple[float, float]
) -> tuple[Array, Array]:
    """For each subscription: the number of the candidate it is placed by (or -1), and the rank of its column.

    An event goes to all shards that have a subscription placed by one of its attributes, so few attributes should
    serve many subscriptions: columns are taken by how many they serve, as long as they do so well.
    """
    chosen, rank = np.full(rows, NOWHERE), np.full(rows, columns)
    best = np.full(rows, np.inf)
    np.minimum.at(best, candidates.row, candidates.share)
    good = candidates.share <= np.maximum(slack[0] * best[candidates.row], slack[1])
    left = np.flatnonzero(good)
    for step in range(min(columns, _TREES * shards)):
        if len(left) == 0:
            break
        served = np.bincount(candidates.column[left], 1 - candidates.share[left], minlength=columns)
        own = left[candidates.column[left] == served.argmax()]
        chosen[candidates.row[own]], rank[candidates.row[own]] = own, step
        left = left[chosen[candidates.row[left]] < 0]
    served = np.bincount(candidates.column[left], minlength=columns)
    order = left[np.lexsort((-served[candidates.column[left]], candidates.row[left]))]
    first = order[np.unique(candidates.row[order], return_index=True)[1]]
    chosen[candidates.row[first]] = first
    rank[candidates.row[first]] = columns + candidates.column[first]
    return chosen, rank


def place(
    candidates: Candidates, rows: int, columns: int, shards: int, slack: tuple[float, float]
) -> tuple[Array, Array]:
    """The shard of each subscription, all of equal size, and the column that it is placed by (-1: none)."""
    chosen, rank = trees(candidates, rows, columns, shards, slack)
    placed = chosen >= 0
    tree, share, middle = np.full(rows, NOWHERE), np.ones(rows), np.zeros(rows, np.int64)
    tree[placed], share[placed] = candidates.column[chosen[placed]], candidates.share[chosen[placed]]
    middle[placed] = candidates.middle[chosen[placed]]
    # Wide conditions would widen every shard that they are spread over, so those of similar width stay together. What
    # is narrower than a shard's share of the values is narrow enough.
    sizes = np.bincount(tree + 1, minlength=columns + 1)[tree + 1]
    finest = np.ceil(np.log2(sizes * shards / max(rows, 1) + 1))
    level = np.clip(np.floor(-np.log2(np.maximum(share, 1e-9))), 0, finest)
    order = np.lexsort((middle, level, np.where(placed, rank, 2 * columns)))
    shard = np.empty(rows, np.int32)
    shard[order] = np.arange(rows) * shards // max(rows, 1)
    return shard, tree
