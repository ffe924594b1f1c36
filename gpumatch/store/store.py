"""Subscriptions that change while they are searched.

Readers see one immutable snapshot, which is swapped for the next. What was just added is a source; the next reader
makes it a small segment that is scanned, which takes a millisecond, and waits for nobody. Larger segments are built of
small ones in the background, or by writers if they are far ahead: a run of pieces is claimed, built into one without a
lock, and replaced, without the rows that were removed meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import Condition
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array, pointers
from gpumatch.errors import GpumatchError, IdError, LimitError, UnknownIdError
from gpumatch.store.background import Background, report
from gpumatch.store.ids import has_repeats
from gpumatch.store.merging import SCANNED, WORTH, Job, crowded, due, due_new, is_new, runs, unindexed
from gpumatch.store.removed import Removed
from gpumatch.store.segment import Segment
from gpumatch.store.snapshot import Piece, Snapshot
from gpumatch.store.source import Source, join_sources
from gpumatch.subscriptions.block import Attributes
from gpumatch.subscriptions.destinations import check_kind

_ROUNDS = 8  # of indexing what others keep adding
_JOINED = 8  # sources, at most, before those of about the same size are joined
_BEHIND = 4 * SCANNED  # rows without an index at which writers build one, lest readers scan more and more

MOST = (1 << 31) - 1  # subscriptions: results number them by int32

T = TypeVar("T")
Complete: TypeAlias = "Callable[[Snapshot, Array, Array], Source]"
Find: TypeAlias = "Callable[[Snapshot, Collection[int]], Job | None]"


class Journal(Protocol):
    """What stores changes before anybody sees them."""

    def prepare(self, piece: Piece) -> None:
        """Do what takes long, before other writers have to wait for it."""

    def commit(self, what: str, removed: Any, piece: Piece | None, publish: Callable[[], None]) -> None:
        """Store what a call removes, ids or None, and adds; then publish it. On an error, neither."""

    def is_due(self) -> bool:
        """Whether ``fold`` is worth its while."""

    def fold(self) -> None:
        """Have less to read when the index is opened."""

    def abandon(self) -> None:
        """In a forked child."""


class Store:
    """The subscriptions of a matcher."""

    def __init__(
        self, attributes: Attributes, build: Callable[[Source, bool], Segment], background: bool = True
    ) -> None:
        """``build`` makes a segment of a source; the flag says that nothing is searched until it is done."""
        self._attributes, self.build, self._is_background = attributes, build, background
        self._state = Snapshot()
        self._is_live = False  # is it in use? Then nobody should wait for an index of what is added
        self.routes = False  # has any subscription ever had a destination?
        self.journal: Journal | None = None
        self.start_anew()
        _stores.add(self)

    def start_anew(self) -> None:
        """Without any threads, as in a forked child."""
        self._swapping = Condition()  # held by writers for moments; readers take it only if it is free
        self._claimed: set[int] = set()  # pieces that are being merged
        self._background = Background(self._tidy) if self._is_background else None
        if self.journal is not None:
            self.journal.abandon()

    # Contents

    def __len__(self) -> int:
        return len(self._state)

    def __contains__(self, name: int | str) -> bool:
        kind, state = pa.large_string() if isinstance(name, str) else pa.int64(), self._state
        return kind == self.id_type() and bool(state.find(pa.array([name], kind))[0][0] >= 0)

    def searchable(self) -> Snapshot:
        """All subscriptions: those that were there first have an index, those added since may be scanned."""
        if self._is_live and (state := self._state).is_planned:
            return state
        while True:
            state = self._state
            rows = _source_rows(state)
            if rows <= _BEHIND and (self._is_live or not all(map(is_new, state.pieces))):
                self._is_live = True
                if rows:
                    return self._scanned(state)
                if self._background is not None and _most_new_rows(state, ()) >= WORTH and due(state, self._claimed):
                    self._background.nudge()  # what is scanned has turned out to take long
                return state
            if not state.pieces:
                return state
            if not self._settle(self._unindexed, patient=not self._is_live):
                self._wait()  # for another thread, which builds it

    def indexed(self) -> Snapshot:
        """All subscriptions, in segments with an index, but for some that are being added."""
        self.searchable()
        for _ in range(_ROUNDS):
            if not self._settle(unindexed):
                break
        return self.searchable()

    def source(self) -> Source | None:
        """All live subscriptions, as if they had just been added; None if there are none."""
        state = self._state
        return self._joined(state, Job(0, len(state.pieces))) if state.pieces else None

    # Changes

    def add(self, source: Source, errors: Mapping[int, GpumatchError], collect: bool) -> dict[int, GpumatchError]:
        """Add subscriptions, leaving out wrong ones if errors are collected; returns the error of each.

        ``errors`` are already known. If errors are not collected, the first one is raised and nothing is added.
        """
        built: tuple[dict[int, GpumatchError], Piece] | None = None
        _check_room(len(self) + len(source) - len(errors))  # before anything is built
        while True:
            with self._swapping:
                found = self._wrong(source, errors, collect)
                if built is not None and built[0].keys() == found.keys():
                    self._append("add", built[1])
                    break
                kept = self.without(source, found)
                if not self._is_large(kept):
                    self._append("add", kept)
                    break
            built = found, self.build(kept, False)  # it is found at once when it is there
            if self.journal is not None:
                self.journal.prepare(built[1])
        self.tidy_up()
        return found

    def append(self, source: Source) -> None:
        """Add subscriptions known to be right."""
        with self._swapping:
            self._append("add", source)

    def remove(self, names: Any) -> None:
        """Remove the subscriptions with these ids, an Arrow array."""
        with self._swapping:
            self._publish("remove", self._state.without(*self._found(names)), names, None)
        self.tidy_up()

    def replay(self, removed: Any, piece: Piece | None, full: bool = False) -> None:
        """Make a change that a journal has, which must not store it again. ``removed``: ids, or None.

        ``full``: it may have been altered.
        """
        with self._swapping:
            state = self._state if removed is None else self._state.without(*self._found(removed))
            if piece is not None and len(piece):
                if any(it.ids.type != piece.ids.type for it in state.pieces):
                    raise IdError("it has ids that are integers and others that are strings")
                if full and (len(pc.unique(piece.ids)) < len(piece) or (state.find(piece.ids)[0] >= 0).any()):
                    raise IdError("it adds an id that is there already")
                check_kind(piece.destinations, [it.destinations for it in state.pieces])
                state = self._with(piece, state)
            self._set(state)

    def change(
        self, what: str, names: Any, complete: Complete, removed: Any, known: bool = False, renew: bool = True
    ) -> tuple[int, int]:
        """Put subscriptions in the place of those with the same ids, and remove others: readers see old or new.

        ``complete`` makes the subscriptions with these names, with what is kept of the old ones, given piece and row of
        each, or -1. ``removed``: ids, of which some need not be there. ``known``: all names must be there. Without
        ``renew`` those that would not change stay where they are. Returns how many were put, and how many removed.
        """
        _check_room(len(names))
        built: tuple[Source, Piece] | None = None
        while True:
            with self._swapping:
                source, gone, lost = self._changed(names, complete, removed, known, renew)
                piece = source if not self._is_large(source) else None if built is None else _built_as(source, *built)
                if piece is not None:
                    self._append(what, piece, self._state.without(*self._state.find(gone)), gone)
                    break
            built = source, self.build(source, False)
        self.tidy_up()
        return len(source), lost

    def _changed(
        self, names: Any, complete: Complete, removed: Any, known: bool, renew: bool
    ) -> tuple[Source, Any, int]:
        """What to put, the ids that go, and how many of them for good."""
        for ids in (names, removed):
            if error := self.other_type(ids):
                raise blamed(ids[0].as_py(), error)
        kind = self.id_type() or names.type
        names, removed = (ids if len(ids) else pa.array([], kind) for ids in (names, removed))
        pieces, rows = self._found(names) if known else self._state.find(names)
        source = complete(self._state, pieces, rows)
        self._check_destinations(source)
        there = pieces >= 0
        if not renew:
            differs = ~self._state.holds(pieces, rows, source)
            source, there = self._kept(source, differs), there & differs
        replaced, removed = names.filter(pa.array(there)), pc.unique(removed)
        lost = removed.filter(pa.array(self._state.find(removed)[0] >= 0))
        return source, pa.concat_arrays([replaced, lost]) if len(lost) else replaced, len(lost)

    def compact(self) -> None:
        """Rebuild everything as one segment, without removed rows.

        Subscriptions added or removed meanwhile stay so.
        """
        while self._state.pieces and not self._settle(_everything, patient=True):
            self._wait()
        self._is_live = self._is_live or bool(self._state.pieces)

    def restore(self, snapshot: Snapshot) -> None:
        """Start with a snapshot: a saved one, or another matcher's."""
        _check_room(len(snapshot))
        self._state, self._is_live = snapshot, bool(snapshot.pieces)
        self.routes = any(piece.destinations is not None for piece in snapshot.pieces)

    def keep_in(self, journal: Journal) -> None:
        """Have changes stored from now on. They may go on for long before the first search, which need not wait."""
        self.journal, self._is_live = journal, True

    def take_over(self, other: Store) -> None:
        """Hold what another store does."""
        with self._swapping:
            self._state, self._is_live = other._state, self._is_live or other._is_live
            self.routes = self.routes or other.routes

    def checkpoint(self, begin: Callable[[], T]) -> tuple[Snapshot, T]:
        """The state, of which much has an index, and what ``begin`` returns while nobody changes the state."""
        while _most_new_rows(self._state, ()) > SCANNED:
            if not self._settle(unindexed):
                self._wait()
        with self._swapping:
            return self._state, begin()

    def _append(self, what: str, piece: Piece, state: Snapshot | None = None, removed: Any = None) -> None:
        """Publish the state, or another one, with one more piece. ``removed``: ids that this other one lacks."""
        state = self._state if state is None else state
        _check_room(len(state) + len(piece))
        self._publish(what, self._with(piece, state), removed, piece)

    def _publish(self, what: str, state: Snapshot, removed: Any, piece: Piece | None) -> None:
        """Make it the state, which the journal has first; ``removed`` and ``piece`` are what it has changed."""

        def publish() -> None:
            self._set(state)

        removed = removed if removed is not None and len(removed) else None
        piece = piece if piece is not None and len(piece) else None
        if self.journal is None:
            publish()
        elif removed is not None or piece is not None:
            self.journal.commit(what, removed, piece, publish)

    def _set(self, state: Snapshot) -> None:
        self.routes = self.routes or any(piece.destinations is not None for piece in state.pieces)
        self._state = state

    def _with(self, piece: Piece, state: Snapshot) -> Snapshot:
        """The state with one more piece."""
        if len(piece) == 0:
            return state
        return self._with_few_sources(Snapshot((*state.pieces, piece), (*state.removed, None)))

    def _with_few_sources(self, state: Snapshot) -> Snapshot:
        """The state with sources joined where there are many of about the same size."""
        free = [isinstance(piece, Source) and id(piece) not in self._claimed for piece in state.pieces]
        run = crowded(state.live, free, free, _JOINED, 1)
        if run is None:
            return state
        job = Job(*run)
        return _replaced(state, state, job, self._joined(state, job))

    # Merging

    def _settle(self, find: Find, patient: bool = False) -> bool:
        """Build what ``find`` says, unless it finds nothing."""
        mine: set[int] = set()
        if find(self._state, self._claimed) is None:
            return False
        if self._is_live and 0 < _source_rows(self._state) <= _BEHIND:
            self._scanned(self._state)  # else every search would, until this is done
        try:
            with self._swapping:
                before = self._state
                job = find(before, self._claimed)
                if job is None:
                    return False
                mine = set(map(id, before.pieces[job.first : job.last]))
                self._claimed |= mine
            source = self._joined(before, job)
            built = self.build(source, patient) if job.planned else Segment.of_fresh(source, self._attributes)
            if self._is_live:
                built.lookup.fill()  # the next writer needs it
            with self._swapping:
                self._state = _replaced(self._state, before, job, built)
        finally:
            with self._swapping:
                self._claimed -= mine
                self._swapping.notify_all()
        return True

    def _wait(self) -> None:
        """Until nothing is being built."""
        with self._swapping:
            self._swapping.wait_for(lambda: not self._claimed)

    def _tidy(self) -> bool:
        """Do the next thing that is due; whether there was any."""
        if self._is_live and self._settle(due):
            return True
        if self.journal is not None and self.journal.is_due():
            self.journal.fold()
        return False

    def tidy_up(self) -> None:
        """After a change, which has been made: in the background if there is one, and if it keeps pace."""
        if not self._is_live:
            return
        try:
            while _most_new_rows(self._state, self._claimed) > _BEHIND and self._settle(due_new):
                pass
            while self._background is None and self._tidy():
                pass
        except Exception as error:
            report(error)
            return
        is_due = self.journal is not None and self.journal.is_due()
        if self._background is not None and (is_due or due(self._state, ()) is not None):
            self._background.wake()

    def _unindexed(self, state: Snapshot, claimed: Collection[int]) -> Job | None:
        """At first nothing is searched before all that is there has an index, whoever builds it."""
        return None if claimed and not self._is_live else unindexed(state, claimed)

    def _scanned(self, state: Snapshot) -> Snapshot:
        """The state with segments in place of sources; it is the new one if nothing has changed meanwhile."""
        found, sources = state, {id(piece) for piece in state.pieces if isinstance(piece, Source)}
        while (job := _sources(found)) is not None:
            segment = Segment.of_fresh(self._joined(found, job), self._attributes)
            found = _replaced(found, found, job, segment)
        if self._swapping.acquire(blocking=False):
            try:
                if self._state is state and sources.isdisjoint(self._claimed):
                    self._state = found
            finally:
                self._swapping.release()
        return found

    def _joined(self, state: Snapshot, job: Job) -> Source:
        """The live subscriptions of some pieces."""
        run = slice(job.first, job.last)
        sources = [piece if isinstance(piece, Source) else piece.source() for piece in state.pieces[run]]
        keeps = [None if gone is None else ~gone.mask for gone in state.removed[run]]
        return join_sources(self._attributes, sources, keeps)

    def _is_large(self, source: Source) -> bool:
        """Whether readers should not have to scan it."""
        return len(source) > SCANNED and self._is_live

    # Checks

    def conflicts(self, source: Source) -> dict[int, GpumatchError]:
        """The error of each subscription that could not be added now."""
        return self._wrong(source, {}, collect=True)

    def _wrong(self, source: Source, errors: Mapping[int, GpumatchError], collect: bool) -> dict[int, GpumatchError]:
        """The error of each subscription that cannot be added; the first is raised unless they are collected."""
        self._check_destinations(source)
        found = {**self._duplicates(source.ids, errors), **errors}
        if found and not collect:
            raise blamed(source.ids[min(found)].as_py(), found[min(found)])
        return found

    def without(self, source: Source, errors: Mapping[int, GpumatchError]) -> Source:
        """The source without the rows that have an error."""
        keep = np.ones(len(source), np.bool_)
        keep[list(errors)] = False
        return self._kept(source, keep)

    def _kept(self, source: Source, keep: Array) -> Source:
        return source if keep.all() else join_sources(self._attributes, [source], [keep])

    def _check_destinations(self, piece: Piece) -> None:
        check_kind(piece.destinations, [it.destinations for it in self._state.pieces])

    def _found(self, names: Any) -> tuple[Array, Array]:
        """Piece and row of ids that are all there."""
        pieces, rows = self._state.find(names)
        if (lacking := np.flatnonzero(pieces < 0)).size:
            name = names[int(lacking[0])].as_py()
            raise blamed(name, UnknownIdError(f"there is no subscription with the id {name!r}"))
        return pieces, rows

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
        return next((piece.ids.type for piece in self._state.pieces), None)

    def _duplicates(self, names: Any, rejected: Mapping[int, GpumatchError]) -> dict[int, GpumatchError]:
        """The error of each id that exists already, occurs twice, or has another type than the existing ones."""
        if error := self.other_type(names):
            return dict.fromkeys(range(len(names)), error)
        good = np.setdiff1d(np.arange(len(names)), list(rejected)) if rejected else np.arange(len(names))
        given = names.take(pa.array(good)) if rejected else names
        there = self._state.find(given)[0] >= 0 if self._state.pieces else np.zeros(len(given), np.bool_)
        twice = np.zeros(len(given), np.bool_)
        if has_repeats(given):
            number = given.dictionary_encode().indices.to_numpy()
            twice[:] = True
            twice[np.unique(number, return_index=True)[1]] = False
        errors: dict[int, GpumatchError] = {}
        for at in np.flatnonzero(there | twice).tolist():
            problem = "is there already; use replace() to change it" if there[at] else "occurs twice; ids must differ"
            errors[int(good[at])] = IdError(f"the id {given[at].as_py()!r} {problem}")
        return errors


