"""Converts text columns of CSV and JSON to the types of their attributes; errors name the column and row."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.errors import GpumatchError

EXACT = pa.decimal256(76, 38)  # fits every int64, and enough of a fraction to detect one


def as_text(kind: pa.DataType) -> pa.DataType:
    """The type with text instead of dates and times, which JSON does not have."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_text(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(as_text(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def typed(batch: Any, types: Mapping[str, pa.DataType], first: int = 0) -> Any:
    """The batch (or table) in these types; ``first`` is the number of rows of the file before it."""
    names = batch.schema.names
    columns = [_typed(batch.column(name), types.get(name), name, first) for name in names]
    return type(batch).from_arrays(columns, names=names)


def _typed(column: Any, kind: pa.DataType | None, name: str, first: int) -> Any:
    if kind is None or column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        pass
    if pa.types.is_string(column.type):
        column = _tidy(column)
        exact = _cast(column, EXACT) if pa.types.is_integer(kind) else None
        column = column if exact is None else exact  # pandas writes 2.0 if a column of integers has gaps
    values = _cast(column, kind)
    if values is not None:
        return values
    at = bisect_left(range(len(column) - 1), True, key=lambda last: _cast(_rows(column, 0, last + 1), kind) is None)
    try:
        _rows(column, at, at + 1).cast(kind)
    except pa.ArrowInvalid as error:
        whole = pa.types.is_integer(kind.value_type if pa.types.is_list(kind) else kind)
        why = f"expected a whole number, found {_shown(column[at].as_py())}" if whole else error
        raise GpumatchError(f"column {name!r}, row {first + at + 1:,}: {why}") from None
    raise AssertionError("the row cannot be converted")


def _rows(column: Any, start: int, stop: int) -> Any:
    """A copy: Arrow casts all elements behind a slice of lists, not only the slice's own."""
    return column.take(pa.array(range(start, stop), pa.int64()))


def _cast(column: Any, kind: pa.DataType) -> Any:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return None


def _tidy(texts: Any) -> Any:
    """Strip white space around numbers and times; empty text is missing."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value.normalize():f}" if isinstance(value, Decimal) else repr(value)
