"""Subscriptions from a table of predicates: a row each, those of one id joined by AND.

Comparisons of numbers are taken as whole columns; ids with any other predicate go through expressions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.errors import GpumatchError, SchemaError, nearest
from gpumatch.expr import Expr, Op, Predicate, constant
from gpumatch.expr.constants import quoted
from gpumatch.expr.values import as_constant
from gpumatch.predicates import Array, Attributes, Block, BlockBuilder
from gpumatch.schema import AttributeType
from gpumatch.subscriptions import add_group, float_keys, group_expressions, point_ranges

_OPS = {
    **{op: (op, False) for op in ("=", "<", "<=", ">", ">=", "between", "in", "like")},
    "==": ("=", False),
    "<>": ("=", True),
    "!=": ("=", True),
    "is null": ("null", False),
    "is not null": ("null", True),
    **{f"not {op}": (op, True) for op in ("between", "in", "like")},
}
_FAST = ("=", "<", "<=", ">", ">=", "between")


def predicate_block(attributes: Attributes, table: Any) -> tuple[Any, Any, Block, dict[int, GpumatchError]]:
    """Ids in the order of first appearance, texts of those that are no mere ranges, block, and errors by number."""
    lacking = sorted({"id", "attribute", "op"} - set(table.column_names))
    if not {"value", "values"} & set(table.column_names):
        lacking.append("value")
    if lacking:
        raise SchemaError(
            f"a table of predicates has columns id, attribute, op and value or values; it lacks {', '.join(lacking)}"
        )
    ids, owner = _dictionary(table, "id")
    rows = _Rows(attributes, table)
    slow = np.zeros(len(ids), np.bool_)
    slow[owner[~rows.fast]] = True
    builder = BlockBuilder(attributes.schema)
    errors: dict[int, GpumatchError] = {}
    _add_fast(builder, rows, owner, ~slow[owner], len(attributes))
    expressions = _slow_expressions(attributes, rows, owner, slow[owner], errors)
    groups, _ = group_expressions(list(expressions.values()))
    numbers = list(expressions)
    for group in groups:
        group.rows = [numbers[row] for row in group.rows]
        add_group(builder, attributes, group, errors)
    texts = None
    if expressions:
        texts = pa.array([str(expressions[n]) if n in expressions else None for n in range(len(ids))], pa.large_string())
    return ids, texts, builder.build(len(ids)), errors


class _Rows:
    """The table's rows: operators and attributes by number, and keys of those that compare exact numbers."""

    def __init__(self, attributes: Attributes, table: Any) -> None:
        self.table = table
        ops, self.op = _dictionary(table, "op")
        self.ops = [_operator(text) for text in ops.to_pylist()]
        names, self.name = _dictionary(table, "attribute")
        self.names: list[str] = names.to_pylist()
        places = [attributes.schema.find(name) for name in self.names]
        self.attribute: Array = np.array([-1 if at is None else at for at in places], np.int32)[self.name]
        types = [None if at is None else attributes.schema.types[at] for at in places]
        plain = ["" if type is None or type.multi else type.kind for type in types]
        is_float = np.array([kind == "float" for kind in plain], np.bool_)[self.name]
        is_number = np.array([kind in ("int", "float") for kind in plain], np.bool_)[self.name]
        between = np.array([op == "between" for op, _ in self.ops], np.bool_)[self.op]
        value, first, second = (_keys(column, is_float) for column in _constants(table))
        self.first: Array = np.where(between, first[0], value[0])
        self.second: Array = second[0]
        fast = np.array([op in _FAST and not negated for op, negated in self.ops], np.bool_)[self.op]
        self.fast: Array = fast & is_number & np.where(between, first[1] & second[1], value[1])


def _dictionary(table: Any, name: str) -> tuple[Any, Array]:
    """A column's distinct values in order of appearance, and the number of each row's."""
    column = table[name].combine_chunks()
    if column.null_count:
        raise SchemaError(f"column {name!r} has a null at position {pc.index(column.is_null(), True).as_py()}")
    if isinstance(column, pa.DictionaryArray) and name != "id":
        return column.dictionary, column.indices.to_numpy(zero_copy_only=False)
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    encoded = column.dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)


def _operator(text: str | None) -> tuple[Any, bool]:
    name = " ".join(str(text).lower().split())
    if name not in _OPS:
        raise SchemaError(f"unknown operator {text!r}{nearest(name, _OPS)}; use one of {', '.join(_OPS)}")
    return _OPS[name]


def _constants(table: Any) -> list[Any]:
    """Arrow arrays of ``value`` and of the first and second of ``values``; null where there is none."""
    nothing = pa.nulls(table.num_rows)
    value = table["value"].combine_chunks() if "value" in table.column_names else nothing
    if "values" not in table.column_names:
        return [value, nothing, nothing]
    lists = table["values"].combine_chunks()
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise SchemaError(f"column 'values' holds lists, found {lists.type}; put single constants into 'value'")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    pair = lengths == 2
    flat = lists.filter(pa.array(pair)).flatten()
    ends = []
    for side in (0, 1):
        at = np.zeros(len(pair), np.int64)
        at[pair] = 2 * np.arange(np.count_nonzero(pair)) + side
        ends.append(flat.take(pa.array(at, mask=~pair)))
    return [value, *ends]


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
        if len(here):
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
            name = rows.names[rows.name[row]]
            op, negated = rows.ops[rows.op[row]]
            held.append(_predicate(name, attributes.schema[name], op, negated, values[i], lists[i]))
        except GpumatchError as error:
            errors.setdefault(int(owner[row]), error)
    return {number: _conjunction(held) for number, held in predicates.items() if number not in errors}


def _conjunction(predicates: list[Predicate]) -> Expr:
    if len(predicates) == 1:
        return Expr((predicates[0],))
    return Expr((*predicates, Op("and", len(predicates))))


def _predicate(name: str, type: AttributeType, op: Any, negated: bool, value: Any, values: Any) -> Predicate:
    if op == "null":
        return Predicate(name, op, (), negated)
    given = [value] if values is None else list(values)
    expected = {"between": 2, "in": None}.get(op, 1)
    if expected is not None and len(given) != expected:
        raise SchemaError(f"{op} on attribute {name!r} takes {expected} constants in 'values', found {given!r}")
    if op == "like":
        return Predicate(name, op, (constant(quoted(str(given[0])), "like"),), negated)
    return Predicate(name, op, tuple(_typed(name, type, one) for one in given), negated)


def _typed(name: str, type: AttributeType, value: Any) -> Any:
    """A constant; strings are read as the attribute's type."""
    if isinstance(value, str) and type.kind in ("int", "float"):
        try:
            number = constant(value.strip() or "?")
        except (GpumatchError, ValueError):
            number = value
        if isinstance(number, str):
            raise SchemaError(f"attribute {name!r} has type {type} and is compared with {value!r}; expected a number")
        return number
    if isinstance(value, str) and type.kind == "bool":
        found = {"true": True, "false": False}.get(value.strip().lower())
        if found is None:
            raise SchemaError(f"attribute {name!r} has type {type} and is compared with {value!r}; expected true or false")
        return found
    return as_constant(value, name)
