"""``match_events`` and ``count_subscriptions``: checked here, on the driver; run by ``worker`` on the executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

import gpumatch as gm
from gpumatch.errors import SchemaError
from gpumatch.events.strangers import Spelling
from gpumatch.spark.answers import OUTPUTS, Output
from gpumatch.spark.arguments import check_index, check_names
from gpumatch.spark.carried import carry
from gpumatch.spark.following import Expected, followed
from gpumatch.spark.frames import (
    Job,
    absolute,
    arrow_type,
    check_frame,
    is_local,
    map_in_arrow,
    own_python,
    select,
    task,
)
from gpumatch.spark.metrics import Metrics
from gpumatch.spark.opened import shards_of
from gpumatch.spark.routed import count_routed, match_routed, merges
from gpumatch.spark.ship import ship, ship_kernels
from gpumatch.spark.strategy import Asked, Index, Strategy, choose
from gpumatch.spark.worker import Location, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_HIDDEN = "with id_type= the driver does not open it"
_PASSES = ("pass_batches", "count_passes")
_NAMES: dict[Output, str] = {
    "pairs": "subscription",
    "array": "subscriptions",
    "count": "matches",
    "destinations": "destinations",
}


def match_events(
    events: DataFrame,
    index: Index,
    *,
    output: Output = "pairs",
    top: int | None = None,
    columns: Sequence[str] | None = None,
    subscription: str | None = None,
    id_type: Literal["string", "bigint"] | None = None,
    device: str = "auto",
    strategy: Asked = "auto",
    memory: int | None = None,
    metrics: Metrics | None = None,
    follow: bool = False,
) -> DataFrame:
    """A lazy DataFrame of matches: columns of the event, then what ``output`` asks for.

    - ``"pairs"``: one row per match, with the id of the subscription
    - ``"array"``: one row per event, with the ids of all its subscriptions; an event without any has an empty array
    - ``"count"``: one row per event, with the number of its subscriptions
    - ``"destinations"``: one row per event, with the distinct destinations of its subscriptions

    With ``top=k`` pairs and arrays have only the k heaviest subscriptions of each event, the heaviest first.

    ``index`` is a matcher, which is shipped to the executors, or the folder of a saved one that all executors can read
    under the same path. ``columns`` are those of the event to return, in this order; None means all. ``subscription``
    names the last column. ``device`` is "auto" for the GPU of the task, if it has one, or "cpu" or "cuda:N".

    ``strategy`` is "replicated": each task opens the whole index; "routed": events are sent to the shards that may
    match them; "passes": each task shows its events to one shard after another; or "auto", by the size of the index
    against ``memory``, the bytes that it may take on a machine or GPU. ``plan_match`` says which one it is, and why.
    ``metrics`` counts what the tasks do.

    With ``follow``, each batch of a stream is matched with the version of the index that is the newest when the batch
    begins; batches that Spark repeats are matched with the same version again. See docs/streaming.md.

    Index and columns are checked before Spark runs anything. Only if the driver cannot read the folder, pass the type
    of the ids (or destinations) as ``id_type``: then every column is sent to the executors, and they check.
    """
    check_frame(events, "events")
    check_index(index)
    check_names(columns, subscription, metrics)
    if output not in OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(OUTPUTS)}, found {output!r}")
    if top is not None and (output not in ("pairs", "array") or type(top) is not int or top < 1):
        found = f"top={top!r}, output={output!r}"
        raise ValueError(f"top= is for pairs and arrays, and must be a whole number of at least 1; found {found}")
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

    name = _NAMES[output] if subscription is None else subscription
    returned = _returned(events.columns if columns is None else columns, name)
    matcher = followed(events, index, id_type) if follow else _matcher(index, id_type)
    whole = "one that is followed has none" if follow else _HIDDEN * (matcher is None)
    chosen = choose(events.sparkSession, index, strategy, memory, whole)
    selected, carried, restore = carry(_selected(events, returned, matcher), returned, matcher)
    integers = _integers(matcher, index, output, id_type)
    one = LongType() if integers or output == "count" else StringType()
    kind = ArrayType(one) if output in ("array", "destinations") else one
    fields = [
        StructField(field.name, field.dataType, True, field.metadata) for field in selected.schema[: len(carried)]
    ]
    fields.append(StructField(name, kind))
    query = Query(selected.columns, [*carried, name], output, top, integers, device, is_local(events.sparkSession))
    follows = Expected.of(matcher, output, integers) if follow and matcher is not None else None
    return restore(_mapped(selected, index, chosen, False, query, StructType(fields), metrics, follows))


def count_subscriptions(
    events: DataFrame,
    index: Index,
    *,
    id_type: Literal["string", "bigint"] | None = None,
    device: str = "auto",
    strategy: Asked = "auto",
    memory: int | None = None,
    metrics: Metrics | None = None,
) -> DataFrame:
    """A lazy DataFrame of how many events each subscription matched: ``subscription`` and ``count``.

    Subscriptions that matched none have no row. The arguments are those of ``match_events``.
    """
    check_frame(events, "events")
    check_index(index)
    check_names(None, None, metrics)
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    matcher = _matcher(index, id_type)
    chosen = choose(events.sparkSession, index, strategy, memory, _HIDDEN * (matcher is None))
    selected = _selected(events, [], matcher)
    integers = _integers(matcher, index, "pairs", id_type)
    returned = ["subscription", "count"]
    query = Query(selected.columns, returned, "count", None, integers, device, is_local(events.sparkSession))
    fields = [StructField(returned[0], LongType() if integers else StringType()), StructField(returned[1], LongType())]
    counted = _mapped(selected, index, chosen, True, query, StructType(fields), metrics)
    return counted.groupBy(returned[0]).sum(returned[1]).toDF(*returned)


def _selected(events: DataFrame, returned: Sequence[str], matcher: gm.Matcher | None) -> DataFrame:
    """The columns that go to Python, those to return first."""
    attributes = [name for name in events.columns if matcher is None or name in matcher.schema]
    if matcher is not None:
        Spelling(matcher.schema).look_at_columns(events.columns)
    names = [*returned, *(name for name in attributes if name not in returned)]
    if not names and matcher is not None:  # rows without columns would be lost, and they may satisfy IS NULL
        from pyspark.sql.functions import lit

        return events.select(lit(0).alias(max(matcher.schema.names, key=len, default="") + "_"))  # no attribute
    selected = select(events, names, "the events")
    if matcher is not None:
        _check_types(selected.schema, matcher.schema)
    return selected


def _integers(matcher: gm.Matcher | None, index: Index, output: Output, id_type: str | None) -> bool:
    """Whether ids, or destinations, are integers."""
    if matcher is None:
        return id_type == "bigint"
    if output == "destinations":
        return bool(pa.types.is_integer(_any_with_destinations(matcher, index).destinations([]).names.type))
    return matcher.id_type is int


def _any_with_destinations(matcher: gm.Matcher, index: Index) -> gm.Matcher:
    """The matcher, or another shard if it has none."""
    if matcher._seal().destinations is None and not isinstance(index, gm.Matcher):
        return _shard_that(absolute(index), lambda shard: shard._seal().destinations is not None) or matcher
    return matcher


def _shard_that(path: str, is_right: Callable[[gm.Matcher], bool]) -> gm.Matcher | None:
    """The first such shard of an index, else any; None if it has no shards."""
    shard = None
    for folder in shards_of(path):
        shard = gm.load(folder, device="cpu", verify="once")
        if is_right(shard):
            break
    return shard


def _mapped(
    selected: DataFrame,
    index: Index,
    strategy: Strategy,
    counting: bool,
    query: Query,
    schema: StructType,
    metrics: Metrics | None,
    follows: Expected | None = None,
) -> DataFrame:
    session = selected.sparkSession
    job = Job(None if metrics is None else metrics.total, ship_kernels(session))
    is_shipped = isinstance(index, gm.Matcher)
    place = ship(session, index) if isinstance(index, gm.Matcher) else absolute(index)
    parts = () if strategy.report is None else strategy.report.parts
    location = Location(place, is_shipped, strategy.shards, strategy.plan, parts, follows)
    plain = selected.toDF(*(f"c{i}" for i in range(len(selected.columns))))  # mapInArrow fails on names with dots
    with own_python(session):
        if strategy.name == "routed":
            if selected.isStreaming and (counting or merges(query)):
                raise SchemaError(
                    "a stream can be routed only for pairs, as Spark does not sort it: pass strategy='replicated' or "
                    "'passes', or match within foreachBatch"
                )
            routed = count_routed if counting else match_routed
            return routed(plain, location, query, schema, job)
        functions = ("match_batches", "count_batches") if strategy.name == "replicated" else _PASSES
        return map_in_arrow(plain, task("worker", functions[counting], job, index=location, query=query), schema)


def _returned(columns: Sequence[str], subscription: str) -> list[str]:
    returned = [columns] if isinstance(columns, str) else list(columns)
    if subscription.lower() in (name.lower() for name in returned):
        raise SchemaError(
            f"the events have a column named {subscription!r}, the name of the column of matches: "
            f"pass another name as subscription=, or leave the column out of columns="
        )
    return returned


def _matcher(index: Index, id_type: str | None) -> gm.Matcher | None:
    """The matcher to check against, of a sharded index one shard; None if only the executors can open it."""
    if isinstance(index, gm.Matcher):
        return index
    if id_type is None:
        path = absolute(index)
        return _shard_that(path, lambda shard: shard.id_type is not None) or gm.load(path, device="cpu", verify="once")
    if id_type not in ("string", "bigint"):
        raise ValueError(f"id_type must be 'string' or 'bigint', found {id_type!r}")
    return None


def _check_types(columns: StructType, schema: gm.Schema) -> None:
    """Find type errors now, with one made-up event of the same types, not on the executors."""
    from pyspark.errors import PySparkTypeError

    arrays = []
    for field in columns:
        try:
            arrays.append(_blank(arrow_type(field.dataType)))
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
