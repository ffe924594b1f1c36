"""Attribute names and types of expressions and events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gpumatch.errors import SchemaError, nearest
from gpumatch.schema.typenames import type_name

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Kind = Literal["int", "float", "bool", "string", "date", "timestamp"]

_KINDS: dict[str, tuple[Kind, str]] = {
    **{f"int{bits}": ("int", f"int{bits}") for bits in (8, 16, 32, 64)},
    "float32": ("float", "float32"),
    "float64": ("float", "float64"),
    "double": ("float", "float64"),
    "bool": ("bool", "bool"),
    "boolean": ("bool", "bool"),
    "string": ("string", "string"),
    "large_string": ("string", "string"),
    "string_view": ("string", "string"),
    "date": ("date", "date"),
    "date32": ("date", "date"),
    "date32[day]": ("date", "date"),
    "date64[ms]": ("date", "date"),
}
_MEANT = {  # names of types in other systems
    "int": "int64", "integer": "int64", "bigint": "int64", "long": "int64", "real": "float32",
    "str": "string", "text": "string", "varchar": "string", "datetime": "timestamp",
}  # fmt: skip
_TIMESTAMP = re.compile(r"timestamp(?:\[(s|ms|us|ns)?(?:,\s*)?(?:tz=)?([^\]]*)\])?")
_LIST = re.compile(r"(?:large_)?list(?:_view)?<(?:(?:item|element): )?(.+)>")
SUPPORTED = "int8..int64, float32, float64, bool, string, date, timestamp, timestamp[us, tz=ZONE], and list<…> of these"


@dataclass(frozen=True, slots=True)
class AttributeType:
    """One attribute's type. ``multi`` marks a list, for which a predicate needs one value to hold."""

    kind: Kind
    name: str
    multi: bool = False
    unit: Literal["us", "ns"] = "us"  # of timestamps; values may have any unit that fits it exactly
    zone: str | None = None  # a timestamp without zone is a wall clock and never equals an instant

    def __str__(self) -> str:
        return f"list<{self.name}>" if self.multi else self.name


# One object for each, so that schemas of thousands of attributes compare quickly.
_shared = lru_cache(maxsize=256)(AttributeType)

SchemaLike: TypeAlias = "Schema | Mapping[str, Any] | pa.Schema | pd.Series"  # the last are the dtypes of a DataFrame


class Schema:
    """An ordered, immutable mapping from attribute name to type."""

    __slots__ = ("_index", "names", "types")

    def __init__(self, attributes: Mapping[str, AttributeType]) -> None:
        self.names: tuple[str, ...] = tuple(attributes)
        self.types: tuple[AttributeType, ...] = tuple(attributes.values())
        self._index = {name: i for i, name in enumerate(self.names)}

    @classmethod
    def of(cls, schema: SchemaLike) -> Schema:
        """From a mapping of names to types, an Arrow or polars schema, or the dtypes of a pandas DataFrame.

        Types are names such as ``"float64"``, or types of Python, NumPy, Arrow, pandas or polars.
        """
        if isinstance(schema, Schema):
            return schema
        if isinstance(schema, Mapping):
            fields = list(schema.items())
        elif hasattr(schema, "field") and hasattr(schema, "names"):
            fields = [(field.name, field.type) for field in schema]
        elif hasattr(schema, "items") and not hasattr(schema, "columns"):
            fields = list(schema.items())
        else:
            raise SchemaError(
                "a schema is a dict of attribute -> type, an Arrow or polars schema, or the dtypes of a pandas "
                f"DataFrame, found {type(schema).__name__}"
            )
        names = Counter(name for name, _ in fields)
        for name, times in names.items():
            if times > 1:
                raise SchemaError(f"the schema has several fields named {name!r}; drop or rename all but one")
        return cls({_name(name): parse_type(name, given) for name, given in fields})

    def index(self, name: str) -> int:
        """Position of an attribute; an unknown one is an error that suggests the nearest name."""
        try:
            return self._index[name]
        except KeyError:
            raise SchemaError(f"unknown attribute {name!r}{nearest(name, self.names)}") from None

    def find(self, name: str) -> int | None:
        return self._index.get(name)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, name: str) -> AttributeType:
        return self.types[self.index(name)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.names == other.names and self.types == other.types

    def __hash__(self) -> int:
        return hash((self.names, self.types))

    def __repr__(self) -> str:
        return f"Schema({self.to_dict()!r})"

    def to_dict(self) -> dict[str, str]:
        """Names and type names; ``Schema.of`` reads it back."""
        return {name: str(kind) for name, kind in zip(self.names, self.types, strict=True)}


def parse_type(attribute: str, given: Any) -> AttributeType:
    """The type that a name such as ``"int64"`` or ``"list<string>"``, or a type of Python or a library, stands for."""
    if isinstance(given, AttributeType):
        return given
    text = type_name(given).strip()
    if text == "object":
        hint = "say what they are, as in 'string', or pass df.convert_dtypes().dtypes"
        raise SchemaError(f"attribute {attribute!r} has type 'object', which may hold any values; {hint}")
    inner = _LIST.fullmatch(text)
    scalar = _scalar_type(inner.group(1).strip() if inner else text)
    if scalar is None:
        known = _MEANT.get(text.lower())
        wanted = f"write {known!r}" if known else f"use one of {SUPPORTED}"
        raise SchemaError(f"attribute {attribute!r} has type {text!r}, which is not supported; {wanted}")
    kind, name, unit, zone = scalar
    return _shared(kind, name, inner is not None, unit, zone)


def _scalar_type(text: str) -> tuple[Kind, str, Literal["us", "ns"], str | None] | None:
    text = text.removesuffix(" not null")
    if text in _KINDS:
        kind, name = _KINDS[text]
        return kind, name, "us", None
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    unit: Literal["us", "ns"] = "ns" if match.group(1) == "ns" else "us"
    zone = match.group(2) or None
    return "timestamp", f"timestamp[{unit}, tz={zone}]" if zone else f"timestamp[{unit}]", unit, zone


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise SchemaError(f"attribute names are non-empty strings, found {name!r}")
    return name
