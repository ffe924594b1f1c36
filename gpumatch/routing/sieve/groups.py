"""Multicast group ranges: who is interested in which range of a line of values (Sieve, II-C and III).

All ranges are half-open, ``[low, high)``, over int64 or float64 values. A closed range of integers is ``[a, b + 1)``,
of floats ``[a, nextafter(b, inf))``; as no float lies above infinity, no range contains positive infinity itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.values import exact_floats, integers_of, is_whole, numbered, on_line, one_line, values_of


class Runs(NamedTuple):
    """Maximal stretches of adjacent groups that an owner is interested in, by owner and then ascending."""

    owner: Array  # int32
    first: Array  # int64, number of the first group
    last: Array  # int64, number of the last group


def aggregate(low: Any, high: Any) -> Array:
    """The distinct end points of the ranges, ascending: adjacent ones bound group ranges. Empty ranges have none."""
    low, high = one_line(low, high)
    some = low < high
    return np.unique(np.concatenate([low[some], high[some]]))


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Group ranges between adjacent edges, and which owners are interested in each.

    Owners are numbered from 0: nodes, shards, any receivers. Memory grows with the ranges, not with the members of
    groups, which may be as many as the square of it.
    """

    edges: Array  # int64 or float64, distinct and ascending, one more than there are groups; empty if there is no range
    runs: Runs
    owners: int  # how many there are, interested or not
    counts: Array  # int64, by group: how many owners are interested

    @classmethod
    def of(cls, low: Any, high: Any, owner: Any, owners: int | None = None) -> Groups:
        """From ranges and their owners. An owner may have many, which may overlap; an empty one may have any owner."""
        low, high = one_line(low, high)
        some = low < high
        owner, owners = _owners(owner, some, owners)
        low, high = low[some], high[some]
        edges = np.unique(np.concatenate([low, high]))
        first, last = np.searchsorted(edges, low), np.searchsorted(edges, high) - 1
        return cls.of_runs(edges, owner, first, last, owners)

    @classmethod
    def of_runs(cls, edges: Array, owner: Array, first: Array, last: Array, owners: int) -> Groups:
        """From runs of groups in any order; runs of one owner that touch or overlap are merged."""
        runs = _merge(owner, first, last, len(edges))
        return cls(edges, runs, owners, _count(runs, max(len(edges) - 1, 0)))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def state_space(self) -> int:
        """Members of all groups together."""
        return int(self.counts.sum())

    def members(self, group: int) -> Array:
        """The owners that are interested in a group, ascending."""
        group = numbered(group, len(self), "group")
        return self.runs.owner[(self.runs.first <= group) & (group <= self.runs.last)]

    def locate(self, values: Any) -> Array:
        """The group of each value, or -1 for values outside the edges and NaN."""
        return locate(self.edges, values)

    def spanned(self, low: Any, high: Any) -> Array:
        """How many of the group ranges each of these ranges meets: the paper's ``g'``."""
        low, high = one_line(low, high)
        if low.dtype.kind == "f" and self.edges.dtype.kind == "i":
            raise RoutingError("spanned: these groups are of integers, expected integer bounds, found floats")
        if self.edges.dtype.kind == "f":
            low, high = exact_floats(low, "low"), exact_floats(high, "high")
        below = np.searchsorted(self.edges, low, "right") - 1
        above = np.searchsorted(self.edges, high, "left")
        met = np.minimum(above, len(self)) - np.maximum(below, 0)
        return np.where(low < high, np.maximum(met, 0), 0)

    def part(self, first: int, last: int) -> Groups:
        """Only the groups ``first`` to ``last``, with the same owners."""
        met = (self.runs.last >= first) & (self.runs.first <= last)
        owner, begin, end = (column[met] for column in self.runs)
        runs = Runs(owner, np.maximum(begin, first) - first, np.minimum(end, last) - first)
        return Groups(self.edges[first : last + 2], runs, self.owners, self.counts[first : last + 1])


def locate(edges: Array, values: Any) -> Array:
    """The range between adjacent edges that holds each value, or -1 for values outside the edges and NaN."""
    if len(edges) < 2:
        return np.full(len(values_of(values, "values")), -1)
    found = on_line(values, edges)
    position = np.searchsorted(edges, found, "right") - 1
    return np.where(found < edges[-1], position, -1)


def _owners(owner: Any, some: Array, owners: int | None) -> tuple[Array, int]:
    """Owners as int32, one for each non-empty range, and how many there are."""
    given = integers_of(owner, "owner")
    if len(given) != len(some):
        raise RoutingError(f"owner: expected one for each of the {len(some)} ranges, found {len(given)}")
    if owners is None:
        owners = max(int(given.max(initial=-1)) + 1, 0)
    if not is_whole(owners) or not 0 <= owners <= np.iinfo(np.int32).max:
        raise RoutingError(f"owners: expected a number from 0 to 2**31 - 1, found {owners!r}")
    found = given[some]
    wrong = (found < 0) | (found >= owners)
    if wrong.any():
        raise RoutingError(f"owner: expected numbers from 0 to {owners - 1}, found {found[wrong.argmax()]}")
    return found.astype(np.int32), int(owners)


def _merge(owner: Array, first: Array, last: Array, edges: int) -> Runs:
    """Maximal runs, by owner and then ascending."""
    stride = edges + 1  # so that an owner's last group and the next owner's first are never adjacent
    start = owner.astype(np.int64) * stride + first
    order = np.argsort(start, kind="stable")
    start, end = start[order], (owner.astype(np.int64) * stride + last)[order]
    reached = np.maximum.accumulate(end)
    opens = np.flatnonzero(np.concatenate([np.ones(min(len(start), 1), bool), start[1:] > reached[:-1] + 1]))
    closes = np.append(opens[1:], len(start))[: len(opens)] - 1
    found = start[opens] // stride
    return Runs(found.astype(np.int32), start[opens] - found * stride, reached[closes] - found * stride)


def _count(runs: Runs, groups: int) -> Array:
    """For each group, how many runs go through it."""
    change = np.bincount(runs.first, minlength=groups + 1) - np.bincount(runs.last + 1, minlength=groups + 1)
    return np.cumsum(change[:groups])
