"""Subscriptions from arrays of ranges, one conjunction each, without any text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.errors import GpumatchError, SchemaError
from gpumatch.events.arrow import from_any
from gpumatch.events.columns import Column, Strings
from gpumatch.expr.constants import quoted
from gpumatch.expr.keys import MAX, MIN
from gpumatch.expr.times import FIRST_DAY, LAST_DAY
from gpumatch.opcodes import RANGE
from gpumatch.parallel import threads
from gpumatch.schema import AttributeType
from gpumatch.subscriptions.block import Attributes, Block, BlockBuilder
from gpumatch.subscriptions.keys import least_keys
from gpumatch.subscriptions.predicates import EMPTY, Predicates

_ROWS = 1 << 12  # per thread: what is made of them on the way stays in the cache
_CLOSED = ("both", "left", "right", "neither")
# Ends may be numbers of either type, as they compare by value; the attribute's own type is tried first.
_INT, _FLOAT = AttributeType("int", "int64"), AttributeType("float", "float64")
_READ_AS = {"int": (_INT, _FLOAT), "float": (_FLOAT, _INT)}


@dataclass(frozen=True, slots=True)
class _Ends:
    """The low or high ends of an attribute's ranges, and which rows have one."""

    values: Array  # int64, float64, or bytes as objects
    has: Array

    def above(self, other: _Ends) -> Array:
        """Which ends are above the others. NumPy would round integers to compare them with floats; Python does not."""
        same = self.values.dtype == other.values.dtype
        mine, others = (end.values if same else end.values.astype(object) for end in (self, other))
        with np.errstate(invalid="ignore"):  # NaN means no end
            return np.asarray(mine > others, np.bool_)

    def part(self, rows: slice) -> _Ends:
        return _Ends(self.values[rows], self.has[rows])


class _Column(NamedTuple):
    """An attribute, which rows constrain it, and what finds the first and last keys of some rows, and which are empty.

    Keys of strings are lower and upper cuts.
    """

    attribute: int
    present: Array
    keys: Callable[[slice], tuple[Array, Array, Array]]


def range_block(
    attributes: Attributes, count: int, ranges: Mapping[str, Any], closed: str
) -> tuple[Block, dict[int, GpumatchError]]:
    """The block, and the error of each row whose low end is above its high end.

    A side that is NaN, None or NaT is open; with both open the attribute is not constrained.
    """
    if closed not in _CLOSED:
        raise SchemaError(f"closed must be one of {', '.join(_CLOSED)}, found {closed!r}")
    if not isinstance(ranges, Mapping):
        raise SchemaError(f"ranges must be a dict of attribute -> (low, high), found {type(ranges).__name__}")
    builder = BlockBuilder(attributes.schema)
    errors: dict[int, GpumatchError] = {}
    columns = [_column(builder, attributes, name, pair, count, closed, errors) for name, pair in ranges.items()]
    counts = np.zeros(count, np.int64)
    for column in columns:
        counts += column.present
    builder.add(np.arange(count, dtype=np.int32), counts, _interleaved(columns, pointers(counts)))
    return builder.build(count), errors


def _interleaved(columns: Sequence[_Column], ptr: Array) -> Predicates:
    """The ranges of the first row, then those of the second, and so on; ``ptr``: where those of each row start."""
    size, numbers = int(ptr[-1]), np.array([column.attribute for column in columns], np.int32)
    attribute, lo, hi = np.empty(size, np.int32), np.empty(size, np.int64), np.empty(size, np.int64)

    def fill(first: int) -> None:
        rows = slice(first, min(first + _ROWS, len(ptr) - 1))
        shape = (rows.stop - first, len(columns))
        present, ends = np.empty(shape, np.bool_), np.empty((2, *shape), np.int64)
        for at, column in enumerate(columns):
            present[:, at] = column.present[rows]
            low, high, empty = column.keys(rows)
            ends[0, :, at], ends[1, :, at] = np.where(empty, EMPTY[0], low), np.where(empty, EMPTY[1], high)
        own = slice(int(ptr[first]), int(ptr[rows.stop]))
        attribute[own], lo[own], hi[own] = np.broadcast_to(numbers, shape)[present], ends[0][present], ends[1][present]

    threads.run(fill, range(0, len(ptr) - 1, _ROWS))
    return Predicates.of(attribute, RANGE, lo, hi)


