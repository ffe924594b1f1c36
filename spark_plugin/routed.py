"""Events sent to the shards that may match them: the driver's half and the executors'.

A plan's router says where each event goes. The shuffle carries a row for each batch and shard, with arrays of the
events' values: much cheaper than a row per copy. Pairs are complete after the shards; everything else is merged by
event after a second shuffle, where events are known by their hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpumatch as gm
from gpumatch.arrays import Array, pointers, spans
from gpumatch.spark.answers import Merging, answers, found, shaped, weights_of
from gpumatch.spark.frames import Job, map_in_arrow, salts_of, task
from gpumatch.spark.hashes import hashes
from gpumatch.spark.opened import open_plan
from gpumatch.spark.worker import Location, Query, Totals, named, open_matcher, slices, use_own_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SENT_BYTES = 1 << 30  # of events, if every shard got them


def match_routed(selected: DataFrame, index: Location, query: Query, schema: StructType, job: Job) -> DataFrame:
    """The answers to a query from the shards that may have any."""
    from pyspark.sql.types import ArrayType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

    salts = salts_of(sum(index.parts))
    sent = _sent(selected, index, query, job, salts, merges(query))
    matched = task("routed", "match_sent", job, index=index, query=query, salts=salts)
    if not merges(query):
        return map_in_arrow(sent, matched, schema)
    kinds = [LongType(), LongType(), IntegerType(), *(field.dataType for field in schema.fields)]
    if query.top is not None:
        kinds[-1:] = [ArrayType(LongType() if query.integers else StringType()), ArrayType(DoubleType())]
    fields = StructType([StructField(f"v{at}", kind) for at, kind in enumerate(kinds)])
    together = map_in_arrow(sent, matched, fields).repartition("v0").sortWithinPartitions("v0", "v1", "v2")
    return map_in_arrow(together, task("routed", "merge_events", job, query=query), schema)


def count_routed(selected: DataFrame, index: Location, query: Query, schema: StructType, job: Job) -> DataFrame:
    """How many events each subscription matched, in one row or several."""
    salts = salts_of(sum(index.parts))
    sent = _sent(selected, index, query, job, salts, merging=False)
    return map_in_arrow(sent, task("routed", "count_sent", job, index=index, query=query, salts=salts), schema)


def _sent(
    selected: DataFrame, index: Location, query: Query, job: Job, salts: Sequence[int], merging: bool
) -> DataFrame:
    """Rows of arrays, in the partition of their shard."""
    from pyspark.sql.types import ArrayType, IntegerType, LongType, StructField, StructType

    fields = [StructField("salt", IntegerType())]
    fields += [StructField(f"h{at}", ArrayType(LongType())) for at in range(2 * merging)]
    fields += [StructField(field.name, ArrayType(field.dataType)) for field in selected.schema]
    routed = map_in_arrow(
        selected,
        task("routed", "route_batches", job, index=index, query=query, salts=salts, merging=merging),
        StructType(fields),
    )
    return routed.repartition(len(salts), "salt")


def merges(query: Query) -> bool:
    """Whether what the shards find is merged by event; pairs are not, unless they are to be the heaviest."""
    return query.output != "pairs" or query.top is not None


# On the executors


def route_batches(
    batches: Iterable[Any], index: Location, query: Query, salts: Sequence[int], merging: bool
) -> Iterator[Any]:
    """For each batch and shard a row: the shard's salt, and arrays of events' values, and of hashes for merging.

    A shard in several parts has a salt for each. The hash of an event says which part it goes to, however often its
    task runs.
    """
    use_own_cores()
    plan = None
    parts, first = np.array(index.parts), pointers(np.array(index.parts))
    for batch in _bounded(batches, len(parts)):
        plan = open_plan(index.plan) if plan is None else plan
        matches = plan.router.route(pa.RecordBatch.from_arrays(batch.columns, names=query.columns))
        event, shard = np.repeat(np.arange(len(batch)), matches.counts), matches.rows
        known = hashes(batch) if merging or len(salts) > len(parts) else ()
        keys = known if merging else ()
        if keys:  # an event that matches nothing has an answer, too, and equal events go to the same shards
            alone = np.flatnonzero(matches.counts == 0)
            event, shard = np.append(event, alone), np.append(shard, keys[0][alone] % len(parts))
        target = first[shard] + (known[1][event] % parts[shard] if known else 0)
        order = np.argsort(target, kind="stable")
        counts = np.bincount(target, minlength=len(salts))
        some = np.flatnonzero(counts)
        ends = pa.array(pointers(counts[some]).astype(np.int32))
        values = [*(pa.array(key[event[order]]) for key in keys), *batch.take(pa.array(event[order])).columns]
        lists = [pa.ListArray.from_arrays(ends, column) for column in values]
        names = ["salt", *(f"h{at}" for at in range(len(keys))), *(f"c{at}" for at in range(batch.num_columns))]
        yield pa.RecordBatch.from_arrays([pa.array(np.array(salts, np.int32)[some]), *lists], names=names)


def _bounded(batches: Iterable[Any], shards: int) -> Iterator[Any]:
    """Batches, in pieces that may be sent to every shard: an array of strings takes at most 2 GB."""
    for batch in batches:
        if len(batch) > 1 and batch.nbytes * shards > SENT_BYTES:
            half = len(batch) // 2
            yield from _bounded([batch.slice(0, half), batch.slice(half)], shards)
        else:
            yield batch


def match_sent(batches: Iterable[Any], index: Location, query: Query, salts: Sequence[int]) -> Iterator[Any]:
    """Answers of the shards, complete or still to be merged."""
    kept = len(query.returned) - 1
    for shard, matcher, keys, batch in _received(batches, index, query, salts):
        if merges(query):
            yield from _unmerged(shard, matcher, keys, batch, query)
        else:
            yield from named(answers(matcher, batch, kept, "pairs", None), query.returned)


def count_sent(batches: Iterable[Any], index: Location, query: Query, salts: Sequence[int]) -> Iterator[Any]:
    """How many events each subscription of these shards matched."""
    total = Totals()
    for shard, matcher, _, batch in _received(batches, index, query, salts):
        total.add(shard, matcher, batch)
    yield from total.batches(query.returned)


def _received(
    batches: Iterable[Any], index: Location, query: Query, salts: Sequence[int]
) -> Iterator[tuple[int, gm.Matcher, list[Any], Any]]:
    """Events with their shard and its matcher, and their hashes."""
    shard_of = dict(zip(salts, np.repeat(np.arange(len(index.parts)), index.parts).tolist(), strict=True))
    for rows in batches:
        salt = rows.column(0).to_numpy()
        for one in np.unique(salt).tolist():
            own = rows.filter(pa.array(salt == one))
            matcher = open_matcher(index.shards[shard_of[one]], index, query)
            columns = [column.flatten() for column in own.columns[1:]]
            keys = len(columns) - len(query.columns)
            received = pa.RecordBatch.from_arrays(columns, names=[""] * keys + query.columns)
            for some in slices(received):
                yield shard_of[one], matcher, some.columns[:keys], some.select(list(range(keys, some.num_columns)))


def _unmerged(shard: int, matcher: gm.Matcher, keys: list[Any], batch: Any, query: Query) -> Iterator[Any]:
    """The hashes of each event, the shard, the columns to return, and what the event matches in this shard."""
    held = [*keys, pa.array(np.full(len(batch), shard, np.int32)), *batch.columns[: len(query.returned) - 1]]
    events = pa.RecordBatch.from_arrays(held, names=[f"v{at}" for at in range(len(held))])
    first = 0
    rows: Iterator[list[Any]]
    for matches in found(matcher, batch, query.output, query.top):
        some = events.slice(first, len(matches))
        first += len(matches)
        if query.top is None:
            rows = ([*columns, _typed(answer, query)] for *columns, answer in shaped(some, matches, query.output))
        else:
            weights = gm.Matches(matches.offsets, np.arange(len(matches.rows)), pa.array(weights_of(matcher, matches)))
            rows = iter([[*some.columns, _typed(matches.to_lists(), query), weights.to_lists()]])
        for columns in rows:
            yield pa.RecordBatch.from_arrays(columns, names=[f"v{at}" for at in range(len(columns))])


def _typed(answer: Any, query: Query) -> Any:
    """The answer, in the type of all shards: one without destinations does not know theirs."""
    return answer if query.output == "count" else answer.cast(pa.list_(pa.int64() if query.integers else pa.string()))


def merge_events(batches: Iterable[Any], query: Query) -> Iterator[Any]:
    """The answers of events, whose rows are neighbours."""
    held: list[Any] = []
    for batch in batches:
        if not len(batch):
            continue
        cut = int(_starts(batch, 2)[-1])  # further rows of the last event may follow
        if held and (cut or _key(held[-1]) != _key(batch)):
            yield from _merged([*held, batch.slice(0, cut)], query)
            held = []
        elif cut:
            yield from _merged([batch.slice(0, cut)], query)
        held.append(batch.slice(cut))
    if held:
        yield from _merged(held, query)


def _starts(rows: Any, columns: int) -> Array:
    """Where the values of the first columns, all of them integers, change."""
    changes = [np.diff(column.to_numpy(), prepend=0) != 0 for column in rows.columns[:columns]]
    changes[0][:1] = True
    return np.flatnonzero(np.logical_or.reduce(changes))


def _key(rows: Any) -> tuple[int, int]:
    """The hashes of the first row."""
    return rows.column(0)[0].as_py(), rows.column(1)[0].as_py()


def _merged(pieces: Sequence[Any], query: Query) -> Iterator[Any]:
    """The answers of complete events. Equal ones are matched once for each of them, in all of the same shards."""
    rows = pa.concat_batches(pieces)
    parts = _starts(rows, 3)  # an event, or several equal ones, in a shard
    times = np.diff(parts, append=len(rows))
    rows = rows.take(pa.array(parts))
    starts = _starts(rows, 2)
    kept = len(query.returned) - 1
    again = np.repeat(np.arange(len(starts)), times[starts])
    events, answer = rows.select(list(range(3, kept + 3))).take(pa.array(starts[again])), rows.column(kept + 3)
    if query.output == "count":
        totals = pa.array(np.add.reduceat(answer.to_numpy(), starts)[again])
        yield pa.RecordBatch.from_arrays([*events.columns, totals], names=query.returned)
        return
    counts = pc.list_value_length(answer).to_numpy()
    event = np.repeat(np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows))), counts)
    merging = Merging(len(starts), query.output, query.top)
    merging.add(event, answer.flatten(), None if query.top is None else rows.column(kept + 4).flatten().to_numpy())
    merged = merging.merged()
    matches = gm.Matches(
        pointers(merged.counts[again]), merged.rows[spans(merged.offsets[again], merged.counts[again])], merged.names
    )
    yield from named(shaped(events, matches, query.output), query.returned)