_stores: WeakSet[Store] = WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _check_room(count: int) -> None:
    if count > MOST:
        raise LimitError(
            f"a matcher has room for {MOST:,} subscriptions, found {count:,}; use several, or on Spark "
            "build_index(shards=…)"
        )


def _source_rows(state: Snapshot) -> int:
    return sum(live for live, piece in zip(state.live, state.pieces, strict=True) if isinstance(piece, Source))


def _most_new_rows(state: Snapshot, claimed: Collection[int]) -> int:
    """Rows without an index, one after another, that are not claimed."""
    new = [is_new(piece) and id(piece) not in claimed for piece in state.pieces]
    return max((sum(state.live[first:last]) for first, last in runs(new)), default=0)


def _everything(state: Snapshot, claimed: Collection[int]) -> Job | None:
    """All pieces, once nobody else is merging any."""
    return None if claimed or not state.pieces else Job(0, len(state.pieces))


def _sources(state: Snapshot) -> Job | None:
    """The first pieces, one after another, that are sources."""
    marks = [isinstance(piece, Source) for piece in state.pieces]
    return next((Job(*run, planned=False) for run in runs(marks)), None)


def _replaced(now: Snapshot, before: Snapshot, job: Job, built: Piece) -> Snapshot:
    """The snapshot with one piece in place of those of a job, without what was removed since ``before``."""
    run = {id(piece): at for at, piece in enumerate(before.pieces) if job.first <= at < job.last}
    there = {run[id(piece)]: gone for piece, gone in zip(now.pieces, now.removed, strict=True) if id(piece) in run}
    if not there:  # all was removed
        return now
    pairs = list(zip(now.pieces, now.removed, strict=True))
    place = next(at for at, (piece, _) in enumerate(pairs) if id(piece) in run)
    if any(id(piece) not in run for piece, _ in pairs[place : place + len(there)]):
        return now  # it was read anew, with some of the pieces as they are after another merge
    if any(_is_back(before.removed[at], gone) for at, gone in there.items()):
        return now  # an earlier version was read
    bases = pointers(np.array(before.live[job.first : job.last]))
    removed = [np.zeros(0, np.int64)]
    for at, base in zip(range(job.first, job.last), bases[:-1], strict=True):
        length, old = len(before.pieces[at]), before.removed[at]
        new = there[at] if at in there else Removed.of(np.ones(length, np.bool_))  # a piece without rows is dropped
        if new is not old and new is not None:
            rows = np.flatnonzero(new.mask)
            numbers = rows if old is None else old.numbers(rows)
            removed.append(base + numbers[numbers >= 0])
    pairs[place : place + len(there)] = [(built, None)]
    snapshot = Snapshot(tuple(piece for piece, _ in pairs), tuple(gone for _, gone in pairs))
    rows = np.concatenate(removed)
    return snapshot.without(np.full(len(rows), place), rows)


def _is_back(gone: Removed | None, now: Removed | None) -> bool:
    """Whether a row that was removed lives now."""
    return gone is not None and gone is not now and (now is None or bool((gone.mask & ~now.mask).any()))


def _built_as(source: Source, before: Source, built: Piece) -> Piece | None:
    """What was built of a source, for one that may differ in what it keeps; None if it is of other subscriptions."""
    if not source.ids.equals(before.ids):
        return None
    return replace(built, destinations=source.destinations, weights=source.weights)


def blamed(id: Any, error: GpumatchError) -> GpumatchError:
    """The error, with the id of its subscription."""
    error.id = id
    return error
