"""Filters in several stages, for less leak than the filters of one node can reach (Sieve, III-D).

The line is split into sections with equal numbers of groups. Each section has a node in the last stage, whose filters
lead to the leaves; the stages above lead to the node of the right section. Leaks add up over the nodes of a stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.filters import Filters, blocks_of, checked, leak, optimal_filters
from gpumatch.routing.sieve.groups import Groups
from gpumatch.routing.sieve.values import is_number, numbered, values_of


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Nodes side by side. Their sections of the line do not overlap, so the filters of all are kept in sequence."""

    filters: Filters  # they forward to nodes of the next stage, or to leaves
    ptr: Array  # int64, by node: where its filters start
    leak: float  # traffic that the next stage gets from this one but does not need

    @property
    def nodes(self) -> int:
        return len(self.ptr) - 1

    @property
    def space(self) -> Array:
        """Filters of each node."""
        return np.diff(self.ptr)

    def node(self, number: int) -> Filters:
        """The filters of one node."""
        number = numbered(number, self.nodes, "node")
        first, last = self.ptr[number], self.ptr[number + 1]
        ptr = self.filters.ptr[first : last + 1]
        low, high = self.filters.low[first:last], self.filters.high[first:last]
        return Filters(low, high, ptr - ptr[0], self.filters.node[ptr[0] : ptr[-1]])


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """From the root, which is the only node of the first stage, to the leaves."""

    stages: tuple[Stage, ...]
    leaves: int

    @property
    def nodes(self) -> list[int]:
        """Nodes by stage."""
        return [stage.nodes for stage in self.stages]

    @property
    def leak(self) -> list[float]:
        """Leak by stage; the last entry is the leak to the leaves."""
        return [stage.leak for stage in self.stages]

    def route(self, values: Any) -> tuple[Array, Array]:
        """The leaves that get each value: offsets, and leaves in the order of values."""
        given = values_of(values, "values")
        at, node = np.arange(len(given)), np.zeros(len(given), np.int64)  # which node has which value
        for stage in self.stages:
            owner = np.append(np.repeat(np.arange(stage.nodes), stage.space), -1)  # of each filter; -1: none passes
            mine = owner[stage.filters.match(given)[at]] == node
            at = at[mine]
            offsets, node = stage.filters.nodes_of(given[at])
            at = np.repeat(at, np.diff(offsets))
        return pointers(np.bincount(at, minlength=len(given))), node


def multi_stage(groups: Groups, weights: Any, k: int, max_leak: float = 0.0) -> Stages:
    """Stages of nodes with at most ``k`` filters each, as many as keep the leak to the leaves within bounds.

    ``max_leak`` is a share of all traffic: how many leaves get an event needlessly, on average. A bisection finds how
    many sections are enough; since sections are equal in groups, not in leak, fewer might do in rare cases.
    """
    traffic = checked(groups, weights, k)
    if not (is_number(max_leak) or max_leak == np.inf) or max_leak < 0:
        raise RoutingError(f"max_leak: expected a share of traffic from 0, found {max_leak!r}")
    bound = max_leak if max_leak == np.inf else max_leak * float(traffic.sum())
    blocks = blocks_of(groups)
    fails, enough = 0, max(-(-len(blocks[0]) // k), 1)  # enough for no leak: every block gets a filter
    found = _stage(groups, traffic, k, blocks, _split(len(blocks[0]), enough))
    while fails + 1 < enough:
        sections = (fails + enough) // 2 if fails else 1  # most lines need no sections at all
        tried = _stage(groups, traffic, k, blocks, _split(len(blocks[0]), sections))
        if tried.leak <= bound:
            found, enough = tried, sections
        else:
            fails = sections
    if enough > 1 and k < 2:
        raise RoutingError(
            f"k: routing to {enough} sections of the line takes 2 filters or more, found 1; or allow leak"
        )
    stages, sections_at = [found], _split(len(blocks[0]), enough)
    while stages[0].nodes > 1:
        below = _sections(groups, blocks, sections_at)
        sections_at = sections_at[_split(stages[0].nodes, -(-stages[0].nodes // k))]
        stages.insert(0, _stage(below, traffic, k, blocks, sections_at))
    return Stages(tuple(stages), groups.owners)


def _split(count: int, sections: int) -> Array:
    """Where each of ``sections`` sections of equal size starts, and the end."""
    return np.arange(sections + 1) * count // sections


def _sections(groups: Groups, blocks: tuple[Array, Array], sections_at: Array) -> Groups:
    """The same line with sections as owners: each is interested in what anybody in it is."""
    owner = np.repeat(np.arange(len(sections_at) - 1), np.diff(sections_at))
    return Groups.of_runs(groups.edges, owner, *blocks, len(sections_at) - 1)


def _stage(groups: Groups, traffic: Array, k: int, blocks: tuple[Array, Array], sections_at: Array) -> Stage:
    """A node for each section, with its best filters."""
    made, leaks = [], []
    for begin, end in zip(sections_at[:-1].tolist(), sections_at[1:].tolist(), strict=True):
        first, last = (int(blocks[0][begin]), int(blocks[1][end - 1])) if begin < end else (0, -1)
        own, weights = groups.part(first, last), traffic[first : last + 1]
        made.append(optimal_filters(own, weights, k))
        leaks.append(leak(made[-1], own, weights))
    low, high, node = (np.concatenate([getattr(one, name) for one in made]) for name in ("low", "high", "node"))
    counts = np.concatenate([np.diff(one.ptr) for one in made])
    return Stage(
        Filters(low, high, pointers(counts), node), pointers(np.array([len(one) for one in made])), float(sum(leaks))
    )