def _column(
    builder: BlockBuilder,
    attributes: Attributes,
    name: str,
    pair: Any,
    count: int,
    closed: str,
    errors: dict[int, GpumatchError],
) -> _Column:
    at = attributes.schema.index(name)
    type = attributes.schema.types[at]
    if type.multi:
        raise SchemaError(f"attribute {name!r} is {type}; add_ranges takes single-valued attributes only")
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise SchemaError(f"the ranges of {name!r} must be two arrays (low, high), found {pair.__class__.__name__}")
    low, high = (_ends(name, type, given, count) for given in pair)
    for row in np.flatnonzero(low.has & high.has & low.above(high)).tolist():
        ends = " above its high end ".join(_shown(type, end.values[row]) for end in (low, high))
        errors.setdefault(row, SchemaError(f"the range of {name!r} at position {row} has its low end {ends}"))
    low_open, high_open = closed in ("right", "neither"), closed in ("left", "neither")
    if type.kind == "string":
        lo = _string_cuts(builder, low, int(low_open))
        hi = _string_cuts(builder, high, int(not high_open))
        empty = low.has & high.has & (low.values == high.values) & (low_open or high_open)
        return _Column(at, low.has | high.has, lambda rows: (lo[rows], hi[rows], empty[rows]))
    return _Column(
        at, low.has | high.has, lambda rows: _keys(type, low.part(rows), low_open, high.part(rows), high_open)
    )


def _ends(name: str, type: AttributeType, given: Any, count: int) -> _Ends:
    if given is not None:
        try:
            length = len(given)
        except TypeError:
            raise SchemaError(f"the ranges of {name!r} must be arrays, found {given!r}") from None
        if length != count:
            raise SchemaError(f"the ranges of {name!r} have {length} values, expected one for each of the {count} ids")
    column = None if given is None else _read(name, type, given)
    if column is None:
        filler: Any = b"" if type.kind == "string" else 0
        nothing = np.full(count, filler, object if type.kind == "string" else np.int64)
        return _Ends(nothing, np.zeros(count, np.bool_))
    values = column.values
    has = np.ones(count, np.bool_) if column.valid is None else column.valid
    if isinstance(values, Strings):
        texts = np.array([*(text.encode() for text in values.dictionary.to_pylist()), b""], object)
        return _Ends(texts[values.indices], has)
    if values.dtype == np.float64:
        has = has & ~np.isnan(values)
    if type.kind == "date":
        outside = has & ((values < FIRST_DAY) | (values > LAST_DAY))
        if outside.any():  # as in expressions, into which explain() turns ranges
            row = int(np.argmax(outside))
            raise SchemaError(f"the range of {name!r} at position {row} has an end outside the years 1 to 9999")
    return _Ends(values, has)


def _read(name: str, type: AttributeType, given: Any) -> Column | None:
    """The ends as a column. Numbers may be of the other type: 0.5 for an integer attribute, 2**53 + 1 for a float."""
    problems = []
    for as_type in _READ_AS.get(type.kind, (type,)):
        try:
            return from_any(name, as_type, given)
        except SchemaError as error:
            problems.append(error)
    # The message is about events; here their numbers are positions in the array.
    raise SchemaError(str(problems[0]).replace(", but event ", ", but the end at position ")) from problems[0]


def _shown(type: AttributeType, value: Any) -> str:
    if type.kind == "string":
        return quoted(value.decode())
    if type.kind in ("date", "timestamp"):
        return str(np.datetime64(int(value), "D" if type.kind == "date" else type.unit))
    return repr(bool(value) if type.kind == "bool" else value.item())


def _string_cuts(builder: BlockBuilder, ends: _Ends, side: int) -> Array:
    pairs = zip(ends.values, ends.has, strict=True)
    return np.array([builder.key((text, side)) if has else MIN for text, has in pairs], np.int64)


def _keys(type: AttributeType, low: _Ends, low_open: bool, high: _Ends, high_open: bool) -> tuple[Array, Array, Array]:
    """First and last keys of the ranges, and which ranges are empty."""
    first, none_above = least_keys(type, low.values, low_open)
    past, endless = least_keys(type, high.values, not high_open)
    ended = high.has & ~endless
    none_below = ended & (past == MIN)
    lo = np.where(low.has, first, MIN)
    hi = np.where(ended & ~none_below, past - ~none_below, MAX)
    return lo, hi, (low.has & none_above) | none_below | (lo > hi)
