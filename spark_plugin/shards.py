"""Shards of an index, each built by a task of its own: the driver's half and the executors'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpumatch as gm
from gpumatch.arrays import Array
from gpumatch.errors import StorageError
from gpumatch.index import params_from
from gpumatch.routing.shards.plan import Draft
from gpumatch.routing.shards.router import Entries
from gpumatch.spark.frames import Job, map_in_arrow, own_python, salts_of, task
from gpumatch.spark.ship import ship_kernels
from gpumatch.spark.worker import use_own_cores
from gpumatch.store.folder.manifests import FORMAT, shard_name
from gpumatch.store.folder.remote import below, prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPORTED = 20  # rejected subscriptions that a task names; of the others the driver learns only the number


@dataclass(frozen=True)
class Recipe:
    """What a task needs to build a shard."""

    path: str
    schema: dict[str, Any]
    index: dict[str, Any] | None  # parameters; None is "auto"
    keep_good: bool  # leave bad subscriptions out, instead of saving nothing
    draft: Draft


@dataclass(frozen=True)
class Report:
    """The result of a shard's task."""

    folder: str
    subscriptions: int
    rejected: int
    first: list[tuple[Any, str]]  # some of the rejected: id and message
    always: bool  # whether it gets every event
    entries: Array  # of the router, as one array


def build_shards(named: DataFrame, count: int, recipe: Recipe) -> list[Report]:
    """Build ``count`` shards on the executors, from the columns id, expr and perhaps others.

    A subscription always goes to the same shard, and the rows of a shard are put in order, so that a second run finds
    the shards of the first.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import IntegerType, StructField, StructType

    job = Job(kernels=ship_kernels(named.sparkSession))
    with own_python(named.sparkSession):
        if recipe.draft.placement is None:
            placed = named.withColumn("shard", f.expr(f"int(pmod(xxhash64(id), {count}))"))
        else:
            fields = [*named.schema.fields, StructField("shard", IntegerType())]
            placed = map_in_arrow(named, task("shards", "place_batches", job, recipe=recipe), StructType(fields))
        salts = f.array(*map(f.lit, salts_of(count)))
        spread = placed.withColumn("salt", salts[f.col("shard")]).repartition(count, "salt").drop("salt")
        built = task("shards", "build_shard", job, recipe=recipe)
        found = map_in_arrow(spread, built, "shard int, report string, entries binary").collect()
    if not found:  # an index without subscriptions has a shard without any
        return [_built(named.limit(0).toArrow(), 0, recipe)]
    rows = sorted(found, key=lambda row: row.shard)
    return [Report(**json.loads(row.report), entries=np.frombuffer(row.entries, np.uint16)) for row in rows]


def place_batches(batches: Iterable[Any], recipe: Recipe) -> Iterator[Any]:
    """Subscriptions with their shards. Those that cannot be read go to the first, which reports them."""
    use_own_cores()
    assert recipe.draft.placement is not None
    for batch in batches:
        matcher = gm.Matcher(recipe.schema, device="cpu")
        matcher.add_table(pa.Table.from_batches([batch]), on_error="collect")
        source = matcher._source()
        shard = recipe.draft.placement.shards(recipe.draft.grid, source)
        known = pc.index_in(batch.column("id"), source.ids.cast(batch.column("id").type)).fill_null(-1).to_numpy()
        yield batch.append_column("shard", pa.array(np.append(shard, 0)[known].astype(np.int32)))


def build_shard(batches: Iterable[Any], recipe: Recipe) -> Iterator[Any]:
    """Build the shard of a partition's subscriptions, unless an earlier run has."""
    use_own_cores()
    held = [batch for batch in batches if batch.num_rows]
    if held:
        table = pa.Table.from_batches(held)
        number = table["shard"][0].as_py()
        table = table.drop_columns(["shard"]).sort_by([("id", "ascending"), ("expr", "ascending")])
        report = asdict(_built(table, number, recipe))
        entries = report.pop("entries").tobytes()
        columns = {"shard": pa.array([number], pa.int32()), "report": [json.dumps(report)], "entries": [entries]}
        yield pa.RecordBatch.from_pydict(columns)


def _built(table: Any, number: int, recipe: Recipe) -> Report:
    name = shard_name(number, _digest(table, recipe))
    folder = below(recipe.path, name)
    prepare(recipe.path)  # a store that this executor cannot reach should be an error now, not after the work
    if (done := _saved(folder)) is not None:
        entries = Entries.of(recipe.draft.grid, done)
        return Report(name, len(done), len(table) - len(done), [], entries.always, entries.rows)
    index = "auto" if recipe.index is None else params_from(recipe.index)
    matcher = gm.Matcher(recipe.schema, index=index, device="cpu")
    extra = {key: table[key] for key in ("weight", "destination") if key in table.column_names}
    rejected = matcher.add_table(table, on_error="collect", **extra)
    if not rejected or recipe.keep_good:
        matcher.save(folder)
    entries = Entries.of(recipe.draft.grid, matcher)
    first = [(bad.id, bad.message) for bad in rejected[:REPORTED]]
    return Report(name, len(matcher), len(rejected), first, entries.always, entries.rows)


def _saved(folder: str) -> gm.Matcher | None:
    """The existing shard; None if it was not saved completely, or was damaged since."""
    try:
        return gm.load(folder, device="cpu", verify="full")
    except StorageError:
        return None


def _digest(table: Any, recipe: Recipe) -> str:
    """A digest of everything the shard depends on."""
    facts = {"schema": recipe.schema, "index": recipe.index, "keep_good": recipe.keep_good, "format": FORMAT}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    digest.update(sink.getvalue())
    return digest.hexdigest()
