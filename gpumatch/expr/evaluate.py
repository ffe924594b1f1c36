"""The oracle: the meaning of an expression, in plain Python. Every index must agree with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpumatch.errors import SchemaError
from gpumatch.expr.atoms import Constant, Timestamp
from gpumatch.expr.patterns import lower, lowered, matches, read
from gpumatch.expr.tree import Connective, Expr, Item, Op, Predicate, PredicateOp
from gpumatch.expr.typing_rules import operands
from gpumatch.expr.values import is_missing, plain, rounded
from gpumatch.schema import AttributeType, Schema

# ``v`` is the event's value, ``c`` the constants; they are of the same type, or numbers, which Python compares exactly.
_TESTS: dict[PredicateOp, Callable[[Any, tuple[Any, ...]], bool]] = {
    "=": lambda v, c: v == c[0],
    "<": lambda v, c: v < c[0],
    "<=": lambda v, c: v <= c[0],
    ">": lambda v, c: v > c[0],
    ">=": lambda v, c: v >= c[0],
    "between": lambda v, c: c[0] <= v <= c[1],
    "in": lambda v, c: v in c,
    "is": lambda v, c: v == c[0],
    "like": lambda v, c: matches(v, read(c[0])),
    "ilike": lambda v, c: matches(lower(v), lowered(read(c[0]))),
}


def evaluate(expr: Expr, event: Mapping[str, object], schema: Schema) -> bool | None:
    """True, False, or None for unknown. An event matches only where the result is True."""
    return trace(expr, event, schema)[-1]


def trace(expr: Expr, event: Mapping[str, object], schema: Schema) -> list[bool | None]:
    """The result of every item of the expression's program."""
    results: list[bool | None] = []
    for item, joined in zip(expr.program, expr.operands(), strict=True):
        results.append(_result(item, [results[at] for at in joined], event, schema))
    return results


def _result(item: Item, joined: list[bool | None], event: Mapping[str, object], schema: Schema) -> bool | None:
    if isinstance(item, Op):
        return connect(item.kind, joined)
    if isinstance(item, Predicate):
        return _holds(item, event.get(item.attribute), schema[item.attribute])
    return item


def connect(kind: Connective, joined: list[bool | None]) -> bool | None:
    """Three-valued logic: a connective is unknown if its unknown operands could decide it."""
    if kind in ("and", "or"):
        decisive = kind == "or"
        if decisive in joined:
            return decisive
        return None if None in joined else not decisive
    if None in joined:
        return None
    odd = sum(map(bool, joined)) % 2 == 1
    return odd if kind == "xor" else not odd  # NOT is XNOR of one operand


def _holds(predicate: Predicate, value: object, type: AttributeType) -> bool | None:
    constants = operands(predicate, type)
    missing = is_missing(value)
    if predicate.op == "null":
        return missing != predicate.negated
    if missing:
        return predicate.negated if predicate.op == "is" else None
    test = _TESTS[predicate.op]
    found = any(test(one, constants) for one in _values(value, type, predicate.attribute))
    return found != predicate.negated


def _values(value: object, type: AttributeType, attribute: str) -> list[Constant]:
    """The values of an attribute: one, or those of a list, without missing ones."""
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    if is_list != type.multi:
        raise _wrong(value, type, attribute)
    if not isinstance(value, Iterable) or isinstance(value, str):
        return [event_value(value, type, attribute)]
    return [event_value(one, type, attribute) for one in value if not is_missing(one)]


def event_value(value: object, type: AttributeType, attribute: str) -> Constant:
    """An event's single value in the attribute's type; floats are rounded to the attribute's precision."""
    given = plain(value, attribute)
    if isinstance(given, bool):
        fits = type.kind == "bool"
    elif isinstance(given, (int, float)):
        if type.kind == "float":
            return rounded(given, single=type.name == "float32")
        fits = type.kind == "int" and given == given // 1
    elif isinstance(given, Timestamp):
        fits = type.kind == "timestamp" and given.zoned == (type.zone is not None)
    else:
        fits = type.kind == ("date" if isinstance(given, dt.date) else "string")
    if not fits:
        raise _wrong(value, type, attribute)
    return given


def _wrong(value: object, type: AttributeType, attribute: str) -> SchemaError:
    return SchemaError(f"attribute {attribute!r} has type {type}, and the event holds {value!r}")
