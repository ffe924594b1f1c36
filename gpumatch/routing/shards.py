"""Subscriptions over shards, and events to the shards that may match them (Sieve's attribute and value stages)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gpumatch.coded import EventEncoder, Table, encode_block, likelihoods
from gpumatch.codes import Codebook, pointers
from gpumatch.errors import RoutingError
from gpumatch.events import EventBatch
from gpumatch.predicates import Array, Attributes
from gpumatch.results import Matches
from gpumatch.routing.filters import optimal_filters
from gpumatch.routing.groups import Groups
from gpumatch.routing.interest import Conditions, Interest, interest_in
from gpumatch.routing.placing import Candidates, place
from gpumatch.routing.selective import CostModel
from gpumatch.segments import Source, join_sources

if TYPE_CHECKING:
    from gpumatch.matcher import Matcher

_SAMPLE = 4096  # events that attributes are judged by
_EDGES = 4096  # group ranges up to which filters are the best there are
_AT_ONCE = 8192  # events whose bits are held at a time
_CHEAP = CostModel(tf=1.0, tc=0.01, arrivals=1.0)


@dataclass(frozen=True)
class AttributeFilter:
    """Shards by the code of one column: row 0 is for events that lack it, row ``i + 1`` for codes from ``cuts[i]``."""

    column: int
    cuts: Array  # int64, ascending from 0
    rows: Array  # bool (filters + 1, shards)
    wanted: int  # filters that let something pass

    def numbers(self, codes: Array) -> Array:
        """The row of each code."""
        return np.searchsorted(self.cuts, codes, "right")


@dataclass(frozen=True)
class ShardReport:
    """What a plan does to events."""

    shards: int
    subscriptions: tuple[int, ...]  # of each shard
    events: int
    copies: int  # that all shards together receive
    leaked: int  # of these, those that filters without a limit would have held back
    dropped: int  # events that no shard receives
    busiest: int  # copies that the busiest shard receives

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

    def __init__(self, matcher: Matcher, coded: _Coded, shard: Array, tree: Array, filters: _Filters) -> None:
        self._matcher, self._coded = matcher, coded
        self.shard, self._tree, self._filters = shard, tree, filters
        self.shards = len(tree)

    def __repr__(self) -> str:
        names = ", ".join(self.attributes) or "no attribute"
        return f"ShardPlan({len(self.shard):,} subscriptions over {self.shards} shards, filtered by {names})"

    @property
    def attributes(self) -> list[str]:
        """The attributes that events are filtered by, the most useful first."""
        names = self._coded.names()
        return [names[one.column] for one in self._filters.bounded]

    @property
    def filters(self) -> dict[str, int]:
        """How many filters each of these attributes has."""
        return dict(zip(self.attributes, (one.wanted for one in self._filters.bounded), strict=True))

    def placed_by(self, shard: int) -> str | None:
        """The attribute by which a shard's subscriptions were chosen; None for those that none tells apart."""
        column = int(self._tree[shard])
        return None if column < 0 else self._coded.names()[column]

    def to_arrow(self) -> Any:
        """A table of the columns ``id`` and ``shard``."""
        return pa.table({"id": self._coded.source.ids, "shard": self.shard})

    def matchers(self) -> list[Matcher]:
        """A matcher for each shard, with the settings of the one that the plan was made from."""
        source = self._coded.source
        keeps = (self.shard == number for number in range(self.shards))
        return [self._matcher._part(join_sources(self._coded.attributes, [source], [keep])) for keep in keeps]

    def route(self, events: Any) -> Matches:
        """The shards that each event must be matched in; ids are the shards' numbers.

        No match is ever lost: a shard that is left out has no subscription that the event satisfies.
        """
        batch = EventBatch.of(events, self._matcher.schema).to_host()
        bits = [self._passing(self._filters.bounded, part) for part in _slices(batch)]
        counts = [part.sum(axis=1, dtype=np.int64) for part in bits]
        rows = [np.nonzero(part)[1].astype(np.int32) for part in bits]
        none: list[Array] = [np.zeros(0, np.int32)]
        return Matches(
            pointers(np.concatenate([*none, *counts])),
            np.concatenate([*none, *rows]),
            pa.array(np.arange(self.shards)),
            "shard",
        )

    def report(self, events: Any) -> ShardReport:
        """What the plan does to these events."""
        batch = EventBatch.of(events, self._matcher.schema).to_host()
        received = np.zeros(self.shards, np.int64)
        leaked = dropped = 0
        for part in _slices(batch):
            passed = self._passing(self._filters.bounded, part)
            exact = passed & self._passing(self._filters.exact, part)
            received += passed.sum(axis=0)
            leaked += int(passed.sum() - exact.sum())
            dropped += int(np.count_nonzero(~passed.any(axis=1)))
        sizes = tuple(np.bincount(self.shard, minlength=self.shards).tolist())
        copies, busiest = int(received.sum()), int(received.max(initial=0))
        return ShardReport(self.shards, sizes, len(batch), copies, leaked, dropped, busiest)

    def _passing(self, filters: Sequence[AttributeFilter], batch: EventBatch) -> Array:
        """Which shards each event passes to: those that all filters let it through to."""
        events = _encode(self._coded, batch)
        passing = np.tile(self._filters.filled, (len(batch), 1))
        for one in filters:
            passing &= one.rows[self._coded.rows_of(one, events)]
        return passing


