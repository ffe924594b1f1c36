"""Immutable segments: some subscriptions with their codebook, table and index, and how they are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import index as index_of
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch import index as indexes
from gpumatch.arrays import Array, bytes_of
from gpumatch.codes.book import BOOK_TYPES, Codebook
from gpumatch.codes.decode import decode_table
from gpumatch.codes.encode import EventEncoder, encode_packed, encode_single, likelihoods
from gpumatch.codes.table import TABLE_TYPES, CodedEvents, Table, encode_block
from gpumatch.errors import StorageError
from gpumatch.events.batch import EventBatch
from gpumatch.events.shapes import Packed
from gpumatch.events.single import Single
from gpumatch.index import FlatIndex, Input, Workspace, kind_of
from gpumatch.index.flat import Count
from gpumatch.index.planner import Choice, PlannedPart, Request, Usage, checked, choose, plain_choice
from gpumatch.parallel import threads
from gpumatch.store.checks import (
    REMOVED,
    check_columns,
    check_parts,
    check_safe,
    component,
    id_columns,
    ids_from,
    strings,
)
from gpumatch.store.ids import Lookup
from gpumatch.store.lazy import lazy
from gpumatch.store.removed import Removed
from gpumatch.store.room import Room
from gpumatch.store.source import Source
from gpumatch.subscriptions.block import Attributes
from gpumatch.subscriptions.destinations import Destinations

_MIN_CHUNK = 64  # events for which a separate thread pays
_COUNTED = 4096  # events of a chunk if matches are counted, not listed


@dataclass(frozen=True)
class Part:
    """The index of some of a segment's clauses, the reason for it, and what matching has cost so far."""

    index: FlatIndex
    choice: Choice
    usage: Usage = field(default_factory=Usage, compare=False)
    work: Workspace = field(default_factory=Workspace, compare=False)

    def planned(self, subscriptions: int) -> PlannedPart:
        """The entry in ``plan`` for this part and its number of live subscriptions."""
        choice, usage = self.choice, self.usage
        note = kind_of(choice.params).note(self.index)
        reason = f"{choice.reason}; {note}" if note else choice.reason
        measured = (usage.measured, usage.events)
        return PlannedPart(subscriptions, choice.params, reason, choice.estimate, *measured, choice.others)


