"""Constants: from their raw text in an expression, and back to canonical text."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal, InvalidOperation
from typing import Literal

from gpumatch.errors import ParseError
from gpumatch.expr.atoms import Constant, Slot, Timestamp
from gpumatch.expr.patterns import read
from gpumatch.expr.times import parse_date, parse_timestamp, timestamp_text

SlotKind = Literal["literal", "date", "timestamp", "like", "pattern", "escape"]
MAX_DIGITS = 4000  # of an integer: Python refuses to read or print more than 4300
_EXACT = 16  # characters, including the point: with 15 digits a float lies on the same side of every integer
_BEYOND = 2.0**64  # all integers that an attribute can hold are on one side of anything larger
_EXPECTING: dict[SlotKind, str] = {"like": "LIKE", "pattern": "LIKE", "escape": "ESCAPE"}


def constant(raw: str, kind: SlotKind = "literal") -> Constant:
    """The value of one constant: a number with its sign, or a string in its quotes.

    A malformed one is a ParseError about ``raw``; ``parse`` converts its position to one in the whole text.
    """
    if raw[0] != "'":
        if kind != "literal":
            keyword = _EXPECTING.get(kind, kind.upper())
            raise ParseError(f"{keyword} expects a string in single quotes, found {raw}", raw)
        return _number(raw)
    value = raw[1:-1].replace("''", "'")
    if kind in ("literal", "pattern"):  # whether a pattern is well-formed depends on its escape character
        return value
    try:
        if kind == "like":
            read(value)
            return value
        if kind == "escape":
            return escape_character(value)
        return parse_date(value) if kind == "date" else parse_timestamp(value)
    except ParseError as error:
        raise ParseError(error.message, raw) from None


def _number(raw: str) -> int | float | Decimal:
    """An integer, or the nearest float; the decimal itself if the float is on the other side of an integer."""
    if raw.lstrip("+-").isdigit():
        if len(raw) > MAX_DIGITS:
            raise ParseError(f"the number has {len(raw)} digits; at most {MAX_DIGITS} are allowed", raw)
        return int(raw)
    value = float(raw)
    if math.isinf(value):
        meant = "INFINITY" if value > 0 else "-INFINITY"
        raise ParseError(f"the number {raw} is too large for a float; write {meant} if that is meant", raw)
    digits, exponent, _ = raw.lower().partition("e")
    if (len(raw) <= _EXACT and not exponent) or abs(value) >= _BEYOND or not digits.strip("+-.0"):
        return value + 0.0  # -0.0 is 0.0
    try:
        exact = Decimal(raw)
    except InvalidOperation:
        raise ParseError(f"the number {raw} is too small to tell from 0", raw) from None
    differs = (math.floor(exact), math.ceil(exact)) != (math.floor(value), math.ceil(value))
    return exact if differs else value


def escape_character(value: str) -> str:
    if len(value) > 1:
        raise ParseError(f"ESCAPE expects one character, or '' for none; found {quoted(value)}")
    return value


def constant_text(value: Constant | Slot) -> str:
    """Text that the parser reads back as the same value. Slots of a template print as ``?0``, ``?1`` …"""
    if isinstance(value, Slot):
        return f"?{value.index}"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        text = str(value)
        return text if "." in text or "e" in text.lower() else f"{text}.0"  # digits alone are an integer
    if isinstance(value, float):
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        # There the shortest text may be that of another integer.
        return f"{value:.1f}" if 1e16 <= abs(value) < _BEYOND else float.__repr__(value)
    if isinstance(value, Timestamp):
        return f"TIMESTAMP '{timestamp_text(value)}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return quoted(value)


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
