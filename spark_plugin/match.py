"""``match_events``: the driver's side, which checks and plans; ``worker`` runs on the executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

import gpumatch as gm
from gpumatch.errors import SchemaError, StorageError
from gpumatch.spark.frames import check_frame, map_in_arrow, own_python, select
from gpumatch.spark.ship import ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def match_events(
    events: DataFrame,
    index: str | os.PathLike[str] | gm.Matcher,
    *,
    columns: Sequence[str] | None = None,
    subscription: str = "subscription",
    id_type: Literal["string", "bigint"] | None = None,
) -> DataFrame:
    """A lazy DataFrame with one row per match: columns of the event, then the id of the subscription.

    ``index`` is a matcher, which is shipped to the executors, or the folder of a saved one that all executors can read
    under the same path. ``columns`` are the event's columns to return, in this order; None means all.

    Index and columns are checked immediately. If the driver cannot read the folder, pass the type of the ids as
    ``id_type``: every column is then sent to the executors, and they check.
    """
    check_frame(events, "events")
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    output = _output(events.columns if columns is None else columns, subscription)
    matcher = _matcher(index, id_type)
    attributes = [name for name in events.columns if matcher is None or name in matcher.schema]
    selected = select(events, [*output, *(name for name in attributes if name not in output)], "the events")
    integers = id_type == "bigint"
    if matcher is not None:
        _check_types(selected.schema, matcher.schema)
        integers = len(matcher) > 0 and matcher.ids.dtype.kind == "i"
    fields = [StructField(field.name, field.dataType, True, field.metadata) for field in selected.schema[: len(output)]]
    fields.append(StructField(subscription, LongType() if integers else StringType()))
    query = {"columns": selected.columns, "output": [*output, subscription], "integers": integers}
    if isinstance(index, gm.Matcher):
        run = _task("match_shipped", name=ship(events.sparkSession, index), query=query)
    else:
        run = _task("match_folder", path=_absolute(index), query=query)
    plain = selected.toDF(*(f"c{i}" for i in range(len(selected.columns))))  # mapInArrow fails on names with dots
    with own_python(events.sparkSession):
        return map_in_arrow(plain, run, StructType(fields))


def _task(function: str, *, query: dict[str, Any], **where: str) -> Callable[[Any], Iterator[Any]]:
    """A function of ``worker`` with its arguments. Spark sends it as code, so it can report a missing gpumatch."""

    def run(batches: Any) -> Iterator[Any]:
        try:
            from gpumatch.spark import worker
        except ImportError as error:
            import sys

            raise ImportError(
                f"the Python of Spark's workers, {sys.executable}, cannot import gpumatch: {error}. Install gpumatch "
                "there, or set PYSPARK_PYTHON to a Python that has it, before the Spark session starts"
            ) from error
        found: Iterator[Any] = getattr(worker, function)(batches, query=worker.Query(**query), **where)
        return found

    return run


def _output(columns: Sequence[str], subscription: str) -> list[str]:
    output = [columns] if isinstance(columns, str) else list(columns)
    if subscription.lower() in (name.lower() for name in output):
        raise SchemaError(
            f"the events have a column named {subscription!r}, which is the name of the id column: "
            f"pass another name as subscription=, or leave the column out of columns="
        )
    return output


def _matcher(index: str | os.PathLike[str] | gm.Matcher, id_type: str | None) -> gm.Matcher | None:
    """The matcher to check against; None if only the executors can open it."""
    if isinstance(index, gm.Matcher):
        return index
    if id_type is None:
        return gm.load(_absolute(index), device="cpu", mmap=True)
    if id_type not in ("string", "bigint"):
        raise ValueError(f"id_type must be 'string' or 'bigint', found {id_type!r}")
    return None


def _absolute(index: str | os.PathLike[str]) -> str:
    """An absolute path: executors have a different working directory."""
    path = os.fspath(index)
    if "://" in path:
        raise StorageError(f"{path} is not a folder that Python can open: use a mounted path, or pass a Matcher")
    return os.path.abspath(path)


def _check_types(columns: StructType, schema: gm.Schema) -> None:
    """Find type errors now, with one made-up event of the same types, not on the executors."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_type

    arrays = []
    for field in columns:
        try:
            arrays.append(_blank(to_arrow_type(field.dataType)))
        except PySparkTypeError:
            raise SchemaError(
                f"column {field.name!r} is {field.dataType.simpleString()}, which Spark cannot pass to Python: "
                f"leave it out with columns=, or cast it"
            ) from None
    gm.EventBatch.of(pa.RecordBatch.from_arrays(arrays, names=columns.names), schema)


def _blank(kind: Any) -> Any:
    """One non-null value of an Arrow type: zero, the empty string, the empty list."""
    buffers = [None, *[pa.py_buffer(bytes(16))] * (kind.num_buffers - 1)]
    children = [_blank(kind.field(i).type) for i in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, 1, buffers, children=children)