@dataclass(frozen=True)
class Segment:
    """Indexed subscriptions. Immutable, except for the measured costs of matching."""

    ids: Any
    texts: Any
    attributes: Attributes
    book: Codebook
    table: Table
    parts: tuple[Part, ...]
    destinations: Destinations | None = None
    weights: Array | None = None
    fresh: Source | None = None  # what it was built from, if that was done in haste

    @classmethod
    def of_fresh(cls, source: Source, attributes: Attributes) -> Segment:
        """In the least time that lets subscriptions be found: nothing is planned, and they are scanned."""
        attributes = attributes.covering(source.block.columns)
        book, table = encode_block(source.block, attributes)
        choice = plain_choice(len(table.clause_row))
        given = Input(attributes, book, table, 0, len(table.clause_row))
        parts = [(choice.params, choice.clauses)]
        indexes.rank(parts, given, likelihoods(attributes, book, table, ()))
        table, _ = indexes.arrange(parts, given)
        built = indexes.build(choice.params, given._replace(table=table))
        named = (source.ids, source.texts, attributes, book, table)
        return cls(*named, (Part(built, choice),), source.destinations, source.weights, source)

    @classmethod
    def build(cls, source: Source, attributes: Attributes, request: Request, sample: Sequence[EventBatch]) -> Segment:
        """``sample``: events that show how often predicates hold; without any, their widths do."""
        attributes = attributes.covering(source.block.columns)
        book, table = encode_block(source.block, attributes)
        likelihood = likelihoods(attributes, book, table, sample)
        given = Input(attributes, book, table, 0, len(table.clause_row), sample)
        choices, timing = choose(request, given, likelihood)
        planned = [(choice.params, choice.clauses) for choice in choices]
        indexes.rank(planned, given, likelihood)
        del likelihood  # each of these takes as much memory as many an index
        table, bounds = indexes.arrange(planned, given)
        del given
        parts = []
        for choice, first, last in zip(choices, bounds[:-1], bounds[1:], strict=True):
            built = indexes.build(choice.params, Input(attributes, book, table, first, last, sample))
            parts.append(Part(built, checked(choice, built, table, timing)))
        return cls(source.ids, source.texts, attributes, book, table, tuple(parts), source.destinations, source.weights)

    def __len__(self) -> int:
        return self.table.length

    def rows_of_parts(self) -> list[Array]:
        """For each part, the rows that it holds a clause of; rows without any clause count with the first part."""
        marks = np.zeros((len(self.parts), len(self)), np.bool_)
        for number, part in enumerate(self.parts):
            marks[number, self.table.clause_row[part.index.first : part.index.last]] = True
        marks[0] |= ~marks.any(axis=0)
        return list(marks)

    @property
    def measured(self) -> float:
        """Microseconds per event that matching has taken so far; 0 if it was not matched on the CPU."""
        return sum(part.usage.measured or 0.0 for part in self.parts)

    @lazy
    def events(self) -> int:
        """How many events to match together."""
        return min(kind_of(part.index.params).events(part.index) for part in self.parts)

    @lazy
    def ascending(self) -> bool:
        """Are the rows that an event satisfies found in ascending order, without repeats?"""
        return len(self.parts) == 1 and bool(self.parts[0].index.meta.get("ascending"))

    @lazy
    def used(self) -> Array:
        """Which attributes predicates test."""
        used = np.zeros(len(self.attributes), np.bool_)
        used[self.table.columns()[0]] = True
        return used

    @lazy
    def lookup(self) -> Lookup:
        return Lookup(self.ids)

    def arrays(self) -> dict[str, Array]:
        """All arrays by name, for saving and for counting bytes."""
        named: dict[str, Array] = {}
        for prefix, owner in (("book", self.book), ("table", self.table)):
            named |= {f"{prefix}.{f.name}": getattr(owner, f.name) for f in fields(owner) if f.name != "length"}
        for number, part in enumerate(self.parts):
            named |= {f"index{number}.{name}": array for name, array in part.index.arrays.items()}
        return named

    def stats(self) -> dict[str, Any]:
        columns = (self.ids, self.texts, self.destinations, self.weights)
        held = sum(int(column.nbytes) for column in columns if column is not None)
        made = sum(part.index.nbytes - sum(it.nbytes for it in part.index.arrays.values()) for part in self.parts)
        parts = [
            {
                "index": part.index.params.kind,
                "clauses": part.index.last - part.index.first,
                "bytes": part.index.nbytes,
                **kind_of(part.index.params).facts(part.index, part.work.counters),
            }
            for part in self.parts
        ]
        return {
            "index": ", ".join(part["index"] for part in parts),
            "clauses": len(self.table.clause_row),
            "predicates": len(self.table.predicate) // 4,
            "programs": len(self.table.program_ptr) - 1,
            "postings": sum(part.get("postings", 0) for part in parts),
            "bytes": held + sum(array.nbytes for array in self.arrays().values()) + made,
            "parts": parts,
        }

    def stored(self, removed: Removed | None) -> tuple[dict[str, Any], dict[str, Array]]:
        """Facts and arrays for storage; ``segment_from`` reads them back."""
        parts = [
            {**part.choice.to_dict(), "first": index.first, "last": index.last, "meta": index.meta}
            for part, index in ((part, part.index) for part in self.parts)
        ]
        facts = {"length": len(self), "ids": str(self.ids.type), "parts": parts}
        if self.fresh is not None:
            facts["fresh"] = True
        arrays = self.arrays() | id_columns(self.ids)
        if self.texts is not None:
            arrays["texts.data"], arrays["texts.offsets"] = bytes_of(self.texts)
            arrays["texts.valid"] = self.texts.is_valid().to_numpy(zero_copy_only=False)
        if self.destinations is not None:
            arrays |= {f"destinations.{name}": array for name, array in self.destinations.arrays().items()}
        if self.weights is not None:
            arrays["weights"] = self.weights
        if removed is not None:
            arrays[REMOVED] = removed.mask
        return facts, arrays

    def source(self) -> Source:
        """The source that the segment was built from."""
        if self.fresh is not None:
            return self.fresh
        block = decode_table(self.attributes, self.book, self.table)
        return Source(self.ids, self.texts, block, self.destinations, self.weights)

    def match(
        self, batch: EventBatch, shared: Table | None = None, room: Room | None = None
    ) -> list[tuple[Array, Array]]:
        """Offsets and rows of consecutive chunks of the batch.

        ``shared``: the table with rows that stand for many subscriptions each, such as destinations. Once an event has
        such a row, it is not looked for again. ``room``: for the rows found.
        """
        once = shared is not None
        table, encode = self.table if shared is None else shared, self._encoder(batch)

        def match(chunk: tuple[int, int]) -> tuple[Array, Array]:
            found = self._match(encode(*chunk), chunk[1] - chunk[0], table, once)
            if room is not None:
                room.take(len(found[1]))
            return found

        most = self.events if room is None else min(self.events, room.at_once(len(self), threads.get_num_threads()))
        return threads.run(match, chunks(len(batch), most))

    def _encoder(self, batch: EventBatch) -> Callable[[int, int], CodedEvents]:
        """Encodes events ``start:stop`` of the batch; one event in as few calls as possible."""
        single = batch.single(self.attributes.schema)
        if single is not None:
            return lambda start, stop: encode_single(single, self.book, self.attributes)
        return EventEncoder(self.book, self.attributes, self.used, batch).encode

    @lazy
    def _counters(self) -> list[Count | None]:
        """For each part, what counts its matches without listing them, if anything does."""
        return [kind_of(part.index.params).count(part.index.params) for part in self.parts]

    @lazy
    def counts(self) -> bool:
        """Are matches counted without listing them all? Some index must do so, and rows have one clause at most."""
        return any(self._counters) and bool(np.bincount(self.table.clause_row).max(initial=0) <= 1)

    @lazy
    def asks_dead(self) -> bool:
        """Does any part want to know which of its clauses belong to removed rows?"""
        kinds = [(kind_of(part.index.params), part.index.params) for part in self.parts]
        return any(kind.count(params) or kind.any(params) for kind, params in kinds)

    @lazy
    def _counted_at_once(self) -> int:
        """How many events to count the matches of together: many, if none are listed."""
        return max(self.events, _COUNTED) if self.counts and all(self._counters) else self.events

    def count(self, batch: EventBatch, gone: Removed | None, dead: list[Array]) -> Array:
        """How many rows each event satisfies. ``dead``: for each part, a bit for each clause whose row is removed."""
        encode = self._encoder(batch)

        def count(chunk: tuple[int, int]) -> Array:
            events, counts = encode(*chunk), np.zeros(chunk[1] - chunk[0], np.int64)
            if not self.counts:
                return _counted(self._match(events, len(counts), self.table, False), gone)
            for number, bits in enumerate(dead):
                counts += self._count(number, events, gone, bits, np.zeros(0, np.int64))
            return counts

        counts = threads.run(count, chunks(len(batch), self._counted_at_once))
        return np.concatenate([np.zeros(0, np.int64), *counts])

    def totals(self, batch: EventBatch, dead: list[Array]) -> Array:
        """How many events satisfy each row; any number for removed rows."""
        encode, spare = self._encoder(batch), [self._no_totals()]

        def add(chunk: tuple[int, int]) -> None:
            events = encode(*chunk)
            try:
                own = spare.pop()
            except IndexError:  # other threads have them
                own = self._no_totals()
            if self.counts:
                for number, bits in enumerate(dead):
                    self._count(number, events, None, bits, own[number])
            else:
                rows = self._match(events, chunk[1] - chunk[0], self.table, False)[1]
                own[0] += np.bincount(rows, minlength=len(self))
            spare.append(own)

        threads.run(add, chunks(len(batch), self._counted_at_once))
        added: list[Array] = [np.sum(own, axis=0) if len(own) > 1 else own[0] for own in zip(*spare, strict=True)]
        if not self.counts:
            return added[0]
        totals = np.zeros(len(self), np.int64)
        for part, own in zip(self.parts, added, strict=True):
            totals[self.table.clause_row[part.index.first : part.index.last]] = own
        return totals

    def _no_totals(self) -> list[Array]:
        """Of the clauses of each part, if they are counted without listing them, or else of rows."""
        sizes = [part.index.last - part.index.first for part in self.parts] if self.counts else [len(self)]
        return [np.zeros(size, np.int64) for size in sizes]

    def _count(self, number: int, events: CodedEvents, gone: Removed | None, dead: Array, totals: Array) -> Array:
        """How many clauses of a part hold for each event; adds to ``totals``, unless empty, for how many each holds."""
        index, count = self.parts[number].index, self._counters[number]
        if count is not None:
            return count(index, self.attributes, self.table, events, dead, totals)
        found = indexes.match(index, self.attributes, self.table, events, False, self.parts[number].work)
        if len(totals):
            by_row = np.bincount(found[1], minlength=len(self))
            totals += by_row[self.table.clause_row[index.first : index.last]]
        return _counted(found, gone)

    def mark_any(self, batch: EventBatch, dead: list[Array], as_one: Callable[[], Table], found: Array) -> None:
        """Mark the events in ``found`` that satisfy any row; those that are marked already are passed over.

        ``dead``: see ``count``. ``as_one``: makes a table in which all rows that are not removed are the same.
        """
        encode = self._encoder(batch)
        finders = [kind_of(part.index.params).any(part.index.params) for part in self.parts]
        named = list(zip(self.parts, dead, finders, strict=True))

        def mark(chunk: tuple[int, int]) -> None:
            events, own = encode(*chunk), found[slice(*chunk)]
            for part, bits, find in named:
                if find is not None:
                    find(part.index, self.attributes, self.table, events, bits, own)
            for part, _, find in named:
                left = np.flatnonzero(~own)
                if find is None and len(left):
                    some = events if len(left) == len(own) else events.take(left)
                    ends = indexes.match(part.index, self.attributes, as_one(), some, True, part.work)[0]
                    own[left] = np.diff(ends) > 0

        threads.run(mark, chunks(len(batch), self.events))

    def _match(self, events: CodedEvents, count: int, table: Table, once: bool) -> tuple[Array, Array]:
        found = []
        for part in self.parts:
            started = part.usage.start()
            found.append(indexes.match(part.index, self.attributes, table, events, once, part.work))
            part.usage.stop(count, started)
        return indexes.merge(found)

    def rows_of_one(self, event: Packed, otherwise: Callable[[], Single]) -> Array:
        """The rows that one event satisfies. ``otherwise`` makes of it what can be encoded in any case."""
        coded = None if self.attributes.owners else encode_packed(event, self.book)
        if coded is None:
            coded = encode_single(otherwise(), self.book, self.attributes)
        return self._match(coded, 1, self.table, False)[1]


