"""Which shard each subscription goes to: those that ask for similar values of one attribute stay together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpumatch.errors import RoutingError
from gpumatch.predicates import NULL, Array
from gpumatch.routing.interest import Conditions

_ANYWHERE = -1  # the tree of subscriptions that no attribute's filter can tell apart
_LEAST = 0.5  # of a shard's fair share: attributes that fewer subscriptions would go by get no shard of their own


@dataclass(frozen=True)
class Candidates:
    """The attributes that a subscription may be placed by: all its clauses must have a condition on them."""

    row: Array
    column: Array
    share: Array  # of events that satisfy one of the conditions
    middle: Array  # of the codes that the conditions span

    @classmethod
    def of(cls, conditions: Conditions, rows: int, columns: int) -> Candidates:
        usable = np.flatnonzero(conditions.kind != NULL)
        clause, column = conditions.clause[usable], conditions.column[usable].astype(np.int64)
        row = conditions.clause_row[clause].astype(np.int64)
        key, at, group = np.unique(row * columns + column, return_index=True, return_inverse=True)
        once = np.unique(clause * columns + column, return_index=True)[1]  # a clause may say two things of a column
        held = np.bincount(group[once], minlength=len(key))
        needed = np.bincount(conditions.clause_row, minlength=rows)
        share = np.minimum(np.bincount(group[once], conditions.likelihood[usable][once], minlength=len(key)), 1.0)
        lo, hi = (ends[usable] for ends in conditions.hulls())
        low, high = np.full(len(key), np.iinfo(np.int64).max), np.full(len(key), -1)
        np.minimum.at(low, group, lo)
        np.maximum.at(high, group, hi)
        kept = held == needed[row[at]]
        return cls(row[at][kept], column[at][kept], share[kept], (low + high)[kept])


def trees(candidates: Candidates, rows: int, columns: int, shards: int) -> tuple[Array, Array, Array]:
    """The column that each subscription is placed by, its share of the events and the middle of its codes.

    That is the most selective one, among columns that enough subscriptions go by to fill a shard.
    """
    alive = np.ones(columns, np.bool_)
    least = _LEAST * rows / shards
    order = np.lexsort((candidates.share, candidates.row))
    row, column = candidates.row[order], candidates.column[order]
    while True:
        kept = np.flatnonzero(alive[column])
        first = kept[np.concatenate([[True], row[kept][1:] != row[kept][:-1]])] if len(kept) else kept
        sizes = np.bincount(column[first], minlength=columns)
        used = np.flatnonzero(sizes)
        small = used[sizes[used] < least]
        over = len(used) + (len(first) < rows) - shards  # a tree has a shard at least, and the rest needs one
        if len(small) == 0 and over <= 0:
            break
        by_size = used[np.argsort(sizes[used], kind="stable")]
        alive[by_size[: max(over, (len(small) + 1) // 2)]] = False
    tree, share, middle = np.full(rows, _ANYWHERE), np.ones(rows), np.zeros(rows, np.int64)
    chosen = order[first]
    tree[row[first]] = column[first]
    share[row[first]], middle[row[first]] = candidates.share[chosen], candidates.middle[chosen]
    return tree, share, middle


def allot(sizes: Array, shards: int | None, capacity: int | None) -> Array:
    """How many shards each tree gets: in proportion to its subscriptions, and so many that none holds too many."""
    least = np.ones(len(sizes), np.int64) if capacity is None else -(-sizes // capacity)
    if shards is None:
        return least
    if least.sum() > shards:
        raise RoutingError(
            f"{int(sizes.sum()):,} subscriptions do not fit into {shards} shards of at most {capacity:,}: these "
            f"need {int(least.sum())} shards; raise shards or capacity"
        )
    given: Array = least.copy()
    for _ in range(shards - int(least.sum())):
        given[np.argmax(sizes / given)] += 1
    return given


def place(
    candidates: Candidates, rows: int, columns: int, shards: int | None, capacity: int | None
) -> tuple[Array, Array]:
    """The shard of each subscription, and the column that each shard's subscriptions were placed by (-1: none)."""
    if rows == 0:
        return np.zeros(0, np.int32), np.full(shards or 1, _ANYWHERE)
    wanted = shards if shards is not None else max(1, -(-rows // (capacity or 1)))
    tree, share, middle = trees(candidates, rows, columns, wanted)
    names, numbers = np.unique(tree, return_inverse=True)
    given = allot(np.bincount(numbers, minlength=len(names)), shards, capacity)
    shard = np.empty(rows, np.int32)
    column = np.repeat(names, given)
    start = 0
    for number, count in enumerate(given.tolist()):
        own = np.flatnonzero(numbers == number)
        # Wide conditions would widen every shard that they are spread over: those of like width stay together. What
        # is narrower than a shard's part of the values is narrow enough.
        finest = int(count).bit_length()
        level = np.clip(-np.log2(np.maximum(share[own], 1e-9)), 0, finest).astype(np.int64)
        order = own[np.lexsort((middle[own], level))]
        shard[order] = start + np.arange(len(own)) * count // max(len(own), 1)
        start += count
    return shard, column
