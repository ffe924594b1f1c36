"""Subscriptions over shards, and events to the shards that may match them (Sieve's attribute and value stages)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.codes.encode import likelihoods
from gpumatch.codes.table import encode_block
from gpumatch.errors import RoutingError
from gpumatch.events.batch import EventBatch
from gpumatch.results import Matches
from gpumatch.routing.sieve.filters import optimal_filters
from gpumatch.routing.sieve.groups import Groups
from gpumatch.routing.sieve.interest import Conditions, Lookup, column_interest, full_columns, value_stage
from gpumatch.routing.sieve.placing import NOWHERE, SLACKS, Candidates, place
from gpumatch.routing.sieve.routes import Coded, Coder, ColumnFilter, Routes, ShardRouter
from gpumatch.routing.sieve.selective import CostModel
from gpumatch.routing.sieve.values import is_whole
from gpumatch.store.source import Source, join_sources

if TYPE_CHECKING:
    from gpumatch.matcher import Matcher

_SAMPLE = 4096  # events for judging attributes
_ENTRIES = 1 << 21  # values of such events, if they are made up
_EDGES = 4096  # up to this many group ranges, filters are optimal
_UNSEEN = 0.05  # share of the traffic that no sample shows, spread over all values
_MOST = 1 << 16  # shards, each of which has a bit in many arrays
_CHEAP = CostModel(tf=1.0, tc=0.01, arrivals=1.0)


@dataclass(frozen=True)
class ShardReport:
    """The effect of a plan on events."""

    subscriptions: tuple[int, ...]  # of each shard
    events: int
    copies: int  # received by all shards together
    leaked: int  # of these, copies that filters without a limit would have held back
    dropped: int  # events that no shard receives
    busiest: int  # copies that the busiest shard receives

    def __repr__(self) -> str:
        few = f"{self.replication:.2f} copies of each of {self.events:,} events, {self.dropped:,} dropped"
        return f"<ShardReport: {self.shards} shards, {few}, leak {self.leak:.1%}, balance {self.balance:.2f}>"

    @property
    def shards(self) -> int:
        return len(self.subscriptions)

    @property
    def replication(self) -> float:
        """Copies of an event."""
        return self.copies / self.events if self.events else 0.0

    @property
    def leak(self) -> float:
        """Share of the copies that filters without a limit would have held back."""
        return self.leaked / self.copies if self.copies else 0.0

    @property
    def balance(self) -> float:
        """Copies of the busiest shard over those of the average one: 1 is best."""
        return self.busiest * self.shards / self.copies if self.copies else 1.0


class ShardPlan:
    """The shard of each subscription, and where events go; made by ``plan_shards``."""

    def __init__(
        self, matcher: Matcher, source: Source, placed: tuple[Array, Array], router: ShardRouter, exact: Routes
    ) -> None:
        """``placed``: shard and column of each subscription; ``exact``: routes without a limit on filters."""
        self._matcher, self._source, self._exact = matcher, source, exact
        self.shard, self._tree = placed
        self.router = router
        self.shards = router.shards

    def __repr__(self) -> str:
        return f"ShardPlan({len(self.shard):,} subscriptions over {self.shards} shards)"

    @property
    def filtered_by(self) -> list[str]:
        """The attributes that must all let an event pass, the most useful first; on top of those of ``placed_by``."""
        return [self.router.coder.names[one.column] for one in self.router.routes.columns]

    def placed_by(self, shard: int) -> list[str]:
        """The attributes by which a shard's subscriptions were chosen, the most frequent first."""
        if not 0 <= shard < self.shards:
            raise RoutingError(f"there is no shard {shard!r}: they are numbered 0 to {self.shards - 1}")
        columns, counts = np.unique(self._tree[self.shard == shard], return_counts=True)
        ranked = columns[np.argsort(-counts, kind="stable")]
        return [self.router.coder.names[column] for column in ranked.tolist() if column != NOWHERE]

    def to_arrow(self) -> Any:
        """A table of the columns ``id`` and ``shard``."""
        return pa.table({"id": self._source.ids, "shard": self.shard})

    def matchers(self) -> list[Matcher]:
        """A matcher for each shard, with the settings of the one that the plan was made from."""
        attributes = self.router.coder.attributes
        keeps = (self.shard == number for number in range(self.shards))
        return [self._matcher._subset(join_sources(attributes, [self._source], [keep])) for keep in keeps]

    def route(self, events: Any) -> Matches:
        """The shards that each event must be matched in: ``router.route``."""
        return self.router.route(events)

    def report(self, events: Any) -> ShardReport:
        """The effect of the plan on these events."""
        received = np.zeros(self.shards, np.int64)
        seen = leaked = dropped = 0
        routes = self.router.routes
        for some in self.router.coder.slices(events):
            passed = routes.unpacked(routes.passing(some))
            exact = routes.unpacked(self._exact.passing(some))
            received += passed.sum(axis=0)
            seen += len(some)
            leaked += int(np.count_nonzero(passed & ~exact))
            dropped += int(np.count_nonzero(~passed.any(axis=1)))
        sizes = tuple(np.bincount(self.shard, minlength=self.shards).tolist())
        return ShardReport(sizes, seen, int(received.sum()), leaked, dropped, int(received.max(initial=0)))


