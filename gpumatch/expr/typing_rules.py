"""Which constants an attribute can be compared with, and what they become."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal

from gpumatch.errors import ParseError, SchemaError
from gpumatch.expr.atoms import Constant, Slot, Timestamp
from gpumatch.expr.constants import constant_text, escape_character
from gpumatch.expr.patterns import ESCAPE, usual
from gpumatch.expr.times import in_zone, midnight, parse_date, parse_timestamp, zone_named
from gpumatch.expr.tree import Expr, Predicate
from gpumatch.schema import AttributeType, Kind, Schema

PATTERNS = ("like", "ilike", "match")  # operators whose constant is a pattern
_EXPECTED: dict[Kind, str] = {
    "int": "a number",
    "float": "a number",
    "bool": "TRUE or FALSE",
    "string": "a string",
    "date": "a date such as DATE '2024-01-31'",
    "timestamp": "a timestamp such as TIMESTAMP '2024-01-31 12:00:00'",
}


def coerce(value: Constant, type: AttributeType, attribute: str) -> Constant:
    """The constant in the form in which it is compared with the attribute's values, or a SchemaError.

    Numbers compare by value and stay as they are, but for float attributes a decimal becomes the nearest float. For
    temporal attributes strings are read as dates or timestamps; for timestamps a date means its midnight, and a time
    without zone is the wall clock of the attribute's zone.
    """
    kind = type.kind
    if kind in ("int", "float") and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return float(value) if kind == "float" and isinstance(value, Decimal) else value
    if (kind == "bool" and isinstance(value, bool)) or (kind == "string" and isinstance(value, str)):
        return value
    if kind in ("date", "timestamp") and isinstance(value, str):
        value = _read(value, type, attribute)
    if kind == "date" and isinstance(value, dt.date):
        return value
    if kind == "timestamp" and isinstance(value, dt.date):
        value = midnight(value)
    if kind == "timestamp" and isinstance(value, Timestamp):
        return _clocked(value, type, attribute)
    raise _mismatch(value, type, attribute)


def _read(value: str, type: AttributeType, attribute: str) -> dt.date | Timestamp:
    try:
        return parse_date(value) if type.kind == "date" else parse_timestamp(value)
    except ParseError as error:
        raise SchemaError(f"attribute {attribute!r} has type {type}: {error.message}") from None


def _clocked(value: Timestamp, type: AttributeType, attribute: str) -> Timestamp:
    if type.zone is not None:
        return value if value.zoned else in_zone(value, zone_named(type.zone, attribute))
    if not value.zoned:
        return value
    raise SchemaError(
        f"attribute {attribute!r} has type {type}, a wall clock without zone, and cannot be compared with the instant "
        f"{constant_text(value)}; remove the zone from the constant or give the attribute one: timestamp[us, tz=…]"
    )


def _mismatch(value: Constant, type: AttributeType, attribute: str) -> SchemaError:
    return SchemaError(
        f"attribute {attribute!r} has type {type} and is compared with {constant_text(value)}; "
        f"expected {_EXPECTED[type.kind]}"
    )


def operands(predicate: Predicate, type: AttributeType) -> tuple[Constant, ...]:
    """The predicate's constants as they are compared, for LIKE the pattern; slots of a template are left out."""
    given = tuple(value for value in predicate.values if not isinstance(value, Slot))
    if predicate.op in PATTERNS:
        if type.kind != "string":
            word = "ILIKE" if predicate.op == "ilike" else "LIKE"
            raise SchemaError(f"attribute {predicate.attribute!r} has type {type}; {word} works on strings only")
        return (pattern_of(given, predicate.attribute),) if given else ()
    return tuple(coerce(value, type, predicate.attribute) for value in given)


def pattern_of(given: Sequence[Constant], attribute: str) -> str:
    """The pattern of a LIKE, with the usual escape character instead of any other that it has."""
    for value in given:
        if not isinstance(value, str):
            raise SchemaError(f"attribute {attribute!r}: a pattern is a string, found {constant_text(value)}")
    pattern, escape = (str(value) for value in (*given, ESCAPE)[:2])
    try:
        return usual(pattern, escape_character(escape))
    except ParseError as error:
        raise SchemaError(f"attribute {attribute!r}: {error.message}") from None


def check(expr: Expr, schema: Schema) -> None:
    """Raise a SchemaError unless every attribute exists and every constant suits its type."""
    for predicate in expr.predicates():
        operands(predicate, schema[predicate.attribute])
