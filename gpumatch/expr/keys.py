"""Values as keys that sort in the same order, and predicates as sets of keys.

A number, date or time has an int64 key; a string's key is its rank among the constants, so here it is still the
string itself. Nothing lies between two consecutive keys, so a set of values is a sorted tuple of *cuts* where the set
begins, ends, begins again …; with an odd number of cuts it is open above.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from gpumatch.expr import patterns
from gpumatch.expr.atoms import Constant, Timestamp
from gpumatch.expr.times import EPOCH
from gpumatch.expr.tree import PredicateOp
from gpumatch.schema import AttributeType, Kind

Cut: TypeAlias = "int | tuple[bytes, int]"  # below the key; below (side 0) or above (side 1) the string
Set: TypeAlias = "tuple[Cut, ...]"

MIN, MAX = -(1 << 63), (1 << 63) - 1
TOP = MAX + 1  # the cut above every key
STRING_BOTTOM: Cut = (b"", 0)
STRING_TOP: Cut = (b"\xff", 0)  # this byte never occurs in UTF-8
INF_KEY = 0x7FF0_0000_0000_0000  # of the float infinity; minus infinity has ~INF_KEY


def float_key(value: float) -> int:
    """An int64 that sorts as the float does."""
    bits: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return bits if bits >= 0 else bits ^ MAX


def key_float(key: int) -> float:
    """The float whose key this is."""
    value: float = struct.unpack("<d", struct.pack("<q", key if key >= 0 else key ^ MAX))[0]
    return value


def bottom(kind: Kind) -> Cut:
    return STRING_BOTTOM if kind == "string" else MIN


def around(value: Any, type: AttributeType) -> tuple[Cut, Cut]:
    """The cuts just below and just above a constant; they are equal if no value of the type equals it."""
    if type.kind == "string":
        text = value.encode()
        return (text, 0), (text, 1)
    below, above = _AROUND[type.kind](value, type)
    return _clamp(below), _clamp(above)


def _around_int(value: int | float | Decimal, type: AttributeType) -> tuple[int, int]:
    if isinstance(value, float) and math.isinf(value):
        return (TOP, TOP) if value > 0 else (MIN, MIN)
    return math.ceil(value), math.floor(value) + 1


def _around_bool(value: bool, type: AttributeType) -> tuple[int, int]:
    """One cut between the two values, and none beyond them, so that anything but one is the other."""
    return (1, TOP) if value else (MIN, 1)


def _around_float(value: int | float, type: AttributeType) -> tuple[int, int]:
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    key = float_key(nearest)
    below, above = (key, key + 1) if nearest == value else (key, key) if nearest > value else (key + 1, key + 1)
    # Nothing lies beyond the infinities, so cuts out there are dropped: numbers have no keys there.
    return tuple(MIN if cut <= ~INF_KEY else TOP if cut > INF_KEY else cut for cut in (below, above))  # type: ignore[return-value]


def _around_date(value: dt.date, type: AttributeType) -> tuple[int, int]:
    day = value.toordinal() - EPOCH
    return day, day + 1


def _around_timestamp(value: Timestamp, type: AttributeType) -> tuple[int, int]:
    step = 1 if type.unit == "ns" else 1000
    return -(-value.nanos // step), value.nanos // step + 1


_AROUND: dict[Kind, Callable[[Any, AttributeType], tuple[int, int]]] = {
    "int": _around_int,
    "bool": _around_bool,
    "float": _around_float,
    "date": _around_date,
    "timestamp": _around_timestamp,
}


def _clamp(cut: int) -> int:
    return MIN if cut < MIN else min(cut, TOP)


def between(low: Any, high: Any) -> Set:
    """The set from one cut up to another."""
    if low >= high:
        return ()
    return (low,) if high in (TOP, STRING_TOP) else (low, high)


def predicate_set(op: PredicateOp, constants: Sequence[Constant], type: AttributeType) -> Set:
    """Values that satisfy a predicate in its positive form; its constants are coerced to the attribute's type.

    For ``match`` and ``ilike`` they are not the attribute's values but names of patterns, see ``pattern_name``.
    """
    least, top = bottom(type.kind), STRING_TOP if type.kind == "string" else TOP
    if op in ("like", "ilike", "match"):
        return _pattern_set(op, str(constants[0]))
    cuts = [around(value, type) for value in constants]
    if op == "in":
        return combine([between(*pair) for pair in cuts], lambda count: count > 0)
    below, above = cuts[0]
    ranges: dict[str, tuple[Cut, Cut]] = {
        "=": (below, above),
        "<": (least, below),
        "<=": (least, above),
        ">": (above, top),
        ">=": (below, top),
        "between": (below, cuts[-1][1]),
    }
    return between(*ranges[op])


def _pattern_set(op: PredicateOp, pattern: str) -> Set:
    tokens = patterns.read(pattern)
    if op != "like":
        name = pattern_name(tokens, op == "ilike").encode()
        return (name, 0), (name, 1)
    found = patterns.prefix(tokens)
    assert found is not None, "a pattern that is not a prefix becomes match"
    text = found[0].encode()
    return _prefix_set(text) if found[1] else ((text, 0), (text, 1))


def pattern_name(tokens: Sequence[patterns.Token], any_case: bool) -> str:
    """One name for all patterns that mean the same: how they treat case, and the pattern."""
    return "i" + patterns.written(patterns.lowered(tokens)) if any_case else "s" + patterns.written(tokens)


def _prefix_set(prefix: bytes) -> Set:
    if not prefix:
        return (STRING_BOTTOM,)
    # The byte 0xFF never occurs in UTF-8, so the last byte can always be raised by one.
    return (prefix, 0), (prefix[:-1] + bytes([prefix[-1] + 1]), 0)


def complement(values: Set, kind: Kind) -> Set:
    """All other values."""
    least = bottom(kind)
    return values[1:] if values and values[0] == least else (least, *values)


def combine(sets: Sequence[Set], wanted: Callable[[int], bool]) -> Set:
    """Values for which the number of sets that contain them is ``wanted``; 0 must not be."""
    if len(sets) == 1:
        return sets[0]
    steps: dict[Any, int] = {}
    for values in sets:
        for at, cut in enumerate(values):
            steps[cut] = steps.get(cut, 0) + (-1 if at & 1 else 1)
    out: list[Cut] = []
    count, inside = 0, False
    for cut in sorted(steps):
        count += steps[cut]
        if wanted(count) != inside:
            inside = not inside
            out.append(cut)
    return tuple(out)
