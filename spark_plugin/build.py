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
    weight: str | None = None,
    destination: str | None = None,
    index: Any = "auto",
    on_error: Literal["raise", "collect"] = "raise",
) -> gm.Matcher:
    """Collect ids and expressions to the driver, build an index and save it in the folder ``path``.

    ``weight`` and ``destination`` name further columns: a number, by which ``top`` finds the heaviest subscriptions,
    and where matches are to go.

    Returns the matcher that was saved. A bad subscription is an error, and then nothing is saved; with
    ``on_error="collect"`` the bad ones are left out, and a warning tells how many and shows the first.
    """
    check_frame(subscriptions, "subscriptions")
    names = dict.fromkeys(name for name in (id, where, weight, destination) if name is not None)
    table = select(subscriptions, names, "the subscriptions").toArrow()
    weights, destinations = (None if name is None else table[name] for name in (weight, destination))
    matcher = gm.Matcher(schema, index=index)
    rejected = matcher.add_table(table, id, where, on_error, destinations, weights)
    if rejected:
        first = "; ".join(f"{bad.id!r}: {bad.message}" for bad in rejected[:3])
        warnings.warn(f"{len(rejected)} of {len(table)} subscriptions were left out: {first}", stacklevel=2)
    matcher.save(path)
    return matcher