def _counted(found: tuple[Array, Array], gone: Removed | None) -> Array:
    """How many rows each event has that are not removed."""
    return np.diff(found[0] if gone is None else gone.kept(*found, 0)[0])


def segment_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Array], attributes: Attributes, full: bool = False
) -> tuple[Segment, Removed | None]:
    """The segment that ``Segment.stored`` wrote, and its removed rows. ``full``: all values are checked."""
    check_columns(facts, arrays, full)
    sizes = {"rows": int(facts["length"])}
    book = Codebook(**component(arrays, "book", BOOK_TYPES, sizes))
    attributes = attributes.covering(sizes["attributes"])
    if len(attributes) != sizes["attributes"]:
        found = f"the schema has {len(attributes)} attributes"
        raise StorageError(f"a saved index has cuts for {sizes['attributes']} attributes, {found}; build it again")
    table = Table(sizes["rows"], **component(arrays, "table", TABLE_TYPES, sizes))
    parts = []
    for number, part in enumerate(facts["parts"]):
        choice = Choice.from_dict(part)
        prefix = f"index{number}."
        named = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        index = FlatIndex(choice.params, index_of(part["first"]), index_of(part["last"]), named, dict(part["meta"]))
        parts.append(Part(kind_of(choice.params).checked(index, len(attributes)), choice))
    indexes = [part.index for part in parts]
    check_parts(indexes, sizes["clauses"])
    if full:
        check_safe(arrays, book, table, attributes, indexes)
    ids = ids_from(arrays)
    texts = None
    if "texts.data" in arrays:
        texts = pc.if_else(pa.array(arrays["texts.valid"]), strings(arrays, "texts"), None)
    weights = arrays.get("weights")
    segment = Segment(ids, texts, attributes, book, table, tuple(parts), _destinations(arrays), weights)
    if facts.get("fresh"):
        segment = replace(segment, fresh=segment.source())
    return segment, removed_from(arrays)


def removed_from(arrays: Mapping[str, Array]) -> Removed | None:
    return Removed.of(arrays[REMOVED]) if REMOVED in arrays else None


def check_kinds(segments: Sequence[Segment]) -> None:
    """Raise unless the ids of all segments have one type, and so have their destinations."""
    named = {"ids": [it.ids for it in segments if len(it)]}
    named["destinations"] = [it.destinations.names for it in segments if it.destinations is not None]
    for what, held in named.items():
        if len({str(names.type) for names in held}) > 1:
            raise StorageError(
                f"a saved index has {what} that are integers and others that are strings; build it again"
            )


def _destinations(arrays: Mapping[str, Array]) -> Destinations | None:
    if "destinations.number" not in arrays:
        return None
    integers = "destinations.names" in arrays
    names = pa.array(arrays["destinations.names"]) if integers else strings(arrays, "destinations")
    return Destinations(names, arrays["destinations.number"])


def chunks(count: int, most: int) -> list[tuple[int, int]]:
    """Bounds of pieces of a batch with at most ``most`` events each, at least one per thread if there are many."""
    size = min(max(-(-count // threads.get_num_threads()), _MIN_CHUNK), most)
    return [(start, min(start + size, count)) for start in range(0, count, size)]
