"""Messages under way, by the window of time in which they arrive."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpumatch.arrays import Array, spans

_NEAR = 32  # windows whose messages are kept apart; later ones are searched from time to time


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages as columns; the entries of their destination lists are in the order of messages."""

    arrive: Array
    broker: Array  # that they arrive at
    sender: Array  # -1: a client of the broker
    cluster: Array  # that they are sent in; -1 without clusters
    task: Array
    hops: Array
    size: Array
    entries: Array

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> Batch:
        if not batches:
            return cls(*(np.empty(0, np.int64),) * 8)
        if len(batches) == 1:
            return batches[0]
        return cls(*(np.concatenate(columns) for columns in zip(*(batch.columns() for batch in batches), strict=True)))

    def columns(self) -> tuple[Array, ...]:
        return self.arrive, self.broker, self.sender, self.cluster, self.task, self.hops, self.size, self.entries

    def __len__(self) -> int:
        return len(self.arrive)

    def take(self, rows: Array) -> Batch:
        starts = np.cumsum(self.size) - self.size
        entries = self.entries[spans(starts[rows], self.size[rows])]
        return Batch(*(*(column[rows] for column in self.columns()[:-1]), entries))

    def only(self, chosen: Array) -> Batch:
        """With only the chosen entries (bool), and without messages that have none."""
        size = np.bincount(np.repeat(np.arange(len(self)), self.size)[chosen], minlength=len(self))
        some = size > 0
        return Batch(*(*(column[some] for column in self.columns()[:-2]), size[some], self.entries[chosen]))


class Calendar:
    """Batches by window: window ``k`` is the time from ``k * width`` to ``(k + 1) * width``."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._near: dict[int, list[Batch]] = {}
        self._order: list[int] = []  # a heap of the windows that are near
        self._far: list[Batch] = []
        self._edge = 0  # the first window that is far

    def add(self, batch: Batch) -> None:
        window = batch.arrive // self._width
        late = window >= self._edge
        if late.any():
            self._far.append(batch if late.all() else batch.take(np.flatnonzero(late)))
        if not late.all():
            self._sort_in(batch, window, np.flatnonzero(~late))

    def _sort_in(self, batch: Batch, window: Array, rows: Array) -> None:
        for one in np.unique(window[rows]).tolist():
            if one not in self._near:
                self._near[one] = []
                heapq.heappush(self._order, one)
            self._near[one].append(batch.take(rows[window[rows] == one]))

    def next(self) -> int | None:
        """The first window with messages."""
        if not self._order and self._far:
            batch, self._far = Batch.of(self._far), []
            self._edge = int(batch.arrive.min()) // self._width + _NEAR
            self.add(batch)
        return self._order[0] if self._order else None

    def pop(self, window: int) -> Batch:
        """The messages of the first window; none if the first ones are in a later window."""
        if self.next() != window:
            return Batch.of(())
        return Batch.of(self._near.pop(heapq.heappop(self._order)))
