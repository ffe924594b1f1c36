"""Columns of constants, as they are written in texts, to arrays of keys. None where a column needs a closer look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array
from gpumatch.errors import ParseError
from gpumatch.expr.constants import SlotKind, constant
from gpumatch.expr.keys import MAX, MIN, Cut, predicate_set
from gpumatch.schema import AttributeType
from gpumatch.subscriptions.block import EMPTY

# What Arrow reads as the language does.
_DATES = "^'[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}'$"
_TIMES = "^'[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?)?'$"
_NANOS = 1000  # in a microsecond


def clock_keys(column: Sequence[str], slot: SlotKind, type: AttributeType) -> Array | None:
    """Keys of dates, and of times on a clock without zone, that are written in the plainest way."""
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
    """Lower and upper cuts of comparisons with strings; ``key`` tells that of a cut."""
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
    """Cuts around what LIKE patterns match; ``range_of`` tells the keys of those around a prefix."""
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
