"""``deliver``: events partitioned by the destinations of the subscriptions that they match.

An event is matched once, where it is. With one stage it is copied there for each of its destinations, and the copies
are shuffled (as in D-DBR, where the source knows the whole list). With two it is sent once to each group that has any
of its destinations, with a list of these, and is copied inside the group (as in MERC's clusters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gpumatch.errors import SchemaError
from gpumatch.spark.frames import check_frame, salts_of
from gpumatch.spark.match import match_events
from gpumatch.spark.metrics import Metrics
from gpumatch.spark.strategy import Asked, Index

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Stages: TypeAlias = Literal["auto", 1, 2]

SAMPLE = 4096  # events
PAYS = 0.5  # share of the bytes of one stage below which a second pays: copies in one partition compress well
ROW = 16  # bytes of a row in a shuffle, besides its values: its length, and which of them are null
LIST = 16  # bytes of an array, besides its elements: their number, and which of them are null
WORD = 8  # bytes of each value, or where it is


@dataclass(frozen=True)
class DeliveryPlan:
    """What a delivery shuffles in one stage and in two, estimated from a sample of events, and which is better."""

    groups: int  # of destinations
    events: int  # in the sample
    destinations: int  # copies of them: one for each destination
    sent: int  # how often they are sent in two stages: once to each group
    copied: float  # bytes of all copies' values
    grouped: float  # bytes of the values that are sent in two stages
    names: float  # bytes of the names of destinations, one for each copy

    def rows(self, stages: int) -> float:
        """Rows that are shuffled per event."""
        return (self.destinations if stages == 1 else self.sent) / max(self.events, 1)

    def bytes(self, stages: int) -> float:
        """Approximate bytes that are shuffled per event, before Spark compresses them."""
        if stages == 1:
            found = self.copied + self.names + ROW * self.destinations
        else:
            found = self.grouped + self.names + (ROW + WORD + LIST) * self.sent
        return found / max(self.events, 1)

    @property
    def stages(self) -> Literal[1, 2]:
        """The better number of stages."""
        return 2 if self.bytes(2) < PAYS * self.bytes(1) else 1

    def __str__(self) -> str:
        one, two = (f"{self.rows(stages):.2f} rows and {self.bytes(stages):,.0f} bytes" for stages in (1, 2))
        best = "one stage" if self.stages == 1 else "two stages"
        return f"{best}: an event shuffles {one} in one stage, {two} in two, with {self.groups} groups"


def deliver(
    events: DataFrame,
    index: Index,
    *,
    stages: Stages = "auto",
    groups: int | None = None,
    columns: Sequence[str] | None = None,
    destination: str = "destination",
    device: str = "auto",
    strategy: Asked = "auto",
    memory: int | None = None,
    metrics: Metrics | None = None,
    follow: bool = False,
) -> DataFrame:
    """A lazy DataFrame with a row per event and destination, in partitions by destination.

    It has ``columns`` of the event, then the destination. All rows of a destination are in one of ``groups`` partitions
    (default: ``spark.sql.shuffle.partitions``). With ``stages=1`` events are copied for each destination and then
    shuffled, with ``stages=2`` they are shuffled to groups of destinations and copied there; "auto" uses
    ``plan_delivery``, which matches a sample of the events; for a stream, pass the number. The other arguments are
    those of ``match_events``.
    """
    check_frame(events, "events")
    if stages not in ("auto", 1, 2) or isinstance(stages, bool):
        raise ValueError(f"stages must be 1, 2 or 'auto', found {stages!r}")
    kept = events.columns if columns is None else [columns] if isinstance(columns, str) else columns
    if destination.lower() in (name.lower() for name in kept):
        raise SchemaError(f"the events have a column {destination!r}: pass another name as destination=, or columns=")
    how: dict[str, Any] = {"device": device, "strategy": strategy, "memory": memory}
    matched = _matched(events, index, columns, destination, metrics, follow=follow, **how)
    count = _groups(matched, groups)
    if stages == "auto":
        stages = plan_delivery(events, index, groups=count, columns=columns, **how).stages
    if stages == 1:
        return _exploded(matched, destination).repartition(count, _quoted(destination))
    grouped = _grouped(matched, count)
    salt = grouped.columns[-1]
    return _exploded(grouped.repartition(count, _quoted(salt)).drop(salt), destination)


def plan_delivery(
    events: DataFrame,
    index: Index,
    *,
    groups: int | None = None,
    columns: Sequence[str] | None = None,
    device: str = "auto",
    strategy: Asked = "auto",
    memory: int | None = None,
) -> DeliveryPlan:
    """What ``deliver`` shuffles with one stage and with two, estimated from the first 4,096 events at most."""
    from pyspark.sql import functions as f

    check_frame(events, "events")
    if events.isStreaming:
        raise SchemaError(
            "a stream cannot be sampled to choose the number of stages: pass stages=1 or 2, or plan_delivery() a batch "
            "of such events"
        )
    name = _unused(events.columns)
    how: dict[str, Any] = {"device": device, "strategy": strategy, "memory": memory}
    matched = _matched(events.limit(SAMPLE), index, columns, name, None, **how)
    count = _groups(matched, groups)
    grouped = _grouped(matched, count)
    names = f.col(_quoted(name))
    width = sum((_width(grouped, column) for column in grouped.columns[:-2]), f.lit(0))
    text = f.aggregate(names, f.lit(0).cast("bigint"), lambda total, one: total + f.octet_length(one.cast("string")))
    is_text = dict(grouped.dtypes)[name] == "array<string>"
    of_names = WORD * f.size(names) + (text if is_text else f.lit(0))
    [found] = grouped.agg(
        f.count("*"), f.sum(f.size(names)), f.sum(width * f.size(names)), f.sum(width), f.sum(of_names)
    ).collect()
    sent, destinations, copied, whole, named = (value or 0 for value in found)
    return DeliveryPlan(count, events.limit(SAMPLE).count(), destinations, sent, copied, whole, named)


def _matched(
    events: DataFrame, index: Index, columns: Sequence[str] | None, name: str, metrics: Metrics | None, **how: Any
) -> DataFrame:
    return match_events(
        events, index, output="destinations", columns=columns, subscription=name, metrics=metrics, **how
    )


def _groups(frame: DataFrame, groups: int | None) -> int:
    if groups is not None and (type(groups) is not int or groups < 1):
        raise ValueError(f"groups must be a whole number of at least 1, found {groups!r}")
    return groups or int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _exploded(frame: DataFrame, name: str) -> DataFrame:
    """A row for each element of the last column."""
    from pyspark.sql import functions as f

    quoted = [_quoted(column) for column in frame.columns]
    return frame.select(*quoted[:-1], f.explode(quoted[-1]).alias(name))


def _grouped(matched: DataFrame, groups: int) -> DataFrame:
    """A row for each event and group of its destinations: the event, their list, and the salt of the group."""
    from pyspark.sql import functions as f

    names, salt = _quoted(matched.columns[-1]), _unused(matched.columns)
    salts = f.array(*map(f.lit, salts_of(groups)))

    def group(name: Any) -> Any:
        return f.pmod(f.hash(name), f.lit(groups))  # the partition that one stage puts it in

    def row(number: Any) -> Any:
        own = f.filter(names, lambda name: group(name) == number)
        return f.struct(own.alias("own"), f.element_at(salts, number + 1).alias("salt"))

    rows = f.transform(f.array_distinct(f.transform(names, group)), row)
    events = [_quoted(column) for column in matched.columns[:-1]]
    exploded = matched.select(*events, f.explode(rows).alias(salt))
    own, number = f.col(f"{_quoted(salt)}.own"), f.col(f"{_quoted(salt)}.salt")
    return exploded.select(*events, own.alias(matched.columns[-1]), number.alias(salt))


def _width(frame: DataFrame, name: str) -> Any:
    """Approximate bytes of a column's values in Spark's rows."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    column, kind = f.col(_quoted(name)), frame.schema[name].dataType
    if isinstance(kind, t.StringType | t.BinaryType):
        return WORD + f.coalesce(f.octet_length(column), f.lit(0))
    if isinstance(kind, t.ArrayType | t.MapType | t.StructType):
        return WORD + f.coalesce(f.octet_length(f.to_json(f.struct(column))), f.lit(0))
    return f.lit(WORD)


def _unused(names: Sequence[str]) -> str:
    return max([*names, ""], key=len) + "_"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
