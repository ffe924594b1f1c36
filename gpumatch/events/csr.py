"""Wide, sparse events as CSR: entries of (attribute, value), bound to a schema without any work per attribute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from gpumatch.arrays import Array
from gpumatch.device_memory import finish, is_device_array, library, library_of, to_host, use_device_of
from gpumatch.errors import SchemaError
from gpumatch.events.arrow import empty, exact, from_any, in_list, rescale, starts, whole
from gpumatch.events.columns import BadValue, Column, Strings, tick, zone_hint
from gpumatch.events.cuda import from_device, length_of, on_device, type_of
from gpumatch.events.strangers import Strangers
from gpumatch.schema import AttributeType, Schema, parse_type


@dataclass(frozen=True, slots=True)
class Sparse:
    """CSR events bound to a schema: entries of unknown attributes and missing values are left out.

    ``attribute`` holds positions in the schema, ascending within an event and repeated only for list attributes.
    Numbers keep the type they came in, which is checked to convert exactly to their attribute's. All arrays are on the
    host, or all on a CUDA device.
    """

    offsets: Array  # int64, one more than there are events
    attribute: Array  # int32
    values: Array | Strings  # float64 or int64, as in a Column

    def slice(self, start: int, stop: int) -> Sparse:
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        with use_device_of(self.offsets):
            offsets = self.offsets[start : stop + 1] - first
        return Sparse(offsets, self.attribute[first:last], self.values[first:last])

    def moved(self, move: Callable[[Any], Any]) -> Sparse:
        """With ``move`` applied to all arrays."""
        return Sparse(move(self.offsets), move(self.attribute), Column(self.values).moved(move).values)


@dataclass(frozen=True, slots=True)
class Csr:
    """CSR events as the user gave them."""

    offsets: Array
    attribute: Array  # int32, indexes names
    kind: AttributeType  # of all values
    column: Column  # one value per entry
    names: Sequence[str]

    @classmethod
    def of(cls, offsets: Any, attribute: Any, value: Any, names: Sequence[str]) -> Csr:
        offsets, attribute = _integers("offsets", offsets), _integers("attribute", attribute)
        _check_offsets(offsets, len(attribute))
        count = length_of(value)
        if count != len(attribute):
            raise SchemaError(f"from_csr needs one value for each attribute, found {count} for {len(attribute)}")
        outside = (attribute < 0) | (attribute >= len(names))
        if outside.any():
            at = int(outside.argmax())
            raise SchemaError(f"from_csr: attribute[{at}] is {int(attribute[at])}, but there are {len(names)} names")
        value = value if on_device(value) else _array(value)
        kind = _value_kind(value)
        if kind.multi:
            raise SchemaError(
                f"from_csr takes one value per entry, found {kind}; repeat the attribute for each value of a list"
            )
        column = (from_device if on_device(value) else from_any)("value", kind, value)
        if column is None:  # no value is present
            offsets, attribute, column = offsets * 0, attribute[:0], Column(empty(kind))
        # Copies: kernels trust what was checked here, and the caller may go on to change these arrays.
        values = column.values.indices if isinstance(column.values, Strings) else column.values
        there = next(filter(is_device_array, (offsets, attribute, values)), None)
        with use_device_of(there):
            made = cls(offsets.astype(np.int64), attribute.astype(np.int32), kind, column, names)
            if there is not None:
                made = made.moved(library().asarray)
                finish()
        return made

    def moved(self, move: Callable[[Any], Any]) -> Csr:
        """With ``move`` applied to all arrays."""
        return Csr(move(self.offsets), move(self.attribute), self.kind, self.column.moved(move), self.names)

    def slice(self, start: int, stop: int) -> Csr:
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        with use_device_of(self.offsets):
            offsets = self.offsets[start : stop + 1] - first
        return Csr(offsets, self.attribute[first:last], self.kind, self.column.slice(first, last), self.names)

    def bind(self, schema: Schema) -> Sparse:
        """The entries whose attributes are in the schema, checked and in order."""
        with use_device_of(self.offsets):
            position = self._positions(schema)
            kept = _drop(Sparse(self.offsets, position, self.column.values), self._keep(position))
            bound = _ordered(_typed(kept, self.kind, schema), schema)
            if self.column.on_device:
                finish()
        return bound

    def _positions(self, schema: Schema) -> Array:
        """The schema position of every entry's attribute, or -1. Looks up only names that occur."""
        names = self.names
        # Comparing all names takes a thirtieth of the time of looking each one up.
        if names is schema.names or (30 * len(self.attribute) >= len(names) and tuple(names) == schema.names):
            return self.attribute
        xp = library_of(self.attribute)
        positions = np.full(len(names), -1, np.int32)
        for index in self._occurring():
            found = schema.find(names[index])
            if found is not None:
                positions[index] = found
        positioned: Array = xp.asarray(positions)[self.attribute]
        return positioned

    def _occurring(self) -> list[int]:
        """Indexes of the names that entries have."""
        occurs = library_of(self.attribute).zeros(len(self.names), dtype=np.bool_)
        occurs[self.attribute] = True
        found: list[int] = np.flatnonzero(to_host(occurs)).tolist()
        return found

    def strangers(self, schema: Schema) -> Strangers:
        """The names of entries that are not in the schema, each with the first event that has it."""
        found: Strangers = {}
        attribute, offsets = to_host(self.attribute), to_host(self.offsets)
        for index in self._occurring():
            if schema.find(self.names[index]) is None:
                entry = int((attribute == index).argmax())
                found[self.names[index]] = int(np.searchsorted(offsets, entry, "right")) - 1
        return found

    def _keep(self, position: Array) -> Array:
        keep: Array = position >= 0
        if self.column.valid is not None:
            keep &= self.column.valid
        values = self.column.values
        if not isinstance(values, Strings) and values.dtype == np.float64:
            keep &= values == values
        return keep


