"""Columns that only pass through Python, in types that RAPIDS hands to Python: others take the match off the GPU.

A decimal or a binary becomes a string, a struct its fields and whether it is there, a map its keys and its values, and
a column of nulls stays behind; after the match all become what they were. These steps run on the GPU too. Types that
cannot be converted pass as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import gpumatch as gm
from gpumatch.spark.rapids import PLUGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Restore: TypeAlias = "Callable[[DataFrame], DataFrame]"


def carry(
    selected: DataFrame, returned: Sequence[str], matcher: gm.Matcher | None
) -> tuple[DataFrame, list[str], Restore]:
    """Events to match, their columns to return, and a function that turns these into ``returned`` after the match.

    Nothing changes without RAPIDS, where it would only cost time, nor if only executors know the attributes.
    """
    same = selected, list(returned), lambda found: found
    if matcher is None or not is_active(selected.sparkSession):
        return same
    from pyspark.sql import functions as f

    prefix = max([*selected.columns, *matcher.schema.names], key=len) + "_"  # of names that no attribute has
    sent: list[Any] = []
    kept: list[str] = []
    back: list[Any] = []
    for field in selected.schema[: len(returned)]:
        column = f.col(_quoted(field.name))
        if field.name in matcher.schema or not _is_converted(field.dataType):
            sent.append(column)
            kept.append(field.name)
            back.append(column)
            continue
        parts = list(_parts(column, field.dataType))
        names = [f"{prefix}{len(kept) + at}" for at in range(len(parts))]
        sent += [part.alias(name) for part, name in zip(parts, names, strict=True)]
        kept += names
        whole = _whole(map(f.col, map(_quoted, names)), field.dataType)
        back.append(whole.alias(field.name, metadata=field.metadata))
    others = [f.col(_quoted(name)) for name in selected.columns[len(returned) :]]
    if not sent and not others:  # rows without columns would be lost
        return same
    return selected.select(*sent, *others), kept, lambda found: found.select(*back, _quoted(found.columns[-1]))


def is_active(session: SparkSession) -> bool:
    """Whether RAPIDS plans the queries of a session."""
    plugins, enabled = session.conf.get("spark.plugins", ""), session.conf.get("spark.rapids.sql.enabled", "true")
    return PLUGIN in str(plugins) and enabled == "true"


def _is_converted(kind: Any) -> bool:
    """Whether columns of a type are converted to be carried."""
    return _is_carried(kind) and not _is_plain(kind)


def _is_plain(kind: Any) -> bool:
    """Whether RAPIDS hands a type to Python as it is, or never does."""
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return _is_plain(kind.elementType)
    return not isinstance(kind, t.DecimalType | t.BinaryType | t.StructType | t.MapType | t.NullType)


def _is_carried(kind: Any) -> bool:
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        names = {name.lower() for name in kind.names}  # Spark tells fields apart only by name
        return len(names) == len(kind.names) and all(_is_carried(field.dataType) for field in kind)
    if isinstance(kind, t.MapType):
        return _in_array(kind.keyType) and _in_array(kind.valueType)
    return _in_array(kind) or isinstance(kind, t.NullType)


def _in_array(kind: Any) -> bool:
    """Whether RAPIDS hands an array of it to Python, after one cast."""
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return _in_array(kind.elementType)
    return not isinstance(kind, t.StructType | t.MapType | t.NullType)


def _parts(column: Any, kind: Any) -> Iterator[Any]:
    """The columns that carry one."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        yield column.isNotNull()
        for field in kind:
            yield from _parts(column.getField(field.name), field.dataType)
    elif isinstance(kind, t.MapType):
        yield f.map_keys(column).cast(t.ArrayType(_cast(kind.keyType)))
        yield f.map_values(column).cast(t.ArrayType(_cast(kind.valueType)))
    elif not isinstance(kind, t.NullType):
        yield column.cast(_cast(kind))


def _whole(parts: Iterator[Any], kind: Any) -> Any:
    """The column of parts."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(kind, t.NullType):
        return f.lit(None)
    if isinstance(kind, t.StructType):
        is_there = next(parts)
        fields = [_whole(parts, field.dataType).alias(field.name) for field in kind]
        return f.when(is_there, f.struct(*fields))
    if isinstance(kind, t.MapType):
        keys = next(parts).cast(t.ArrayType(kind.keyType))
        return f.map_from_arrays(keys, next(parts).cast(t.ArrayType(kind.valueType)))
    return next(parts).cast(kind)


def _cast(kind: Any) -> Any:
    """A string has the bytes of a binary, and the digits of a decimal."""
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_cast(kind.elementType), kind.containsNull)
    return t.StringType() if isinstance(kind, t.DecimalType | t.BinaryType) else kind


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
