"""Rows of a table of predicates. Comparisons with numbers are read as whole columns, other rows one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array
from gpumatch.errors import GpumatchError, SchemaError, nearest
from gpumatch.events.arrow import is_list
from gpumatch.expr import Op, Predicate, constant
from gpumatch.expr.constants import quoted
from gpumatch.expr.tokens import divide
from gpumatch.expr.tree import PredicateOp
from gpumatch.expr.values import as_constant, is_missing
from gpumatch.opcodes import RANGE
from gpumatch.schema import AttributeType, Schema
from gpumatch.subscriptions.block import OPERATORS, Attributes
from gpumatch.subscriptions.keys import exact_keys, point_ranges
from gpumatch.subscriptions.operators import CONNECTIVES, Tests
from gpumatch.subscriptions.predicates import Predicates

_OPS: dict[str, tuple[PredicateOp, bool]] = {
    **{op: (op, False) for op in ("=", "<", "<=", ">", ">=", "between", "in", "like", "ilike")},
    "==": ("=", False),
    "<>": ("=", True),
    "!=": ("=", True),
    "is null": ("null", False),
    "is not null": ("null", True),
    **{f"not {op}": (op, True) for op in ("between", "in", "like", "ilike")},
    "is distinct from": ("is", True),
    "is not distinct from": ("is", False),
    **{f"is {word}": ("is", False) for word in ("true", "false")},
    **{f"is not {word}": ("is", True) for word in ("true", "false")},
}
_CODES: dict[str, int] = {kind: OPERATORS[kind] for kind in CONNECTIVES}
_BOOLS = {"true": True, "false": False}
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_FAST = ("=", "<", "<=", ">", ">=", "between")


class Rows:
    """Some rows of the table: operators and attributes as numbers, and the keys of comparisons with exact numbers."""

    def __init__(self, attributes: Attributes, table: Any) -> None:
        self.table = table
        ops, self.op = _dictionary(table, "op")
        self.written: list[Any] = ops.to_pylist()
        spaced = list(map(_spaced, self.written))
        self.ops: list[tuple[PredicateOp | None, bool]] = [_OPS.get(text, (None, False)) for text in spaced]
        self.connective: Array = np.array([_CODES.get(text, -1) for text in spaced], np.int64)[self.op]
        names, self.name = _dictionary(table, "attribute")
        self.names: list[Any] = names.to_pylist()
        found = [attributes.schema.find(name) for name in self.names]
        self.attribute: Array = np.array([-1 if at is None else at for at in found], np.int32)[self.name]
        types = [None if at is None else attributes.schema.types[at] for at in found]
        plain = ["" if type is None or type.multi else type.kind for type in types]
        is_float = np.array([kind == "float" for kind in plain], np.bool_)[self.name]
        is_number = np.array([kind in ("int", "float") for kind in plain], np.bool_)[self.name]
        between = np.array([op == "between" for op, _ in self.ops], np.bool_)[self.op]
        columns, self.several = _constants(table)
        value, first, second = (exact_keys(column, is_float) for column in columns)
        self._first, self._second = np.where(between, first[0], value[0]), second[0]
        compares = np.array([op in _FAST for op, _ in self.ops], np.bool_)[self.op]
        single = columns[0].is_valid().to_numpy(zero_copy_only=False)
        exact = np.where(between, first[1] & second[1] & ~single, value[1] & ~self.several)
        self.fast: Array = compares & is_number & exact
        self.negated: Array = np.array([negated for _, negated in self.ops], np.bool_)[self.op]
        self.known: Array = (self.connective >= 0) | np.array([op is not None for op, _ in self.ops], np.bool_)[self.op]

    def tests(self) -> Tests:
        """The predicates of the rows marked ``fast``."""
        lo, hi = np.zeros(len(self.op), np.int64), np.zeros(len(self.op), np.int64)
        for number, (op, _) in enumerate(self.ops):
            row = np.flatnonzero((self.op == number) & self.fast)
            if op is not None and len(row):
                lo[row], hi[row] = point_ranges(op, [self._first[row], self._second[row]])
        return Tests(Predicates.of(self.attribute, RANGE, lo, hi), self.negated)

    def arities(self) -> Array:
        """The number of operands of each operator: 0 if not given, -1 if invalid."""
        arity = np.zeros(len(self.op), np.int64)
        at = np.flatnonzero(self.connective >= 0)
        if "value" not in self.table.column_names or len(at) == 0:
            return arity
        column = self.table["value"].combine_chunks().take(pa.array(at))
        if pa.types.is_nested(column.type):
            arity[at] = np.where(column.is_null().to_numpy(zero_copy_only=False), 0, -1)
            return arity
        found = column.dictionary_encode(null_encoding="encode")
        numbers = np.array(list(map(_whole, found.dictionary.to_pylist())), np.int64)
        arity[at] = numbers[found.indices.to_numpy(zero_copy_only=False)]
        return arity

    def items(self, schema: Schema, at: Array, arity: Array) -> Iterator[Predicate | Op | GpumatchError]:
        """The predicate or operator of each row, or its error. Equal predicates are one object."""
        table = self.table.take(pa.array(at))
        nothing = [None] * len(at)
        values = table["value"].to_pylist() if "value" in table.column_names else nothing
        lists = table["values"].to_pylist() if "values" in table.column_names else nothing
        hashable = all(not pa.types.is_nested(kind) for kind in self._constant_types())
        known: dict[tuple[Any, ...], Predicate | GpumatchError] = {}
        columns = [column[at].tolist() for column in (self.connective, arity, self.name, self.op)]
        for code, operands, name, op, value, several in zip(*columns, values, lists, strict=True):
            if code >= 0:
                yield Op(CONNECTIVES[code], operands)
            elif hashable:
                key = (name, op, value, None if several is None else tuple(several))
                if key not in known:
                    known[key] = self._predicate(schema, name, op, value, several)
                yield known[key]
            else:
                yield self._predicate(schema, name, op, value, several)

    def _constant_types(self) -> list[Any]:
        types = {field.name: field.type for field in self.table.schema}
        several = types.get("values", pa.null())
        return [types.get("value", pa.null()), several.value_type if is_list(several) else several]

    def _predicate(
        self, schema: Schema, name_number: int, op_number: int, value: Any, values: Any
    ) -> Predicate | GpumatchError:
        name, written = self.names[name_number], self.written[op_number]
        op, negated = self.ops[op_number]
        if op is None:
            hint = "" if written is None else nearest(_spaced(written), (*_OPS, *CONNECTIVES))
            return SchemaError(
                f"unknown operator {written!r}{hint}; use one of {', '.join(_OPS)}; "
                f"conditions are joined by {', '.join(CONNECTIVES)}"
            )
        if not isinstance(name, str):
            joining = ", ".join(CONNECTIVES)
            return SchemaError(
                f"a predicate needs the name of its attribute, found {name!r}; only rows with {joining} have none"
            )
        try:
            constants = _operands(name, schema[name], op, _spaced(written), value, values)
            return Predicate(name, op if constants or op != "is" else "null", constants, negated)
        except GpumatchError as error:
            return error

    def shown(self, row: int) -> str:
        """The operator of a row, as messages show it."""
        return _spaced(self.written[self.op[row]]).upper()

    def misuse(self, row: int, where: str) -> SchemaError:
        """What is wrong with an operator's row; ``where`` is its position, as text."""
        shown, name = self.shown(row), self.names[self.name[row]]
        if name is not None:
            return SchemaError(f"{shown}{where} joins conditions and takes no attribute, found {name!r}; leave it null")
        if self.several[row]:
            values = self.table["values"][row].as_py()
            return SchemaError(
                f"{shown}{where} takes no values, found {values!r}; 'value' is the number of its operands"
            )
        expected = {"NOT": "1 or null", "XNOR": "2 or null"}.get(shown, "a whole number of 2 or more, or null for 2")
        value = self.table["value"][row].as_py()
        return SchemaError(f"{shown}{where} needs the number of its operands in 'value', {expected}; found {value!r}")


