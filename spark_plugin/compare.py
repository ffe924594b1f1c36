"""``compare_tables``: what changes one table of subscriptions into another; and an index as such a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import gpumatch as gm
from gpumatch.errors import IdError
from gpumatch.spark import worker
from gpumatch.spark.arguments import check_roles
from gpumatch.spark.frames import Job, check_frame, is_local, map_in_arrow, own_python, select, task
from gpumatch.spark.ship import ship
from gpumatch.spark.strategy import Index
from gpumatch.spark.worker import Location, Query, open_matcher, slices
from gpumatch.store.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGE = "_change_type"


def compare_tables(
    old: DataFrame,
    new: DataFrame,
    *,
    id: str = "id",
    where: str = "expr",
    weight: str | None = None,
    destination: str | None = None,
) -> DataFrame:
    """The changes that turn one table of subscriptions into another, for ``update_index``: a lazy DataFrame.

    It has these columns, as they are in ``new``, and ``_change_type``: insert, update or delete. Rows are compared by
    their ids, in one shuffle of both tables. If ``new`` has an id several times, in different ways, there is a row for
    each.
    """
    from pyspark.sql import functions as f

    given = {"id": id, "expr": where, "weight": weight, "destination": destination}
    roles = {role: name for role, name in given.items() if name is not None}
    before, after = (_by_id(frame, roles, what) for frame, what in ((old, "old"), (new, "new")))
    for role, (was, now) in zip(roles, zip(_kinds(before), _kinds(after), strict=True), strict=True):
        if was != now:
            raise IdError(f"{role}= is {was} in the old table and {now} in the new one: cast one of them")
    both = before.withColumnRenamed("rows", "was").join(after, "id", "full_outer")
    differing = both.where("rows IS NULL OR size(rows) > 1 OR NOT was <=> rows")
    gone = f.col("rows").isNull()
    kind = f.when(gone, "delete").when(f.col("was").isNull(), "insert").otherwise("update")
    row = f.explode(f.when(gone, f.slice("was", 1, 1)).otherwise(f.col("rows")))
    found = differing.select("id", row.alias("row"), kind.alias(CHANGE))
    return found.select("id", *(f.col(f"row.{role}") for role in roles if role != "id"), CHANGE).toDF(
        *roles.values(), CHANGE
    )


def _by_id(frame: DataFrame, roles: dict[str, str], what: str) -> DataFrame:
    """The distinct rows of each id, in types that do not depend on their source."""
    from pyspark.sql import functions as f

    check_frame(frame, what)
    selected = select(frame, roles.values(), f"the {what} subscriptions")
    check_roles(selected.schema, roles)
    named = selected.toDF(*roles)
    columns = {role: _plain(named, role).alias(role) for role in roles}
    contents = f.struct(*(column for role, column in columns.items() if role != "id"))
    return named.groupBy(columns["id"]).agg(f.array_sort(f.collect_set(contents)).alias("rows"))


def _kinds(frame: DataFrame) -> list[str]:
    """The types of ids and of the other columns."""
    row = frame.schema["rows"].dataType.elementType
    return [field.dataType.simpleString() for field in (frame.schema["id"], *row)]


def _plain(frame: DataFrame, role: str) -> Any:
    """A column as text, 64-bit integer or double; a NaN weight counts as none."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if role == "weight":
        weight = f.col(role).cast("double")
        return f.when(~f.isnan(weight), weight)
    is_whole = isinstance(frame.schema[role].dataType, t.IntegralType)
    return f.col(role).cast("bigint" if is_whole else "string")


def contents_of(session: SparkSession, place: Index, count: int, integers: bool, numbered: bool) -> DataFrame:
    """The live subscriptions of an index, read by the executors; ``expr`` is null for those that have no text.

    ``count``: how many there are. ``integers``, ``numbered``: whether ids, and destinations, are integers.
    """
    from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

    fields = [
        StructField("id", LongType() if integers else StringType()),
        StructField("expr", StringType()),
        StructField("weight", DoubleType()),
        StructField("destination", LongType() if numbered else StringType()),
    ]
    is_shipped = isinstance(place, gm.Matcher)
    location = Location(ship(session, place) if isinstance(place, gm.Matcher) else str(place), is_shipped)
    names = [field.name for field in fields]
    query = Query(["part"], names, "pairs", None, integers, "cpu", is_local(session))
    parts = max(1, -(-count // worker.PASS_ROWS))  # a task for each
    given = {"index": location, "query": query, "parts": parts, "numbered": numbered}
    with own_python(session):
        numbers = session.range(0, parts, 1, parts)
        return map_in_arrow(numbers, task("compare", "contents", Job(), **given), StructType(fields))


# On the executors


def contents(batches: Iterable[Any], index: Location, query: Query, parts: int, numbered: bool) -> Iterator[Any]:
    """Shares of the index: each input row is the number of one of ``parts``."""
    kinds = [pa.int64() if query.integers else pa.string(), pa.string(), pa.float64()]
    kinds.append(pa.int64() if numbered else pa.string())
    for batch in batches:
        for part in batch.column(0).to_pylist():
            snapshot = open_matcher(index.path(), index, query)._seal()
            first, last = (len(snapshot) * at // parts for at in (part, part + 1))
            columns = _columns(snapshot, np.arange(first, last))
            cast = [column.cast(kind) for column, kind in zip(columns, kinds, strict=True)]
            yield from slices(pa.RecordBatch.from_arrays(cast, names=query.returned))


def _columns(snapshot: Snapshot, numbers: Any) -> list[Any]:
    """Ids, texts, weights and destinations of live rows."""
    pieces, rows = snapshot.ids.places(numbers)
    texts = pa.nulls(0, pa.large_string())
    for number in np.unique(pieces).tolist():  # they are in this order
        own, at = snapshot.pieces[number].texts, rows[pieces == number]
        found = pa.nulls(len(at), pa.large_string()) if own is None else own.take(pa.array(at))
        texts = pa.concat_arrays([texts, found])
    weights = pa.array(snapshot._weights_at(pieces, rows), from_pandas=True)
    destinations = pa.array(snapshot.destinations_of(pieces, rows, None))
    return [snapshot.ids.take(pa.array(numbers)), texts, weights, destinations]
