"""The facade: subscriptions in, events in, matches out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from gpumatch import explain as explaining
from gpumatch.arrays import Array
from gpumatch.codes.decode import expression_of
from gpumatch.device import resolve_device
from gpumatch.errors import GpumatchError, IdError, SchemaError, StorageError, UnknownIdError
from gpumatch.events.batch import EventBatch
from gpumatch.events.parquet import Parquet
from gpumatch.events.shapes import Shapes
from gpumatch.events.single import Single
from gpumatch.events.strangers import Spelling, Strangers
from gpumatch.expr import Expr, parse
from gpumatch.expr.times import zone_named
from gpumatch.index import IndexParams, kind_of
from gpumatch.index.planner import Plan, Request, checked_limit, requested_index, splitting_for
from gpumatch.results import Matches
from gpumatch.schema import Schema, SchemaLike
from gpumatch.store.folder import manifests
from gpumatch.store.folder import remote as storage
from gpumatch.store.folder.durable import Durable
from gpumatch.store.folder.follower import Follower
from gpumatch.store.segment import Segment
from gpumatch.store.snapshot import Engine, Host, Snapshot, ids_of_one, match_slices, slices
from gpumatch.store.source import Source
from gpumatch.store.store import Complete, Store, blamed
from gpumatch.subscriptions.block import Attributes, BlockBuilder
from gpumatch.subscriptions.destinations import Destinations
from gpumatch.subscriptions.intake import Rejected, arrow_table, bad_ids, id_array, id_problem
from gpumatch.subscriptions.longform import predicate_block
from gpumatch.subscriptions.ranges import range_block
from gpumatch.subscriptions.shares import shared_block
from gpumatch.subscriptions.weights import top_rows, weight_array

if TYPE_CHECKING:
    import pandas as pd

OnError = Literal["raise", "collect"]
Folder: TypeAlias = "Durable | Follower"
_IDS = 4096  # that iteration looks up together
_SAMPLE = 4096  # most observed events that are kept, the newest
_TRIED = 1 << 16  # subscriptions added to a matcher in use from which on the planner times indexes
_MET = 1024  # most matched events that are kept though nobody asked to observe them
_FEW = 64  # of these are too few to plan by


class Matcher:
    """Subscriptions over a schema's attributes, for matching events against them.

    ``index``: ``"auto"``, a name such as ``"gem"``, or parameters such as ``gm.Gem(cells=32)``. ``device``: ``"cpu"``,
    ``"cuda:N"``, or ``"auto"`` for the first CUDA device if there is one, else the CPU. ``memory_limit``: bytes that
    ``index="auto"`` may spend on the indexes of a segment, not counting predicates; if none is small enough it takes
    the smallest, and ``plan`` says so.
    Any number of threads may match while others change subscriptions; nobody waits for an index of what was added
    since the first search. ``background``: a thread merges what was added; otherwise the calls that add and remove do.
    """

    def __init__(
        self,
        schema: SchemaLike,
        index: str | IndexParams = "auto",
        device: str = "auto",
        memory_limit: int | None = None,
        background: bool = True,
    ) -> None:
        self.schema = Schema.of(schema)
        for name, kind in zip(self.schema.names, self.schema.types, strict=True):
            if kind.zone is not None:
                zone_named(kind.zone, name)  # an unknown zone should raise now, not at the first constant
        self._attributes = Attributes.of(self.schema)
        self._requested = requested_index(index)
        self._splitting = splitting_for(self._requested)
        self._memory_limit = checked_limit(memory_limit, self._requested)
        self.device, self._device_reason = resolve_device(device)
        if self.device != "cpu" and self._requested is not None:
            kind_of(self._requested).check_device()
        self._engine = _engine(self.device)
        self._background = background
        self._store = Store(self._attributes, self._build, background)
        self._folder: Folder | None = None
        self._observed: tuple[EventBatch, ...] = ()
        self._met: tuple[EventBatch, ...] = ()  # some events that were matched
        self._observing = threading.Lock()
        self._spelling = Spelling(self.schema)
        self._shapes = Shapes(self.schema)

    # Subscriptions in

    def add(
        self,
        subscriptions: Mapping[Any, str | Expr],
        on_error: OnError = "raise",
        destination: Any = None,
        weight: Any = None,
    ) -> list[Rejected]:
        """Add expressions by id, as text or built with ``col``. All are added or, on an error, none.

        With ``on_error="collect"`` the good ones are added and the bad ones returned. ``destination``, here and in the
        other methods that add: a string or an integer for all of them, or a list or array with one (or None) for each.
        ``weight``, likewise: a number by which ``top`` finds the heaviest.
        """
        _check_mapping("add", subscriptions)
        return self._add_expressions(list(subscriptions), list(subscriptions.values()), on_error, destination, weight)

    def add_table(
        self,
        table: Any,
        id: str = "id",
        where: str = "expr",
        on_error: OnError = "raise",
        destination: Any = None,
        weight: Any = None,
    ) -> list[Rejected]:
        """Add expressions from two columns of a table: Arrow, pandas, polars, or the path of a Parquet file."""
        found = arrow_table(table, [id, where])
        texts = found[where].to_pylist()
        return self._add_expressions(found[id].to_pylist(), texts, on_error, destination, weight)

    def add_ranges(
        self,
        ids: Any,
        ranges: Mapping[str, tuple[Any, Any]],
        closed: str = "both",
        on_error: OnError = "raise",
        destination: Any = None,
        weight: Any = None,
    ) -> list[Rejected]:
        """Add conjunctions of ranges from arrays: ``{"px": (low, high), …}``; NaN, None or NaT leaves a side open."""
        names = id_array(ids)
        block, errors = range_block(self._attributes, len(names), ranges, closed)
        destinations = Destinations.of(destination, len(names))
        source = Source(names, None, block, destinations, weight_array(weight, len(names)))
        return self._add_block(source, errors, on_error)

    def add_predicates(
        self, table: Any, on_error: OnError = "raise", destination: Any = None, weight: Any = None
    ) -> list[Rejected]:
        """Add from a table with a predicate per row: id, attribute, op, and value or values; those of an id are ANDed.

        A row may be an operator instead, after its operands: op is and, or, not, xor or xnor, attribute is null, value
        is the number of operands. Lists of destinations and weights have one for each id, in order of first occurrence.
        """
        names, texts, block, errors = predicate_block(self._attributes, arrow_table(table, []), self._splitting)
        destinations = Destinations.of(destination, len(names))
        source = Source(id_array(names), texts, block, destinations, weight_array(weight, len(names)))
        return self._add_block(source, errors, on_error)

    def _add_expressions(
        self, ids: list[Any], expressions: list[Any], on_error: OnError, destination: Any, weight: Any
    ) -> list[Rejected]:
        source, errors, rejected = self._read(ids, expressions, on_error, destination, weight)
        return rejected + self._add_block(source, errors, on_error)

    def _read(
        self, ids: list[Any], expressions: list[Any], on_error: OnError, destination: Any, weight: Any
    ) -> tuple[Source, dict[int, GpumatchError], list[Rejected]]:
        """Expressions as a source, the errors of its rows, and those left out for their ids if errors are collected."""
        _check_on_error(on_error)
        destinations, weights = Destinations.of(destination, len(ids)), weight_array(weight, len(ids))
        wrong = bad_ids(ids, self._store.id_type())
        if wrong and on_error == "raise":
            raise blamed(ids[min(wrong)], wrong[min(wrong)])
        rejected = [Rejected.of(ids[at], error) for at, error in wrong.items()]
        if wrong:
            good = [at for at in range(len(ids)) if at not in wrong]
            ids, expressions = [ids[at] for at in good], [expressions[at] for at in good]
            destinations = None if destinations is None else destinations.filter(np.array(good, np.int64))
            weights = None if weights is None else weights[good]
        texts = [str(given) if isinstance(given, Expr) else given for given in expressions]
        block, errors = shared_block(self._attributes, texts, self._splitting)
        right = pa.array([None if at in errors else text for at, text in enumerate(texts)], pa.large_string())
        return Source(id_array(ids), right, block, destinations, weights), errors, rejected

    def _add_block(self, source: Source, errors: Mapping[int, GpumatchError], on_error: OnError) -> list[Rejected]:
        _check_on_error(on_error)
        errors = self._store.add(source, errors, on_error == "collect")
        return [Rejected.of(source.ids[at].as_py(), errors[at]) for at in sorted(errors)]

    # Changes

    def remove(self, ids: Iterable[Any]) -> None:
        """Remove subscriptions; an unknown id is an error, and then none is removed."""
        names = _listed("remove", ids)
        if names:
            self._store.remove(self._existing(names))

    def replace(self, subscriptions: Mapping[Any, str | Expr]) -> None:
        """Change the expressions of existing ids; they keep destinations and weights, and move to the end."""
        _check_mapping("replace", subscriptions)
        self._existing(list(subscriptions))
        self._change(subscriptions, None, None, known=True)

    def upsert(self, subscriptions: Mapping[Any, str | Expr], destination: Any = None, weight: Any = None) -> None:
        """Add new subscriptions, and change the expressions of existing ids: all of them or, on an error, none.

        Existing ones keep their destinations and weights. ``destination`` and ``weight`` are for the new ones:
        one for all of them, or a list or array with one (or None) for each subscription of the call. All move to the
        end.
        """
        _check_mapping("upsert", subscriptions)
        self._change(subscriptions, destination, weight, known=False)

    def _change(self, subscriptions: Mapping[Any, str | Expr], destination: Any, weight: Any, known: bool) -> None:
        """Add expressions in the place of those with the same ids, which must all be there if they are ``known``."""
        if not subscriptions:
            return
        source, errors, _ = self._read(list(subscriptions), list(subscriptions.values()), "raise", None, None)
        _raise_first(source, errors)
        what, completed = "replace" if known else "upsert", _completed(source, (False, False), destination, weight)
        self._store.change(what, source.ids, completed, id_array([]), known)

    def change(
        self,
        upsert: Mapping[Any, str | Expr] | None = None,
        remove: Iterable[Any] = (),
        on_error: OnError = "raise",
        destination: Any = None,
        weight: Any = None,
    ) -> list[Rejected]:
        """Add, change and remove subscriptions in one step: readers, and the index in a folder, get all of it or none.

        A repeated call changes nothing: what ``upsert`` names stays where it is if it has the same text, destination
        and weight, and ids to remove need not be there. Existing ids keep their destinations and weights unless
        ``destination`` and ``weight`` are given. With ``on_error="collect"`` bad expressions are returned; their ids
        keep what they had.
        """
        return self._apply({} if upsert is None else upsert, remove, on_error, destination, weight)[0]

    def _apply(
        self,
        upsert: Mapping[Any, str | Expr],
        remove: Iterable[Any],
        on_error: OnError,
        destination: Any,
        weight: Any,
        drop: bool = False,
    ) -> tuple[list[Rejected], int, int]:
        """``change``; also how many subscriptions were put and removed. ``drop``: also remove what is rejected."""
        _check_mapping("change", upsert)
        source, errors, rejected = self._read(list(upsert), list(upsert.values()), on_error, destination, weight)
        if on_error == "raise":
            _raise_first(source, errors)
        bad = [Rejected.of(source.ids[at].as_py(), errors[at]) for at in sorted(errors)]
        names = _listed("change", remove)
        gone = id_array([*names, *(one.id for one in bad)] if drop else names)
        for name in names:
            if name in upsert:
                raise blamed(name, IdError(f"the id {name!r} is to be changed and to be removed; name it once"))
        good = self._store.without(source, errors)

        completed = _completed(good, (destination is not None, weight is not None))
        return rejected + bad, *self._store.change("change", good.ids, completed, gone, renew=False)

    def _gathering(self) -> Matcher:
        """An empty matcher, for subscriptions that arrive in several calls and are to be added in one, by ``_take``."""
        return Matcher(self.schema, "auto" if self._requested is None else self._requested, "cpu")

    def _conflicts(self, gathered: Matcher) -> list[Rejected]:
        """Those of another matcher that cannot be added to this one."""
        source = gathered._source()
        errors = self._store.conflicts(source)
        return [Rejected.of(source.ids[at].as_py(), errors[at]) for at in sorted(errors)]

    def _take(self, gathered: Matcher, upsert: bool, own: tuple[bool, bool]) -> None:
        """Add all of another matcher's subscriptions; those that cannot be added are left out, or changed: then they
        get the destinations and weights of the other one if these are ``own``.
        """
        source = gathered._source()
        if upsert and len(source):
            self._store.change("upsert", source.ids, _completed(source, own), id_array([]))
        elif len(source):
            self._add_block(source, {}, "collect")

    def _existing(self, ids: list[Any]) -> Any:
        """Ids as an Arrow array of the type of the existing ones; of another type there is none."""
        kind = self._store.id_type()
        alike = 0 if kind == pa.int64() else ""
        for name in ids:
            if kind is None or id_problem(name, alike):
                raise blamed(name, UnknownIdError(f"there is no subscription with the id {name!r}"))
        return pa.array(ids, kind)

    def compact(self) -> None:
        """Rebuild everything as one segment, without removed subscriptions, and planned by the events so far.

        These are the events given to ``observe``, or else some that were matched.
        """
        self._store.compact()
        if self._folder is not None:
            self._folder.fold()

    def _source(self) -> Source:
        """All live subscriptions, as if they had just been added."""
        found = self._store.source()
        return Source(id_array([]), None, BlockBuilder(self.schema).build(0)) if found is None else found

    def _subset(self, source: Source) -> Matcher:
        """A matcher like this one, with some of the subscriptions."""
        index = "auto" if self._requested is None else self._requested
        subset = Matcher(self.schema, index, self.device, self._memory_limit, self._background)
        subset._observed, subset._met = self._observed, self._met
        subset._store.append(source)
        subset._store.routes = self._store.routes
        return subset

    def observe(self, events: Any, strict: bool = False) -> None:
        """Learn from events how often predicates hold, for indexes built from now on, or by ``compact``."""
        batch = self._batch(events, strict).to_host()
        with self._observing:
            kept = [batch.slice(max(0, len(batch) - _SAMPLE), len(batch))]
            for old in reversed(self._observed):
                room = _SAMPLE - sum(map(len, kept))
                if room > 0:
                    kept.append(old.slice(max(0, len(old) - room), len(old)))
            self._observed = tuple([kept[0].copy(), *kept[1:]][::-1])

    def _build(self, source: Source, patient: bool) -> Segment:
        destinations = 0 if source.destinations is None else len(source.destinations.names)
        request = Request(self._requested, self._memory_limit, destinations, patient or len(source) >= _TRIED)
        met = self._met if sum(map(len, self._met)) >= _FEW else ()
        return Segment.build(source, self._attributes, request, self._observed or met)

    def _seal(self) -> Snapshot:
        return self._store.searchable()

    # Events in, matches out

    def match(self, events: Any, strict: bool = False) -> Matches:
        """The subscriptions that each event satisfies. See ``EventBatch.of`` for the forms that events may have.

        ``strict``, here and in the other methods to match: a key or column that is not an attribute is an error.
        Otherwise it is ignored, with a ``GpumatchWarning`` for the first key that is spelt nearly like an attribute.
        """
        batch = self._batch(events, strict)
        self._meet(batch)  # first, since the index may be built now
        return self._engine.match(self._seal(), batch)

    def _meet(self, batch: EventBatch) -> None:
        """Keep some of the first events, for "auto" to plan by if none are observed."""
        room = _MET - sum(map(len, self._met))
        if room > 0 and len(batch) > 1 and self._requested is None and not batch.on_device:
            self._met = (*self._met, batch.slice(0, room).copy())

    def match_one(self, event: Mapping[str, Any] | pd.Series, strict: bool = False) -> list[int | str]:
        """The ids of the subscriptions that one event satisfies: a dict, or a pandas Series."""
        if type(event) is dict and self.device == "cpu":
            shape = self._shapes.find(event, strict)
            if shape is not None and (packed := shape.packed(event)) is not None:
                ids = ids_of_one(self._seal(), packed, lambda: Single.of(event, self.schema))
                shape.free.append(packed)
                return ids
        found = self.match([event], strict).ids(0)
        if type(event) is dict:
            self._shapes.meet(event)
        return found

    def match_iter(self, events: Any, strict: bool = False) -> Iterator[Matches]:
        """Results of consecutive slices of the events, in order: for results that do not fit in memory together.

        Nor do the events of a Parquet file or of a RecordBatchReader have to.
        """
        return match_slices(self._engine, self._seal(), self._batches(events, strict))

    def _batch(self, events: Any, strict: bool) -> EventBatch:
        if strict or self._spelling.warned or not isinstance(events, (list, tuple, Mapping)):
            return EventBatch.of(events, self.schema, strict)  # tables may well have other columns
        strangers: Strangers = {}
        batch = EventBatch.noting(events, self.schema, strangers)
        if strangers:
            self._spelling.look(strangers, events)
        return batch

    def _batches(self, events: Any, strict: bool) -> Iterable[EventBatch]:
        if isinstance(events, (str, os.PathLike)):
            events = Parquet(events, self.schema)
        if not isinstance(events, (pa.RecordBatchReader, Parquet)):
            return [self._batch(events, strict)]
        if strict:  # raises now, not at the first batch
            EventBatch.of(events.schema.empty_table(), self.schema, strict)
        batches = events.batches() if isinstance(events, Parquet) else events
        return (EventBatch.of(data, self.schema) for data in batches)

    def count(self, events: Any, strict: bool = False) -> Array:
        """How many subscriptions each event satisfies."""
        snapshot = self._seal()
        counts = [self._engine.count(snapshot, batch) for batch in slices(self._batches(events, strict))]
        return np.concatenate(counts) if counts else np.zeros(0, np.int64)

    def count_subscriptions(self, events: Any, strict: bool = False) -> Array:
        """How many events satisfy each subscription, in the order of ``ids``."""
        snapshot = self._seal()
        totals = np.zeros(len(snapshot), np.int64)
        for batch in slices(self._batches(events, strict)):
            totals += self._engine.totals(snapshot, batch)
        return totals

    def any(self, events: Any, strict: bool = False) -> Array:
        """Whether each event satisfies any subscription; stops at the first one."""
        snapshot = self._seal()
        found = [self._engine.any(snapshot, batch) for batch in self._batches(events, strict)]
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def destinations(self, events: Any, strict: bool = False) -> Matches:
        """The distinct destinations of the subscriptions that each event satisfies.

        They are in the order of their first subscriptions in ``ids``. Once found, a destination is not looked for
        again, so this is faster than ``match``.
        """
        batch = self._batch(events, strict)
        snapshot = self._seal()
        if snapshot.destinations is None and not self._store.routes:
            raise SchemaError("no subscription has a destination; add them with one: add({…}, destination='d1')")
        if snapshot.destinations is None:  # no longer
            return Matches(
                np.zeros(len(batch) + 1, np.int64), np.zeros(0, np.int32), pa.array([], pa.int64()), "destination"
            )
        offsets, rows = self._engine.match_shared(snapshot, snapshot.by_destination, batch)
        return Matches(offsets, rows, snapshot.destinations.names, "destination")

    def top(self, events: Any, most: int, strict: bool = False) -> Matches:
        """The heaviest subscriptions that each event satisfies, at most ``most``, the heaviest first.

        Equal weights are ordered by id; subscriptions without a weight, or with NaN, come last.
        """
        if isinstance(most, bool) or not isinstance(most, (int, np.integer)) or most < 1:
            raise ValueError(f"top takes a whole number of at least 1, found {most!r}")
        snapshot = self._seal()
        offsets, rows = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for found in match_slices(self._engine, snapshot, self._batches(events, strict)):
            ends, chosen = top_rows(found.offsets, found.rows, snapshot.ranks(found.rows), int(most))
            offsets.append(ends[1:] + offsets[-1][-1])
            rows.append(chosen)
        return Matches(np.concatenate(offsets), np.concatenate(rows), snapshot.ids)

    def explain(self, event: Mapping[str, Any] | pd.Series, id: Any) -> explaining.Explanation:
        """Why a subscription does or does not match an event."""
        row = self._batch([event], strict=False).row(0)
        return explaining.explain(id, self[id], row, self.schema)

    def _expression(self, segment: Segment, row: int) -> Expr:
        text = None if segment.texts is None else segment.texts[row].as_py()
        if text is not None:
            return parse(text)
        return expression_of(self._attributes, segment.book, segment.table, row)

    # Contents

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[int | str]:
        """The live ids in insertion order, as they were when iteration began."""
        ids = self._seal().ids.array
        return (name for start in range(0, len(ids), _IDS) for name in ids[start : start + _IDS].to_pylist())

    def __getitem__(self, id: Any) -> Expr:
        """The expression of a subscription, even of one that was never text; an unknown id is an UnknownIdError."""
        names = self._existing([id])
        snapshot = self._seal()
        [number], [row] = snapshot.find(names)
        if number < 0:
            raise blamed(id, UnknownIdError(f"there is no subscription with the id {id!r}"))
        return self._expression(snapshot.segments[number], int(row))

    def __contains__(self, id: object) -> bool:
        if id_problem(id, id):
            return False
        return (id if isinstance(id, str) else int(id)) in self._store  # type: ignore[call-overload]

    @property
    def ids(self) -> Array:
        """The live ids in insertion order: an array of integers, or of strings as Python objects."""
        found: Array = self._seal().ids.array.to_numpy(zero_copy_only=False)
        return found

    @property
    def id_type(self) -> type[int] | type[str] | None:
        """Of all ids; None while there are none."""
        held = self._store.id_type()
        return None if held is None else int if held == pa.int64() else str

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Matcher is not pickled or copied: save() it, and load() it where it is needed")

    def __repr__(self) -> str:
        return f"Matcher({len(self)} subscriptions, {len(self.schema)} attributes, device {self.device!r})"

    def plan(self) -> Plan:
        """The index of each part of the subscriptions, the reason, and its cost: expected, and measured so far."""
        snapshot = self._seal()
        parts = [
            part.planned(int(np.count_nonzero(rows if gone is None else rows & ~gone.mask)))
            for segment, gone in zip(snapshot.segments, snapshot.removed, strict=True)
            for part, rows in zip(segment.parts, segment.rows_of_parts(), strict=True)
        ]
        return Plan(self.device, self._device_reason, tuple(parts))

    def stats(self) -> dict[str, Any]:
        """Counts and bytes, in all and by segment."""
        snapshot = self._seal()
        segments = [
            {"subscriptions": live, "removed": len(segment) - live, **segment.stats()}
            for segment, live in zip(snapshot.segments, snapshot.live, strict=True)
        ]
        keys = ("subscriptions", "removed", "clauses", "predicates", "programs", "postings", "bytes")
        sums = {key: sum(segment[key] for segment in segments) for key in keys}
        count = 0 if snapshot.destinations is None else len(snapshot.destinations.names)
        return {**sums, "device_bytes": self._engine.nbytes, "destinations": count, "segments": segments}

    def to(self, device: str) -> Matcher:
        """The same subscriptions on another device: ``"cpu"`` or ``"cuda:N"``. Later changes are not shared.

        Arrays are copied when the first events are matched there, and go back to the memory pool with the matcher.
        """
        index = "auto" if self._requested is None else self._requested
        there = Matcher(self.schema, index, device, self._memory_limit, self._background)
        there._store.restore(self._seal())
        there._observed, there._store.routes = self._observed, self._store.routes
        return there

    # Saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index into a directory, atomically, replacing the one that is there, if any.

        ``path`` may be a URI instead: ``s3://``, ``gs://``, ``abfss://`` or ``hdfs://``.
        """
        snapshot = self._store.indexed()
        stored = [segment.stored(gone) for segment, gone in zip(snapshot.segments, snapshot.removed, strict=True)]
        storage.write(path, self._meta(snapshot), stored)

    def _meta(self, snapshot: Snapshot) -> dict[str, Any]:
        """What a manifest says besides the segments."""
        attributes = [it.attributes if isinstance(it, Segment) else self._covering(it) for it in snapshot.pieces]
        return {
            "features": ["patterns"] * any(it.owners for it in attributes),
            "schema": self.schema.to_dict(),
            "order": manifests.order_of(self.schema.names),
            "index": "auto" if self._requested is None else self._requested.to_dict(),
            "memory_limit": self._memory_limit,
            "routes": self._store.routes,
        }

    def _covering(self, source: Source) -> Attributes:
        return self._attributes.covering(source.block.columns)

    # In a folder, see ``open``

    def _attach(self, folder: Folder) -> None:
        self._folder = folder
        self._store.keep_in(folder)

    @property
    def version(self) -> str | None:
        """The name of what is stored, for ``load``; None for a matcher in memory."""
        return None if self._folder is None else self._folder.version

    def refresh(self) -> bool:
        """Take up what has changed in the folder; whether anything has. For a matcher opened with mode ``"r"``."""
        if isinstance(self._folder, Follower):
            return self._folder.refresh()
        if self._folder is None:
            raise StorageError("this matcher is in memory and follows no folder: open() one with mode='r'")
        return False  # nobody else can have changed it

    def flush(self) -> None:
        """Have all changes on disk, which takes a call if it was opened with ``fsync="batch"`` or ``"never"``."""
        if self._folder is not None:
            self._folder.flush()

    def close(self) -> None:
        """Give the folder back, with everything on disk. Later calls may match, but change nothing."""
        if self._folder is not None:
            self._folder.close()

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _completed(source: Source, own: tuple[bool, bool], destination: Any = None, weight: Any = None) -> Complete:
    """Gives the subscriptions of a change destinations and weights: their ``own``, or those of the ones they replace;
    ``destination`` and ``weight`` are for new ones.
    """

    def complete(before: Snapshot, pieces: Array, rows: Array) -> Source:
        destinations, weights = source.destinations, source.weights
        if not own[0]:
            destinations = Destinations.of(before.destinations_of(pieces, rows, destination), len(source))
        if not own[1]:
            weights = before.weights_of(pieces, rows, weight)
        return replace(source, destinations=destinations, weights=weights)

    return complete


def _engine(device: str) -> Engine:
    if device == "cpu":
        return Host()
    from gpumatch.device.engine import Placement  # imports numba's CUDA, which others do not need

    return Placement(int(device.removeprefix("cuda:")))


def _check_mapping(what: str, subscriptions: object) -> None:
    if not isinstance(subscriptions, Mapping):
        raise SchemaError(f"{what} takes a dict of id -> expression, found {type(subscriptions).__name__}")


def _listed(what: str, ids: Iterable[Any]) -> list[Any]:
    """Ids to remove."""
    if isinstance(ids, (str, int, np.integer)):
        raise IdError(f"{what} takes a list of ids, found the single id {ids!r}")
    return ids.to_pylist() if isinstance(ids, (pa.Array, pa.ChunkedArray)) else list(ids)


def _raise_first(source: Source, errors: Mapping[int, GpumatchError]) -> None:
    if errors:
        raise blamed(source.ids[min(errors)].as_py(), errors[min(errors)])


def _check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "collect"):
        raise SchemaError(f"on_error is 'raise' or 'collect', found {on_error!r}")
