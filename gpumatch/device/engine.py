"""Snapshots on a device: segments are copied there once, and matched there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.table import Table
from gpumatch.device.card import Card
from gpumatch.device.matching import Target, match
from gpumatch.device.resident import HostArrays, Resident
from gpumatch.errors import DeviceError
from gpumatch.events.batch import EventBatch
from gpumatch.results import Matches
from gpumatch.store.removed import Removed
from gpumatch.store.segment import Segment
from gpumatch.store.snapshot import Snapshot, any_shared


class Placement:
    """The engine of a device, with the segments of the last matched snapshot and their rows on it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._residents: dict[int, Resident] = {}
        self._removed: dict[int, tuple[Any, Any]] = {}
        self._rows: dict[int, Any] = {}

    @cached_property
    def _card(self) -> Card:
        """The device, first touched when events come: a process that forks before that may use it in its children."""
        return Card(self._number)

    @property
    def nbytes(self) -> int:
        """Bytes on the device that stay there between calls."""
        with self._lock:
            return sum(resident.nbytes for resident in self._residents.values())

    def match(self, snapshot: Snapshot, batch: EventBatch) -> Matches:
        """The subscriptions that each event satisfies; the result stays on the device until it is looked at."""
        with _memory_suffices():
            return Matches(*match(self._card, self._live_targets(snapshot), batch, once=False), snapshot.ids)

    def count(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        """How many they are."""
        return self.match(snapshot, batch).counts

    def totals(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        """How many events satisfy each subscription."""
        return np.bincount(self.match(snapshot, batch).rows, minlength=len(snapshot))

    def any(self, snapshot: Snapshot, batch: EventBatch) -> Array:
        """Whether there are any."""
        return any_shared(self, snapshot, batch)

    def match_shared(
        self, snapshot: Snapshot, tables: list[tuple[Segment, Table]], batch: EventBatch
    ) -> tuple[Array, Array]:
        """Offsets and shared rows of a batch, on the host; each event has a row once."""
        with _memory_suffices(), self._card.use():
            with self._lock:
                self._turn_to(snapshot)
                targets = [
                    Target(self._resident(segment), self._uploaded(table.clause_row), False)
                    for segment, table in tables
                ]
            offsets, rows = match(self._card, targets, batch, once=True)
            return self._card.download(offsets), self._card.download(rows)

    def _live_targets(self, snapshot: Snapshot) -> list[Target]:
        """Only segments that are new are copied to the device, and the bits of removed rows where there are others."""
        targets = []
        with self._lock, self._card.use():
            self._turn_to(snapshot)
            for segment, gone, base in zip(
                snapshot.segments, snapshot.removed, snapshot.bases.tolist()[:-1], strict=True
            ):
                resident = self._resident(segment)
                bits = None if gone is None else self._bits(gone)
                targets.append(Target(resident, resident.rows, segment.ascending, base, bits))
        return targets

    def _turn_to(self, snapshot: Snapshot) -> None:
        """Drop what only other snapshots need."""
        if snapshot is self._snapshot:
            return
        live = set(map(id, snapshot.segments))
        self._residents = {at: resident for at, resident in self._residents.items() if at in live}
        removed = set(map(id, snapshot.removed))
        self._removed = {at: bits for at, bits in self._removed.items() if at in removed}
        self._rows, self._snapshot = {}, snapshot

    def _bits(self, gone: Removed) -> tuple[Any, Any]:
        """The snapshot keeps ``gone`` alive, so no other object gets the same id."""
        if id(gone) not in self._removed:
            bits, before = gone.words()
            self._removed[id(gone)] = self._card.hold(bits), self._card.hold(before)
        return self._removed[id(gone)]

    def _resident(self, segment: Segment) -> Resident:
        if id(segment) not in self._residents:
            indexes = [(part.index, part.work) for part in segment.parts]
            host = HostArrays(segment.attributes, segment.used, segment.book, segment.table, indexes)
            try:
                made = Resident(self._card, host)
            except MemoryError:
                raise DeviceError(
                    f"{host.nbytes:,} bytes of an index do not fit in the free memory of the device; free some, use "
                    "an index that needs less (Matcher(memory_limit=…)), or device='cpu'"
                ) from None
            self._residents[id(segment)] = made
        return self._residents[id(segment)]

    def _uploaded(self, rows: Array) -> Any:
        """Rows by clause on the device. The snapshot keeps the host's array alive, so no other gets the same id."""
        if id(rows) not in self._rows:
            self._rows[id(rows)] = self._card.hold(np.ascontiguousarray(rows))
        return self._rows[id(rows)]


@contextmanager
def _memory_suffices() -> Iterator[None]:
    """Turn an out-of-memory error into a helpful one. Before that, pieces of work are made smaller."""
    try:
        yield
    except MemoryError as error:
        raise DeviceError(
            f"the device does not have enough memory for these events or their matches ({error}); match fewer at "
            "a time (match_iter), free some, or use device='cpu'"
        ) from None
