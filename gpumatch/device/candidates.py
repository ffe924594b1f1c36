"""Code that kinds of index share on the device: lists that events look at, and keys of what they find there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded, pointers
from gpumatch.device.resident import DeviceIndex, Resident
from gpumatch.kernels.cuda import postings, target, work

_KEY = 8  # bytes


class OnDevice(NamedTuple):
    """A kind of index on a device: ``ON_DEVICE`` of its module ``device``."""

    # Keys of all that may match: those marked as decided do, the others must be tested by their predicates
    candidates: Callable[[Card, Resident, DeviceIndex, Coded], Job[list[Any]]]
    # All candidates are decided
    decides: bool = False
    # How many events may be matched together, given the bytes of a buffer
    events: Callable[[DeviceIndex, int], int] = lambda index, budget: budget
    # Words of bits per event from which matches come in the order of clauses, 0 if they do not
    words: Callable[[DeviceIndex], int] = lambda index: 0
    # Work on the keys of matches, once nothing can go over budget any more
    afterwards: Callable[[Card, Resident, Any, DeviceIndex, Coded, list[Any]], Job[None]] | None = None


class Runs(NamedTuple):
    """Slices of lists that events must look at, none of them empty; see ``kernels.cuda.work``."""

    slot_ptr: Any
    start: Any
    event: Any
    slots: int
    ends: Any  # by item: how many runs there are up to and including its own

    def arrays(self) -> tuple[Any, Any, Any]:
        return self.slot_ptr, self.start, self.event


def kept(card: Card, items: int, launch: Callable[[Any, Any], None]) -> Job[Any]:
    """Keys that a kernel keeps: ``launch`` gets arrays for the keys, tile by tile, and for the number in each tile."""
    xp = card.xp
    tiles = card.tiles(items)
    found, counts = xp.empty(tiles * card.threads, dtype=np.int64), xp.empty(tiles, dtype=np.int64)
    if items == 0:
        return found
    launch(found, counts)
    ends = xp.cumsum(counts)
    total = yield ends[-1:]
    keys = xp.empty(total, dtype=np.int64)
    card.launch(work.compact, items if total else 0, found, ends, keys)
    return keys


def found_in(card: Card, runs: Runs, kernel: target.Kernel, *args: Any) -> Job[list[Any]]:
    """Keys that a kernel finds in the slots of all runs, by ranges of slots to keep the buffer small."""
    step = max(card.budget // _KEY, card.threads)
    keys = []
    for first in range(0, runs.slots, step):
        last = min(first + step, runs.slots)
        tile_run = tile_runs(card, runs.slot_ptr, first, last)

        def launch(found: Any, counts: Any, first: int = first, last: int = last, tile_run: Any = tile_run) -> None:
            card.launch(kernel, last - first, first, last, tile_run, *runs.arrays(), *args, found, counts)

        keys.append((yield from kept(card, last - first, launch)))
    return keys


def tile_runs(card: Card, slot_ptr: Any, first: int, last: int) -> Any:
    """The run of the first slot of every tile of ``first:last``, and of the very last slot."""
    starts = card.xp.arange(card.tiles(last - first) + 1, dtype=np.int64) * card.threads + first
    starts[-1:] = last - 1
    return card.xp.searchsorted(slot_ptr, starts, side="right") - 1


def runs_of(
    card: Card,
    items: int,
    kernels: tuple[target.Kernel, target.Kernel],
    *args: Any,
    rest: tuple[int, int, int] = (0, 0, 0),
) -> Job[Runs]:
    """Runs that a pair of kernels counts and lists for ``items`` items.

    ``rest``: the number of events that get one more run each, the length of this run, and its start after all lists.
    """
    xp = card.xp
    count, fill = kernels
    counts = xp.empty(items, dtype=np.int64)
    card.launch(count, items, *args, counts)
    ends = xp.cumsum(counts)
    total = (yield ends[-1:]) if items else 0
    events, slots, after = rest
    more = events if slots else 0
    start, length = xp.empty(total + more, dtype=np.int64), xp.empty(total + more, dtype=np.int64)
    event = xp.empty(total + more, dtype=np.int32)
    card.launch(fill, items if total else 0, *args, ends, start, length, event)
    if more:
        start[total:], length[total:] = after, slots
        event[total:] = xp.arange(events, dtype=np.int32)
    slot_ptr = pointers(card, length)
    slots = yield slot_ptr[-1:]
    return Runs(slot_ptr, start, event, slots, ends)


def waiting_runs(card: Card, index: DeviceIndex, entries: tuple[Any, ...], events: int, listed: int) -> Job[Runs]:
    """Runs of postings by block that entries reach; and for each of the ``events`` one run of the rest."""
    a = index.arrays
    rest = (events, len(a["rest"]), listed)
    args = (*entries, a["directory"], a["node_ptr"])
    runs = yield from runs_of(card, len(entries[2]), (postings.count_runs, postings.fill_runs), *args, rest=rest)
    return runs


def one_each(card: Card, events: int, slots: int) -> Runs:
    """A run over a whole list for every event."""
    xp = card.xp
    ptr = xp.arange(events + 1, dtype=np.int64) * slots
    every = xp.arange(events, dtype=np.int32)
    return Runs(ptr, xp.zeros(events, dtype=np.int64), every, events * slots, every + 1)
