"""One event, converted straight to keys: a batch of one would spend its time on columns of one value."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_float
from typing import Any, NamedTuple

from gpumatch.events.columns import Column, Strings, from_values
from gpumatch.events.strangers import Strangers
from gpumatch.expr.keys import MAX, MIN, float_key
from gpumatch.schema import AttributeType, Schema


class Single(NamedTuple):
    """Values of one event, ascending by attribute; a list has an entry per value."""

    attribute: list[int]
    key: list[int | bytes]  # for a string its bytes, as its key depends on a codebook's pool
    lists: list[int]  # list attributes that the event has, including empty ones
    held: dict[int, Any]  # by attribute: the value, or the column that was made to convert it

    @classmethod
    def of(cls, row: Mapping[str, Any], schema: Schema, strangers: Strangers | None = None) -> Single:
        """The event of a dict. Names not in the schema go to ``strangers``; a wrong type is a SchemaError."""
        find = schema.find
        found = {}
        for name, value in row.items():
            at = find(name)
            if at is None:
                if strangers is not None:
                    strangers[name] = 0
            elif value is not None:
                found[at] = value
        single = cls([], [], [], {})
        for at in sorted(found):
            kind, value = schema.types[at], found[at]
            key = None if kind.multi else _plain_key(kind, value)
            if key is not None:
                single.attribute.append(at)
                single.key.append(key)
                single.held[at] = value
                continue
            column = from_values(schema.names[at], kind, [value])
            if column is not None:
                keys = _column_keys(kind, column)
                single.attribute.extend([at] * len(keys))
                single.key.extend(keys)
                single.held[at] = column
                if kind.multi:
                    single.lists.append(at)
        return single

    def columns(self, schema: Schema) -> dict[int, Column]:
        """The event as columns of one value."""
        columns = {}
        for at, held in self.held.items():
            column = held if isinstance(held, Column) else from_values(schema.names[at], schema.types[at], [held])
            assert column is not None
            columns[at] = column
        return columns


def _plain_key(kind: AttributeType, value: Any) -> int | bytes | None:
    """The key of a value that needs no conversion and is not missing; None for others."""
    type_, wanted = type(value), kind.kind
    if type_ is float and wanted == "float" and value == value:
        return _float_key(kind, value)
    if type_ is str and wanted == "string":
        try:
            encoded: bytes = value.encode()
            return encoded
        except UnicodeEncodeError:
            return None
    if type_ is int and wanted == "int" and MIN <= value <= MAX:
        return int(value)
    if type_ is bool and wanted == "bool":
        return int(value)
    return None


def _float_key(kind: AttributeType, value: float) -> int:
    """The key of a float; a float32 attribute rounds its values to float32."""
    return float_key(c_float(value).value if kind.name == "float32" else value)


def _column_keys(kind: AttributeType, column: Column) -> list[int | bytes]:
    """Keys of the values of a column of one event."""
    values = column.values
    if isinstance(values, Strings):
        texts = values.dictionary.to_pylist()
        return [texts[index].encode() for index in values.indices.tolist() if index >= 0]
    if kind.kind == "float":
        return [_float_key(kind, value) for value in values.tolist() if value == value]
    keys: list[int | bytes] = values.tolist()
    return keys
