"""Matches as the Arrow batches that a task hands back, in slices of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

import gpumatch as gm

Output: TypeAlias = Literal["pairs", "array", "count", "destinations"]
OUTPUTS: tuple[Output, ...] = ("pairs", "array", "count", "destinations")

SLICE_ROWS = 50_000  # of output
SLICE_BYTES = 64 << 20  # of output, about: a wide event is repeated for each of its matches
SLICE_IDS = 1 << 20  # in the arrays of a slice


def answers(matcher: gm.Matcher, batch: Any, kept: int, output: Output, top: int | None) -> Iterator[Any]:
    """Columns of the result for each slice: the first ``kept`` of the events', and that of the matches."""
    events = batch.select(list(range(kept)))
    make = {"pairs": _pairs, "array": _arrays, "count": _counts, "destinations": _arrays}[output]
    first = 0
    for matches in _found(matcher, batch, output, top):
        yield from make(events.slice(first, len(matches)), matches)
        first += len(matches)


def _found(matcher: gm.Matcher, batch: Any, output: Output, top: int | None) -> Iterator[gm.Matches]:
    if output == "destinations":
        yield matcher.destinations(batch)
    elif top is not None:
        yield matcher.top(batch, top)
    else:
        yield from matcher.match_iter(batch)


def _pairs(events: Any, matches: gm.Matches) -> Iterator[list[Any]]:
    """A row for every match."""
    table = matches.to_arrow()
    rows = max(1, min(SLICE_ROWS, SLICE_BYTES * events.num_rows // max(1, events.nbytes)))
    for start in range(0, len(table), rows):
        event, ids = (column.combine_chunks() for column in table.slice(start, rows).columns)
        yield [*events.take(event).columns, ids]


def _arrays(events: Any, matches: gm.Matches) -> Iterator[list[Any]]:
    """A row for every event, with all of its ids."""
    first = 0
    while first < len(matches):
        last = int(np.searchsorted(matches.offsets, matches.offsets[first] + SLICE_IDS, "right")) - 1
        last = min(max(last, first + 1), first + SLICE_ROWS, len(matches))
        yield [*events.slice(first, last - first).columns, matches[first:last].to_lists()]
        first = last


def _counts(events: Any, matches: gm.Matches) -> Iterator[list[Any]]:
    yield [*events.columns, pa.array(matches.counts)]