def _integers(label: str, data: Any) -> Array:
    if on_device(data):
        return _device_integers(label, data)
    array = np.asarray(data)
    if array.ndim == 1 and not array.size:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        found = f"{array.ndim}-dimensional {array.dtype}"
        raise SchemaError(f"from_csr: {label} must be a one-dimensional array of integers, found {found}")
    return array


def _device_integers(label: str, data: Any) -> Array:
    found = type_of(data)
    column = from_device(label, parse_type(label, "int64"), data) if _is_integer(found) else None
    if length_of(data) and (column is None or column.valid is not None):
        what = "nulls" if _is_integer(found) else found
        raise SchemaError(f"from_csr: {label} must be a one-dimensional array of integers, found {what}")
    integers: Any = library().zeros(0, dtype=np.int64) if column is None else column.values
    return integers  # type: ignore[no-any-return]


def _is_integer(found: Any) -> bool:
    return isinstance(found, pa.DataType) and bool(pt.is_integer(found))


def _check_offsets(offsets: Array, entries: int) -> None:
    if not len(offsets):
        raise SchemaError("from_csr: offsets are empty; they need one more element than there are events")
    if offsets[0] != 0 or offsets[-1] != entries:
        found = f"{int(offsets[0])} … {int(offsets[-1])}"
        raise SchemaError(f"from_csr: offsets must go from 0 to {entries}, the number of entries; found {found}")
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        at = int(falls.argmax())
        fall = f"from {int(offsets[at])} to {int(offsets[at + 1])}"
        raise SchemaError(f"from_csr: offsets fall {fall} at event {at}")


def _array(value: Any) -> Any:
    """Values as an Arrow or numpy array, which has one type; Python objects must agree on one."""
    if isinstance(value, (pa.Array, pa.ChunkedArray)) or (isinstance(value, np.ndarray) and value.dtype != object):
        return value
    try:
        return pa.array(value, from_pandas=True)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise SchemaError(
            f"from_csr: the values must be all numbers, all booleans, all strings or all times: {error}"
        ) from error


def _value_kind(value: Any) -> AttributeType:
    """The attribute type that fits the values of an array as they are."""
    if on_device(value):
        found = type_of(value)
    else:
        found = value.type if isinstance(value, (pa.Array, pa.ChunkedArray)) else value.dtype
    if isinstance(found, str):
        return parse_type("value", found)
    if isinstance(found, np.dtype):
        if found.kind == "M":
            return parse_type("value", f"timestamp[{'ns' if np.datetime_data(found)[0] == 'ns' else 'us'}]")
        numbers = {"f": "float64", "i": "int64", "u": "int64", "b": "bool", "U": "string", "T": "string"}
        return parse_type("value", numbers.get(found.kind, str(found)))
    if pt.is_dictionary(found):
        found = found.value_type
    if pt.is_integer(found) or pt.is_null(found):
        found = pa.int64()
    elif pt.is_floating(found):
        found = pa.float64()
    return parse_type("value", str(found))


