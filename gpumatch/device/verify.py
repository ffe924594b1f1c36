"""The last steps of matching on a device: testing candidates, finding their rows, and removing repeats."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumatch.device.candidates import kept
from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded
from gpumatch.device.resident import Resident
from gpumatch.kernels.cuda import verify, work


def verified(card: Card, resident: Resident, coded: Coded, keys: Any) -> Job[Any]:
    """The candidates that match."""
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


def rows_of(card: Card, rows: Any, keys: Any) -> Job[Any]:
    """Keys with rows instead of clauses."""

    def launch(found: Any, counts: Any) -> None:
        card.launch(work.to_rows, len(keys), keys, rows, found, counts)

    named = yield from kept(card, len(keys), launch)
    return named


def numbers_of(card: Card, removed: tuple[Any, Any], base: int, keys: Any) -> Job[Any]:
    """Keys with the numbers of live rows instead of rows; ``removed``: bits, and counts before each word of them."""

    def launch(found: Any, counts: Any) -> None:
        card.launch(work.to_numbers, len(keys), keys, *removed, base, found, counts)

    numbered = yield from kept(card, len(keys), launch)
    return numbered


def distinct(card: Card, keys: Any) -> Job[Any]:
    """Sorted keys without repeats."""

    def launch(found: Any, counts: Any) -> None:
        card.launch(work.distinct, len(keys), keys, found, counts)

    different = yield from kept(card, len(keys), launch)
    return different
