"""Optimistic counting: finds the subscriptions that a message matches by counting its copies (Sieve, IV).

A subscriber's proxy gets a copy of a message from the tree of each attribute whose value is in a range that it
subscribed to. A subscription is matched when copies came from all of its subscribed trees; the message itself is parsed
only if some of its attributes were not subscribed. Everything here is state and a time passed in: nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.timers import TimerWheel
from gpumatch.routing.sieve.trees import Number, Range, Tree, comparable, number_of, range_of
from gpumatch.routing.sieve.values import integers_of, is_number, values_of

Ranges: TypeAlias = dict[Hashable, Range]  # by attribute
Message: TypeAlias = Mapping[Any, Any]  # value by attribute


class MessageCache:
    """Messages by id, from the first copy until ``timeout`` after it, each parsed once, when first asked for.

    It purges between ``timeout`` and ``timeout + resolution`` (a tenth of it if not given) after the message came.
    The clock begins at ``start``.
    """

    def __init__(
        self,
        timeout: float,
        *,
        resolution: float | None = None,
        parse: Callable[[Any], Message] | None = None,
        start: float = 0,
    ) -> None:
        if not is_number(timeout) or timeout <= 0:
            raise RoutingError(f"timeout of messages: expected a finite time above 0, found {timeout!r}")
        self.timeout = timeout
        self.parses = 0  # how often a message was parsed
        self._parse = parse
        self._wheel: TimerWheel[Hashable] = TimerWheel(timeout / 10 if resolution is None else resolution, start=start)
        self._raw: dict[Hashable, Any] = {}
        self._parsed: dict[Hashable, Message] = {}

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._raw

    def add(self, message_id: Hashable, message: Any) -> bool:
        """Keep a message that comes now, at the time of the last ``advance``; returns whether it was new."""
        if message_id in self._raw:
            return False
        self._wheel.add(message_id, self._wheel.now + self.timeout)
        self._raw[message_id] = message
        return True

    def parsed(self, message_id: Hashable) -> Message:
        """The values of a message by attribute."""
        if message_id not in self._raw:
            raise RoutingError(f"message {message_id!r} is not in the cache: it never came, or has expired")
        if message_id not in self._parsed:
            raw = self._raw[message_id]
            self._parsed[message_id] = raw if self._parse is None else self._parse(raw)
            self.parses += 1
        return self._parsed[message_id]

    def discard(self, message_id: Hashable) -> None:
        """Forget a message before it expires, if it is known."""
        self._wheel.cancel(message_id)
        self._raw.pop(message_id, None)
        self._parsed.pop(message_id, None)

    def advance(self, now: float) -> list[Hashable]:
        """Purge the messages that have expired; returns their ids."""
        purged = self._wheel.advance(now)
        for message_id in purged:
            self.discard(message_id)
        return purged


class Row(NamedTuple):
    """A row of the matching table: a user's subscription."""

    id: Hashable
    attribute_count: int  # trees subscribed for it, and so the copies that make a match
    full_match: bool  # whether these are all of its attributes
    subscribed: Ranges
    rest: Ranges  # its other attributes


class Counts(NamedTuple):
    """How many copies of a message each subscription counted, by message and then by subscription, without zeros."""

    message: Array  # as given
    subscription: Array  # int64, index into the rows
    copies: Array  # int64


@dataclass(slots=True)
class _Pending:
    """For one message: the trees that it came from, and the counts by row that are not yet complete."""

    trees: set[Hashable] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)


