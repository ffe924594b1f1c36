"""What runs in Spark's Python workers, which import this module by name: match Arrow batches with an open index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import gpumatch as gm
from gpumatch.errors import SchemaError, StorageError
from gpumatch.spark.answers import Output, answers
from gpumatch.spark.devices import device_of_task
from gpumatch.spark.frames import absolute
from gpumatch.spark.opened import open_index


@dataclass(frozen=True)
class Query:
    """What a task needs to know, apart from the location of the index."""

    columns: list[str]  # what the columns of the batches are called; those to return come first
    returned: list[str]  # the columns to return, the one of the matches last
    output: Output
    top: int | None  # how many subscriptions of an event to return; None: all
    integers: bool  # whether ids are integers, not strings
    device: str
    is_local: bool  # whether all tasks run in one executor, on the driver's machine


def shipped(name: str) -> str:
    """The folder of a matcher that the driver shipped under this name."""
    from pyspark import SparkFiles

    return str(SparkFiles.get(name))


def match_batches(batches: Iterable[Any], path: str, query: Query) -> Iterator[Any]:
    """The answers for each batch, as batches of the query's columns."""
    for matcher, batch in _opened(batches, path, query):
        for columns in answers(matcher, batch, len(query.returned) - 1, query.output, query.top):
            yield pa.RecordBatch.from_arrays(columns, names=query.returned)


def count_batches(batches: Iterable[Any], path: str, query: Query) -> Iterator[Any]:
    """How many of a task's events each subscription matched, for those that matched any."""
    totals = ids = None
    for matcher, batch in _opened(batches, path, query):
        for matches in matcher.match_iter(batch):
            totals = np.zeros(len(matches.names), np.int64) if totals is None else totals
            totals += np.bincount(matches.rows, minlength=len(totals))
            ids = matches.names
    if totals is not None and ids is not None:
        rows = np.flatnonzero(totals)
        yield pa.RecordBatch.from_arrays([ids.take(pa.array(rows)), pa.array(totals[rows])], names=query.returned)


def _opened(batches: Iterable[Any], path: str, query: Query) -> Iterator[tuple[gm.Matcher, Any]]:
    """Each batch with the matcher, which is opened when the first one comes: an empty partition needs none."""
    matcher = None
    for batch in batches:
        if matcher is None:
            matcher = open_index(path, device_of_task(query.device, query.is_local))
            gm.set_num_threads(_task_cpus())
            if query.output != "destinations":
                _check_ids(matcher, path, query.integers)
        yield matcher, pa.RecordBatch.from_arrays(batch.columns, names=query.columns)


def _check_ids(matcher: gm.Matcher, path: str, integers: bool) -> None:
    """The driver may have seen another version of the index, or none."""
    if matcher.id_type not in (None, int if integers else str):
        asked = "bigint" if integers else "string"
        raise StorageError(f"the ids of the index at {path} are not of the type {asked}, as the query says")


def _task_cpus() -> int:
    """Spark runs a task on every core, so more threads than a task's own cores would only compete."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else int(context.cpus())


# Functions of SQL


def ids_of_rows(index: Any, attributes: Sequence[Any], integers: bool) -> Any:
    """The array of ids of each row. ``index`` has the folder once for every row, and so have names of attributes."""
    kind = pa.list_(pa.int64() if integers else pa.string())
    if len(index) == 0:
        return pa.array([], kind)
    matcher = _named(index, integers)
    return matcher.match(_batch(attributes)).to_lists().cast(kind)


def _batch(attributes: Sequence[Any]) -> Any:
    """Named columns, or the fields of a struct."""
    first, *columns = attributes
    if not columns and pa.types.is_struct(first.type):
        return pa.RecordBatch.from_struct_array(first)
    names = [name.strip() for name in str(first[0]).split(",")] if pa.types.is_string(first.type) else []
    if not columns or len(names) != len(columns):
        raise SchemaError(
            f"match_ids takes the index, the names of attributes in one string, and a column for each of them, or a "
            f"struct; found the names {names} and {len(columns)} columns"
        )
    return pa.RecordBatch.from_arrays(columns, names=names)


def pairs_of_rows(events: Any, index: Any, returned: list[str], integers: bool) -> Iterator[Any]:
    """A table with a row for every match: the columns to return, and the id."""
    if events.num_rows == 0:
        return
    matcher = _named(index, integers)
    missing = [name for name in returned if name not in events.schema.names]
    if missing:
        raise SchemaError(f"the events have no column {missing[0]!r}, which register() was told to return")
    others = [name for name in events.schema.names if name not in returned]
    names = [*returned, "subscription"]
    for columns in answers(matcher, events.select([*returned, *others]), len(returned), "pairs", None):
        ids = columns[-1] if integers else columns[-1].cast(pa.string())
        yield pa.Table.from_arrays([*columns[:-1], ids], names=names)


def _named(index: Any, integers: bool) -> gm.Matcher:
    [path, *others] = index.unique().to_pylist()
    if others or path is None:
        raise SchemaError(
            f"the index is the path of a folder, the same for all rows; found {path!r} and {others[:1]!r}"
        )
    matcher = open_index(absolute(path), device_of_task("auto", is_local=False))
    gm.set_num_threads(_task_cpus())
    _check_ids(matcher, path, integers)
    return matcher
