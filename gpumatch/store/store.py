"""Subscriptions that change: indexed segments, their removed rows, and a tail that is not indexed yet.

Readers see one immutable ``State``, which is swapped for the next. They take no lock unless there is a tail, which
the first of them indexes. No index is built under the lock for swapping, so adding never waits for a build; and while
a compaction builds, tails are indexed and subscriptions removed as usual.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array
from gpumatch.errors import GpumatchError, IdError
from gpumatch.store.segment import Segment
from gpumatch.store.snapshot import Snapshot
from gpumatch.store.source import Source, join_sources
from gpumatch.subscriptions.block import Attributes
from gpumatch.subscriptions.destinations import check_kind

_GROWTH = 2  # a segment at most this many times as large as what follows is merged with it, so that segments stay few


class State(NamedTuple):
    """A snapshot, and the subscriptions added since."""

    snapshot: Snapshot = Snapshot()
    tail: tuple[Source, ...] = ()


class Store:
    """The subscriptions of a matcher."""

    def __init__(self, attributes: Attributes, build: Callable[[Source], Segment]) -> None:
        self._attributes, self._build = attributes, build
        self._state = State()
        self._tail_ids: set[int | str] = set()  # and ids that are about to be changed
        self._swapping = threading.Lock()  # held for moments, never while something is built
        self._changing = threading.RLock()  # held while indexing a tail, removing or replacing
        self._compacting = threading.Lock()
        self._kept = 0  # first segments, which a compaction is merging: nobody else may
        self.routes = False  # has any subscription ever had a destination?

    # Contents

    def __len__(self) -> int:
        snapshot, tail = self._state
        return sum(snapshot.live) + sum(map(len, tail))

    def __contains__(self, name: int | str) -> bool:
        return name in self._tail_ids or self._state.snapshot.find(name) is not None

    def sealed(self) -> Snapshot:
        """All subscriptions, indexed."""
        state = self._state
        if not state.tail:
            return state.snapshot
        with self._changing:
            state = self._state
            if state.tail:
                self._swap(self._with(state.snapshot, state.tail), len(state.tail))
            return self._state.snapshot

    def source(self) -> Source | None:
        """All live subscriptions, as if they had just been added; None if there are none."""
        snapshot, tail = self._state
        sources = [*_sources(snapshot), *tail]
        return join_sources(self._attributes, sources, [None] * len(sources)) if sources else None

    # Changes

    def add(self, source: Source, errors: Mapping[int, GpumatchError], collect: bool) -> dict[int, GpumatchError]:
        """Add subscriptions, leaving out wrong ones if errors are collected; returns the error of each.

        ``errors`` are already known. If errors are not collected, the first one is raised and nothing is added.
        """
        with self._swapping:
            check_kind(source.destinations, [it.destinations for it in self._all()])
            errors = {**self._duplicates(source.ids, errors), **errors}
            if errors and not collect:
                raise blamed(source.ids[min(errors)].as_py(), errors[min(errors)])
            if errors:
                keep = np.ones(len(source), np.bool_)
                keep[list(errors)] = False
                source = join_sources(self._attributes, [source], [keep])
            self._append(source)
        return errors

    def append(self, source: Source) -> None:
        """Add subscriptions known to be right."""
        with self._swapping:
            self._append(source)

    def remove(self, find: Callable[[Snapshot], Iterable[tuple[int, int]]]) -> None:
        """Remove the rows of segments that ``find`` returns."""
        with self._changing:
            snapshot = self.sealed()
            self._swap(snapshot.without(find(snapshot)))

    def replace(self, change: Callable[[Snapshot], tuple[Iterable[tuple[int, int]], Source]]) -> None:
        """Remove rows of segments and add others instead, in one step: readers see old or new.

        ``change`` says which. Meanwhile nobody else can add an id that is about to be added.
        """
        with self._changing:
            before = self.sealed()
            rows, source = change(before)
            while not self._reserved(source):  # another thread has just added one of them
                before = self.sealed()
                rows, source = change(before)
            try:
                self._swap(self._with(before.without(rows), (source,)))
            finally:
                with self._swapping:
                    self._tail_ids.difference_update(source.ids.to_pylist())

    def _reserved(self, source: Source) -> bool:
        """Keep others from adding these ids, unless one of them is in the tail."""
        if error := self.other_type(source.ids):
            raise blamed(source.ids[0].as_py(), error)
        names = source.ids.to_pylist()
        with self._swapping:
            check_kind(source.destinations, [it.destinations for it in self._all()])
            if not self._tail_ids.isdisjoint(names):
                return False
            self._tail_ids.update(names)
            self.routes = self.routes or source.destinations is not None
        return True

    def compact(self) -> None:
        """Rebuild everything as one segment, without removed rows.

        Subscriptions added or removed meanwhile stay so.
        """
        with self._compacting:
            try:
                with self._changing:
                    self._kept = len(self._state.snapshot.segments)  # these are rebuilt, so need not be merged first
                    before = self.sealed()
                    if self._kept == 0:  # the tail was everything, and has just been built
                        return
                    self._kept = len(before.segments)
                sources = _sources(before)
                built = self._build(join_sources(self._attributes, sources, [None] * len(sources)))
                with self._changing:
                    self._swap(_rebased(built, before, self._state.snapshot))
            finally:
                self._kept = 0

    def restore(self, snapshot: Snapshot) -> None:
        """Start with a snapshot: a saved one, or another matcher's."""
        self._state = State(snapshot)
        self.routes = any(segment.destinations is not None for segment in snapshot.segments)

    def _swap(self, snapshot: Snapshot, sealed: int = 0) -> None:
        """Publish another snapshot, which includes the first ``sealed`` sources of the tail."""
        with self._swapping:
            left = self._state.tail[sealed:]
            if sealed:
                self._tail_ids = {name for source in left for name in source.ids.to_pylist()}
            self._state = State(snapshot, left)

    def _append(self, source: Source) -> None:
        if len(source):
            self.routes = self.routes or source.destinations is not None
            self._tail_ids.update(source.ids.to_pylist())
            self._state = self._state._replace(tail=(*self._state.tail, source))

    def _with(self, snapshot: Snapshot, sources: Sequence[Source]) -> Snapshot:
        """The snapshot with one more segment, merged with those before it that are not much larger."""
        segments, dead = list(snapshot.segments), list(snapshot.dead)
        merged, length = list(sources), sum(map(len, sources))
        while len(segments) > self._kept and len(segments[-1]) <= _GROWTH * length:
            last, gone = segments.pop(), dead.pop()
            merged.insert(0, last.source(None if gone is None else ~gone))
            length += len(merged[0])
        source = join_sources(self._attributes, merged, [None] * len(merged))
        return Snapshot((*segments, self._build(source)), (*dead, None))

    # Ids

    def other_type(self, names: Any) -> IdError | None:
        """The error of ids of another type than the existing ones."""
        known = self.id_type()
        if known is None or known == names.type or len(names) == 0:
            return None
        kinds = {True: "strings", False: "integers"}
        mine, others = kinds[names.type != pa.int64()], kinds[known != pa.int64()]
        new = f"the new ones, such as {names[0].as_py()!r}, are {mine}"
        return IdError(f"ids are all strings or all integers: {new}, those added before {others}")

    def id_type(self) -> Any:
        """Type of the existing ids; None if there are none."""
        return next((it.ids.type for it in self._all() if len(it.ids)), None)

    def _all(self) -> list[Segment | Source]:
        snapshot, tail = self._state
        return [*snapshot.segments, *tail]

    def _duplicates(self, names: Any, rejected: Mapping[int, GpumatchError]) -> dict[int, GpumatchError]:
        """The error of each id that exists already, occurs twice, or has another type than the existing ones."""
        if error := self.other_type(names):
            return dict.fromkeys(range(len(names)), error)
        errors: dict[int, GpumatchError] = {}
        if len(self) or self._tail_ids or pc.count_distinct(names).as_py() < len(names):
            new: set[int | str] = set()
            for at, name in enumerate(names.to_pylist()):
                if at in rejected:
                    continue
                if name in self:
                    errors[at] = IdError(f"the id {name!r} is there already; use replace() to change it")
                elif name in new:
                    errors[at] = IdError(f"the id {name!r} occurs twice; ids must differ")
                new.add(name)
        return errors


