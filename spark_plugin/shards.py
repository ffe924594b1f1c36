"""Shards of an index, each built by a task of its own: the driver's half and the executors'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import gpumatch as gm
from gpumatch.errors import StorageError
from gpumatch.index import params_from
from gpumatch.spark.frames import map_in_arrow, own_python, select
from gpumatch.store.directory import FORMAT, read_manifest, shard_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORTED = 20  # rejected subscriptions that a task names; of others the driver learns the number only


@dataclass(frozen=True)
class Recipe:
    """What a task needs to build a shard."""

    path: str
    schema: dict[str, Any]
    index: dict[str, Any] | None  # parameters; None is "auto"
    keep_good: bool  # leave bad subscriptions out, instead of saving nothing


@dataclass(frozen=True)
class Report:
    """The result of a shard's task."""

    folder: str
    subscriptions: int
    rejected: int
    first: list[tuple[Any, str]]  # some of the rejected: id and message


def build_shards(subscriptions: DataFrame, columns: Mapping[str, str], count: int, recipe: Recipe) -> list[Report]:
    """Build ``count`` shards on the executors; ``columns`` has the name of the column for id, expr and others.

    An id always goes to the same shard, and the rows of a shard are put in order, so that a second run finds the
    shards of the first.
    """
    from pyspark.sql import functions as f

    session = subscriptions.sparkSession
    named = select(subscriptions, columns.values(), "the subscriptions").toDF(*columns)
    salts = f.array(*map(f.lit, salts_of(session, count)))
    placed = named.withColumn("shard", f.expr(f"int(pmod(xxhash64(id), {count}))"))
    spread = placed.withColumn("salt", salts[f.col("shard")]).repartition(count, "salt").drop("salt")
    given = asdict(recipe)

    def run(batches: Any) -> Iterator[Any]:
        from gpumatch.spark import shards

        return shards.build_shard(batches, shards.Recipe(**given))

    with own_python(session):
        found = map_in_arrow(spread, run, "shard int, report string").collect()
    return [Report(**json.loads(row.report)) for row in sorted(found)]


def salts_of(session: SparkSession, count: int) -> list[int]:
    """A number for each of ``count`` partitions that ``repartition(count, number)`` puts there."""
    found: dict[int, int] = {}
    first = 0
    while len(found) < count:
        last = first + 20 * count
        numbers = session.range(first, last).selectExpr("int(id)", f"int(pmod(hash(int(id)), {count}))")
        for number, partition in sorted(map(tuple, numbers.collect())):
            found.setdefault(partition, number)
        first = last
    return [found[partition] for partition in range(count)]


def build_shard(batches: Iterable[Any], recipe: Recipe) -> Iterator[Any]:
    """Build the shard of a partition's subscriptions, unless an earlier run has."""
    held = [batch for batch in batches if batch.num_rows]
    if held:
        table = pa.Table.from_batches(held)
        number = table["shard"][0].as_py()
        table = table.drop_columns(["shard"]).sort_by([("id", "ascending"), ("expr", "ascending")])
        report = json.dumps(asdict(_built(table, number, recipe)))
        yield pa.RecordBatch.from_pydict({"shard": pa.array([number], pa.int32()), "report": [report]})


def _built(table: Any, number: int, recipe: Recipe) -> Report:
    name = shard_name(number, _digest(table, recipe))
    folder = Path(recipe.path, name)
    if (done := _saved(folder)) is not None:
        return Report(name, done, len(table) - done, [])
    index = "auto" if recipe.index is None else params_from(recipe.index)
    matcher = gm.Matcher(recipe.schema, index=index, device="cpu")
    extra = {key: table[key] for key in ("weight", "destination") if key in table.column_names}
    rejected = matcher.add_table(table, on_error="collect", **extra)
    if not rejected or recipe.keep_good:
        matcher.save(folder)
    return Report(name, len(matcher), len(rejected), [(bad.id, bad.message) for bad in rejected[:REPORTED]])


def _saved(folder: Path) -> int | None:
    """The number of subscriptions in a folder; None if it was not saved completely."""
    try:
        return sum(int(segment["length"]) for segment in read_manifest(folder)["segments"])
    except StorageError:
        return None


def _digest(table: Any, recipe: Recipe) -> str:
    """A digest of everything the shard depends on."""
    facts = {**asdict(recipe), "path": "", "format": FORMAT}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    digest.update(sink.getvalue())
    return digest.hexdigest()
