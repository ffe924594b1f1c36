"""Subscriptions over shards, and events to the shards that may match them (Sieve's attribute and value stages)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gpumatch.coded import EventEncoder, Table, encode_block, likelihoods
from gpumatch.codes import Codebook, pointers
from gpumatch.errors import RoutingError
from gpumatch.events import EventBatch
from gpumatch.predicates import Array, Attributes
from gpumatch.results import Matches
from gpumatch.routing.sieve.filters import optimal_filters
from gpumatch.routing.sieve.groups import Groups
from gpumatch.routing.sieve.interest import Conditions, Lookup, column_interest, full_columns, value_stage
from gpumatch.routing.sieve.placing import NOWHERE, SLACKS, Candidates, place
from gpumatch.routing.sieve.selective import CostModel
from gpumatch.segments import Source, join_sources

if TYPE_CHECKING:
    from gpumatch.matcher import Matcher

_SAMPLE = 4096  # events that attributes are judged by
_ENTRIES = 1 << 21  # values of such events, if they are made up
_EDGES = 4096  # group ranges up to which filters are the best there are
_AT_ONCE = 8192  # events whose bits are held at a time
_CHEAP = CostModel(tf=1.0, tc=0.01, arrivals=1.0)


@dataclass(frozen=True)
class ColumnFilter:
    """Who may have events by the code of one column, and who those that lack it."""

    column: int
    lookup: Lookup
    missing: Array  # uint8 (bytes,)

    def passing(self, events: Coded) -> Array:
        """The bits of each event."""
        bits = np.tile(self.missing, (len(events), 1))
        held = np.flatnonzero(events.column == self.column)
        bits[events.event[held]] = self.lookup.at(events.code[held])
        return bits


@dataclass(frozen=True)
class Routes:
    """What decides where an event goes: it must be wanted for a value by the value stage, and pass all columns."""

    always: Array  # uint8 (bytes,): shards with subscriptions that are placed by no attribute
    values: Lookup
    columns: tuple[ColumnFilter, ...]
    shards: int

    def passing(self, events: Coded) -> Array:
        """The bits of each event."""
        bits = self.wanted(events)
        for one in self.columns:
            bits &= one.passing(events)
        return bits

    def wanted(self, events: Coded) -> Array:
        """The bits of the value stage."""
        bits = np.tile(self.always, (len(events), 1))
        found = self.values.at(events.places)
        some = np.flatnonzero(np.diff(events.ptr))
        if len(some):
            bits[some] |= np.bitwise_or.reduceat(found, events.ptr[some], axis=0)
        return bits

    def unpacked(self, bits: Array) -> Array:
        """Bits as booleans (events, shards)."""
        return np.unpackbits(bits, axis=1, count=self.shards).view(np.bool_)


@dataclass(frozen=True)
class Coded:
    """Events in codes, and the places of these."""

    ptr: Array
    column: Array
    code: Array
    places: Array

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @cached_property
    def event(self) -> Array:
        """The event of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.ptr))


@dataclass(frozen=True)
class ShardReport:
    """What a plan does to events."""

    subscriptions: tuple[int, ...]  # of each shard
    events: int
    copies: int  # that all shards together receive
    leaked: int  # of these, those that filters without a limit would have held back
    dropped: int  # events that no shard receives
    busiest: int  # copies that the busiest shard receives

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
    """The shard of each subscription, and the filters that events go through; made by ``plan_shards``."""

    def __init__(
        self, matcher: Matcher, book: _Book, placed: tuple[Array, Array], routes: tuple[Routes, Routes]
    ) -> None:
        """``placed``: shard and column of each subscription; ``routes``: bounded as asked for, and without bounds."""
        self._matcher, self._book = matcher, book
        self.shard, self._tree = placed
        self._routes, self._exact = routes
        self.shards = self._routes.shards

    def __repr__(self) -> str:
        return f"ShardPlan({len(self.shard):,} subscriptions over {self.shards} shards)"

    @property
    def filtered_by(self) -> list[str]:
        """The attributes that all must let an event pass, the most useful first; beside those of ``placed_by``."""
        return [self._book.names[one.column] for one in self._routes.columns]

    def placed_by(self, shard: int) -> list[str]:
        """The attributes by which a shard's subscriptions were chosen, those of most of them first."""
        columns, counts = np.unique(self._tree[self.shard == shard], return_counts=True)
        ranked = columns[np.argsort(-counts, kind="stable")]
        return [self._book.names[column] for column in ranked.tolist() if column != NOWHERE]

    def to_arrow(self) -> Any:
        """A table of the columns ``id`` and ``shard``."""
        return pa.table({"id": self._book.source.ids, "shard": self.shard})

    def matchers(self) -> list[Matcher]:
        """A matcher for each shard, with the settings of the one that the plan was made from."""
        source, attributes = self._book.source, self._book.attributes
        keeps = (self.shard == number for number in range(self.shards))
        return [self._matcher._part(join_sources(attributes, [source], [keep])) for keep in keeps]

    def route(self, events: Any) -> Matches:
        """The shards that each event must be matched in; ids are the shards' numbers.

        No match is ever lost: a shard that is left out has no subscription that the event satisfies.
        """
        parts = [self._routes.unpacked(self._routes.passing(part)) for part in self._coded(events)]
        counts = [part.sum(axis=1, dtype=np.int64) for part in parts]
        rows = [np.nonzero(part)[1].astype(np.int32) for part in parts]
        none: list[Array] = [np.zeros(0, np.int32)]
        names = pa.array(np.arange(self.shards))
        return Matches(pointers(np.concatenate([*none, *counts])), np.concatenate([*none, *rows]), names, "shard")

    def report(self, events: Any) -> ShardReport:
        """What the plan does to these events."""
        received = np.zeros(self.shards, np.int64)
        seen = leaked = dropped = 0
        for part in self._coded(events):
            passed = self._routes.unpacked(self._routes.passing(part))
            exact = self._exact.unpacked(self._exact.passing(part))
            received += passed.sum(axis=0)
            seen += len(part)
            leaked += int(np.count_nonzero(passed & ~exact))
            dropped += int(np.count_nonzero(~passed.any(axis=1)))
        sizes = tuple(np.bincount(self.shard, minlength=self.shards).tolist())
        return ShardReport(sizes, seen, int(received.sum()), leaked, dropped, int(received.max(initial=0)))

    def _coded(self, events: Any) -> Iterator[Coded]:
        batch = EventBatch.of(events, self._matcher.schema).to_host()
        for start in range(0, len(batch), _AT_ONCE):
            yield self._book.encode(batch.slice(start, min(start + _AT_ONCE, len(batch))))


