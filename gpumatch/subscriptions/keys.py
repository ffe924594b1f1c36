"""Turns columns of constants into arrays of keys and of ranges of keys; None where a column needs a closer look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array
from gpumatch.errors import ParseError
from gpumatch.expr.constants import SlotKind, constant
from gpumatch.expr.keys import INF_KEY, MAX, MIN, Cut, predicate_set
from gpumatch.schema import AttributeType
from gpumatch.subscriptions.predicates import EMPTY

_INTEGER_TOO_LONG = r"^[+-]?[0-9]{16,}$"  # may lie between two floats
# Texts that Arrow and the language read alike.
_DATES = "^'[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}'$"
_TIMES = "^'[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?)?'$"
_NANOS = 1000  # in a microsecond


# Numbers


def float_keys(values: Array) -> Array:
    """Keys of an array of floats; NaN has none."""
    bits = (values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & MAX)


def number_keys(column: Sequence[str], type: AttributeType) -> Array | None:
    """Keys of constants that are exact values of an int or float attribute; None if one may not be."""
    texts = pa.array(column, pa.string())
    if type.kind == "float" and pc.any(pc.match_substring_regex(texts, _INTEGER_TOO_LONG)).as_py():
        return None
    try:
        numbers = texts.cast(pa.int64() if type.kind == "int" else pa.float64())
    except pa.ArrowException:
        return None
    values = numbers.to_numpy(zero_copy_only=False)
    return values if type.kind == "int" else float_keys(values)


def exact_keys(column: Any, is_float: Array) -> tuple[Array, Array]:
    """Keys of numbers, and which of them are exact values of their attribute."""
    count = len(column)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    has = ~column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(column.type):
        try:
            ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:  # over 63 bits
            return np.zeros(count, np.int64), np.zeros(count, np.bool_)
        exact = ~is_float | (np.abs(ints) <= 1 << 53)
        return np.where(is_float, float_keys(ints.astype(np.float64)), ints), has & exact
    floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    whole = (np.trunc(floats) == floats) & (np.abs(floats) < 2.0**63)
    exact = np.where(is_float, ~np.isnan(floats), whole)
    return np.where(is_float, float_keys(floats), np.where(whole, floats, 0).astype(np.int64)), has & exact


def least_keys(type: AttributeType, values: Array, above: bool) -> tuple[Array, Array]:
    """The least key at or above each value (``above``: strictly above), and where there is none."""
    if type.kind == "float":
        keys = _least_float_keys(values, above)
        return np.where(keys <= ~INF_KEY, MIN, keys), keys > INF_KEY
    if values.dtype == np.float64:
        values = np.where(np.isnan(values), 0.0, values)
        floor = np.floor(values)
        beyond, up = values >= 2.0**63, above | (floor < values)
        # Only whole floats are too large for adding 1 to stay exact, so that is done to integers.
        keys = np.where(floor < -(2.0**63), MIN, np.where(beyond, 0.0, np.maximum(floor, -(2.0**63))).astype(np.int64))
        up &= floor >= -(2.0**63)
        return keys + up, beyond
    most = 1 if type.kind == "bool" else MAX
    beyond = (values >= most) if above else np.zeros(len(values), np.bool_)
    keys = values + (above & ~beyond)
    return np.where(keys <= 0, MIN, keys) if type.kind == "bool" else keys, beyond


def _least_float_keys(values: Array, above: bool) -> Array:
    """As ``least_keys``, for float attributes; integers need not be exact floats."""
    floats = values.astype(np.float64)
    keys = float_keys(floats)
    if values.dtype == np.float64:
        return keys + above
    rounded_up = floats >= 2.0**63  # more than any int64
    back = np.where(rounded_up, 0.0, floats).astype(np.int64)
    rounded_up |= back > values
    below = ~rounded_up & (back < values)
    return keys + ((above & ~rounded_up) | below)


# Dates, times and strings, as they are written


def clock_keys(column: Sequence[str], slot: SlotKind, type: AttributeType) -> Array | None:
    """Keys of dates and zoneless timestamps in the common notation."""
    dates = type.kind == "date" or slot == "date"
    if slot not in ("literal", "date", *([] if dates else ["timestamp"])) or type.zone is not None:
        return None
    texts = pa.array(column, pa.string())
    if not pc.all(pc.match_substring_regex(texts, _DATES if dates else _TIMES)).as_py():
        return None
    bare = pc.utf8_slice_codeunits(texts, 1, -1)
    try:
        days = bare.cast(pa.date32()).cast(pa.int32()) if type.kind == "date" else None
        keys: Array = (bare.cast(pa.timestamp("us")) if days is None else days).cast(pa.int64()).to_numpy()
    except pa.ArrowException:
        return None
    if days is not None or type.unit == "us":
        return keys
    return keys * _NANOS if np.abs(keys).max(initial=0) < MAX // _NANOS else None


def string_ranges(op: str, columns: Sequence[Sequence[str]], key: Callable[[Cut], int]) -> tuple[Array, Array] | None:
    """Lower and upper cuts of comparisons with strings; ``key`` maps a cut to its key."""
    texts = {text for column in columns for text in column}
    if any(text[0] != "'" for text in texts):
        return None
    values = {text: text[1:-1].replace("''", "'").encode() for text in texts}
    below = {text: key((value, 0)) for text, value in values.items()}
    first = _mapped(columns[0], below)
    least = np.full(len(first), MIN)
    if op == "=":
        return first, first + 1
    if op == "<=":
        return least, first + 1
    if op == ">":
        return first + 1, least
    empty = _mapped(columns[0], {text: not value for text, value in values.items()}).astype(np.bool_)
    if op == "<":
        return np.where(empty, EMPTY[0], least), np.where(empty, EMPTY[1], first)
    low = np.where(empty, MIN, first)
    if op == ">=":
        return low, least
    rank = {text: at for at, text in enumerate(sorted(texts, key=values.__getitem__))}
    never = _mapped(columns[0], rank) > _mapped(columns[1], rank)
    return np.where(never, EMPTY[0], low), np.where(never, EMPTY[1], _mapped(columns[1], below) + 1)


def prefix_ranges(
    column: Sequence[str], type: AttributeType, range_of: Callable[[Sequence[Cut]], tuple[int, int]]
) -> tuple[Array, Array] | None:
    """Cuts around what LIKE patterns match; ``range_of`` gives the keys around a prefix."""
    try:
        prefixes = {text: constant(text, "like") for text in set(column)}
    except ParseError:
        return None
    if any(not isinstance(prefix, str) for prefix in prefixes.values()):
        return None
    known = {text: range_of(predicate_set("like", [prefix], type)) for text, prefix in prefixes.items()}
    lo, hi = ({text: pair[side] for text, pair in known.items()} for side in (0, 1))
    return _mapped(column, lo), _mapped(column, hi)


def _mapped(column: Sequence[str], numbers: Mapping[str, int]) -> Array:
    return np.fromiter(map(numbers.__getitem__, column), np.int64, len(column))


# Ranges


def point_ranges(op: str, points: Sequence[Array]) -> tuple[Array, Array]:
    """First and last key of ``x op point``; empty ranges have the first above the last."""
    first = points[0]
    least, most = np.full(len(first), MIN), np.full(len(first), MAX)
    if op == "=":
        return first, first
    if op == "between":
        return first, points[1]
    if op == "<=":
        return least, first
    if op == ">=":
        return first, most
    if op == "<":
        nothing = first == MIN
        return np.where(nothing, 0, least), np.where(nothing, -1, first - 1)
    nothing = first == MAX
    return np.where(nothing, 0, first + 1), np.where(nothing, -1, most)


def outside(lo: Array, hi: Array, is_string: bool) -> tuple[Array, Array] | None:
    """The gaps around ascending ranges, row by row; None at the ends of the keys, which are rare and left to sets."""
    rows = len(lo)
    if is_string:  # cuts: a range ends where the next gap begins
        ends = np.full((rows, 1), MIN)
        return np.concatenate([ends, hi], axis=1), np.concatenate([lo, ends], axis=1)
    if (lo <= ~INF_KEY).any() or (hi >= INF_KEY).any():
        return None
    lows = np.concatenate([np.full((rows, 1), MIN), hi + 1], axis=1)
    return lows, np.concatenate([lo - 1, np.full((rows, 1), MAX)], axis=1)