def _sources(snapshot: Snapshot) -> list[Source]:
    """The live subscriptions of the segments."""
    keeps: list[Array | None] = [None if dead is None else ~dead for dead in snapshot.dead]
    return [segment.source(keep) for segment, keep in zip(snapshot.segments, keeps, strict=True)]


def _rebased(built: Segment, before: Snapshot, now: Snapshot) -> Snapshot:
    """A segment of everything that lived before, and what has changed since: more segments, and removed rows."""
    current = {id(segment): dead for segment, dead in zip(now.segments, now.dead, strict=True)}
    gone: list[int | str] = []
    for segment, dead in zip(before.segments, before.dead, strict=True):
        after = current.pop(id(segment), np.ones(len(segment), np.bool_))  # a segment that is gone has no rows left
        if after is not None:
            gone += segment.ids.filter(pa.array(after if dead is None else after & ~dead)).to_pylist()
    since = [(segment, dead) for segment, dead in zip(now.segments, now.dead, strict=True) if id(segment) in current]
    snapshot = Snapshot((built, *(segment for segment, _ in since)), (None, *(dead for _, dead in since)))
    return snapshot.without((0, built.row_of[name]) for name in gone)


def blamed(id: Any, error: GpumatchError) -> GpumatchError:
    """The error, with the id of its subscription."""
    error.id = id
    return error
