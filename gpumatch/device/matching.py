"""Matching on a device: ranges of events to codes, candidates, the last tests, and rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpumatch.arrays import finish
from gpumatch.device.candidates import WORD, candidates, kept, node_count
from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded, Encoder
from gpumatch.device.resident import HeldIndex, Resident
from gpumatch.events import EventBatch
from gpumatch.index import ATree, Gem, Tama
from gpumatch.index.tama import count_false, weights
from gpumatch.kernels.cuda import verify, work

_EVENTS = 1 << 16  # that are matched at once, at most
_PIECES = 4  # of a batch, so that one is copied while another is matched,
_FEW = 4096  # if they have so many events
_ENOUGH = 1024  # events to fill a device


class Target(NamedTuple):
    """A segment on a device, and the row of each of its clauses there, below zero for none."""

    resident: Resident
    rows: Any
    ascending: bool  # rows rise with clauses


def match(card: Card, targets: Sequence[Target], batch: EventBatch, once: bool) -> tuple[Any, Any]:
    """Offsets and rows of a batch on the device, ascending and each once per event.

    ``once``: rows are shared by many clauses.
    """
    with card.use():
        finish()  # events on the device may still be under way
        encoders = [Encoder(target.resident, batch) for target in targets]
        most = _at_once(card, targets, len(batch))
        parts = card.run(len(batch), most, lambda start, stop: _match_range(card, targets, encoders, start, stop, once))
        joined = _joined(card, parts)
        finish()  # the parts are freed now, and the result may be used on any stream
        return joined


def _at_once(card: Card, targets: Sequence[Target], count: int) -> int:
    """How many of so many events to match at once."""
    most = min(_EVENTS, max(-(-count // _PIECES), _FEW))
    for target in targets:
        most = min(most, card.budget // max(4 * (target.resident.width + target.resident.lines), 1))
        for index in target.resident.indexes:
            if isinstance(index.flat.params, ATree):
                most = min(most, WORD * max(card.budget // (8 * max(node_count(index), 1)), 1))
        if _in_order(target):  # bitsets of all clauses at once spare the sorting of matches
            fits = card.budget // max(8 * len(target.resident.indexes[0].arrays["loose"]), 1)
            most = min(most, fits) if fits >= _ENOUGH else most
    return max(most, 1)


def _in_order(target: Target) -> bool:
    """Are matches found event by event, with ascending rows?"""
    return target.ascending and isinstance(target.resident.indexes[0].flat.params, Gem)


def _joined(card: Card, parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """One result of consecutive ranges: a copy in memory of the caller's stream, who may free it there."""
    xp = card.xp
    offsets, base = [xp.zeros(1, dtype=np.int64)], 0
    for ends, rows in parts:
        offsets.append(ends[1:] + base)
        base += len(rows)
    return xp.concatenate(offsets), xp.concatenate([*(rows for _, rows in parts), xp.empty(0, dtype=np.int32)])


def _match_range(
    card: Card, targets: Sequence[Target], encoders: Sequence[Encoder], start: int, stop: int, once: bool
) -> Job[tuple[Any, Any]]:
    xp = card.xp
    found: list[Any] = []
    unchecked: list[tuple[Target, HeldIndex, Coded, list[Any]]] = []
    in_order = len(targets) == 1 and _in_order(targets[0]) and not once
    for target, encoder in zip(targets, encoders, strict=True):
        coded = yield from encoder.encode(start, stop)
        for index in target.resident.indexes:
            pieces = yield from candidates(card, target.resident, index, coded)
            answers = []
            for keys in pieces:
                if not isinstance(index.flat.params, ATree):
                    keys = yield from _verified(card, target.resident, coded, keys)
                answers.append(keys)
                found.append((yield from _rows(card, target.rows, keys)))
            if isinstance(index.flat.params, Tama) and index.flat.params.approximate and not once:
                unchecked.append((target, index, coded, answers))
    for some in unchecked:  # when nothing can be over budget any more, and done again
        yield from _count_false(card, *some)
    in_order = in_order and len(found) == 1
    keys = found[0] if len(found) == 1 else xp.concatenate([*found, xp.empty(0, dtype=np.int64)])
    if not in_order:
        keys = yield from _distinct(card, xp.sort(keys))
    offsets = xp.searchsorted(keys, xp.arange(stop - start + 1, dtype=np.int64) << 32)
    return offsets.astype(np.int64), (keys & 0xFFFF_FFFF).astype(np.int32)


def _distinct(card: Card, keys: Any) -> Job[Any]:
    """Sorted keys without repeats."""

    def launch(found: Any, counts: Any) -> None:
        card.launch(work.distinct, len(keys), keys, found, counts)

    different = yield from kept(card, len(keys), launch)
    return different


def _verified(card: Card, resident: Resident, coded: Coded, keys: Any) -> Job[Any]:
    """Of some candidates those that match."""
    events = (*coded.entries(), coded.rows, coded.width)

    def test(found: Any, counts: Any) -> None:
        clauses = (resident.clause_ptr, resident.clause_program, *resident.predicates)
        card.launch(verify.test_predicates, len(keys), keys, *events, *clauses, found, counts)

    passed = yield from kept(card, len(keys), test)
    if not resident.has_programs or len(passed) == 0:
        return passed
    depth = resident.depth + 1
    blocks = max(min(card.blocks, card.budget // (card.threads * depth)), 1)
    stacks = card.xp.empty(min(blocks, card.tiles(len(passed))) * card.threads * depth, dtype=np.uint8)

    def run(found: Any, counts: Any) -> None:
        programs = (resident.clause_program, *resident.predicates, *resident.programs, resident.presence)
        args = (passed, *events, *programs, stacks, depth, found, counts)
        card.launch(verify.run_programs, len(passed), *args, blocks=blocks)

    kept_keys = yield from kept(card, len(passed), run)
    return kept_keys


def _count_false(card: Card, target: Target, index: HeldIndex, coded: Coded, answers: list[Any]) -> Job[None]:
    """Count how many answers to some of the events are false, which an approximate index may give."""
    xp = card.xp
    weight = card.upload(weights(index.flat, coded.length))
    keys = xp.concatenate([*answers, xp.empty(0, dtype=np.int64)])
    keys = keys[xp.flatnonzero(weight[keys >> 32])]
    true = yield from _verified(card, target.resident, coded, keys | work.UNDECIDED)
    checked, weighed = [], []
    for some in (keys, true):
        rows = yield from _rows(card, target.rows, some)
        rows = yield from _distinct(card, xp.sort(rows))
        checked.append(len(rows))
        weighed.append((yield weight[rows >> 32].sum(keepdims=True)))
    count_false(index.flat, checked[0], weighed[0], weighed[0] - weighed[1])


def _rows(card: Card, rows: Any, keys: Any) -> Job[Any]:
    """Keys with rows in the place of clauses."""

    def launch(found: Any, counts: Any) -> None:
        card.launch(work.to_rows, len(keys), keys, rows, found, counts)

    named = yield from kept(card, len(keys), launch)
    return named
