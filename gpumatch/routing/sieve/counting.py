"""Optimistic counting: which subscriptions a message matches, by counting the copies of it that arrive (Sieve, IV).

A subscriber's proxy gets a copy of a message from the tree of each attribute whose value is in a range that it
subscribed to. A subscription is matched when copies came from all of its subscribed trees; the message itself is parsed
only where some of its attributes were not subscribed. All here is state and time that is passed in: nothing waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gpumatch.codes import pointers, spans
from gpumatch.errors import RoutingError
from gpumatch.predicates import Array
from gpumatch.routing.sieve.groups import Groups, values_of
from gpumatch.routing.sieve.timers import TimerWheel

Number: TypeAlias = int | float
Ranges: TypeAlias = dict[Hashable, tuple[Number, Number]]  # by attribute, half-open
Message: TypeAlias = Mapping[Any, Any]  # value by attribute


class MessageCache:
    """Messages by id, from the first copy until ``timeout`` after it, each parsed once, when first asked for.

    It purges between ``timeout`` and ``timeout + resolution`` (a tenth of it if not given) after the message came.
    """

    def __init__(
        self, timeout: float, *, resolution: float | None = None, parse: Callable[[Any], Message] | None = None
    ) -> None:
        if not timeout > 0:
            raise RoutingError(f"timeout of messages: expected a time above 0, found {timeout!r}")
        self.timeout = timeout
        self.parses = 0  # how often a message was parsed
        self._parse = parse
        self._wheel: TimerWheel[Hashable] = TimerWheel(timeout / 10 if resolution is None else resolution)
        self._raw: dict[Hashable, Any] = {}
        self._parsed: dict[Hashable, Message] = {}

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._raw

    def add(self, message_id: Hashable, message: Any) -> bool:
        """Keep a message that comes now, which is when ``advance`` was last told; whether it was new."""
        if message_id in self._raw:
            return False
        self._wheel.add(message_id, self._wheel.now + self.timeout)
        self._raw[message_id] = message
        return True

    def parsed(self, message_id: Hashable) -> Message:
        """The values of a message by attribute."""
        if message_id not in self._raw:
            raise RoutingError(f"message {message_id!r} is not in the cache: it never came, or its time is over")
        if message_id not in self._parsed:
            self.parses += 1
            raw = self._raw[message_id]
            self._parsed[message_id] = raw if self._parse is None else self._parse(raw)
        return self._parsed[message_id]

    def advance(self, now: float) -> list[Hashable]:
        """Purge the messages whose time is over; their ids."""
        purged = self._wheel.advance(now)
        for message_id in purged:
            del self._raw[message_id]
            self._parsed.pop(message_id, None)
        return purged


class Row(NamedTuple):
    """A row of the matching table: a user's subscription."""

    id: Hashable
    attribute_count: int  # trees subscribed for it, and so copies that make a match
    full_match: bool  # whether these are all of its attributes
    subscribed: Ranges
    rest: Ranges  # its other attributes


class Counts(NamedTuple):
    """How many copies of a message each subscription counted, by message and then by subscription; none without any."""

    message: Array  # as given
    subscription: Array  # int64, place in the rows
    copies: Array  # int64


@dataclass(slots=True)
class _Table:
    """Of one tree: the group ranges that are subscribed to, and the rows of the subscriptions of each."""

    groups: Groups
    edges: list[Number]
    found: dict[int, list[int]] = field(default_factory=dict)  # rows by group, as they are asked for

    def rows(self, value: Number) -> list[int]:
        group = bisect_right(self.edges, value) - 1
        return self.of_group(group) if 0 <= group < len(self.groups) else []

    def of_group(self, group: int) -> list[int]:
        rows = self.found.get(group)
        if rows is None:
            rows = self.found[group] = self.groups.members(group).tolist()
        return rows


@dataclass(slots=True)
class _Pending:
    """Of one message: the trees that it came from, and counts by row that are not yet complete."""

    trees: set[Hashable] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)


