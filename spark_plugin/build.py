"""``build_index``: the subscriptions of a DataFrame into a saved index."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gpumatch as gm
from gpumatch.errors import SchemaError
from gpumatch.index.planner import requested_index
from gpumatch.spark.frames import absolute, check_frame, select
from gpumatch.spark.shards import Recipe, build_shards
from gpumatch.store.directory import write_shards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gpumatch.schema import SchemaLike

_SAMPLE = 20_000  # subscriptions in it


def build_index(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    *,
    schema: SchemaLike,
    id: str = "id",
    where: str = "expr",
    weight: str | None = None,
    destination: str | None = None,
    index: Any = "auto",
    on_error: Literal["raise", "collect"] = "raise",
    shards: int | None = None,
    max_bytes_per_shard: int | None = None,
) -> gm.Matcher:
    """Build an index of ids and expressions, and save it in the folder ``path``; returns it as it was saved.

    ``weight`` and ``destination`` name further columns: a number, by which ``top`` finds the heaviest subscriptions,
    and where matches are to go.

    Subscriptions are collected to the driver and the index is built there. With ``shards`` or ``max_bytes_per_shard``
    the executors build it, a task for each shard, in a folder that they share with the driver. After a failure, run
    it again: only missing shards are built.

    A bad subscription is an error, and nothing is saved. With ``on_error="collect"`` bad subscriptions are left out,
    with a warning that gives their number and the first few.
    """
    check_frame(subscriptions, "subscriptions")
    given = {"id": id, "expr": where, "weight": weight, "destination": destination}
    columns = {role: name for role, name in given.items() if name is not None}
    if shards is None and max_bytes_per_shard is None:
        return _build_here(subscriptions, path, schema, columns, index, on_error)
    return _build_there(subscriptions, path, schema, columns, index, on_error, shards, max_bytes_per_shard)


def _build_there(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    schema: SchemaLike,
    columns: Mapping[str, str],
    index: Any,
    on_error: Literal["raise", "collect"],
    shards: int | None,
    most_bytes: int | None,
) -> gm.Matcher:
    """Build shards on the executors."""
    if on_error not in ("raise", "collect"):
        raise ValueError(f"on_error is 'raise' or 'collect', found {on_error!r}")
    count = _shards(subscriptions, columns, schema, index, shards, most_bytes)
    params = requested_index(index)
    asked = None if params is None else params.to_dict()
    recipe = Recipe(absolute(path), gm.Schema.of(schema).to_dict(), asked, on_error == "collect")
    Path(recipe.path).mkdir(parents=True, exist_ok=True)
    reports = build_shards(subscriptions, columns, count, recipe)
    rejected = sum(report.rejected for report in reports)
    first = [bad for report in reports for bad in report.first]
    total = rejected + sum(report.subscriptions for report in reports)
    if rejected and on_error == "raise":
        raise SchemaError(f"{rejected} of {total} subscriptions are wrong, and no index is written: {_shown(first)}")
    if not reports:  # an index without subscriptions has no shards
        return _build_here(subscriptions, path, schema, columns, index, on_error)
    _warn(rejected, total, first)
    write_shards(recipe.path, [report.folder for report in reports])
    return gm.load(recipe.path, device="cpu")


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
        text = f"{rejected} of {total} subscriptions were left out: {_shown(first)}"
        warnings.warn(text, stacklevel=4)  # at the call of build_index


def _shown(first: Sequence[tuple[Any, str]]) -> str:
    return "; ".join(f"{name!r}: {message}" for name, message in first[:3])


def _shards(
    subscriptions: DataFrame,
    columns: Mapping[str, str],
    schema: SchemaLike,
    index: Any,
    shards: int | None,
    most_bytes: int | None,
) -> int:
    """The number of shards; bytes per subscription are estimated from a sample."""
    for name, number in (("shards", shards), ("max_bytes_per_shard", most_bytes)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, found {number!r}")
    if shards is not None and most_bytes is not None:
        raise ValueError("pass shards or max_bytes_per_shard, not both: the one follows from the other")
    if shards is not None:
        return shards
    count = subscriptions.count()
    some = select(subscriptions, columns.values(), "the subscriptions").toDF(*columns).limit(_SAMPLE).toArrow()
    matcher = gm.Matcher(schema, index=index, device="cpu")
    matcher.add_table(some, on_error="collect")
    per_row = matcher.stats()["bytes"] / max(1, len(some))
    return max(1, -(-int(count * per_row) // (most_bytes or 1)))
