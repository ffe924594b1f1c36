"""What runs in Spark's Python workers, which import this module by name: match Arrow batches with an open index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import gpumatch as gm
from gpumatch.arrays import Array
from gpumatch.errors import SchemaError, StorageError, nearest
from gpumatch.spark.answers import Merging, Output, answers, shaped
from gpumatch.spark.devices import device_of_task
from gpumatch.spark.following import Expected, Following
from gpumatch.spark.frames import absolute, sound
from gpumatch.spark.opened import open_index
from gpumatch.spark.ship import unpacked
from gpumatch.store.folder.place import shown

PASS_ROWS = 100_000  # events of a pass over the shards
PASS_BYTES = 64 << 20


@dataclass(frozen=True)
class Location:
    """Where executors find an index: in a folder, or under the name that the driver shipped it by.

    The driver names the shards, and the plan that leads to them: another version may replace them in the meantime.
    """

    place: str
    is_shipped: bool
    shards: tuple[str, ...] = ()  # their paths
    plan: str = ""
    parts: tuple[int, ...] = ()  # tasks that share the events which are sent to each shard
    follows: Expected | None = None  # what all its versions are like, if a stream is to follow it

    def path(self) -> str:
        if not self.is_shipped:
            return self.place
        return str(unpacked(self.place))


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


def match_batches(batches: Iterable[Any], index: Location, query: Query) -> Iterator[Any]:
    """The answers for each batch, as batches of the query's columns."""
    for matcher, batch in _opened(batches, index, query):
        for columns in answers(matcher, batch, len(query.returned) - 1, query.output, query.top):
            yield pa.RecordBatch.from_arrays(columns, names=query.returned)


def pass_batches(batches: Iterable[Any], index: Location, query: Query) -> Iterator[Any]:
    """The same from an index that may be too large to be open as a whole: every shard sees all events in turn."""
    kept = len(query.returned) - 1
    for batch in buffered(batches, query.columns):
        events, merging = batch.select(list(range(kept))), Merging(batch.num_rows, query.output, query.top)
        for matcher in _shards(index, query):
            if query.output == "pairs" and query.top is None:  # these need no merging
                yield from named(answers(matcher, batch, kept, "pairs", None), query.returned)
            else:
                merging.add_shard(matcher, batch)
        if query.output != "pairs" or query.top is not None:
            yield from named(shaped(events, merging.merged(), query.output), query.returned)


def named(slices: Iterable[list[Any]], names: list[str]) -> Iterator[Any]:
    return (pa.RecordBatch.from_arrays(columns, names=names) for columns in slices)


def count_batches(batches: Iterable[Any], index: Location, query: Query) -> Iterator[Any]:
    """How many of a task's events each subscription matched, for those that matched any."""
    total = Totals()
    for matcher, batch in _opened(batches, index, query):
        total.add(0, matcher, batch)
    yield from total.batches(query.returned)


def count_passes(batches: Iterable[Any], index: Location, query: Query) -> Iterator[Any]:
    """The same, shard by shard."""
    total = Totals()
    for batch in buffered(batches, query.columns):
        for number, matcher in enumerate(_shards(index, query)):
            total.add(number, matcher, batch)
    yield from total.batches(query.returned)


