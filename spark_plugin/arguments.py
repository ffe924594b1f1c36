"""What callers pass, checked before Spark sees it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import gpumatch as gm
from gpumatch.errors import SchemaError
from gpumatch.schema import SchemaLike
from gpumatch.spark.frames import arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_session(session: object) -> None:
    """Classic or Connect, whose classes share nothing but their name and methods."""
    if not (hasattr(session, "sql") and hasattr(session, "conf")):
        raise TypeError(f"the first argument must be a SparkSession, found {type(session).__name__}")


def check_index(index: object) -> None:
    if not isinstance(index, (str, os.PathLike, gm.Matcher)):
        raise TypeError(f"the index must be a Matcher, or a saved one's folder or URI, found {type(index).__name__}")


def check_names(columns: Sequence[str] | None, subscription: str | None, metrics: object) -> None:
    """Check names given to ``match_events`` and ``count_subscriptions``."""
    from gpumatch.spark.metrics import Metrics

    names = [] if columns is None else [columns] if isinstance(columns, str) else list(columns)
    for name in names if subscription is None else [*names, subscription]:
        if not isinstance(name, str) or not name:
            raise TypeError(f"columns= and subscription= take column names, found {name!r}")
    if len(set(names)) < len(names):
        raise SchemaError(f"columns= names a column twice: {', '.join(names)}")
    if metrics is not None and not isinstance(metrics, Metrics):
        raise TypeError(f"metrics= takes a Metrics(spark), found {metrics!r}")


def schema_of(schema: SchemaLike | StructType) -> SchemaLike:
    """A schema as ``Matcher`` takes it; a DataFrame's is converted to Arrow."""
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return pa.schema([(field.name, arrow_type(field.dataType)) for field in schema.fields])
    return schema


def check_roles(types: StructType, columns: dict[str, str]) -> None:
    """Check the types of the columns that ``build_index`` takes ids, weights and destinations from."""
    kinds = {name: arrow_type(types[name].dataType) for role, name in columns.items() if role != "expr"}
    wanted = {"id": "strings or integers", "destination": "strings or integers", "weight": "numbers"}
    for role, name in columns.items():
        kind: Any = kinds.get(name)
        if kind is None or pa.types.is_integer(kind):
            continue
        fits = pa.types.is_string(kind)
        if role == "weight":
            fits = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if not fits and not pa.types.is_null(kind):
            found = types[name].dataType.simpleString()
            raise SchemaError(f"the column {name!r} is {found}; {role}= takes {wanted[role]}: cast it, or name another")
