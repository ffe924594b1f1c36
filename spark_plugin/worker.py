"""Runs in Spark's Python workers: opens the index once and matches Arrow batches.

Workers import this module by name, so the open indexes outlive a task and are never pickled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import gpumatch as gm
from gpumatch.errors import StorageError
from gpumatch.store.directory import read_manifest

OPEN_INDEXES = 4  # per worker; the least recently used is closed first
SLICE_ROWS = 50_000  # rows of output
SLICE_BYTES = 64 << 20  # approximate bytes of output: a wide event is repeated for each of its matches

_open: OrderedDict[str, gm.Matcher] = OrderedDict()


@dataclass(frozen=True)
class Query:
    """What a task needs to know, apart from the location of the index."""

    columns: list[str]  # names of the columns of the batches; those to return come first
    output: list[str]  # the columns to return, then the id column
    integers: bool  # ids are integers, not strings


def match_shipped(batches: Iterable[Any], *, name: str, query: Query) -> Iterator[Any]:
    """Like ``match_folder``, for a matcher that the driver shipped under this name."""
    from pyspark import SparkFiles

    return match_folder(batches, path=SparkFiles.get(name), query=query)


def match_folder(batches: Iterable[Any], *, path: str, query: Query) -> Iterator[Any]:
    """One row per match: columns of the event and the id of the subscription."""
    matcher = None
    for batch in batches:
        if matcher is None:  # not earlier: an empty partition needs no index
            matcher = open_index(path)
            gm.set_num_threads(_task_cpus())
        named = pa.RecordBatch.from_arrays(batch.columns, names=query.columns)
        for piece in pairs(matcher, named, query.output):
            if pa.types.is_integer(piece.schema.types[-1]) != query.integers:
                asked = "bigint" if query.integers else "string"  # the driver saw another version, or none
                raise StorageError(
                    f"the ids of the index at {path} are not of the type {asked}, which the query expects"
                )
            yield piece


def open_index(path: str) -> gm.Matcher:
    """The matcher of a folder, memory-mapped; reused from earlier tasks if the folder has not changed."""
    key = read_manifest(Path(path))["checksum"]
    matcher = _open.get(key)
    if matcher is None:
        matcher = _open[key] = gm.load(path, device="cpu", mmap=True)
        if len(_open) > OPEN_INDEXES:
            _open.popitem(last=False)
    _open.move_to_end(key)
    return matcher


def pairs(matcher: gm.Matcher, batch: Any, output: list[str]) -> Iterator[Any]:
    """The matches of one batch, in slices of bounded size."""
    columns = batch.select(list(range(len(output) - 1)))
    rows = _slice_rows(batch)
    first = 0
    for matches in matcher.match_iter(batch):
        events, table = columns.slice(first, len(matches)), matches.to_arrow()
        first += len(matches)
        for start in range(0, len(table), rows):
            event, ids = (column.combine_chunks() for column in table.slice(start, rows).columns)
            yield pa.RecordBatch.from_arrays([*events.take(event).columns, ids], names=output)


def _slice_rows(events: Any) -> int:
    """Rows of output per slice, from the mean size of an event."""
    rows: int = SLICE_BYTES * events.num_rows // max(1, events.nbytes)
    return max(1, min(SLICE_ROWS, rows))


def _task_cpus() -> int:
    """Spark runs a task on every core, so more threads than a task's own cores would only compete."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else int(context.cpus())