class OptimisticCounter:
    """The matching unit of a subscriber's proxy.

    The paper keeps pending messages by subscription, each with a timer; here counts are kept by message and end with
    it in the cache: one timer for all. They must not outlive the record of trees that a message came from, or a
    duplicate would be counted twice.

    Copies within ``timeout`` of a message's first copy are counted; copies more than ``timeout + resolution`` after it
    start a new message, as no trace of the old one is left. So a match is lost if its copies lie on both sides of the
    purge, and found again if copies of all its trees come again after it, but it is never false.
    """

    def __init__(
        self,
        timeout: float,
        *,
        resolution: float | None = None,
        parse: Callable[[Any], Message] | None = None,
        start: float = 0,
    ) -> None:
        self.cache = MessageCache(timeout, resolution=resolution, parse=parse, start=start)
        self.increments = 0  # of counters: n2 of the cost model, summed over messages
        self.full_matches = 0  # of a message with a subscription: n1
        self._rows: dict[int, Row] = {}  # by ascending numbers, which are not reused
        self._next = 0
        self._number: dict[Hashable, int] = {}  # of a row, by id
        self._trees: dict[Hashable, Tree] = {}
        self._pending: dict[Hashable, _Pending] = {}

    def subscribe(
        self,
        subscriptions: Mapping[Any, Mapping[Any, tuple[Number, Number]]],
        subscribed: Mapping[Any, Collection[Any]] | None = None,
    ) -> None:
        """Add subscriptions by id: a half-open range by attribute, all of which must hold.

        ``subscribed`` says by id which attributes to subscribe to; for an id not in it, all. All or nothing is
        added. New subscriptions count copies from now on, including those of messages under way.
        """
        chosen = {} if subscribed is None else subscribed
        unknown = next((user for user in chosen if user not in subscriptions), None)
        if unknown is not None:
            raise RoutingError(f"subscribed: {unknown!r} is not one of the given subscriptions")
        new = [_row(user, ranges, chosen.get(user)) for user, ranges in subscriptions.items()]
        lines: dict[Hashable, list[Range]] = {}
        for row in new:
            if row.id in self._number:
                raise RoutingError(f"subscription {row.id!r} already exists")
            for name, bounds in row.subscribed.items():
                lines.setdefault(name, []).append(bounds)
        for name, ranges in lines.items():
            (self._trees.get(name) or Tree(name)).check(ranges)
        for row in new:
            self._number[row.id], self._rows[self._next] = self._next, row
            for name, bounds in row.subscribed.items():
                self._trees.setdefault(name, Tree(name)).add(self._next, bounds)
            self._next += 1

    def unsubscribe(self, subscription: Hashable) -> None:
        """Remove a subscription. What it counted is forgotten, even if it is added again."""
        row = self.row(subscription)
        number = self._number.pop(subscription)
        del self._rows[number]
        for name in row.subscribed:
            self._trees[name].remove(number)
            if not self._trees[name].ranges:
                del self._trees[name]
        for pending in self._pending.values():
            pending.counts.pop(number, None)

    @property
    def rows(self) -> list[Row]:
        """The matching table, in insertion order."""
        return list(self._rows.values())

    @property
    def trees(self) -> list[Hashable]:
        """Attributes subscribed to."""
        return list(self._trees)

    def ranges(self, tree: Hashable) -> Array:
        """Edges of the group ranges subscribed to on a tree, for its root."""
        if tree not in self._trees:
            raise RoutingError(f"tree {tree!r}: nothing is subscribed to on it; there are {self.trees}")
        return self._trees[tree].groups.edges

    def row(self, subscription: Hashable) -> Row:
        if subscription not in self._number:
            raise RoutingError(f"subscription {subscription!r} does not exist")
        return self._rows[self._number[subscription]]

    def pending(self, subscription: Hashable) -> dict[Hashable, int]:
        """Messages that came from some but not all of a subscription's trees, and from how many."""
        self.row(subscription)
        row = self._number[subscription]
        return {message: pending.counts[row] for message, pending in self._pending.items() if row in pending.counts}

    def advance(self, now: float) -> list[Hashable]:
        """Forget messages and counts that have expired; returns the ids of the messages."""
        purged = self.cache.advance(now)
        for message_id in purged:
            del self._pending[message_id]
        return purged

    def receive(self, tree: Hashable, message_id: Hashable, value: Any, message: Any, now: float) -> list[Hashable]:
        """A copy from a tree, with the value of its attribute as a label; returns the subscriptions that it completes.

        They come in insertion order. A copy that nobody subscribed to, such as a leak through filters, leaves no trace;
        a second copy from the same tree does not count. A copy whose message cannot be parsed leaves no trace either:
        it may come again.
        """
        self.advance(now)
        label, known = number_of(value, f"value of {tree!r}"), self._trees.get(tree)
        rows = known.rows(label) if known is not None and label is not None else []
        pending = self._pending.get(message_id, _Pending())
        if not rows or tree in pending.trees:
            return []
        more, complete = self._count(pending.counts, rows)
        is_new = self.cache.add(message_id, message)
        try:
            matched = [self._rows[row].id for row in complete if self._matches(row, message_id)]
        except BaseException:
            if is_new:
                self.cache.discard(message_id)
            raise
        pending.trees.add(tree)
        pending.counts.update(more)
        for row in complete:
            pending.counts.pop(row, None)
        self._pending[message_id] = pending
        self.increments += len(rows)
        self.full_matches += sum(not self._rows[row].full_match for row in complete)
        return matched

    def _count(self, counts: dict[int, int], rows: list[int]) -> tuple[dict[int, int], list[int]]:
        """Add one to each row: the counts of rows that this does not complete, and the rows that it does."""
        more, complete = {}, []
        for row in rows:
            count = counts.get(row, 0) + 1
            if count < self._rows[row].attribute_count:
                more[row] = count
            else:
                complete.append(row)
        return more, complete

    def _matches(self, row: int, message_id: Hashable) -> bool:
        """Whether the attributes that are not subscribed hold, too. A value that is not a number does not."""
        rest = self._rows[row].rest
        message = self.cache.parsed(message_id) if rest else {}
        for attribute, (low, high) in rest.items():
            value = comparable(message.get(attribute))
            if value is None or not low <= value < high:
                return False
        return True

    def counts(self, copies: Mapping[Any, tuple[Any, Any]]) -> Counts:
        """Counts of a complete set of copies, in bulk: by tree the numbers of messages and their values.

        A pure function of the subscriptions: no message is kept, and pending ones do not count. A message that comes
        twice from a tree counts with its first value.
        """
        rows, messages = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for name, (numbers, values) in copies.items():
            given, labels = integers_of(numbers, f"messages from {name!r}"), values_of(values, f"values from {name!r}")
            if len(labels) != len(given):
                raise RoutingError(f"tree {name!r}: expected a value for each message, found {len(labels)} values")
            distinct, first = np.unique(given, return_index=True)
            if name in self._trees:
                message, row = self._trees[name].copies(distinct, labels[first])
                messages.append(message)
                rows.append(row)
        row = np.searchsorted(np.array(list(self._rows), np.int64), np.concatenate(rows))
        known, number = np.unique(np.concatenate(messages), return_inverse=True)
        size = max(len(self._rows), 1)
        pair, count = np.unique(number * size + row, return_counts=True)
        return Counts(known[pair // size], pair % size, count)


def _row(user: Hashable, given: Mapping[Any, Any], subscribed: Iterable[Any] | None) -> Row:
    if not isinstance(given, Mapping):
        raise RoutingError(f"subscription {user!r}: expected ranges by attribute, found {given!r}")
    ranges: Ranges = {name: range_of(bounds, f"range on {name!r} of {user!r}") for name, bounds in given.items()}
    chosen = set(ranges if subscribed is None else subscribed)
    unknown = chosen - ranges.keys()
    if unknown:
        raise RoutingError(f"subscribed: {user!r} has no range on {sorted(map(repr, unknown))[0]}")
    if not chosen:
        raise RoutingError(f"subscription {user!r}: expected at least one attribute to subscribe on, found none")
    mine = {attribute: bounds for attribute, bounds in ranges.items() if attribute in chosen}
    rest = {attribute: bounds for attribute, bounds in ranges.items() if attribute not in chosen}
    return Row(user, len(mine), not rest, mine, rest)
