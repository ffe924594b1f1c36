"""Matching on a device: from ranges of events to codes, candidates, the last tests, and rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Encoder
from gpumatch.device.resident import Resident
from gpumatch.device.verify import distinct, numbers_of, rows_of, verified
from gpumatch.device_memory import finish
from gpumatch.events.batch import EventBatch

_EVENTS = 1 << 16  # most that are matched together
_PIECES = 4  # of a batch, so that one is copied while another is matched,
_FEW = 4096  # if they have at least this many events
_ENOUGH = 1024  # events to fill a device


class Target(NamedTuple):
    """A segment on a device, and the row of each of its clauses there, below zero for none.

    Live rows are numbered from ``base`` on. ``removed`` has a bit for each removed row, and how many of these come
    before each word.
    """

    resident: Resident
    rows: Any
    ascending: bool  # rows rise with clauses
    base: int = 0
    removed: tuple[Any, Any] | None = None


def match(card: Card, targets: Sequence[Target], batch: EventBatch, once: bool) -> tuple[Any, Any]:
    """Offsets and rows of a batch on the device, ascending and without repeats in an event.

    ``once``: rows are shared by many clauses.
    """
    with card.use():
        finish()  # events may still be on their way to the device
        encoders = [Encoder(target.resident, batch) for target in targets]
        most = _at_once(card, targets, len(batch))
        found = card.run(len(batch), most, lambda start, stop: _match_range(card, targets, encoders, start, stop, once))
        joined = _joined(card, found)
        finish()  # the pieces are freed now, and the result may be used on any stream
        return joined


def _at_once(card: Card, targets: Sequence[Target], count: int) -> int:
    """How many of ``count`` events to match together."""
    most = min(_EVENTS, max(-(-count // _PIECES), _FEW))
    for target in targets:
        most = min(most, card.budget // max(4 * (target.resident.width + target.resident.lines), 1))
        for index in target.resident.indexes:
            most = min(most, index.kind.events(index, card.budget))
        words = _words(target)
        if words:  # with bits of all clauses together, matches need no sorting
            fits = card.budget // (8 * words)
            most = min(most, fits) if fits >= _ENOUGH else most
    return max(most, 1)


def _words(target: Target) -> int:
    """Words of bits per event from which matches come in order, if rows are ascending; 0 if they do not."""
    first = target.resident.indexes[0]
    return first.kind.words(first) if target.ascending else 0


def _joined(card: Card, found: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Consecutive ranges as one result: a copy in memory of the caller's stream, where the caller may free it."""
    xp = card.xp
    offsets, base = [xp.zeros(1, dtype=np.int64)], 0
    for ends, rows in found:
        offsets.append(ends[1:] + base)
        base += len(rows)
    return xp.concatenate(offsets), xp.concatenate([*(rows for _, rows in found), xp.empty(0, dtype=np.int32)])


def _live(card: Card, target: Target, keys: Any) -> Job[Any]:
    """Keys with the numbers of live rows."""
    if target.removed is None:
        return keys + target.base if target.base else keys
    numbered = yield from numbers_of(card, target.removed, target.base, keys)
    return numbered


def _match_range(
    card: Card, targets: Sequence[Target], encoders: Sequence[Encoder], start: int, stop: int, once: bool
) -> Job[tuple[Any, Any]]:
    xp = card.xp
    found: list[Any] = []
    later: list[Job[None]] = []
    in_order = len(targets) == 1 and _words(targets[0]) > 0 and not once
    for target, encoder in zip(targets, encoders, strict=True):
        coded = yield from encoder.encode(start, stop)
        for index in target.resident.indexes:
            pieces = yield from index.kind.candidates(card, target.resident, index, coded)
            answers = []
            for keys in pieces:
                if not index.kind.decides:
                    keys = yield from verified(card, target.resident, coded, keys)
                answers.append(keys)
                found.append((yield from _live(card, target, (yield from rows_of(card, target.rows, keys)))))
            if index.kind.afterwards is not None and not once:
                later.append(index.kind.afterwards(card, target.resident, target.rows, index, coded, answers))
    for job in later:  # once nothing can go over budget and be repeated
        yield from job
    in_order = in_order and len(found) == 1
    keys = found[0] if len(found) == 1 else xp.concatenate([*found, xp.empty(0, dtype=np.int64)])
    if not in_order:
        keys = yield from distinct(card, xp.sort(keys))
    offsets = xp.searchsorted(keys, xp.arange(stop - start + 1, dtype=np.int64) << 32)
    return offsets.astype(np.int64), (keys & 0xFFFF_FFFF).astype(np.int32)