def plan_shards(
    matcher: Matcher,
    shards: int | None = None,
    capacity: int | None = None,
    events: Any = None,
    filters: int | None = None,
    cost: CostModel = _CHEAP,
) -> ShardPlan:
    """Split a matcher's subscriptions over shards of equal size, and make the filters that say which events go where.

    ``shards``: how many; or ``capacity``: most subscriptions per shard, from which the number of shards follows; or
    both. ``events``: a sample that shows which values are frequent, of which the first 8,192 count; without it every
    value between two constants is equally likely. ``filters``: how many an attribute may have; the best ones are
    chosen, and by default there is no limit and no leak. ``cost``: of a copy of an event (``tf``) and of testing an
    attribute of one (``tc``); an attribute is tested only if that pays.
    """
    _check(matcher, shards, capacity, filters, cost)
    source = matcher._source()
    attributes = matcher._attributes.covering(source.block.columns)
    count = _count(len(source), shards, capacity)
    book, table = encode_block(source.block, attributes)
    coder = Coder(attributes, book)
    known, judged = _halves(EventBatch.of([] if events is None else events, matcher.schema).to_host())
    conditions = Conditions.of(table, likelihoods(attributes, book, table, known))
    candidates = Candidates.of(conditions, len(source), len(attributes))
    sample = coder.encode(judged[0]) if judged else _made_up(coder)
    planners = [
        _Planner(coder, conditions, *place(candidates, len(source), len(attributes), count, slack), count, sample)
        for slack in SLACKS
    ]
    best = min(planners, key=_Planner.copies)
    exact = best.routes(None, cost)
    router = ShardRouter(coder, exact if filters is None else best.routes(filters, cost))
    return ShardPlan(matcher, source, (best.shard, best.tree), router, exact)


def _check(matcher: Any, shards: Any, capacity: Any, filters: Any, cost: Any) -> None:
    if not hasattr(matcher, "_source"):
        raise RoutingError(f"plan_shards needs a Matcher, found {_shown(matcher)}; gm.load opens a saved one")
    if not isinstance(cost, CostModel):
        raise RoutingError(f"cost must be a CostModel(tf, tc), found {_shown(cost)}")
    if shards is None and capacity is None:
        raise RoutingError("plan_shards needs the number of shards, the capacity of one, or both")
    for name, value in (("shards", shards), ("capacity", capacity), ("filters", filters)):
        if value is not None and not (is_whole(value) and value >= 1):
            raise RoutingError(f"{name} must be a whole number of at least 1, found {_shown(value)}")


def _shown(value: object) -> str:
    """The value found, in a few words: it may be a whole data set."""
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}…"