class Totals:
    """How many events each subscription of some shards matched."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Array]] = {}

    def add(self, shard: int, matcher: gm.Matcher, batch: Any) -> None:
        for matches in matcher.match_iter(batch):
            _, total = self._found.setdefault(shard, (matches.names, np.zeros(len(matches.names), np.int64)))
            total += np.bincount(matches.rows, minlength=len(total))

    def batches(self, names: list[str]) -> Iterator[Any]:
        for ids, total in self._found.values():
            rows = np.flatnonzero(total)
            if len(rows) == 0:  # an empty shard has ids of no type
                continue
            yield pa.RecordBatch.from_arrays([ids.take(pa.array(rows)), pa.array(total[rows])], names=names)


def slices(batch: Any) -> Iterator[Any]:
    """Batches of at most PASS_ROWS."""
    return (batch.slice(first, PASS_ROWS) for first in range(0, len(batch), PASS_ROWS))


def buffered(batches: Iterable[Any], names: list[str]) -> Iterator[Any]:
    """Larger batches: each of them costs a pass over all shards."""
    held: list[Any] = []
    for batch in batches:
        held.append(pa.RecordBatch.from_arrays(batch.columns, names=names))
        if sum(map(len, held)) >= PASS_ROWS or sum(one.nbytes for one in held) >= PASS_BYTES:
            yield pa.concat_batches(held)
            held = []
    if sum(map(len, held)):
        yield pa.concat_batches(held)


def _shards(index: Location, query: Query) -> Iterator[gm.Matcher]:
    """One after another: only as many are open at a time as there is room for."""
    return (open_matcher(shard, index, query) for shard in index.shards)


def _opened(batches: Iterable[Any], index: Location, query: Query) -> Iterator[tuple[gm.Matcher, Any]]:
    """Each batch with the matcher, which is opened when the first one comes: an empty partition needs none."""
    matcher = None
    for batch in batches:
        if matcher is None:
            matcher = open_matcher(index.path(), index, query)
        yield matcher, pa.RecordBatch.from_arrays(batch.columns, names=query.columns)


def open_matcher(path: str, index: Location, query: Query) -> gm.Matcher:
    """The matcher of an index or a shard, for this task."""
    use_own_cores()
    device = device_of_task(query.device, query.is_local)
    if index.follows is not None:
        return Following.of_task(path, device, index.follows).open()
    matcher = open_index(path, device)
    _check_ids(matcher, index, query)
    return matcher


def _check_ids(matcher: gm.Matcher, index: Location, query: Query) -> None:
    """The driver may have seen another version of the index, or none."""
    if query.output != "destinations":
        check_ids(matcher, index.place, query.integers)


def check_ids(matcher: gm.Matcher, path: str, integers: bool) -> None:
    if matcher.id_type not in (None, int if integers else str):
        asked = "bigint" if integers else "string"
        raise StorageError(f"the ids of the index at {shown(path)} are not of type {asked}, which the query expects")


def use_own_cores() -> None:
    """Spark runs a task on every core, so more threads than a task's own cores would only compete."""
    from pyspark import TaskContext

    context = TaskContext.get()
    gm.set_num_threads(1 if context is None else int(context.cpus()))


# Functions of SQL


def ids_of_rows(index: Any, attributes: Sequence[Any], integers: bool) -> Any:
    """The array of ids of each row. ``index`` has the folder once for every row, and so have names of attributes."""
    kind = pa.list_(pa.int64() if integers else pa.string())
    if len(index) == 0:
        return pa.array([], kind)
    matcher = _index_of(index, integers)
    return matcher.match(_batch(attributes, matcher.schema)).to_lists().cast(kind)


def _batch(attributes: Sequence[Any], schema: gm.Schema) -> Any:
    """Named columns, or the fields of a struct, which may have others."""
    first, columns = attributes[0] if attributes else pa.nulls(0), list(attributes[1:])
    if not columns and pa.types.is_struct(first.type):
        return pa.RecordBatch.from_struct_array(first)
    names = [name.strip() for name in str(first[0]).split(",")] if pa.types.is_string(first.type) else []
    if not columns or len(names) != len(columns):
        raise SchemaError(
            f"match_ids takes the index, the names of attributes in one string, and a column for each of them, or a "
            f"struct; found the names {names} and {len(columns)} columns"
        )
    unknown = [name for name in names if name not in schema]
    if unknown:
        raise SchemaError(f"match_ids names {unknown[0]!r}, which is no attribute{nearest(unknown[0], schema.names)}")
    return pa.RecordBatch.from_arrays(columns, names=names)


def pairs_of_rows(events: Any, index: Any, returned: list[str], integers: bool) -> Iterator[Any]:
    """A table with a row for every match: the columns to return, and the id."""
    if events.num_rows == 0:
        return
    matcher = _index_of(index, integers)
    missing = [name for name in returned if name not in events.schema.names]
    if missing:
        raise SchemaError(f"the events have no column {missing[0]!r}, which register() names")
    others = [name for name in events.schema.names if name not in returned]
    names = [*returned, "subscription"]
    for columns in answers(matcher, sound(events.select([*returned, *others])), len(returned), "pairs", None):
        ids = columns[-1] if integers else columns[-1].cast(pa.string())
        yield pa.Table.from_arrays([*columns[:-1], ids], names=names)


def _index_of(index: Any, integers: bool) -> gm.Matcher:
    [path, *others] = index.unique().to_pylist()
    if others or path is None:
        found = [None if one is None else shown(one) for one in (path, *others[:1])]
        raise SchemaError(f"the index must be the path of a folder, the same for all rows; found {found}")
    matcher = open_index(absolute(path), device_of_task("auto", is_local=False))
    use_own_cores()
    check_ids(matcher, path, integers)
    return matcher
