"""Routing tables of expressions: a broker's L-SRT, R-SRT, L-PRT and R-PRT are four of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from gpumatch.errors import RoutingError
from gpumatch.events.batch import EventBatch
from gpumatch.expr import Expr
from gpumatch.matcher import Matcher
from gpumatch.routing.overlays.overlap import Overlaps, Prepared
from gpumatch.schema import SchemaLike


@dataclass(frozen=True, slots=True)
class Entry:
    """An advertisement or a subscription, and where it came from: a client or a broker."""

    id: Hashable
    source: Hashable
    prepared: Prepared

    @property
    def expression(self) -> Expr:
        return self.prepared.expression


class RoutingTable:
    """Expressions by id, each with its source. Events are matched by a ``Matcher``, made when first needed.

    Instead of a schema it takes an ``Overlaps`` over one: tables that share it prepare an expression once.
    """

    def __init__(self, schema: SchemaLike | Overlaps) -> None:
        self._overlaps = schema if isinstance(schema, Overlaps) else Overlaps(schema)
        self._entries: dict[Hashable, Entry] = {}
        self._matcher: Matcher | None = None
        # The matcher knows entries and sources by number, so that both may be anything hashable.
        self._rows: dict[Hashable, int] = {}
        self._ids: dict[int, Hashable] = {}
        self._sources: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self._new: dict[int, tuple[Expr, int]] = {}  # not yet added to the matcher
        self._gone: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def __getitem__(self, id: Hashable) -> Entry:
        if id not in self._entries:
            raise RoutingError(f"the routing table has no entry {id!r}")
        return self._entries[id]

    def __iter__(self) -> Iterator[Entry]:
        """The entries in insertion order."""
        return iter(list(self._entries.values()))

    def insert(self, id: Hashable, expression: Expr | str, source: Hashable) -> Entry:
        """Add an expression from this source; one that does not suit the schema is an error now."""
        if id in self._entries:
            raise RoutingError(f"the routing table already has an entry {id!r}; remove it first")
        entry = Entry(id, source, self._overlaps.prepare(expression))
        number = self._numbers.setdefault(source, len(self._sources))
        if number == len(self._sources):
            self._sources.append(source)
        row, self._next = self._next, self._next + 1
        self._entries[id], self._rows[id], self._ids[row] = entry, row, id
        self._new[row] = (entry.expression, number)
        return entry

    def remove(self, id: Hashable) -> Entry:
        """Remove an entry."""
        entry = self[id]
        del self._entries[id]
        row = self._rows.pop(id)
        del self._ids[row]
        if self._new.pop(row, None) is None:
            self._gone.append(row)
        return entry

    def match(self, events: Any) -> list[list[Hashable]]:
        """For each event the ids of the entries that it satisfies, in insertion order."""
        batch, matcher = self._ready(events)
        if matcher is None:
            return [[] for _ in range(len(batch))]
        return [[self._ids[int(row)] for row in rows] for rows in matcher.match(batch)]

    def sources(self, events: Any) -> list[list[Hashable]]:
        """For each event the distinct sources of the entries that it satisfies, in the order of their first entries."""
        batch, matcher = self._ready(events)
        if matcher is None:
            return [[] for _ in range(len(batch))]
        return [[self._sources[int(number)] for number in numbers] for numbers in matcher.destinations(batch)]

    def overlapping(self, expression: Expr | str | Prepared) -> list[Entry]:
        """The entries that some event could satisfy together with an expression, in insertion order."""
        prepared = expression if isinstance(expression, Prepared) else self._overlaps.prepare(expression)
        return [entry for entry in self._entries.values() if prepared.overlaps(entry.prepared)]

    def _ready(self, events: Any) -> tuple[EventBatch, Matcher | None]:
        """The events, and the up-to-date matcher if there is anything to match."""
        batch = EventBatch.of(events, self._overlaps.schema)
        if not self._entries:
            return batch, None
        if self._matcher is None:
            self._matcher = Matcher(self._overlaps.schema, device="cpu")
        if self._gone:
            self._matcher.remove(self._gone)
            self._gone = []
        if self._new:
            expressions = {row: expr for row, (expr, _) in self._new.items()}
            self._matcher.add(expressions, destination=[number for _, number in self._new.values()])
            self._new = {}
        return batch, self._matcher
