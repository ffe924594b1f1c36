"""Subscriptions from a table of predicates: a row each, those of one id joined by AND.

Comparisons of numbers are taken as whole columns; ids with any other predicate go through expressions.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrow_in import is_list
from gpumatch.errors import GpumatchError, IdError, SchemaError, nearest
from gpumatch.expr import Expr, Op, Predicate, constant
from gpumatch.expr.constants import quoted
from gpumatch.expr.normal import Splitting
from gpumatch.expr.tokens import divide
from gpumatch.expr.values import as_constant, is_missing
from gpumatch.predicates import Array, Attributes, Block, BlockBuilder
from gpumatch.schema import AttributeType, Schema
from gpumatch.subscriptions import GroupAdder, float_keys, group_built, point_ranges

_OPS = {
    **{op: (op, False) for op in ("=", "<", "<=", ">", ">=", "between", "in", "like")},
    "==": ("=", False),
    "<>": ("=", True),
    "!=": ("=", True),
    "is null": ("null", False),
    "is not null": ("null", True),
    **{f"not {op}": (op, True) for op in ("between", "in", "like")},
}
_COLUMNS = ("id", "attribute", "op", "value", "values")
_BOOLS = {"true": True, "false": False}
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
LONG_FORM = ("id", "attribute", "op", "value", "values")  # the columns of a table of predicates
_FAST = ("=", "<", "<=", ">", ">=", "between")


def predicate_block(
    attributes: Attributes, table: Any, splitting: Splitting
) -> tuple[Any, Any, Block, dict[int, GpumatchError]]:
    """Ids in the order of first appearance, texts of those that are no mere ranges, block, and errors by number."""
    lacking = sorted({"id", "attribute", "op"} - set(table.column_names))
    if not {"value", "values"} & set(table.column_names):
        lacking.append("value")
    if lacking:
        raise SchemaError(
            f"a table of predicates has columns id, attribute, op and value or values; it lacks {', '.join(lacking)}"
        )
    table = table.select([name for name in _COLUMNS if name in table.column_names])
    table = table.cast(pa.schema([field.with_type(_takeable(field.type)) for field in table.schema]))
    ids, owner = _dictionary(table, "id")
    rows = _Rows(attributes, table)
    slow = np.zeros(len(ids), np.bool_)
    slow[owner[~rows.fast]] = True
    builder = BlockBuilder(attributes.schema)
    errors: dict[int, GpumatchError] = {}
    _add_fast(builder, rows, owner, ~slow[owner], len(attributes))
    expressions = _slow_expressions(attributes, rows, owner, slow[owner], errors)
    adder = GroupAdder(builder, attributes, splitting)
    for group in group_built(expressions.items()):
        adder.add(group, errors)
    texts = None
    if expressions:
        written = {number: str(expr) for number, expr in expressions.items()}
        texts = pa.array(map(written.get, range(len(ids))), pa.large_string())
    return ids, texts, builder.build(len(ids)), errors


def _takeable(kind: Any) -> Any:
    """The type with strings in the place of string views, as polars has them, from which Arrow cannot take rows."""
    if is_list(kind):
        return pa.large_list(_takeable(kind.value_type))
    return pa.large_string() if pa.types.is_string_view(kind) else kind


class _Rows:
    """The table's rows: operators and attributes by number, and keys of those that compare exact numbers."""

    def __init__(self, attributes: Attributes, table: Any) -> None:
        self.table = table
        ops, self.op = _dictionary(table, "op")
        self.ops = [_OPS.get(_spaced(text), (None, False)) for text in ops.to_pylist()]
        self.written: list[Any] = ops.to_pylist()
        names, self.name = _dictionary(table, "attribute")
        self.names: list[Any] = names.to_pylist()
        places = [attributes.schema.find(name) for name in self.names]
        self.attribute: Array = np.array([-1 if at is None else at for at in places], np.int32)[self.name]
        types = [None if at is None else attributes.schema.types[at] for at in places]
        plain = ["" if type is None or type.multi else type.kind for type in types]
        is_float = np.array([kind == "float" for kind in plain], np.bool_)[self.name]
        is_number = np.array([kind in ("int", "float") for kind in plain], np.bool_)[self.name]
        between = np.array([op == "between" for op, _ in self.ops], np.bool_)[self.op]
        columns, several = _constants(table)
        value, first, second = (_keys(column, is_float) for column in columns)
        self.first: Array = np.where(between, first[0], value[0])
        self.second: Array = second[0]
        fast = np.array([op in _FAST and not negated for op, negated in self.ops], np.bool_)[self.op]
        single = columns[0].is_valid().to_numpy(zero_copy_only=False)
        self.fast: Array = fast & is_number & np.where(between, first[1] & second[1] & ~single, value[1] & ~several)

    def predicate(self, schema: Schema, row: int, value: Any, values: Any) -> Predicate:
        """The predicate of a row, or the error in it."""
        name, written = self.names[self.name[row]], self.written[self.op[row]]
        if not isinstance(name, str):
            raise SchemaError(f"the attribute of a predicate is a string, found {name!r}")
        type = schema[name]
        op, negated = self.ops[self.op[row]]
        if op is None:
            hint = nearest(_spaced(written), _OPS)
            raise SchemaError(f"unknown operator {written!r}{hint}; use one of {', '.join(_OPS)}")
        return Predicate(name, op, _operands(name, type, op, _spaced(written), value, values), negated)


