"""``build_index``: turns the subscriptions of a DataFrame into a saved index."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import gpumatch as gm
from gpumatch.errors import SchemaError, StorageError
from gpumatch.index.planner import requested_index
from gpumatch.routing.shards.plan import EVENTS, PLACES, Draft, Place
from gpumatch.routing.shards.router import Entries
from gpumatch.spark.arguments import check_roles, schema_of
from gpumatch.spark.frames import absolute, check_frame, own_python, select
from gpumatch.spark.opened import open_plan, plan_of, shards_of
from gpumatch.spark.shards import Recipe, build_shards
from gpumatch.store.folder.manifests import plan_name
from gpumatch.store.folder.remote import below, prepare, sizes, write_shards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from gpumatch.schema import SchemaLike

_SAMPLE = 20_000  # subscriptions in it


def build_index(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    *,
    schema: SchemaLike | StructType,
    id: str = "id",
    where: str = "expr",
    weight: str | None = None,
    destination: str | None = None,
    index: Any = "auto",
    on_error: Literal["raise", "collect"] = "raise",
    shards: int | None = None,
    max_bytes_per_shard: int | None = None,
    place: Place = "auto",
    events: Any = None,
) -> gm.Matcher:
    """Build an index of ids and expressions, and save it in the folder ``path``; returns it as it was saved.

    ``weight`` and ``destination`` name further columns: a number, by which ``top`` finds the heaviest subscriptions,
    and where matches are to go.

    Subscriptions are collected to the driver and the index is built there. With ``shards`` or ``max_bytes_per_shard``
    the executors build it, a task for each shard, in a folder that they share with the driver. After a failure, run
    it again: only missing shards are built.

    ``place`` says which shard a subscription goes to: by a "hash" of its id, or together with "similar" ones, so that
    events need fewer shards, or "auto", whichever is better. ``events``, a DataFrame or anything that can be matched,
    shows which values and attributes are frequent.

    A bad subscription is an error, and nothing is saved. With ``on_error="collect"`` bad subscriptions are left out,
    with a warning that gives their number and the first few.
    """
    check_frame(subscriptions, "subscriptions")
    given = {"id": id, "expr": where, "weight": weight, "destination": destination}
    columns = {role: name for role, name in given.items() if name is not None}
    check_roles(select(subscriptions, dict.fromkeys(columns.values()), "the subscriptions").schema, columns)
    schema = schema_of(schema)
    wanted = Wanted(shards, max_bytes_per_shard, place, events)
    if wanted.is_whole():
        return _build_here(subscriptions, path, schema, columns, index, on_error)
    return _build_there(subscriptions, path, schema, columns, index, on_error, wanted)


@dataclass(frozen=True)
class Wanted:
    """What the caller wants of shards."""

    shards: int | None
    most_bytes: int | None
    place: Place
    events: Any

    def is_whole(self) -> bool:
        """Whether to make none."""
        for name, number in (("shards", self.shards), ("max_bytes_per_shard", self.most_bytes)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ValueError(f"{name} must be a whole number of at least 1, found {number!r}")
        if self.shards is not None and self.most_bytes is not None:
            raise ValueError("pass shards or max_bytes_per_shard, not both: one follows from the other")
        if self.place not in PLACES:
            raise ValueError(f"place must be one of {', '.join(PLACES)}, found {self.place!r}")
        whole = self.shards is None and self.most_bytes is None
        if whole and (self.place != "auto" or self.events is not None):
            raise ValueError("place= and events= are for shards only: pass shards= or max_bytes_per_shard=, too")
        return whole


def _build_there(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    schema: SchemaLike,
    columns: Mapping[str, str],
    index: Any,
    on_error: Literal["raise", "collect"],
    wanted: Wanted,
) -> gm.Matcher:
    """Build shards on the executors."""
    if on_error not in ("raise", "collect"):
        raise SchemaError(f"on_error must be 'raise' or 'collect', found {on_error!r}")
    params = requested_index(index)
    asked = None if params is None else params.to_dict()
    folder, schema = absolute(path), gm.Schema.of(schema)
    prepare(folder)
    named = select(subscriptions, columns.values(), "the subscriptions").toDF(*columns)
    with own_python(subscriptions.sparkSession):
        count, draft = _drafted(named, folder, schema, index, wanted)
    reports = build_shards(named, count, Recipe(folder, schema.to_dict(), asked, on_error == "collect", draft))
    rejected = sum(report.rejected for report in reports)
    first = [bad for report in reports for bad in report.first]
    total = rejected + sum(report.subscriptions for report in reports)
    if rejected and on_error == "raise":
        raise SchemaError(f"{rejected} of {total} subscriptions are wrong, so no index was written: {_shown(first)}")
    _warn(rejected, total, first)
    names = [report.folder for report in reports]
    plan = draft.finished([Entries.of_bytes(report.entries, report.always) for report in reports])
    plan.save(below(folder, plan_name(names)))
    write_shards(folder, names, plan_name(names))
    return gm.load(folder, device="cpu", verify="size")  # it may be large, and was just written


def _drafted(named: DataFrame, folder: str, schema: gm.Schema, index: Any, wanted: Wanted) -> tuple[int, Draft]:
    """The number of shards, and what goes where: as before if there is an index, else from a sample."""
    count, draft = _earlier(folder, schema, wanted) or _sampled(named, schema, index, wanted)
    if draft.placement is not None and named.groupBy("id").count().where("count > 1").limit(1).collect():
        draft = replace(draft, placement=None)  # a hash brings equal ids together, and the second is reported
    return count, draft


def _sampled(named: DataFrame, schema: gm.Schema, index: Any, wanted: Wanted) -> tuple[int, Draft]:
    """From a sample."""
    total = named.count()
    some = named.where(f"pmod(xxhash64(id), {max(total, 1)}) < {_SAMPLE}").toArrow().sort_by("id")
    matcher = gm.Matcher(schema, index=index, device="cpu")
    matcher.add_table(some, on_error="collect")
    count = wanted.shards
    if count is None:
        size = matcher.stats()["bytes"] * total / max(1, len(some))
        count = max(1, min(total, -(-int(size) // (wanted.most_bytes or 1))))
    events = wanted.events
    if hasattr(events, "toArrow"):  # a DataFrame
        events = events.limit(EVENTS).toArrow()
    return count, Draft.of(matcher, count, total, events, wanted.place)


def _earlier(folder: str, schema: gm.Schema, wanted: Wanted) -> tuple[int, Draft] | None:
    """From the plan of the existing index, if it fits."""
    if wanted.events is not None or wanted.place != "auto":
        return None
    try:
        draft = open_plan(plan_of(folder)).draft
    except StorageError:
        return None
    if wanted.shards is None:
        fits = max(sum(sizes(shard)) for shard in shards_of(folder)) <= (wanted.most_bytes or 0)
    else:
        fits = draft.shards == wanted.shards
    return (draft.shards, draft) if fits and draft.grid.attributes.schema == schema else None


def _build_here(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    schema: SchemaLike,
    columns: Mapping[str, str],
    index: Any,
    on_error: Literal["raise", "collect"],
) -> gm.Matcher:
    table = select(subscriptions, columns.values(), "the subscriptions").toDF(*columns).toArrow()
    matcher = gm.Matcher(schema, index=index)
    extra = {role: table[role] for role in ("weight", "destination") if role in columns}
    rejected = matcher.add_table(table, on_error=on_error, **extra)
    _warn(len(rejected), len(table), [(bad.id, bad.message) for bad in rejected])
    matcher.save(path)
    return matcher


def _warn(rejected: int, total: int, first: Sequence[tuple[Any, str]]) -> None:
    if rejected:
        text = f"{rejected} of {total} subscriptions were left out{': ' * bool(first)}{_shown(first)}"
        warnings.warn(text, stacklevel=4)  # at the call of build_index


def _shown(first: Sequence[tuple[Any, str]]) -> str:
    return "; ".join(f"{name!r}: {message}" for name, message in first[:3])
