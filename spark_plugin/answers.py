"""Matches as the Arrow batches that a task hands back, in slices of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpumatch as gm
from gpumatch.arrays import Array, pointers
from gpumatch.subscriptions.weights import heaviest_first, top_rows

Output: TypeAlias = Literal["pairs", "array", "count", "destinations"]
OUTPUTS: tuple[Output, ...] = ("pairs", "array", "count", "destinations")

SLICE_ROWS = 50_000  # of output
SLICE_BYTES = 64 << 20  # of output, about: a wide event is repeated for each of its matches
SLICE_IDS = 1 << 20  # in the arrays of a slice


def answers(matcher: gm.Matcher, batch: Any, kept: int, output: Output, top: int | None) -> Iterator[Any]:
    """Columns of the result for each slice: the first ``kept`` of the events', and that of the matches."""
    events = batch.select(list(range(kept)))
    first = 0
    for matches in found(matcher, batch, output, top):
        yield from shaped(events.slice(first, len(matches)), matches, output)
        first += len(matches)


def found(matcher: gm.Matcher, batch: Any, output: Output, top: int | None) -> Iterator[gm.Matches]:
    """What the events of a batch match, some events at a time."""
    if output == "destinations":
        has_any = matcher._seal().destinations is not None  # a shard may have none
        none = gm.Matches(np.zeros(len(batch) + 1, np.int64), np.zeros(0, np.int32), pa.array([], pa.int64()))
        yield matcher.destinations(batch) if has_any else none
    elif top is not None:
        yield matcher.top(batch, top)
    else:
        yield from matcher.match_iter(batch)


def shaped(events: Any, matches: gm.Matches, output: Output) -> Iterator[list[Any]]:
    """Columns of events, and what they match."""
    if output == "pairs":
        return _pairs(events, matches)
    return iter([[*events.columns, pa.array(matches.counts)]]) if output == "count" else _arrays(events, matches)


def _pairs(events: Any, matches: gm.Matches) -> Iterator[list[Any]]:
    """A row for every match."""
    table = matches.to_arrow()
    ends = _ends(np.repeat(_sizes(events), matches.counts))
    for start, stop in pairwise(ends):
        event, ids = (column.combine_chunks() for column in table.slice(start, stop - start).columns)
        yield [*events.take(event).columns, ids]


def _sizes(events: Any) -> Array:
    """About how many bytes each event has."""
    sizes = np.zeros(events.num_rows)
    for column in events.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        else:
            sizes += column.nbytes / max(1, len(column))
    return sizes


def _ends(sizes: Array) -> list[int]:
    """Where slices of rows with these sizes begin and end: at least one row each, at most SLICE_ROWS."""
    below, ends = pointers(np.ceil(sizes)), [0]
    while ends[-1] < len(sizes):
        first = ends[-1]
        last = int(np.searchsorted(below, below[first] + SLICE_BYTES, "right")) - 1
        ends.append(min(max(last, first + 1), first + SLICE_ROWS, len(sizes)))
    return ends


def _arrays(events: Any, matches: gm.Matches) -> Iterator[list[Any]]:
    """A row for every event, with all of its ids."""
    first = 0
    while first < len(matches):
        last = int(np.searchsorted(matches.offsets, matches.offsets[first] + SLICE_IDS, "right")) - 1
        last = min(max(last, first + 1), first + SLICE_ROWS, len(matches))
        yield [*events.slice(first, last - first).columns, matches[first:last].to_lists()]
        first = last


class Merging:
    """Merges what events match in several shards: arrays are joined, counts added up, the heaviest picked again."""

    def __init__(self, events: int, output: Output, top: int | None) -> None:
        self._output, self._top, self._events = output, top, events
        self._event: list[Array] = [np.zeros(0, np.int64)]
        self._weight: list[Array] = [np.zeros(0)]
        self._ids: list[Any] = []

    def add(self, event: Array, ids: Any, weight: Array | None) -> None:
        """Matches: the number of the event, the id, and its weight if they are asked for the heaviest."""
        if len(ids):  # else their type may differ
            self._event.append(event)
            self._ids.append(ids)
            self._weight.append(np.zeros(0) if weight is None else weight)

    def add_shard(self, matcher: gm.Matcher, batch: Any) -> None:
        """What events 0, 1, 2 … of a batch match in a shard."""
        first = 0
        for matches in found(matcher, batch, self._output, self._top):
            event = first + np.repeat(np.arange(len(matches)), matches.counts)
            weight = None if self._top is None else weights_of(matcher, matches)
            self.add(event, matches.names.take(pa.array(matches.rows)), weight)
            first += len(matches)

    def merged(self) -> gm.Matches:
        event = np.concatenate(self._event)
        ids = pa.concat_arrays(self._ids) if self._ids else pa.array([], pa.int64())
        order = np.argsort(event, kind="stable")
        if self._output == "destinations" and len(ids):
            number = ids.dictionary_encode().indices.to_numpy().astype(np.int64)
            order = np.unique(event * len(ids) + number, return_index=True)[1]
        offsets = pointers(np.bincount(event[order], minlength=self._events))
        if self._top is not None:
            rank = heaviest_first(ids, np.concatenate(self._weight))
            offsets, order = top_rows(offsets, order, rank[order], self._top)
        return gm.Matches(offsets, np.arange(len(order)), ids.take(pa.array(order)))


def weights_of(matcher: gm.Matcher, matches: gm.Matches) -> Array:
    """The weight of each match."""
    weights = matcher._seal().weights
    return np.full(len(matches.rows), np.nan) if weights is None else weights[matches.rows]