def _dictionary(table: Any, name: str) -> tuple[Any, Array]:
    """A column's distinct values in order of appearance, and the number of each row's."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if name == "id" and column.null_count:
        raise IdError(f"column 'id' has a null at position {pc.index(column.is_null(), True).as_py()}")
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)


def _spaced(op: Any) -> str:
    return " ".join(str(op).lower().split())


def _constants(table: Any) -> tuple[list[Any], Array]:
    """Arrow arrays of ``value`` and of the first and second of ``values``, null where there is none; who has values."""
    nothing = pa.nulls(table.num_rows)
    value = table["value"].combine_chunks() if "value" in table.column_names else nothing
    lists = table["values"].combine_chunks() if "values" in table.column_names else nothing
    if pa.types.is_null(lists.type):
        return [value, nothing, nothing], np.zeros(len(lists), np.bool_)
    if not is_list(lists.type):
        raise SchemaError(f"column 'values' holds lists, found {lists.type}; put single constants into 'value'")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    pair = lengths == 2
    flat = lists.filter(pa.array(pair)).flatten()
    ends = []
    for side in (0, 1):
        at = np.zeros(len(pair), np.int64)
        at[pair] = 2 * np.arange(np.count_nonzero(pair)) + side
        ends.append(flat.take(pa.array(at, mask=~pair)))
    return [value, *ends], lists.is_valid().to_numpy(zero_copy_only=False)


def _keys(column: Any, is_float: Array) -> tuple[Array, Array]:
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


def _add_fast(builder: BlockBuilder, rows: _Rows, owner: Array, chosen: Array, columns: int) -> None:
    """Clauses of numeric ranges; several on one attribute intersect."""
    at = np.flatnonzero(chosen)
    lo, hi = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
    for number, (op, _) in enumerate(rows.ops):
        here = np.flatnonzero(rows.op[at] == number)
        if op is not None and len(here):
            row = at[here]
            lo[here], hi[here] = point_ranges(op, [rows.first[row], rows.second[row]])
    place = owner[at].astype(np.int64) * columns + rows.attribute[at]
    order = np.argsort(place, kind="stable")
    place, lo, hi = place[order], lo[order], hi[order]
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    if len(starts) < len(place):
        lo, hi = np.maximum.reduceat(lo, starts), np.minimum.reduceat(hi, starts)
        place = place[starts]
    row, attribute = place // columns, (place % columns).astype(np.int32)
    dead = np.unique(row[lo > hi])
    if len(dead):
        alive = ~np.isin(row, dead)
        row, attribute, lo, hi = row[alive], attribute[alive], lo[alive], hi[alive]
    clauses, counts = np.unique(row, return_counts=True)
    builder.add_flat(clauses.astype(np.int32), counts, attribute, lo, hi)


def _slow_expressions(
    attributes: Attributes, rows: _Rows, owner: Array, chosen: Array, errors: dict[int, GpumatchError]
) -> dict[int, Expr]:
    """The expressions of ids that have a predicate which is no comparison of numbers; bad ones go to ``errors``."""
    at = np.flatnonzero(chosen)
    part = rows.table.take(pa.array(at))
    values = part["value"].to_pylist() if "value" in part.column_names else [None] * len(at)
    lists = part["values"].to_pylist() if "values" in part.column_names else [None] * len(at)
    predicates: dict[int, list[Predicate]] = {}
    for i, row in enumerate(at.tolist()):
        held = predicates.setdefault(int(owner[row]), [])
        try:
            held.append(rows.predicate(attributes.schema, row, values[i], lists[i]))
        except GpumatchError as error:
            errors.setdefault(int(owner[row]), error)
    return {number: _conjunction(held) for number, held in predicates.items() if number not in errors}


def _conjunction(predicates: list[Predicate]) -> Expr:
    if len(predicates) == 1:
        return Expr((predicates[0],))
    return Expr((*predicates, Op("and", len(predicates))))


def _operands(name: str, type: AttributeType, op: Any, written: str, value: Any, values: Any) -> tuple[Any, ...]:
    """The constants of a predicate."""
    shown = f"{written.upper()} on attribute {name!r}"
    if not is_missing(value) and values is not None:
        raise SchemaError(f"{shown} has both a value and values, {value!r} and {values!r}; give one of them")
    given = list(values) if values is not None else [] if is_missing(value) else [value]
    expected = {"between": 2, "null": 0, "in": len(given) if values is not None else 1}.get(op, 1)
    if len(given) != expected:
        column = "'values'" if op in ("between", "in") else "'value'"
        number = {0: "no constant", 1: "a constant"}.get(expected, f"{expected} constants")
        raise SchemaError(f"{shown} takes {number} in {column}, found {given!r}")
    if op == "like":
        if not isinstance(given[0], str):
            raise SchemaError(f"{shown} takes a pattern such as 'abc%', found {given[0]!r}")
        return (constant(quoted(given[0]), "like"),)
    return tuple(_typed(name, type, one) for one in given)


def _typed(name: str, type: AttributeType, value: Any) -> Any:
    """A constant; strings are read as the attribute's type."""
    if isinstance(value, str) and type.kind in ("int", "float", "bool"):
        text = value.strip()
        found = _BOOLS.get(text.lower()) if type.kind == "bool" else _number(text)
        if found is None:
            expected = "true or false" if type.kind == "bool" else "a number"
            raise SchemaError(f"attribute {name!r} has type {type} and is compared with {value!r}; expected {expected}")
        return found
    return as_constant(value, name)


def _number(text: str) -> Any:
    """The number that a text is, written as in expressions; None if it is none."""
    if _INFINITY.fullmatch(text):
        return float(text)
    between, found = divide(text)
    return constant(found[0]) if between == ("", "") and found[0][0] != "'" else None