@dataclass(frozen=True)
class _Coded:
    """The subscriptions in codes."""

    source: Source
    attributes: Attributes
    book: Codebook
    table: Table

    def names(self) -> list[str]:
        """Of all columns; behind the attributes come those that tell whether a list is there."""
        lists = [name for name, type in zip(*self._schema(), strict=True) if type.multi]
        return [*self.attributes.schema.names, *lists]

    def _schema(self) -> tuple[Sequence[str], Sequence[Any]]:
        return self.attributes.schema.names, self.attributes.schema.types

    def rows_of(self, one: AttributeFilter, events: tuple[Array, Array, Array]) -> Array:
        """The filter's row for each event."""
        ptr, column, code = events
        held = np.flatnonzero(column == one.column)
        event = np.searchsorted(ptr, held, "right") - 1
        numbers = np.zeros(len(ptr) - 1, np.int64)
        numbers[event] = one.numbers(code[held])
        return numbers


@dataclass(frozen=True)
class _Filters:
    """Of the attributes that pay, with as many filters as were asked for and as many as there can be."""

    filled: Array  # bool (shards,): has a subscription that can be true
    bounded: tuple[AttributeFilter, ...]
    exact: tuple[AttributeFilter, ...]


def plan_shards(
    matcher: Matcher,
    shards: int | None = None,
    capacity: int | None = None,
    events: Any = None,
    filters: int | None = None,
    cost: CostModel = _CHEAP,
) -> ShardPlan:
    """Split a matcher's subscriptions over shards, and make the filters that tell which events go to which.

    ``shards``: how many; or ``capacity``: subscriptions that a shard may hold, which then tells how many shards there
    are; or both. ``events``: a sample that tells which values are frequent; without it every value between two
    constants is as likely as any other. ``filters``: how many an attribute may have; the best ones are chosen, and by
    default there is no limit and no leak. ``cost``: of a copy of an event (``tf``) and of testing an attribute of one
    (``tc``); an attribute is tested only if that pays.
    """
    _check(shards, capacity, filters)
    source = matcher._source()
    book, table = encode_block(source.block, matcher._attributes)
    coded = _Coded(source, matcher._attributes, book, table)
    sample = [] if events is None else [EventBatch.of(events, matcher.schema).to_host()]
    sample = [batch.slice(0, min(len(batch), _SAMPLE)) for batch in sample if len(batch)]
    conditions = Conditions.of(table, likelihoods(matcher._attributes, book, table, sample))
    candidates = Candidates.of(conditions, len(source), len(matcher._attributes))
    shard, tree = place(candidates, len(source), len(matcher._attributes), shards, capacity)
    return ShardPlan(matcher, coded, shard, tree, _choose(coded, conditions, sample, shard, len(tree), filters, cost))


