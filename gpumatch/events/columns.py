"""Typed columns of events, and how plain Python values become one.

Python values are converted here, one attribute at a time, because a column's type is the attribute's: guessing it from
the values (as Arrow and NumPy do) goes wrong for ``[1, 2.5]``, ``[1, None]`` and ``2**70``.
"""

from __future__ import annotations

import datetime as dt
import reprlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.device_memory import is_device_array, to_host, use_device_of
from gpumatch.errors import SchemaError
from gpumatch.expr.times import EPOCH
from gpumatch.schema import AttributeType, Kind

NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "day": 86_400 * 10**9}
NOT_WHOLE = ", which is not whole; round it, or declare the attribute as float64"
OUTSIDE_INT64 = ", which is outside the range of int64; declare the attribute as float64 or string"
INEXACT = ", which float64 cannot hold exactly; declare the attribute as int64"
BAD_TEXT = ", which is not valid Unicode (a lone surrogate); replace the broken characters"
_EXPECTED: dict[Kind, str] = {
    "int": "whole numbers",
    "float": "numbers",
    "bool": "booleans",
    "string": "strings",
    "date": "dates",
    "timestamp": "datetimes",
}


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings in dictionary form. Index -1 stands for a missing value."""

    dictionary: pa.Array  # large_string, distinct, no nulls
    indices: Array  # int32

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, at: slice | Array) -> Strings:
        return Strings(self.dictionary, self.indices[at])

    def moved(self, move: Callable[[Any], Any]) -> Strings:
        """With ``move`` applied to the indices. The dictionary is always on the host."""
        return Strings(self.dictionary, move(self.indices))


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one attribute, one per event or, for a list attribute, one per element.

    ``values`` are float64 (missing is NaN), int64 (also for bool, for days of dates, and for timestamps in the
    attribute's unit), or strings; contiguous and possibly read-only. ``valid`` says which events have the attribute
    (None: all of them, except for NaN). ``offsets`` split a list attribute's values by event; null and NaN elements
    are removed, so an empty list may have had some. All arrays of a column are on the host, or all on a CUDA device.
    """

    values: Array | Strings
    valid: Array | None = None
    offsets: Array | None = None

    def slice(self, start: int, stop: int) -> Column:
        """The events from ``start`` up to ``stop``; shares the values."""
        valid = None if self.valid is None else self.valid[start:stop]
        if self.offsets is None:
            return Column(self.values[start:stop], valid)
        with use_device_of(self.offsets):
            offsets = self.offsets[start : stop + 1]
            return Column(self.values[int(offsets[0]) : int(offsets[-1])], valid, offsets - offsets[0])

    @property
    def on_device(self) -> bool:
        return is_device_array(self.values.indices if isinstance(self.values, Strings) else self.values)

    def moved(self, move: Callable[[Any], Any]) -> Column:
        """With ``move`` applied to all arrays."""
        values = self.values.moved(move) if isinstance(self.values, Strings) else move(self.values)
        valid = None if self.valid is None else move(self.valid)
        return Column(values, valid, None if self.offsets is None else move(self.offsets))

    def to_host(self) -> Column:
        """The column on the host: a copy if it is on a device."""
        return self.moved(to_host) if self.on_device else self


class BadValue(Exception):  # noqa: N818 - never leaves the package: callers add the attribute's name
    """A value that does not fit its attribute: where, what, and why."""

    def __init__(self, at: int, found: object, why: str) -> None:
        super().__init__(at, found, why)
        self.at, self.found, self.why = at, found, why

    def error(self, name: str, kind: AttributeType) -> SchemaError:
        found = f"{reprlib.repr(self.found)}{self.why}"
        return SchemaError(f"attribute {name!r} is {kind}, but event {self.at} holds {found}")


def tick(kind: AttributeType) -> int:
    """Nanoseconds per step of a date or timestamp attribute."""
    return NANOS["day" if kind.kind == "date" else kind.unit]


def too_fine(kind: AttributeType) -> str:
    if kind.kind == "date":
        return ", which is not midnight; declare the attribute as timestamp, or drop the time"
    return ", which is finer than microseconds; declare the attribute as timestamp[ns]"


def too_far(kind: AttributeType) -> str:
    return f", which is outside the range of {kind.name}" + ("; declare timestamp[us]" if kind.unit == "ns" else "")


def zone_hint(kind: AttributeType) -> str:
    if kind.zone is None:
        return f"{kind.name} takes values without a time zone; drop the zone, or declare timestamp[{kind.unit}, tz=UTC]"
    return f"{kind.name} takes values with a time zone; attach one, or declare timestamp[{kind.unit}]"


def from_values(name: str, kind: AttributeType, values: Sequence[object]) -> Column | None:
    """A column of Python values, including numpy scalars and pandas' NA and NaT; None if all are missing."""
    try:
        column = _list_column(kind, values) if kind.multi else _scalar_column(kind, values)
    except BadValue as bad:
        raise bad.error(name, kind) from None
    return column


def _scalar_column(kind: AttributeType, values: Sequence[object]) -> Column | None:
    plain = _plain(kind, values)
    if plain is None:
        return None
    valid = None
    if kind.kind != "float" and None in plain:
        valid = np.array([value is not None for value in plain])
    return Column(_pack(kind, plain), valid)


