"""Filters of a forwarding node: ranges of values, and who gets the values in them (Sieve, II-D, III-B and III-C).

A node with few filters sends some owners traffic that they do not need: the leak. It is the traffic in a filter times
its owners, minus what they are interested in; the latter does not depend on the filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.arrays import Array, pointers, spans
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.groups import Groups
from gpumatch.routing.sieve.values import integers_of, is_whole, numbered, on_line, one_line, values_of


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """Disjoint ranges, ascending, and the nodes that each forwards to: ``node[ptr[f] : ptr[f + 1]]``."""

    low: Array  # int64 or float64
    high: Array  # of the same type
    ptr: Array  # int64
    node: Array  # int32, ascending within a filter

    def __post_init__(self) -> None:
        low, high = one_line(self.low, self.high)
        ptr, node = integers_of(self.ptr, "ptr"), integers_of(self.node, "node")
        if not (low < high).all() or not (high[:-1] <= low[1:]).all():
            raise RoutingError("filters: expected non-empty ranges that do not overlap, in ascending order")
        if len(ptr) != len(low) + 1 or ptr[0] != 0 or ptr[-1] != len(node) or (np.diff(ptr) < 0).any():
            raise RoutingError(f"ptr: expected {len(low) + 1} offsets that rise from 0 to the {len(node)} nodes")
        number = np.repeat(np.arange(len(low)), np.diff(ptr))
        rises = (np.diff(node) > 0) | (np.diff(number) > 0)
        if not rises.all() or not ((node >= 0) & (node <= np.iinfo(np.int32).max)).all():
            raise RoutingError("node: expected numbers from 0 to 2**31 - 1, rising within each filter")
        for name, array in zip(("low", "high", "ptr", "node"), (low, high, ptr, node.astype(np.int32)), strict=True):
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.low)

    def nodes(self, number: int) -> Array:
        """The nodes that a filter forwards to."""
        number = numbered(number, len(self), "filter")
        found: Array = self.node[self.ptr[number] : self.ptr[number + 1]]
        return found

    def match(self, values: Any) -> Array:
        """The filter that each value passes, or -1. NaN passes none."""
        if not len(self):
            return np.full(len(values_of(values, "values")), -1)
        found = on_line(values, self.low)
        position = np.searchsorted(self.low, found, "right") - 1
        return np.where(found < self.high[position], position, -1)  # below all filters the position is that of the last

    def nodes_of(self, values: Any) -> tuple[Array, Array]:
        """The nodes that get each value: offsets, and nodes in the order of values."""
        number = self.match(values)
        begin = np.append(self.ptr[:-1], 0)[number]  # -1 is the end: no nodes
        lengths = np.append(np.diff(self.ptr), 0)[number]
        return pointers(lengths), self.node[spans(begin, lengths)]


def optimal_filters(groups: Groups, weights: Any, k: int) -> Filters:
    """At most ``k`` filters with the least possible leak, for traffic ``weights`` in each group.

    Exact up to the rounding of sums of weights; takes time of at most ``k`` times the square of the groups, and 12
    bytes of memory for each of ``k`` times the groups. There are no more filters than lower the leak, and none is wider
    than necessary: nobody is interested in its margins. If every stretch of groups with the same owners can have a
    filter of its own, it gets one, and there is no leak.
    """
    traffic = checked(groups, weights, k)
    first, last = blocks_of(groups)
    if len(first) <= k:
        return filters_of(groups, first, last)
    from gpumatch.kernels.leak import best_filters

    best, end = best_filters(*_sums(traffic, first, last), *_programme(groups, (first, last)), k)
    used = int(np.flatnonzero(best[:, 0] == best[k, 0])[0])
    starts, at = [], 0
    while at < len(first):
        starts.append(at)
        at = int(end[used + 1 - len(starts), at]) + 1
    return filters_of(groups, first[starts], last[np.array([*starts[1:], len(first)]) - 1])


def equal_width_filters(groups: Groups, k: int) -> Filters:
    """At most ``k`` filters of equal width between the outermost finite edges, cut at the next edge above.

    More filters than groups do not make them narrower.
    """
    k = min(_filters(k), max(len(groups), 1))
    finite = groups.edges[np.isfinite(groups.edges)].astype(np.float64)
    if len(finite) < 2:
        return _cut(groups, np.zeros(0, np.int64))
    share = np.arange(1, k) / k
    cuts = finite[0] * (1 - share) + finite[-1] * share
    return _cut(groups, np.searchsorted(groups.edges.astype(np.float64), cuts))


def equal_count_filters(groups: Groups, k: int) -> Filters:
    """At most ``k`` filters with equal numbers of the groups that somebody is interested in."""
    k = min(_filters(k), max(len(groups), 1))
    wanted = np.flatnonzero(groups.counts)
    return _cut(groups, wanted[len(wanted) * np.arange(1, k) // k] if len(wanted) else np.zeros(0, np.int64))


def leak(filters: Filters, groups: Groups, weights: Any) -> float:
    """Traffic that filters send to owners not interested in it. Filters must start and end at edges."""
    return float((surplus(filters, groups) * checked(groups, weights, 1)).sum())


def surplus(filters: Filters, groups: Groups) -> Array:
    """For each group, how many owners get its traffic from the filters without being interested."""
    if filters.node.max(initial=-1) >= groups.owners:
        raise RoutingError(f"filters: node {filters.node.max()} is none of the {groups.owners} owners of the groups")
    first, last = _edge_numbers(filters.low, groups), _edge_numbers(filters.high, groups) - 1
    sent = np.zeros(len(groups), np.int64)
    sent[spans(first, last - first + 1)] = np.repeat(np.diff(filters.ptr), last - first + 1)
    number, run = _meetings(groups, first, last)
    goes = number * groups.owners + groups.runs.owner[run]
    kept = np.repeat(np.arange(len(filters)), np.diff(filters.ptr)) * groups.owners + filters.node
    met = np.isin(goes, kept)
    number, run = number[met], run[met]
    begin = np.maximum(groups.runs.first[run], first[number])
    end = np.minimum(groups.runs.last[run], last[number]) + 1
    size = len(groups) + 1
    used = np.cumsum(np.bincount(begin, minlength=size) - np.bincount(end, minlength=size))
    return sent - used[:-1]


def filters_of(groups: Groups, first: Array, last: Array) -> Filters:
    """Filters over these spans of groups, each for all owners with an interest inside."""
    number, run = _meetings(groups, first, last)
    pairs = np.unique(number * max(groups.owners, 1) + groups.runs.owner[run])
    number, owner = pairs // max(groups.owners, 1), pairs % max(groups.owners, 1)
    ptr = pointers(np.bincount(number, minlength=len(first)))
    return Filters(groups.edges[first], groups.edges[last + 1], ptr, owner)


def _meetings(groups: Groups, first: Array, last: Array) -> tuple[Array, Array]:
    """Every pair of a filter and a run that meet, by number; filters are given as spans of groups, ascending."""
    low = np.searchsorted(last, groups.runs.first)
    count = np.maximum(np.searchsorted(first, groups.runs.last, "right") - low, 0)
    return spans(low, count), np.repeat(np.arange(len(low)), count)


def _cut(groups: Groups, starts: Array) -> Filters:
    """Filters that begin at these groups, some of which may be equal, without unwanted groups at both ends."""
    wanted = np.flatnonzero(groups.counts)
    number = np.searchsorted(np.sort(starts), wanted, "right")
    first = np.flatnonzero(np.diff(number, prepend=-1))
    last = np.append(first[1:], len(wanted))[: len(first)] - 1
    return filters_of(groups, wanted[first], wanted[last])


def _edge_numbers(bounds: Array, groups: Groups) -> Array:
    found = np.searchsorted(groups.edges, bounds)
    if (found == len(groups.edges)).any() or (groups.edges[found] != bounds).any():
        raise RoutingError("filters: expected bounds that are edges of the groups; build the filters from these groups")
    return found


def checked(groups: Groups, weights: Any, k: int) -> Array:
    """Weights as floats, one per group, after checking them and ``k``."""
    _filters(k)
    found = values_of(weights, "weights").astype(np.float64)
    if len(found) != len(groups):
        raise RoutingError(f"weights: expected {len(groups)}, one for each group, found {len(found)}")
    with np.errstate(over="ignore"):
        most = found.sum() * max(groups.owners, 1)
    if not (found >= 0).all() or not np.isfinite(most):
        raise RoutingError("weights: expected numbers from 0 whose sum is finite, for all owners together")
    return found


def _filters(k: int) -> int:
    if not is_whole(k) or k < 1:
        raise RoutingError(f"k: expected a number of filters from 1, found {k!r}")
    return k


def blocks_of(groups: Groups) -> tuple[Array, Array]:
    """First and last groups of the maximal stretches of groups that have the same owners, at least one.

    Cutting inside one never lowers the leak: whichever of the two filters has fewer owners should take all of it.
    """
    cuts = np.unique(np.concatenate([groups.runs.first, groups.runs.last + 1]))
    wanted = groups.counts[cuts[:-1]] > 0
    return cuts[:-1][wanted], cuts[1:][wanted] - 1


def _sums(traffic: Array, first: Array, last: Array) -> tuple[Array, Array]:
    """Traffic of each block, and between it and the previous block."""
    sizes = np.diff(np.column_stack([first, last + 1]).ravel())  # a block, a gap, a block
    found = np.bincount(np.repeat(np.arange(len(sizes)), sizes), traffic[first[0] : last[-1] + 1], len(sizes))
    return found[::2].copy(), np.append(0.0, found[1::2])


def _programme(groups: Groups, blocks: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    """Owners per block, and runs by the block that they end with: where the owner's next run starts."""
    first = np.searchsorted(blocks[0], groups.runs.first)
    last = np.searchsorted(blocks[1], groups.runs.last)
    following = np.full(len(first), len(blocks[0]) + 1)
    same = groups.runs.owner[:-1] == groups.runs.owner[1:]
    following[:-1][same] = first[1:][same]
    ptr = pointers(np.bincount(last, minlength=len(blocks[0])))
    return groups.counts[blocks[0]], ptr, following[np.argsort(last, kind="stable")]
