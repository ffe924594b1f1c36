"""The dynamic programme for filters with the least leak, and the cost of joining groups in a filter (Sieve, III-C)."""

from __future__ import annotations

import numba
import numpy as np

from gpumatch.kernels.compile import driver, scalar

BLOCK = 256  # ends of a filter that are judged together


@numba.njit(nogil=True, fastmath={"nnan", "nsz"})  # a minimum is vectorised only if it may ignore NaN
def least(cost, rest, first, last):
    """The least of ``cost[j] + rest[j + 1]`` over a block of ends."""
    found = np.inf
    for j in range(first, last):
        found = min(found, cost[j] + rest[j + 1])
    return found


@scalar
def move_down(i, counts, run_ptr, run_next, fresh):
    """Let rows start at group ``i`` instead of ``i + 1``: ``fresh[j]`` owners are interested in ``j`` but none before.

    Owners of ``i`` continue in ``i + 1`` unless a run of theirs ends here; those reappear where their next one starts.
    """
    fresh[i] = counts[i]
    ending = run_ptr[i + 1] - run_ptr[i]
    fresh[i + 1] -= counts[i] - ending
    for r in range(run_ptr[i], run_ptr[i + 1]):
        fresh[run_next[r]] -= 1


@scalar
def cost_row(i, traffic, gap, counts, fresh, cost):
    """The leak of filters that start at group ``i``, by the group that they end with.

    One more group adds all traffic before it for its owners, and its own traffic for owners that do not want it.
    Nothing is subtracted, so small traffic counts in full wherever no large traffic leaks.
    """
    owners, before, leak = fresh[i], traffic[i], 0.0
    cost[i] = leak
    for j in range(i + 1, cost.size):
        before += gap[j]
        leak += owners * gap[j] + fresh[j] * before
        owners += fresh[j]
        leak += (owners - counts[j]) * traffic[j]
        before += traffic[j]
        cost[j] = leak


@driver
def best_filters(traffic, gap, counts, run_ptr, run_next, filters):
    """The least leak of groups ``i`` and above in at most ``f`` filters, and where the first of these filters ends.

    ``traffic`` is that of a group, ``gap`` the traffic between it and the one before, ``counts`` its owners. Runs are
    sorted by the group that they end with; ``run_next`` is where the owner's next run starts, or groups + 1 if none.
    The leak is not a Monge array, so every end may be the best. But it rises with a filter's end while that of the rest
    falls: the leak of a block's first end and of the rest after its last give a bound that rules out most blocks.
    """
    n = counts.size
    best = np.zeros((filters + 1, n + 1))
    end = np.empty((filters + 1, n), np.int32)
    fresh = np.zeros(n + 2, np.int64)
    cost = np.empty(n)
    for i in range(n - 1, -1, -1):
        move_down(i, counts, run_ptr, run_next, fresh)
        cost_row(i, traffic, gap, counts, fresh, cost)
        best[0, i] = np.inf
        for f in range(1, filters + 1):
            rest = best[f - 1]
            at = end[f, i + 1] if i < n - 1 else i
            found = cost[at] + rest[at + 1]
            for first in range(i, n, BLOCK):
                if cost[first] >= found:
                    break
                last = min(first + BLOCK, n)
                if cost[first] + rest[last] < found:
                    lowest = least(cost, rest, first, last)
                    if lowest < found:
                        found = lowest
                        at = first
                        while cost[at] + rest[at + 1] != found:
                            at += 1
            best[f, i] = max(found, best[f, i + 1])  # falls with i, however sums were rounded
            end[f, i] = at
    return best, end
