"""Subscriptions from arrays of ranges: a conjunction each, without any text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpumatch.arrow_in import from_any
from gpumatch.columns import Strings
from gpumatch.errors import SchemaError
from gpumatch.keys import MAX, MIN
from gpumatch.predicates import EMPTY, Array, Attributes, Block, BlockBuilder
from gpumatch.schema import AttributeType
from gpumatch.subscriptions import float_keys

_CLOSED = ("both", "left", "right", "neither")


def range_block(attributes: Attributes, count: int, ranges: Mapping[str, Any], closed: str) -> Block:
    """A side that is NaN, None or NaT is open; with both open the attribute is not constrained."""
    if closed not in _CLOSED:
        raise SchemaError(f"closed is one of {', '.join(_CLOSED)}, found {closed!r}")
    builder = BlockBuilder(attributes.schema)
    columns = [_column(builder, attributes, name, pair, count, closed) for name, pair in ranges.items()]
    present = np.stack([found[1] for found in columns], axis=1) if columns else np.zeros((count, 0), np.bool_)
    mask = present.ravel()
    numbers = np.array([found[0] for found in columns], np.int32)
    attribute = np.broadcast_to(numbers, present.shape).ravel()[mask]
    lo = _interleave([found[2] for found in columns])[mask]
    hi = _interleave([found[3] for found in columns])[mask]
    # A row with a range that nothing lies in never matches: it gets no clause.
    rows = np.repeat(np.arange(count, dtype=np.int32), present.sum(axis=1))
    dead = np.zeros(count, np.bool_)
    dead[rows[(lo == EMPTY[0]) & (hi == EMPTY[1])]] = True
    alive = ~dead[rows]
    kept = np.flatnonzero(~dead).astype(np.int32)
    builder.add_flat(kept, present.sum(axis=1)[kept], attribute[alive], lo[alive], hi[alive])
    return builder.build(count)


def _interleave(columns: list[Array]) -> Array:
    return np.stack(columns, axis=1).ravel() if columns else np.zeros(0, np.int64)


def _column(
    builder: BlockBuilder, attributes: Attributes, name: str, pair: Any, count: int, closed: str
) -> tuple[int, Array, Array, Array]:
    """Attribute, rows that it constrains, and their first and last keys (of strings: lower and upper cuts)."""
    at = attributes.schema.index(name)
    type = attributes.schema.types[at]
    if type.multi:
        raise SchemaError(f"attribute {name!r} is {type}; add_ranges takes attributes with a single value only")
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise SchemaError(f"the ranges of {name!r} are a pair of arrays (low, high), found {pair.__class__.__name__}")
    low, has_low = _side(name, type, pair[0], count)
    high, has_high = _side(name, type, pair[1], count)
    both = has_low & has_high
    wrong = both & (low > high)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise SchemaError(f"the range of {name!r} at position {row} has its low end {low[row]!r} above {high[row]!r}")
    low_open, high_open = closed in ("right", "neither"), closed in ("left", "neither")
    if type.kind == "string":
        lo = _string_cuts(builder, low, has_low, int(low_open))
        hi = _string_cuts(builder, high, has_high, int(not high_open))
        empty = both & (low == high) & (low_open or high_open)
    else:
        lo = np.where(has_low, _keys(type, low, has_low, low_open, 1), MIN)
        hi = np.where(has_high, _keys(type, high, has_high, high_open, -1), MAX)
        empty = lo > hi
    return at, has_low | has_high, np.where(empty, EMPTY[0], lo), np.where(empty, EMPTY[1], hi)


def _side(name: str, type: AttributeType, given: Any, count: int) -> tuple[Array, Array]:
    """One side's values, and which of them are there. Fractions on integer attributes stay floats for now."""
    if given is None:
        return _nothing(type, count)
    try:
        length = len(given)
    except TypeError:
        raise SchemaError(f"the ranges of {name!r} are arrays, found {given!r}") from None
    if length != count:
        raise SchemaError(f"the ranges of {name!r} have {length} values, expected one for each of the {count} ids")
    if type.kind == "int" and isinstance(given, np.ndarray) and given.dtype.kind == "f":
        floats = given.astype(np.float64, copy=False)
        return floats, ~np.isnan(floats)
    column = from_any(name, type, given)
    if column is None:
        return _nothing(type, count)
    values = column.values
    has = np.ones(count, np.bool_) if column.valid is None else column.valid
    if isinstance(values, Strings):
        texts = np.array([text.encode() for text in values.dictionary.to_pylist()] + [b""], object)
        return texts[values.indices], has
    if values.dtype == np.float64:
        has = has & ~np.isnan(values)
    return values, has


def _nothing(type: AttributeType, count: int) -> tuple[Array, Array]:
    filler: Any = b"" if type.kind == "string" else 0
    return np.full(count, filler, object if type.kind == "string" else np.int64), np.zeros(count, np.bool_)


def _string_cuts(builder: BlockBuilder, texts: Array, has: Array, side: int) -> Array:
    return np.array([builder.key((text, side)) if ok else MIN for text, ok in zip(texts, has, strict=True)], np.int64)


def _keys(type: AttributeType, values: Array, has: Array, is_open: bool, inward: int) -> Array:
    """The outermost keys that belong to ranges with these ends; ``inward`` is 1 for low ends and -1 for high ones."""
    if type.kind == "float":
        return float_keys(values.astype(np.float64)) + (inward if is_open else 0)
    if values.dtype != np.float64:
        beyond = MAX if inward > 0 else MIN
        if is_open and (values[has] == beyond).any():
            raise SchemaError(f"an open end at {beyond} leaves no value in the range")
        return values + (inward if is_open else 0)
    whole = np.where(has, values, 0.0)
    towards = np.ceil(whole) if inward > 0 else np.floor(whole)
    if is_open:
        towards = np.floor(whole) + 1 if inward > 0 else np.ceil(whole) - 1
    keys = np.clip(towards, -(2.0**63), 2.0**63 - 1024).astype(np.int64)
    return np.where(towards >= 2.0**63, MAX, keys)