def _check(shards: int | None, capacity: int | None, filters: int | None) -> None:
    if shards is None and capacity is None:
        raise RoutingError("plan_shards needs the number of shards, the capacity of one, or both")
    for name, value in (("shards", shards), ("capacity", capacity), ("filters", filters)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise RoutingError(f"{name} is a whole number from 1 on, found {value!r}")


def _choose(
    coded: _Coded,
    conditions: Conditions,
    sample: Sequence[EventBatch],
    shard: Array,
    shards: int,
    limit: int | None,
    cost: CostModel,
) -> _Filters:
    """Filters of those attributes that save more copies than testing them costs, found one after another."""
    events = _encoded(coded, sample)
    exact: dict[int, AttributeFilter] = {}
    bounded: dict[int, AttributeFilter] = {}
    for column in conditions.columns.tolist():
        codes = int(coded.book.counts()[column])
        interest = interest_in(conditions, column, codes, shard, shards)
        if interest.wanted.all() and interest.missing.all():
            continue  # everybody wants everything
        exact[column] = _exact(column, interest, codes)
        weights = np.bincount(events[2][events[1] == column], minlength=codes).astype(np.float64)
        bounded[column] = exact[column] if limit is None else _bounded(column, interest, codes, weights, limit)
    filled = np.bincount(shard[conditions.clause_row], minlength=shards) > 0
    passing = np.tile(filled, (len(events[0]) - 1, 1))
    chosen: list[int] = []
    left = {column: one.rows[coded.rows_of(one, events)] for column, one in bounded.items()}
    while left:
        column, best = min(((at, passing & rows) for at, rows in left.items()), key=lambda pair: pair[1].sum())
        saved = (int(passing.sum()) - int(best.sum())) / max(len(passing), 1)
        if cost.time(saved, 0) <= cost.time(0, 1):
            break
        chosen.append(column)
        passing = best
        del left[column]
    return _Filters(filled, tuple(bounded[at] for at in chosen), tuple(exact[at] for at in chosen))


def _encoded(coded: _Coded, sample: Sequence[EventBatch]) -> tuple[Array, Array, Array]:
    """The sample in codes. Without any: made-up events that have all attributes, every code as likely as any other."""
    if sample:
        return _encode(coded, sample[0])
    counts = coded.book.counts()
    codes = np.random.default_rng(0).integers(0, counts, (_SAMPLE, len(counts)))
    ptr = np.arange(_SAMPLE + 1) * len(counts)
    return ptr, np.tile(np.arange(len(counts)), _SAMPLE), codes.ravel()


def _encode(coded: _Coded, batch: EventBatch) -> tuple[Array, Array, Array]:
    everything = np.ones(len(coded.attributes), np.bool_)
    return EventEncoder(coded.book, coded.attributes, everything, batch).encode(0, len(batch)).arrays()


def _exact(column: int, interest: Interest, codes: int) -> AttributeFilter:
    """A filter for each group range, and those between and around them that nobody wants."""
    edges = interest.groups.edges.astype(np.int64)
    cuts, rows = [edges], [interest.wanted]
    nobody = np.zeros((1, len(interest.missing)), np.bool_)
    if len(edges) == 0 or edges[0] > 0:
        cuts.insert(0, np.zeros(1, np.int64))
        rows.insert(0, nobody)
    if len(edges):
        rows.append(nobody)  # from the last edge on
    wanted = int(np.count_nonzero(interest.wanted.any(axis=1)))
    return AttributeFilter(column, np.concatenate(cuts), np.concatenate([interest.missing[None], *rows]), wanted)


def _bounded(column: int, interest: Interest, codes: int, weights: Array, limit: int) -> AttributeFilter:
    """The filters that leak least, if there may be but so many."""
    groups = _coarse(interest.groups, len(interest.missing))
    edges = groups.edges.astype(np.int64)
    below = np.concatenate([[0.0], np.cumsum(weights)])
    found = optimal_filters(groups, np.diff(below[edges]), limit)
    shards = len(interest.missing)
    starts, rows = [0], [interest.missing, np.zeros(shards, np.bool_)]
    for number in range(len(found.low)):
        row = np.zeros(shards, np.bool_)
        row[found.node[found.ptr[number] : found.ptr[number + 1]]] = True
        starts += [int(found.low[number]), int(found.high[number])]
        rows += [row, np.zeros(shards, np.bool_)]
    cuts, last = np.unique(np.array(starts)[::-1], return_index=True)  # of equal ones the last row counts
    kept = len(starts) - 1 - last
    return AttributeFilter(column, cuts, np.stack([rows[0], *(rows[1 + at] for at in kept.tolist())]), len(found.low))


def _coarse(groups: Groups, shards: int) -> Groups:
    """The groups, or so few that the best filters are found in little time; ranges are widened to edges that stay."""
    count = len(groups)
    if count <= _EDGES:
        return groups
    edges = groups.edges[np.unique(np.linspace(0, count, _EDGES + 1).astype(np.int64))]
    owner, first, last = groups.runs
    low = edges[np.searchsorted(edges, groups.edges[first], "right") - 1]
    high = edges[np.searchsorted(edges, groups.edges[last + 1], "left")]
    return Groups.of(low, high, owner, shards)


def _slices(batch: EventBatch) -> list[EventBatch]:
    return [batch.slice(start, min(start + _AT_ONCE, len(batch))) for start in range(0, len(batch), _AT_ONCE)]
