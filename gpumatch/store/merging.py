"""Which pieces of a snapshot are due to become one segment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from gpumatch.index import trials
from gpumatch.store.segment import Segment
from gpumatch.store.snapshot import Piece, Snapshot

_FRESH = 4  # segments without a planned index, one after another, before they are joined; sources cost nothing yet
SCANNED = 8192  # rows that such segments have together before they become one with an index
WORTH = 256  # rows for which an index pays, if scanning them takes long
_SHARE = 4  # of the time of matching that scanning may take
_TIER = 4  # segments of about the same size before they are merged: a row is merged once for each power of it


class Job(NamedTuple):
    """Pieces ``first:last`` are to become one; ``planned``: with an index, not just to be scanned."""

    first: int
    last: int
    planned: bool = True


def is_new(piece: Piece) -> bool:
    """Whether it has no planned index yet."""
    return not isinstance(piece, Segment) or piece.fresh is not None


def due(state: Snapshot, claimed: Collection[int]) -> Job | None:
    """What should be merged next. Pieces whose ``id`` is claimed are being merged already."""
    if (job := due_new(state, claimed)) is not None:
        return job
    free = [id(piece) not in claimed for piece in state.pieces]
    new = [one and is_new(piece) for one, piece in zip(free, state.pieces, strict=True)]
    for at, gone in enumerate(state.removed):
        if gone is not None and free[at] and not new[at] and 2 * len(gone) > gone.length:
            return Job(at, at + 1)
    old = [one and not other for one, other in zip(free, new, strict=True)]
    run = crowded(state.live, free, old, _TIER, SCANNED)
    return None if run is None else Job(*run)


def due_new(state: Snapshot, claimed: Collection[int]) -> Job | None:
    """The same, of what has no index yet."""
    for first, last in runs([is_new(piece) and id(piece) not in claimed for piece in state.pieces]):
        if sum(state.live[first:last]) > SCANNED or _is_slow(state, first, last):
            return Job(first, last)
        if sum(isinstance(piece, Segment) for piece in state.pieces[first:last]) > _FRESH:
            return Job(first, last, planned=False)
    return None


def _is_slow(state: Snapshot, first: int, last: int) -> bool:
    """Whether scanning takes a large share of the time of matching, as far as that was measured."""
    if sum(state.live[first:last]) < WORTH or not trials.allowed():
        return False
    times = [piece.measured if isinstance(piece, Segment) else 0.0 for piece in state.pieces]
    return _SHARE * sum(times[first:last]) > sum(times)


def unindexed(state: Snapshot, claimed: Collection[int]) -> Job | None:
    """Pieces without a planned index, however few."""
    marks = [is_new(piece) and id(piece) not in claimed for piece in state.pieces]
    return next((Job(*run) for run in runs(marks)), None)


def crowded(
    sizes: Sequence[int], free: Sequence[bool], counted: Sequence[bool], most: int, least: int
) -> tuple[int, int] | None:
    """Bounds of free neighbours among which ``most`` or more counted ones have about the same size, and none is larger.

    Sizes below ``least`` are alike, and so are those between ``least`` and ``most`` times that, and so on.
    """
    tiers = [_tier(size, most, least) for size in sizes]
    for tier in sorted(set(tiers)):
        for first, last in runs([one and own <= tier for one, own in zip(free, tiers, strict=True)]):
            if sum(tiers[at] == tier and counted[at] for at in range(first, last)) >= most:
                return first, last
    return None


def _tier(size: int, most: int, least: int) -> int:
    tier = 0
    while size >= least * most ** (tier + 1):
        tier += 1
    return tier


def runs(marks: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Bounds of the longest stretches of true marks."""
    first = 0
    for mark, group in groupby(marks):
        last = first + len(list(group))
        if mark:
            yield first, last
        first = last
