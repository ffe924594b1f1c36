"""Memory and work of kernels that go through lists: code that kinds of index share, and what each must provide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.flat import FlatIndex
from gpumatch.kernels import count
from gpumatch.proof.roofline.cost import Cost
from gpumatch.proof.roofline.sample import (
    BUDGET,
    KEY,
    Runs,
    RunWork,
    Sample,
    marks_of,
    warp_steps,
)

MOST_SLOTS = 100_000_000  # most that are counted; longer lists are counted for fewer events


@dataclass(frozen=True, slots=True)
class Found:
    """The cost of finding candidates, their keys for the counted events, and the number of pieces they come in."""

    sample: Sample
    costs: list[Cost]
    keys: Array
    pieces: int  # of a batch


class OnRoofline(NamedTuple):
    """A kind of index on the roofline: ``ON_ROOFLINE`` of its module ``roofline``."""

    # All kernels from codes to candidates
    candidates: Callable[[Sample, FlatIndex], Found]
    # Nothing is left to be verified
    decides: bool = False
    # Words of bits per event from which the device gets matches in order, 0 if it does not
    words: Callable[[FlatIndex], int] = lambda index: 0
    # Nodes that have a word of bits each, 0 if there are none
    nodes: Callable[[FlatIndex], int] = lambda index: 0


def found_in(sample: Sample, costs: list[Cost], *lists: tuple[Runs, Array]) -> Found:
    """Candidates in the runs of one list or several."""
    most = BUDGET // KEY
    slots = [runs.slots * sample.batch / sample.events for runs, _ in lists]
    pieces = sum(-(-int(it) // most) for it in slots)
    return Found(sample, costs, np.concatenate([keys for _, keys in lists]), pieces)


def cut(sample: Sample, reach: Callable[[Sample], tuple[Runs, RunWork]]) -> tuple[Sample, Runs, RunWork]:
    """Runs of the events, or of as many as can be counted quickly."""
    runs, work = reach(sample)
    events = runs.events_within(MOST_SLOTS, sample.events)
    if events == sample.events:
        return sample, runs, work
    sample = sample.first(events)
    return sample, *reach(sample)


def reach(sample: Sample, arrays: dict[str, Array], entries: tuple[Array, ...]) -> tuple[Runs, RunWork]:
    """Runs of postings by block that entries (owners, attributes and codes) reach."""
    names = ("directory", "node_ptr")
    marks, steps = tuple(marks_of(arrays[name]) for name in names), np.zeros(len(entries[2]), np.int32)
    *runs, sectors = count.reach_blocks(entries, *(arrays[name] for name in names), marks, steps)
    found = Runs(*runs)
    touched = tuple(sample.touched(*it) for it in zip(names, sectors, marks, strict=True))
    levels, items = warp_steps(steps), len(steps)
    work = RunWork(8, touched, 66 * items + 52 * levels, 100 * items + 78 * levels + 20 * len(found.length))
    return found, work


def blocks(sample: Sample, arrays: dict[str, Array], entries: tuple[Array, ...], listed: int) -> tuple[Runs, RunWork]:
    """Runs of postings by block, and of the rest for every event."""
    found, work = reach(sample, arrays, entries)
    return found.with_rest(sample.events, listed, len(arrays["rest"])), work


def clause_marks(sample: Sample) -> tuple[Array, ...]:
    """Marks of clause pointers, predicates, ranges and rows."""
    table = sample.table
    return tuple(map(marks_of, (table.clause_ptr, table.predicate, table.range_hi, sample.rows)))


def clause_touched(sample: Sample, sectors: Any, marks: tuple[Array, ...]) -> tuple[Any, ...]:
    """Sectors touched by testing clauses: those of ``clause_marks``, in order."""
    names = ("clause_ptr", "predicate", "ranges", "rows")
    return tuple(sample.touched(*it, own=it[0] == "rows") for it in zip(names, sectors, marks, strict=True))
