"""``build_index``: build and save an index from a DataFrame of subscriptions."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Literal

import gpumatch as gm
from gpumatch.spark.frames import check_frame, select

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gpumatch.schema import SchemaLike


def build_index(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    *,
    schema: SchemaLike,
    id: str = "id",
    where: str = "expr",
    index: Any = "auto",
    on_error: Literal["raise", "collect"] = "raise",
) -> gm.Matcher:
    """Collect ids and expressions to the driver, build an index and save it in the folder ``path``.

    Returns the saved matcher. A bad subscription is an error, and nothing is saved. With ``on_error="collect"`` bad
    subscriptions are left out, with a warning that gives their number and the first few.
    """
    check_frame(subscriptions, "subscriptions")
    table = select(subscriptions, [id, where], "the subscriptions").toArrow()
    matcher = gm.Matcher(schema, index=index)
    rejected = matcher.add_table(table, id=id, where=where, on_error=on_error)
    if rejected:
        first = "; ".join(f"{bad.id!r}: {bad.message}" for bad in rejected[:3])
        warnings.warn(f"{len(rejected)} of {len(table)} subscriptions were left out: {first}", stacklevel=2)
    matcher.save(path)
    return matcher