def _drop(entries: Sparse, keep: Array) -> Sparse:
    if keep.all():
        return entries
    return Sparse(starts(keep)[entries.offsets], entries.attribute[keep], entries.values[keep])


_last_types: tuple[Schema, list[AttributeType], Array] | None = None


def _schema_types(schema: Schema) -> tuple[list[AttributeType], Array]:
    """The schema's distinct types, and the number of each attribute's type; kept for the last schema."""
    global _last_types
    last = _last_types
    if last is None or last[0] is not schema:
        numbers: dict[AttributeType, int] = {}
        codes = np.array([numbers.setdefault(kind, len(numbers)) for kind in schema.types], np.int16)
        last = _last_types = (schema, list(numbers), codes)
    return last[1], last[2]


def _typed(entries: Sparse, kind: AttributeType, schema: Schema) -> Sparse:
    """The entries with values checked against, and dates and timestamps converted to, their attribute's type."""
    types, codes = _schema_types(schema)
    as_they_are = kind.kind in ("float", "int", "bool", "string")
    others = [number for number, wanted in enumerate(types) if not (as_they_are and wanted.kind == kind.kind)]
    if not others:
        return entries
    xp = library_of(entries.attribute)
    code = xp.asarray(codes)[entries.attribute]
    values: Any = entries.values
    if not as_they_are:
        values = values.copy()  # times are overwritten
    for number in others:
        wanted, group = types[number], xp.flatnonzero(code == number)
        if not len(group):
            continue
        try:
            converted = _convert(values[group], kind, wanted)
        except BadValue as bad:
            at = int(group[bad.at])
            name = schema.names[int(entries.attribute[at])]
            raise in_list(BadValue(at, bad.found, bad.why), entries.offsets).error(name, wanted) from None
        if wanted.kind in ("date", "timestamp"):
            values[group] = converted
    return Sparse(entries.offsets, entries.attribute, values)


def _convert(values: Any, found: AttributeType, wanted: AttributeType) -> Array:
    """Values of one kind converted to those of an attribute of another kind, unit or zone."""
    if found.kind == "float" and wanted.kind == "int":
        return whole(values)[0]
    if found.kind == "int" and wanted.kind == "float":
        return exact(values)
    if found.kind in ("date", "timestamp"):
        if (found.zone is None) != (wanted.zone is None):
            raise BadValue(0, str(found), f"; {zone_hint(wanted)}")
        if wanted.kind == found.kind or wanted.kind == "date":
            return rescale(values, tick(found), wanted)
    raise BadValue(0, str(found), f" values; pass {wanted.name} values in another batch, or declare another type")


def _ordered(entries: Sparse, schema: Schema) -> Sparse:
    """The entries with ascending attributes in every event; only list attributes may repeat."""
    offsets, attribute = entries.offsets, entries.attribute
    falls = _not_rising(offsets, attribute)
    if not falls.any():
        return entries
    xp = library_of(attribute)
    event = xp.searchsorted(offsets, xp.arange(len(attribute), dtype=np.int64), "right") - 1
    order = xp.argsort(event * len(schema) + attribute)
    attribute = attribute[order]
    twice = xp.flatnonzero(_not_rising(offsets, attribute))
    for position, at in zip(to_host(attribute[twice]).tolist(), to_host(event[twice]).tolist(), strict=True):
        name, kind = schema.names[position], schema.types[position]
        if not kind.multi:
            hint = f"drop one, or declare the attribute as list<{kind.name}>"
            raise SchemaError(f"attribute {name!r} is {kind}, but event {at} has two values of it; {hint}")
    return Sparse(offsets, attribute, entries.values[order])


def _not_rising(offsets: Array, attribute: Array) -> Array:
    """Marks each entry that is not below the next one of the same event."""
    falls: Array = attribute[1:] <= attribute[:-1]
    ends = offsets[1:-1]
    falls[ends[(ends > 0) & (ends < len(attribute))] - 1] = False
    return falls