def _halves(batch: EventBatch) -> tuple[list[EventBatch], list[EventBatch]]:
    """Events to place subscriptions by, and others to judge the placement by: the same ones would flatter it."""
    length = min(len(batch), 2 * _SAMPLE)
    if length < 2:
        return ([batch], [batch]) if length else ([], [])
    return [batch.slice(0, length // 2)], [batch.slice(length // 2, length)]


def _made_up(coder: Coder) -> Coded:
    """Events with all attributes, where all codes are equally likely."""
    counts = coder.book.counts()
    events = max(1, min(_SAMPLE, _ENTRIES // max(len(counts), 1)))
    code = np.random.default_rng(0).integers(0, counts, (events, len(counts))).ravel()
    column = np.tile(np.arange(len(counts)), events)
    return Coded(np.arange(events + 1) * len(counts), column, code, coder.base[column] + code)


def _count(rows: int, shards: int | None, capacity: int | None) -> int:
    """How many shards there are."""
    least = 1 if capacity is None else max(1, -(-rows // int(capacity)))
    count = least if shards is None else int(shards)
    if count > _MOST:
        raise RoutingError(
            f"there may be at most {_MOST:,} shards, found {count:,}; ask for fewer, or a larger capacity"
        )
    if count < least:
        raise RoutingError(
            f"{rows:,} subscriptions do not fit into {shards} shards of at most {capacity:,}: these need {least}; "
            "raise shards or capacity"
        )
    return count


@dataclass(frozen=True)
class _Planner:
    """Makes routes, given the placement of subscriptions."""

    coder: Coder
    conditions: Conditions
    shard: Array
    tree: Array
    shards: int
    sample: Coded

    def copies(self) -> int:
        """Copies of the sample's events that the value stage alone would send."""
        return _copies(self._unbounded.wanted(self.sample))

    def routes(self, limit: int | None, cost: CostModel) -> Routes:
        """Routes with at most ``limit`` filters for each attribute."""
        routes = self._unbounded if limit is None else self._value_stage(limit)
        return replace(routes, columns=tuple(self._columns(routes, limit, cost)))

    @cached_property
    def _unbounded(self) -> Routes:
        return self._value_stage(None)

    def _value_stage(self, limit: int | None) -> Routes:
        always = np.zeros(self.shards, np.bool_)
        living = np.unique(self.conditions.clause_row)
        always[self.shard[living[self.tree[living] == NOWHERE]]] = True
        groups = value_stage(self.conditions, self.tree, self.coder.base, self.shard, self.shards)
        if limit is not None:
            groups = self._bounded_by_column(groups, limit)
        return Routes(np.packbits(always), Lookup.of(groups), (), self.shards)

    def _columns(self, routes: Routes, limit: int | None, cost: CostModel) -> Iterator[ColumnFilter]:
        """Filters that save more copies than testing them costs, found one after another."""
        passing = routes.wanted(self.sample)
        left = {one.column: (one, one.passing(self.sample)) for one in self._candidates(limit)}
        copies = _copies(passing)
        while left:
            column = min(left, key=lambda at: _copies(passing & left[at][1]))
            after = _copies(passing & left[column][1])
            if cost.time((copies - after) / max(len(self.sample), 1), 0) <= cost.time(0, 1):
                return
            one, bits = left.pop(column)
            passing, copies = passing & bits, after
            yield one

    def _candidates(self, limit: int | None) -> Iterator[ColumnFilter]:
        for column in full_columns(self.conditions, len(self.coder.attributes), self.shard, self.shards).tolist():
            codes = int(self.coder.book.counts()[column])
            groups, missing = column_interest(self.conditions, column, codes, self.shard, self.shards)
            if limit is not None:
                mine = self.sample.column == column
                groups = _bounded(groups, _below(self.sample.code[mine], codes), limit)
            yield ColumnFilter(column, Lookup.of(groups), np.packbits(missing))

    def _bounded_by_column(self, groups: Groups, limit: int) -> Groups:
        """The value stage with at most ``limit`` filters for each attribute."""
        below = _below(self.sample.positions, int(self.coder.base[-1]))
        column = np.searchsorted(self.coder.base, groups.edges, "right") - 1
        starts = np.flatnonzero(np.diff(column, prepend=-1)).tolist()
        ends = [
            _as_ranges(_bounded(groups.part(first, after - 2), below, limit))
            for first, after in pairwise([*starts, len(column)])
        ]
        low, high, owner = (np.concatenate(one) for one in zip(*ends, strict=True)) if ends else _as_ranges(groups)
        return Groups.of(low, high, owner, self.shards)


def _copies(bits: Array) -> int:
    return int(np.bitwise_count(bits).sum())


def _below(positions: Array, count: int) -> Array:
    """How much traffic lies below each of ``count`` positions, and below their end. Positions where none was seen get
    some, too: else a small sample would make one filter of all that it missed."""
    seen = np.bincount(positions, minlength=count)
    return np.concatenate([[0.0], np.cumsum(seen + (1 + _UNSEEN * len(positions)) / max(count, 1))])


def _bounded(groups: Groups, below: Array, limit: int) -> Groups:
    """Groups merged by the at most ``limit`` filters that leak least; ``below``: traffic below each position."""
    groups = _coarse(groups)
    found = optimal_filters(groups, np.diff(below[groups.edges]), limit)
    lengths = np.diff(found.ptr)
    return Groups.of(np.repeat(found.low, lengths), np.repeat(found.high, lengths), found.node, groups.owners)


def _as_ranges(groups: Groups) -> tuple[Array, Array, Array]:
    owner, first, last = groups.runs
    return groups.edges[first], groups.edges[last + 1], owner


def _coarse(groups: Groups) -> Groups:
    """The groups, or so few that the best filters are found quickly; ranges are widened to the edges that remain."""
    count = len(groups)
    if count <= _EDGES:
        return groups
    edges = groups.edges[np.unique(np.linspace(0, count, _EDGES + 1).astype(np.int64))]
    low, high, owner = _as_ranges(groups)
    low = edges[np.searchsorted(edges, low, "right") - 1]
    return Groups.of(low, edges[np.searchsorted(edges, high, "left")], owner, groups.owners)