def _dictionary(table: Any, name: str) -> tuple[Any, Array]:
    """The values of a column, including null, and the number of each row's value."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.DictionaryArray) and column.null_count == column.dictionary.null_count == 0:
        return column.dictionary, column.indices.to_numpy()
    encoded = plain(table[name]).dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)


def plain(column: Any) -> Any:
    """A column as a plain array, without a dictionary."""
    column = column.combine_chunks()
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _spaced(op: Any) -> str:
    return " ".join(str(op).lower().split())


def _constants(table: Any) -> tuple[list[Any], Array]:
    """``value``, and the first and second of ``values``, null where missing; and which rows have ``values``."""
    nothing = pa.nulls(table.num_rows)
    value = table["value"].combine_chunks() if "value" in table.column_names else nothing
    lists = table["values"].combine_chunks() if "values" in table.column_names else nothing
    if pa.types.is_null(lists.type):
        return [value, nothing, nothing], np.zeros(len(lists), np.bool_)
    if not is_list(lists.type):
        raise SchemaError(f"column 'values' must hold lists, found {lists.type}; put single constants into 'value'")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    pair = lengths == 2
    flat = lists.filter(pa.array(pair)).flatten()
    ends = []
    for side in (0, 1):
        at = np.zeros(len(pair), np.int64)
        at[pair] = 2 * np.arange(np.count_nonzero(pair)) + side
        ends.append(flat.take(pa.array(at, mask=~pair)))
    return [value, *ends], lists.is_valid().to_numpy(zero_copy_only=False)


def _whole(value: Any) -> int:
    """A number of operands: 0 if not given, -1 if invalid."""
    if is_missing(value):
        return 0
    if isinstance(value, str):
        value = _number(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not 1 <= value < 1 << 31:
        return -1
    return int(value) if value == int(value) else -1


def _operands(name: str, type: AttributeType, op: Any, written: str, value: Any, values: Any) -> tuple[Any, ...]:
    """The constants of a predicate."""
    shown = f"{written.upper()} on attribute {name!r}"
    if not is_missing(value) and values is not None:
        raise SchemaError(f"{shown} has both a value and values, {value!r} and {values!r}; give one of them")
    given = list(values) if values is not None else [] if is_missing(value) else [value]
    word = _BOOLS.get(written.split()[-1])
    least = {"between": 2, "in": len(given) if values is not None else 1, "null": 0, "is": 0}.get(op, 1)
    expected = 1 if op == "is" and given and word is None else least
    if len(given) != expected:
        column = "'values'" if op in ("between", "in") else "'value'"
        number = {0: "no constant", 1: "a constant"}.get(expected, f"{expected} constants")
        raise SchemaError(f"{shown} takes {number} in {column}, found {given!r}")
    if op in ("like", "ilike"):
        if not isinstance(given[0], str):
            raise SchemaError(f"{shown} takes a pattern such as 'abc%', found {given[0]!r}")
        return (constant(quoted(given[0]), "like"),)
    if op == "is" and word is not None:
        return (word,)
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
    """The number that a text is, written as in expressions; None if it is not one."""
    if _INFINITY.fullmatch(text):
        return float(text)
    if "/*" in text:
        return None  # a comment, perhaps unclosed
    between, found = divide(text)
    return constant(found[0]) if between == ("", "") and found[0][0] != "'" else None