class OptimisticCounter:
    """The matching unit of a subscriber's proxy.

    Where the paper keeps pending messages by subscription, each with a timer, here counts lie by message and end with
    it in the cache: one timer for all. They must not outlive the record of trees that a message came from, or a
    duplicate would be counted a second time.

    What comes within ``timeout`` of a message's first copy is counted, what comes more than ``timeout + resolution``
    after it is not: it is then a new message to us, as no trace of the old one is left. So a match is lost if its
    copies lie on both sides of the purge, and found again if copies of all its trees come again after it, never false.
    """

    def __init__(
        self, timeout: float, *, resolution: float | None = None, parse: Callable[[Any], Message] | None = None
    ) -> None:
        self.cache = MessageCache(timeout, resolution=resolution, parse=parse)
        self.rows: list[Row] = []
        self.increments = 0  # of counters: n2 of the cost model, summed over messages
        self.full_matches = 0  # of a message with a subscription: n1
        self._row: dict[Hashable, int] = {}
        self._tables: dict[Hashable, _Table] = {}
        self._pending: dict[Hashable, _Pending] = {}

    def subscribe(
        self,
        subscriptions: Mapping[Any, Mapping[Any, tuple[Number, Number]]],
        subscribed: Mapping[Any, Collection[Any]] | None = None,
    ) -> None:
        """Add subscriptions by id: a half-open range by attribute, all of which must hold.

        ``subscribed`` says by id on which attributes to subscribe; where an id is not in it, on all. All or nothing is
        added. New subscriptions count the copies that come from now on, also of messages that are under way.
        """
        chosen = {} if subscribed is None else subscribed
        unknown = next((user for user in chosen if user not in subscriptions), None)
        if unknown is not None:
            raise RoutingError(f"subscribed: {unknown!r} is none of the subscriptions given")
        new = [_row(user, ranges, chosen.get(user)) for user, ranges in subscriptions.items()]
        for row in new:
            if row.id in self._row:
                raise RoutingError(f"subscription {row.id!r} is there already")
        rows = self.rows + new
        tables = {tree: _table(tree, rows) for tree in dict.fromkeys(tree for row in new for tree in row.subscribed)}
        self._row.update((row.id, len(self.rows) + i) for i, row in enumerate(new))
        self.rows = rows
        self._tables.update(tables)

    @property
    def trees(self) -> list[Hashable]:
        """Attributes that are subscribed to."""
        return list(self._tables)

    def ranges(self, tree: Hashable) -> Array:
        """Edges of the group ranges subscribed to on a tree: what its root is told."""
        if tree not in self._tables:
            raise RoutingError(f"tree {tree!r}: nothing is subscribed to on it; there are {self.trees}")
        return self._tables[tree].groups.edges

    def row(self, subscription: Hashable) -> Row:
        if subscription not in self._row:
            raise RoutingError(f"subscription {subscription!r} is not there")
        return self.rows[self._row[subscription]]

    def pending(self, subscription: Hashable) -> dict[Hashable, int]:
        """Messages that came from some but not all of a subscription's trees, and from how many."""
        self.row(subscription)
        row = self._row[subscription]
        return {message: held.counts[row] for message, held in self._pending.items() if row in held.counts}

    def advance(self, now: float) -> list[Hashable]:
        """Forget messages and counts whose time is over; the ids of the messages."""
        purged = self.cache.advance(now)
        for message_id in purged:
            del self._pending[message_id]
        return purged

    def receive(self, tree: Hashable, message_id: Hashable, value: Any, message: Any, now: float) -> list[Hashable]:
        """A copy from a tree, with the value of its attribute as a label: the subscriptions that it completes.

        They come in the order in which they were added. A copy that none subscribed to, as leaks through filters do,
        leaves no trace; a second copy from the same tree counts no more.
        """
        self.advance(now)
        label, table = _number(value, tree), self._tables.get(tree)
        rows = table.rows(label) if table is not None and label is not None else []
        if not rows:
            return []
        if self.cache.add(message_id, message):
            self._pending[message_id] = _Pending()
        held = self._pending[message_id]
        if tree in held.trees:
            return []
        held.trees.add(tree)
        complete = self._count(held.counts, rows)
        return [self.rows[row].id for row in complete if self.rows[row].full_match or self._matches(row, message_id)]

    def _count(self, counts: dict[int, int], rows: list[int]) -> list[int]:
        """One more for each row; those that are complete with it."""
        self.increments += len(rows)
        complete = []
        for row in rows:
            count = counts.get(row, 0) + 1
            if count < self.rows[row].attribute_count:
                counts[row] = count
            else:
                counts.pop(row, None)
                complete.append(row)
        return complete

    def _matches(self, row: int, message_id: Hashable) -> bool:
        """Whether the attributes that are not subscribed hold as well."""
        self.full_matches += 1
        message = self.cache.parsed(message_id)
        for attribute, (low, high) in self.rows[row].rest.items():
            value = _number(message.get(attribute), attribute)
            if value is None or not low <= value < high:
                return False
        return True

    def counts(self, copies: Mapping[Any, tuple[Any, Any]]) -> Counts:
        """What copies count to that are all there, in bulk: by tree the numbers of messages and their values.

        A pure function of the subscriptions: no message is kept, none that is pending counts. A message that comes
        twice from a tree counts with its first value.
        """
        places, messages = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for tree, (numbers, values) in copies.items():
            distinct, first = np.unique(values_of(numbers, f"messages from {tree!r}"), return_index=True)
            labels = values_of(values, f"values from {tree!r}")
            if len(labels) != len(np.atleast_1d(numbers)):
                raise RoutingError(f"tree {tree!r}: expected a value for each message, found {len(labels)} values")
            table = self._tables.get(tree)
            if table is not None:
                message, row = _copies(table, distinct, labels[first])
                messages.append(message)
                places.append(row)
        place, message = np.concatenate(places), np.concatenate(messages)
        known, number = np.unique(message, return_inverse=True)
        pair, count = np.unique(number * len(self.rows) + place, return_counts=True)
        return Counts(known[pair // max(len(self.rows), 1)], pair % max(len(self.rows), 1), count)


def _copies(table: _Table, message: Array, values: Array) -> tuple[Array, Array]:
    """Message and row of each increment that values on one tree cause."""
    group = table.groups.locate(values)
    message, group = message[group >= 0], group[group >= 0]
    distinct, inverse = np.unique(group, return_inverse=True)
    lists = [table.of_group(one) for one in distinct.tolist()]
    lengths = np.array([len(rows) for rows in lists], np.int64)
    flat = np.array([row for rows in lists for row in rows], np.int64)
    at = spans(pointers(lengths)[:-1][inverse], lengths[inverse])
    return np.repeat(message, lengths[inverse]), flat[at]


def _row(user: Hashable, given: Mapping[Any, tuple[Any, Any]], subscribed: Iterable[Any] | None) -> Row:
    ranges: Ranges = {}
    for attribute, bounds in given.items():
        low, high = (_number(bound, attribute) for bound in bounds)
        if low is None or high is None or low > high:
            raise RoutingError(f"range on {attribute!r} of {user!r}: expected low <= high, found {bounds!r}")
        ranges[attribute] = (low, high)
    chosen = set(ranges if subscribed is None else subscribed)
    unknown = chosen - ranges.keys()
    if unknown:
        raise RoutingError(f"subscribed: {user!r} has no range on {sorted(map(repr, unknown))[0]}")
    if not chosen:
        raise RoutingError(f"subscription {user!r}: expected at least one attribute to subscribe on, found none")
    mine = {attribute: bounds for attribute, bounds in ranges.items() if attribute in chosen}
    rest = {attribute: bounds for attribute, bounds in ranges.items() if attribute not in chosen}
    return Row(user, len(mine), not rest, mine, rest)


def _table(tree: Hashable, rows: list[Row]) -> _Table:
    held = [(*row.subscribed[tree], i) for i, row in enumerate(rows) if tree in row.subscribed]
    lows, highs, owners = (list(column) for column in zip(*held, strict=True))
    line = _line(lows + highs, tree)
    groups = Groups.of(line[: len(lows)], line[len(lows) :], np.array(owners), len(rows))
    return _Table(groups, groups.edges.tolist())


def _line(bounds: list[Number], tree: Hashable) -> Array:
    """Bounds on one attribute as int64 or, if any is a float, as float64. None may change its value by that."""
    whole = all(isinstance(bound, int) for bound in bounds)
    try:
        line = np.array(bounds, np.int64 if whole else np.float64)
    except OverflowError:
        raise RoutingError(f"ranges on {tree!r}: expected integers that fit 64 bits with a sign") from None
    for bound, kept in zip(bounds, line.tolist(), strict=True):
        if bound != kept:
            raise RoutingError(f"ranges on {tree!r}: {bound} cannot meet float bounds exactly; give all as integers")
    return line


def _number(value: Any, name: Any) -> Number | None:
    """A value that compares exactly; None for one that is missing, as NaN is."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return None
    if not isinstance(value, (int, float)):
        raise RoutingError(f"value of {name!r}: expected a number, found {value!r}; give codes for other values")
    return None if value != value else value
