"""Python, numpy and pandas values as constants, exactly. Imports none of these libraries."""

from __future__ import annotations

import datetime as dt
import math
import struct
import sys
from decimal import Decimal
from typing import Any

from gpumatch.errors import SchemaError
from gpumatch.expr.atoms import Constant, Timestamp
from gpumatch.expr.constants import MAX_DIGITS, constant
from gpumatch.expr.times import SECOND, from_datetime
from gpumatch.expr.tokens import find_surrogate

_TOO_LARGE = 10 ** (MAX_DIGITS - 1)  # leaves room for the sign
_NANOS = {"h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": 1_000_000, "us": 1000, "ns": 1}
_PARTS = {"ps": 1000, "fs": 1_000_000, "as": SECOND}  # of a nanosecond


def as_constant(value: object, attribute: str) -> Constant:
    """The constant of a value that a user compares an attribute with; refuses missing and unsupported values."""
    if is_missing(value):
        raise SchemaError(f"attribute {attribute!r} is compared with {value!r}; use is_null() or is_not_null()")
    return constant(str(value)) if isinstance(value, Decimal) and value.is_finite() else plain(value, attribute)


def is_missing(value: object) -> bool:
    """None, NaN, and the NaT and NA of numpy and pandas."""
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return True
    if isinstance(value, (bool, int, str)):
        return False
    numpy = sys.modules.get("numpy")
    if isinstance(value, float) or (numpy is not None and isinstance(value, numpy.floating)):
        return bool(value != value)
    return numpy is not None and isinstance(value, numpy.datetime64) and bool(numpy.isnat(value))


def plain(value: object, attribute: str) -> Constant:
    """The value as one of the types that expressions use; ``attribute`` is for the error message if there is none."""
    if isinstance(value, (bool, Timestamp)):
        return value
    if isinstance(value, int):
        if abs(value) >= _TOO_LARGE:
            raise SchemaError(f"attribute {attribute!r}: an integer has at most {MAX_DIGITS - 1} digits")
        return int(value)
    if isinstance(value, float):
        return float(value) + 0.0  # -0.0 is 0.0
    if isinstance(value, str):
        return _string(value, attribute)
    if isinstance(value, dt.datetime):
        # pandas.Timestamp is a datetime with a finer unit and a wider range than its base class knows.
        exact = getattr(value, "to_datetime64", None)
        return from_datetime(value) if exact is None else _instant(exact(), value.tzinfo is not None, attribute)
    if isinstance(value, dt.date):
        return value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _from_numpy(value, numpy, attribute)
    raise _unsupported(value, attribute)


def _string(value: str, attribute: str) -> str:
    if find_surrogate(value) is not None:
        raise SchemaError(f"attribute {attribute!r}: the string {value!r} contains a lone surrogate")
    return str.__str__(value)


def _from_numpy(value: Any, numpy: Any, attribute: str) -> Constant:
    if isinstance(value, numpy.bool_):
        return bool(value)
    if isinstance(value, numpy.integer) and not isinstance(value, numpy.timedelta64):
        return int(value)
    if isinstance(value, numpy.floating):
        number = float(value)
        if number == value:  # a long double may be more precise than a float
            return number + 0.0
    if isinstance(value, numpy.datetime64):
        if numpy.datetime_data(value.dtype)[0] not in ("Y", "M", "W", "D"):
            return _instant(value, False, attribute)
        date = value.astype("datetime64[D]").item()
        if isinstance(date, dt.date):
            return date
        raise SchemaError(f"attribute {attribute!r}: the date {value} is outside the years 1 to 9999")
    raise _unsupported(value, attribute)


def _instant(value: Any, zoned: bool, attribute: str) -> Timestamp:
    """A numpy.datetime64 in any unit of time."""
    unit, count = sys.modules["numpy"].datetime_data(value.dtype)
    ticks = int(value.astype("int64")) * count
    if unit in _NANOS:
        return Timestamp(ticks * _NANOS[unit], zoned)
    nanos, rest = divmod(ticks, _PARTS[unit])
    if rest:
        raise SchemaError(f"attribute {attribute!r}: the time {value} is finer than a nanosecond")
    return Timestamp(nanos, zoned)


def _unsupported(value: object, attribute: str) -> SchemaError:
    return SchemaError(
        f"attribute {attribute!r}: {value!r} of type {type(value).__name__} is not supported; "
        "use a bool, int, float, Decimal, str, date or datetime, or a numpy or pandas scalar of these"
    )


def rounded(value: float, single: bool) -> float:
    """The nearest double, or the nearest single as a double; infinite if out of range."""
    try:
        double = float(value)
        return float(struct.unpack("<f", struct.pack("<f", double))[0]) if single else double
    except OverflowError:
        return math.inf if value > 0 else -math.inf