@dataclass(frozen=True)
class _Book:
    """The subscriptions in codes."""

    source: Source
    attributes: Attributes
    book: Codebook
    table: Table

    @cached_property
    def base(self) -> Array:
        """The place of each column's first code; one place is left between columns, so that no range reaches over."""
        return pointers(self.book.counts() + 1)

    @cached_property
    def names(self) -> list[str]:
        """Of all columns; behind the attributes come those that tell whether a list is there."""
        schema = self.attributes.schema
        lists = [name for name, type in zip(schema.names, schema.types, strict=True) if type.multi]
        return [*schema.names, *lists]

    def encode(self, batch: EventBatch) -> Coded:
        everything = np.ones(len(self.attributes), np.bool_)
        ptr, column, code = EventEncoder(self.book, self.attributes, everything, batch).encode(0, len(batch)).arrays()
        return Coded(ptr, column, code, self.base[column] + code)

    def sample(self, batches: Sequence[EventBatch]) -> Coded:
        """The batch in codes. Without any: made-up events with all attributes, each code as likely as any other."""
        if batches:
            return self.encode(batches[0])
        counts = self.book.counts()
        events = max(1, min(_SAMPLE, _ENTRIES // len(counts)))
        code = np.random.default_rng(0).integers(0, counts, (events, len(counts))).ravel()
        column = np.tile(np.arange(len(counts)), events)
        return Coded(np.arange(events + 1) * len(counts), column, code, self.base[column] + code)


def plan_shards(
    matcher: Matcher,
    shards: int | None = None,
    capacity: int | None = None,
    events: Any = None,
    filters: int | None = None,
    cost: CostModel = _CHEAP,
) -> ShardPlan:
    """Split a matcher's subscriptions over shards of one size, and make the filters that tell which events go where.

    ``shards``: how many; or ``capacity``: subscriptions that a shard may hold, which then tells how many shards there
    are; or both. ``events``: a sample that tells which values are frequent; without it every value between two
    constants is as likely as any other. ``filters``: how many an attribute may have; the best ones are chosen, and by
    default there is no limit and no leak. ``cost``: of a copy of an event (``tf``) and of testing an attribute of one
    (``tc``); an attribute is tested only if that pays.
    """
    _check(shards, capacity, filters)
    source, attributes = matcher._source(), matcher._attributes
    count = _count(len(source), shards, capacity)
    book = _Book(source, attributes, *encode_block(source.block, attributes))
    known, judged = _halves(EventBatch.of([] if events is None else events, matcher.schema).to_host())
    conditions = Conditions.of(book.table, likelihoods(attributes, book.book, book.table, known))
    candidates = Candidates.of(conditions, len(source), len(attributes))
    sample = book.sample(judged)
    planners = [
        _Planner(book, conditions, *place(candidates, len(source), len(attributes), count, slack), count, sample)
        for slack in SLACKS
    ]
    best = min(planners, key=_Planner.copies)
    exact = best.routes(None, cost)
    bounded = exact if filters is None else best.routes(filters, cost)
    return ShardPlan(matcher, book, (best.shard, best.tree), (bounded, exact))


def _check(shards: int | None, capacity: int | None, filters: int | None) -> None:
    if shards is None and capacity is None:
        raise RoutingError("plan_shards needs the number of shards, the capacity of one, or both")
    for name, value in (("shards", shards), ("capacity", capacity), ("filters", filters)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise RoutingError(f"{name} is a whole number from 1 on, found {value!r}")


def _halves(batch: EventBatch) -> tuple[list[EventBatch], list[EventBatch]]:
    """Events to place subscriptions by, and others to judge the places by: the same ones would flatter them."""
    length = min(len(batch), 2 * _SAMPLE)
    if length < 2:
        return ([batch], [batch]) if length else ([], [])
    return [batch.slice(0, length // 2)], [batch.slice(length // 2, length)]


def _count(rows: int, shards: int | None, capacity: int | None) -> int:
    """How many shards there are."""
    least = 1 if capacity is None else max(1, -(-rows // capacity))
    if shards is None:
        return least
    if shards < least:
        raise RoutingError(
            f"{rows:,} subscriptions do not fit into {shards} shards of at most {capacity:,}: these need {least}; "
            "raise shards or capacity"
        )
    return shards


@dataclass(frozen=True)
class _Planner:
    """Makes routes, given where subscriptions are."""

    book: _Book
    conditions: Conditions
    shard: Array
    tree: Array
    shards: int
    sample: Coded

    def copies(self) -> int:
        """Of the sample, as the value stage alone would have them."""
        return _copies(self._value_stage(None).wanted(self.sample))

    def routes(self, limit: int | None, cost: CostModel) -> Routes:
        """Of at most so many filters for each attribute."""
        routes = self._value_stage(limit)
        return replace(routes, columns=tuple(self._columns(routes, limit, cost)))

    def _value_stage(self, limit: int | None) -> Routes:
        always = np.zeros(self.shards, np.bool_)
        living = np.unique(self.conditions.clause_row)
        always[self.shard[living[self.tree[living] == NOWHERE]]] = True
        groups = value_stage(self.conditions, self.tree, self.book.base, self.shard, self.shards)
        if limit is not None:
            groups = self._bounded_by_column(groups, limit)
        return Routes(np.packbits(always), Lookup.of(groups), (), self.shards)

    def _columns(self, routes: Routes, limit: int | None, cost: CostModel) -> Iterator[ColumnFilter]:
        """Those that save more copies than testing them costs, found one after another."""
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
        for column in full_columns(self.conditions, len(self.book.attributes), self.shard, self.shards).tolist():
            codes = int(self.book.book.counts()[column])
            groups, missing = column_interest(self.conditions, column, codes, self.shard, self.shards)
            if limit is not None:
                mine = self.sample.column == column
                groups = _bounded(groups, _below(self.sample.code[mine], codes), limit)
            yield ColumnFilter(column, Lookup.of(groups), np.packbits(missing))

    def _bounded_by_column(self, groups: Groups, limit: int) -> Groups:
        """The value stage with at most so many filters for each attribute."""
        below = _below(self.sample.places, int(self.book.base[-1]))
        column = np.searchsorted(self.book.base, groups.edges, "right") - 1
        starts = np.flatnonzero(np.diff(column, prepend=-1)).tolist()
        parts = [
            _as_ranges(_bounded(groups.part(first, after - 2), below, limit))
            for first, after in pairwise([*starts, len(column)])
        ]
        low, high, owner = (np.concatenate(ends) for ends in zip(*parts, strict=True)) if parts else _as_ranges(groups)
        return Groups.of(low, high, owner, self.shards)


def _copies(bits: Array) -> int:
    return int(np.bitwise_count(bits).sum())


def _below(places: Array, count: int) -> Array:
    """How much lies below each of so many places, and below their end."""
    return pointers(np.bincount(places, minlength=count))


def _bounded(groups: Groups, below: Array, limit: int) -> Groups:
    """Groups as the filters that leak least have them, if there may be but so many; ``below`` tells the traffic."""
    groups = _coarse(groups)
    found = optimal_filters(groups, np.diff(below[groups.edges]), limit)
    lengths = np.diff(found.ptr)
    return Groups.of(np.repeat(found.low, lengths), np.repeat(found.high, lengths), found.node, groups.owners)


def _as_ranges(groups: Groups) -> tuple[Array, Array, Array]:
    owner, first, last = groups.runs
    return groups.edges[first], groups.edges[last + 1], owner


def _coarse(groups: Groups) -> Groups:
    """The groups, or so few that the best filters are found in little time; ranges are widened to edges that stay."""
    count = len(groups)
    if count <= _EDGES:
        return groups
    edges = groups.edges[np.unique(np.linspace(0, count, _EDGES + 1).astype(np.int64))]
    low, high, owner = _as_ranges(groups)
    low = edges[np.searchsorted(edges, low, "right") - 1]
    return Groups.of(low, edges[np.searchsorted(edges, high, "left")], owner, groups.owners)