def _list_column(kind: AttributeType, values: Sequence[object]) -> Column | None:
    flat: list[object] = []
    ends, present = [0], []
    for event, value in enumerate(values):
        if isinstance(value, (list, tuple, set, frozenset)):
            flat.extend(value)
        elif isinstance(value, np.ndarray) and value.ndim == 1:
            flat.extend(value.tolist() if value.dtype.kind in "biufUO" else value)
        elif not _missing(value):
            why = f" ({type(value).__name__}), not a list; wrap it in one, or declare the attribute as {kind.name}"
            raise BadValue(event, value, why)
        ends.append(len(flat))
        present.append(not _missing(value))
    if not any(present):
        return None
    try:
        plain = _plain(kind, flat) or []
        kept = [value for value in plain if value is not None and value == value]
        packed = _pack(kind, kept)
    except BadValue as bad:
        raise BadValue(bisect_right(ends, bad.at) - 1, bad.found, bad.why) from None
    if len(kept) < len(flat):
        before = [0, *accumulate(value is not None and value == value for value in plain or [None] * len(flat))]
        ends = [before[end] for end in ends]
    valid = None if all(present) else np.array(present)
    return Column(packed, valid, np.array(ends, np.int64))


def _plain(kind: AttributeType, values: Sequence[object]) -> Sequence[Any] | None:
    """The values as int, float or str, None where missing; None if all are."""
    types = set(map(type, values))
    types.discard(type(None))
    if not types:
        return None
    if types == _READY[kind.kind]:
        return values
    convert = _CONVERT[kind.kind]
    plain: list[Any] = []
    for at, value in enumerate(values):
        try:
            plain.append(None if _missing(value) else convert(value, kind))
        except TypeError:
            expected = f"a list of {_EXPECTED[kind.kind]}" if kind.multi else _EXPECTED[kind.kind]
            raise BadValue(at, value, f" ({type(value).__name__}); pass {expected}, or declare another type") from None
        except ValueError as error:
            raise BadValue(at, value, str(error)) from None
    return plain if any(value is not None for value in plain) else None


def _pack(kind: AttributeType, values: Sequence[Any]) -> Array | Strings:
    """An array of the values that ``_plain`` returned."""
    if kind.kind == "string":
        return _strings(values)
    if kind.kind == "float":
        return np.array(values, np.float64)  # turns None into NaN
    try:
        return np.array([0 if value is None else value for value in values], np.int64)
    except OverflowError:
        at = next(at for at, value in enumerate(values) if value is not None and not -(2**63) <= value < 2**63)
        raise BadValue(at, values[at], OUTSIDE_INT64) from None


def _strings(values: Sequence[str | None]) -> Strings:
    distinct = dict.fromkeys(value for value in values if value is not None)
    try:
        encoded = [text.encode() for text in distinct]
    except UnicodeEncodeError:
        at = next(at for at, value in enumerate(values) if value is not None and _broken(value))
        raise BadValue(at, values[at], BAD_TEXT) from None
    ends = np.array([0, *accumulate(map(len, encoded))], np.int64)
    # pa.array(list) would be slower for one event, and imports pandas
    dictionary = pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
    index: dict[str | None, int] = {None: -1, **{text: code for code, text in enumerate(distinct)}}
    return Strings(dictionary, np.array([index[value] for value in values], np.int32))


def _broken(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _missing(value: object) -> bool:
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating, np.datetime64)) and bool(value != value)


# A converter raises TypeError for a value of the wrong type, and ValueError(why) for one that does not fit.


def _float(value: object, kind: AttributeType) -> float:
    if isinstance(value, (float, np.floating)):
        number: Any = value
    elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        number = int(value)
    else:
        raise TypeError
    try:
        exact = float(number) == number
    except OverflowError:
        exact = False
    if not exact:
        raise ValueError(INEXACT)
    return float(number)


def _int(value: object, kind: AttributeType) -> int:
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            raise ValueError(OUTSIDE_INT64)
        if value != np.trunc(value):
            raise ValueError(NOT_WHOLE)
    elif not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(OUTSIDE_INT64)
    return number


def _bool(value: object, kind: AttributeType) -> int:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError
    return int(value)


def _string(value: object, kind: AttributeType) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)  # for a subclass, such as np.str_ or an Enum, the bare text


def _time(value: object, kind: AttributeType) -> int:
    if isinstance(value, dt.datetime):
        offset = value.utcoffset()
        if (offset is None) != (kind.zone is None):
            raise ValueError(f"; {zone_hint(kind)}")
        seconds = ((_days(value) * 24 + value.hour) * 60 + value.minute) * 60 + value.second
        micros = seconds * 10**6 + value.microsecond
        if offset is not None:
            micros -= offset // dt.timedelta(microseconds=1)
        nanos = micros * 1000 + getattr(value, "nanosecond", 0)  # pandas' Timestamp has them
    elif isinstance(value, np.datetime64):
        if kind.zone is not None:
            raise ValueError(f"; {zone_hint(kind)}")
        nanos = _datetime64_nanos(value)
    elif isinstance(value, dt.date) and kind.kind == "date":
        return _days(value)
    else:
        raise TypeError
    steps, rest = divmod(nanos, tick(kind))
    if rest:
        raise ValueError(too_fine(kind))
    if not -(2**63) <= steps < 2**63:
        raise ValueError(too_far(kind))
    return steps


def _days(date: dt.date) -> int:
    return date.toordinal() - EPOCH


def _datetime64_nanos(value: np.datetime64) -> int:
    unit, count = np.datetime_data(value.dtype)
    if unit in "YMW":
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    nanos = {**NANOS, "D": NANOS["day"], "h": 3600 * 10**9, "m": 60 * 10**9}.get(unit)
    if nanos is None:
        raise ValueError(f", of unit {unit!r}; use ns or coarser")
    return int(value.astype(np.int64)) * count * nanos


_READY: dict[Kind, set[type]] = {"int": {int}, "float": {float}, "bool": {bool}, "string": {str}}
_READY |= {"date": set(), "timestamp": set()}
_CONVERT: dict[Kind, Callable[[object, AttributeType], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "string": _string,
    "date": _time,
    "timestamp": _time,
}
