"""The oracle by hand: lists, unknown, precision, time."""

from __future__ import annotations

import datetime as dt
import itertools
import zoneinfo

import numpy as np
import pandas as pd
import pytest

from gpumatch.errors import SchemaError
from gpumatch.expr import Timestamp, evaluate, parse, trace
from gpumatch.schema import Schema

SCHEMA = Schema.of(
    {
        "i": "int64",
        "f": "float64",
        "g": "float32",
        "b": "bool",
        "c": "bool",
        "s": "string",
        "d": "date",
        "t": "timestamp[us]",
        "z": "timestamp[us, tz=Europe/Berlin]",
        "ns": "list<int64>",
        "fs": "list<float32>",
        "tags": "list<string>",
    }
)


def value(text: str, **event: object) -> bool | None:
    return evaluate(parse(text), event, SCHEMA)


@pytest.mark.parametrize(
    "missing", [None, float("nan"), np.float64("nan"), np.datetime64("NaT"), pd.NaT, pd.NA], ids=repr
)
def test_missing(missing: object) -> None:
    for test in ("i = 5", "i <> 5", "i IN (5)", "i NOT IN (5)", "i IN ()", "ns BETWEEN 1 AND 2", "s LIKE '%'", "NOT b"):
        assert value(test) is None
        assert value(test, i=missing, ns=missing, s=missing, b=missing) is None
    for name in SCHEMA.names:
        assert value(f"{name} IS NULL", **{name: missing}) is True
        assert value(f"{name} IS NOT NULL", **{name: missing}) is False
    assert value("i IS NULL", i=5) is False
    assert value("i IS NOT NULL", i=5) is True


def three_valued(kind: str, a: bool | None, b: bool | None) -> bool | None:
    """By all ways to make the unknown known."""
    python = {
        "and": lambda x, y: x and y,
        "or": lambda x, y: x or y,
        "xor": lambda x, y: x != y,
        "xnor": lambda x, y: x == y,
    }
    known = {
        python[kind](x, y) for x in ([True, False] if a is None else [a]) for y in ([True, False] if b is None else [b])
    }
    return known.pop() if len(known) == 1 else None


@pytest.mark.parametrize("kind", ["and", "or", "xor", "xnor"])
def test_connectives(kind: str) -> None:
    for a, b in itertools.product([True, False, None], repeat=2):
        expected = three_valued(kind, a, b)
        assert value(f"b {kind} c", b=a, c=b) is expected
        assert value(f"NOT (b {kind} c)", b=a, c=b) is (None if expected is None else not expected)


def test_three_operands() -> None:
    for a, b in itertools.product([True, False, None], repeat=2):
        for third in (True, False):
            event = {"b": a, "c": b}
            left = None if None in (a, b) else (a != b) != third
            assert value(f"b XOR c XOR {third}", **event) is left
            both = None if None in (a, b) else (a == b) == third
            assert value(f"b XNOR c XNOR {third}", **event) is both
    assert value("TRUE") is True
    assert value("i = 1 AND FALSE") is False
    assert value("i = 1 OR TRUE") is True


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("ns = 2", True),
        ("ns <> 2", False),
        ("NOT ns = 2", False),
        ("ns <> 5", True),
        ("ns > 2", True),
        ("ns > 3", False),
        ("ns NOT IN (3, 4)", False),
        ("ns NOT IN (4, 5)", True),
        ("ns BETWEEN 2 AND 2.5", True),
        ("ns BETWEEN 1.5 AND 1.9", False),
        ("ns NOT BETWEEN 1.5 AND 1.9", True),
        ("ns >= 1.5 AND ns <= 1.9", True),  # by different values
        ("ns IS NULL", False),
        ("tags LIKE 'b%'", True),
        ("tags NOT LIKE 'b%'", False),
        ("tags NOT LIKE 'c%'", True),
        ("tags IN ()", False),
        ("tags NOT IN ()", True),
    ],
)
def test_lists(test: str, expected: bool) -> None:
    event = {"ns": [1, None, 2, float("nan"), 3], "tags": ("abc", "bcd", None)}
    assert value(test, **event) is expected
    assert value(test, ns=np.array([1, 2, 3]), tags={"abc", "bcd"}) is expected


@pytest.mark.parametrize("empty", [[], [None], [float("nan"), None], ()])
def test_an_empty_list_is_not_missing(empty: object) -> None:
    for test in ("ns = 1", "ns < 5", "ns IN (1)", "ns BETWEEN 0 AND 9", "ns IS NULL"):
        assert value(test, ns=empty) is False
        assert value(f"NOT {test}", ns=empty) is True
    for test in ("ns <> 1", "ns NOT IN (1)", "ns NOT BETWEEN 0 AND 9", "ns IS NOT NULL"):
        assert value(test, ns=empty) is True


def test_numbers_compare_by_value() -> None:
    assert value("i = 2.5", i=2) is False
    assert value("i < 2.5", i=2) is True
    assert value("i > 9007199254740992.0", i=2**53 + 1) is True
    assert value("i = 9007199254740993", i=2**53 + 1) is True
    assert value("f = 9007199254740993", f=2.0**53) is False
    assert value("f < 9007199254740993", f=2.0**53) is True
    assert value("i < 99999999999999999999", i=2**63 - 1) is True
    assert value("f < " + "9" * 400, f=1e308) is True
    assert value("f > " + "9" * 400, f=float("inf")) is True
    assert value("f <= INFINITY AND i > -INFINITY", f=float("inf"), i=-(2**63)) is True
    assert value("f = 0 AND f >= 0.0 AND f <= -0.0", f=-0.0) is True
    assert value("i = 5", i=5.0) is True
    assert value("f = 5", f=np.int8(5)) is True


def test_single_precision() -> None:
    assert value("g = 0.1", g=0.1) is False
    assert value("g > 0.1", g=np.float32(0.1)) is True
    assert value("g = 0.10000000149011612", g=0.1) is True
    assert value("g = 16777216", g=16777217) is True
    assert value("g = INFINITY", g=1e39) is True
    assert value("g = -INFINITY", g=-(10**400)) is True
    assert value("fs = 0.10000000149011612", fs=[0.5, 0.1]) is True
    assert value("f = 0.1", f=0.1) is True


def test_strings_and_bools() -> None:
    assert value("s < '\uffff'", s="\U00010000") is False  # by code point, not by UTF-16 unit
    assert value("s LIKE 'A%'", s="abc") is False
    assert value("s LIKE '%'", s="") is True
    assert value("s = 'a'", s=np.str_("a")) is True
    assert value("b < TRUE", b=False) is True
    assert value("b IN (TRUE)", b=np.bool_(True)) is True


def test_dates() -> None:
    day = dt.date(2024, 1, 31)
    assert value("d = DATE '2024-01-31'", d=day) is True
    assert value("d BETWEEN '2024-01-01' AND '2024-01-30'", d=np.datetime64("2024-01-31")) is False


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(2024, 1, 31, 12),
        np.datetime64("2024-01-31T12", "ns"),
        np.datetime64("2024-01-31T12", "s"),
        pd.Timestamp("2024-01-31T12"),
        Timestamp(1706702400 * 10**9),
    ],
    ids=lambda moment: type(moment).__name__,
)
def test_wall_clock(moment: object) -> None:
    assert value("t = TIMESTAMP '2024-01-31 12:00'", t=moment) is True
    assert value("t = '2024-01-31 12:00:00.000'", t=moment) is True
    assert value("t < '2024-01-31 12:00:00.000000001'", t=moment) is True
    assert value("t > DATE '2024-01-31' AND t < '2024-02-01'", t=moment) is True


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC),
        dt.datetime(2024, 1, 31, 7, tzinfo=zoneinfo.ZoneInfo("America/New_York")),
        pd.Timestamp("2024-01-31T13", tz="Europe/Berlin"),
        Timestamp(1706702400 * 10**9, True),
    ],
    ids=lambda moment: type(moment).__name__,
)
def test_instants(moment: object) -> None:
    assert value("z = TIMESTAMP '2024-01-31 12:00Z'", z=moment) is True
    assert value("z = TIMESTAMP '2024-01-31 14:00+02:00'", z=moment) is True
    assert value("z = TIMESTAMP '2024-01-31 13:00' AND z = '2024-01-31 13:00'", z=moment) is True
    assert value("z >= DATE '2024-01-31'", z=moment) is True
    assert value("z >= DATE '2024-01-31'", z=dt.datetime(2024, 1, 30, 22, 59, tzinfo=dt.UTC)) is False


@pytest.mark.parametrize(
    ("test", "event"),
    [
        ("i = 5", {"i": "5"}),
        ("i = 5", {"i": 2.5}),
        ("i = 5", {"i": float("inf")}),
        ("i = 5", {"i": True}),
        ("i = 5", {"i": [5]}),
        ("f = 5", {"f": False}),
        ("b", {"b": 1}),
        ("s = 'a'", {"s": 5}),
        ("s = 'a'", {"s": b"a"}),
        ("d = '2024-01-31'", {"d": dt.datetime(2024, 1, 31)}),
        ("t = '2024-01-31'", {"t": dt.date(2024, 1, 31)}),
        ("t = '2024-01-31'", {"t": dt.datetime(2024, 1, 31, tzinfo=dt.UTC)}),
        ("z = '2024-01-31'", {"z": dt.datetime(2024, 1, 31)}),
        ("ns = 5", {"ns": 5}),
        ("tags = 'a'", {"tags": "a"}),
        ("tags = 'a'", {"tags": ["a", 5]}),
        ("tags = 'a'", {"tags": {"a": 1}}),
    ],
)
def test_values_of_the_wrong_type(test: str, event: dict[str, object]) -> None:
    with pytest.raises(SchemaError, match=f"'{test.split()[0]}'"):
        value(test, **event)


def test_constants_and_names_are_checked() -> None:
    with pytest.raises(SchemaError, match="expected a number"):
        value("i = 'x'")
    with pytest.raises(SchemaError, match="unknown attribute 'nope'"):
        value("i = 1 AND nope = 5", i=2)


def test_trace_gives_every_item() -> None:
    expr = parse("i > 5 AND (b OR NOT s = 'x') XOR f IS NULL")
    found = trace(expr, {"i": 7, "s": "x"}, SCHEMA)
    assert dict(zip(map(str, expr.program), found, strict=True)) == {
        "i > 5": True,
        "b = TRUE": None,
        "s = 'x'": True,
        "Op(kind='not', arity=1)": False,
        "Op(kind='or', arity=2)": None,
        "Op(kind='and', arity=2)": None,
        "f IS NULL": True,
        "Op(kind='xor', arity=2)": None,
    }


def test_deep_and_long_expressions() -> None:
    assert value("NOT " * 1000 + "b", b=True) is True
    assert value("(" * 1000 + "b" + ")" * 1000, b=False) is False
    assert value(" OR ".join(f"i = {i}" for i in range(10_000)), i=9_999) is True
    assert value(" XOR ".join(["b"] * 9_999), b=True) is True


@pytest.mark.parametrize("negated", [False, True])
def test_patterns_and_missing_values(negated: bool) -> None:
    word = "NOT " * negated
    for text in (f"s {word}LIKE '%'", f"s {word}ILIKE '%a'", f"tags {word}LIKE '_'"):
        assert value(text) is None
        assert value(f"NOT {text}") is None
    assert value(f"s {word}LIKE '%b_'", s="abc") is not negated
    assert value(f"s {word}LIKE '%b_'", s="ab") is negated
    assert value(f"tags {word}LIKE '%b_'", tags=["ab", None, "abc"]) is not negated
    assert value(f"tags {word}LIKE '%b_'", tags=["ab"]) is negated
    assert value(f"tags {word}LIKE '%'", tags=[]) is negated


@pytest.mark.parametrize(
    ("text", "of_true", "of_false", "of_missing"),
    [
        ("b IS TRUE", True, False, False),
        ("b IS NOT TRUE", False, True, True),
        ("b IS FALSE", False, True, False),
        ("b IS NOT FALSE", True, False, True),
        ("b IS NOT DISTINCT FROM TRUE", True, False, False),
        ("b IS DISTINCT FROM TRUE", False, True, True),
        ("b IS NOT DISTINCT FROM NULL", False, False, True),
        ("b IS DISTINCT FROM NULL", True, True, False),
        ("NOT b IS TRUE", False, True, True),
    ],
)
def test_never_unknown(text: str, of_true: bool, of_false: bool, of_missing: bool) -> None:
    found = [value(text, b=True), value(text, b=False), value(text), value(text, b=None)]
    assert found == [of_true, of_false, of_missing, of_missing]


def test_distinct_from() -> None:
    nan = float("nan")
    assert value("f IS DISTINCT FROM 5", f=nan) is True  # NaN is missing
    assert value("f IS NOT DISTINCT FROM 5", f=nan) is False
    assert value("f IS NOT DISTINCT FROM NULL", f=nan) is True
    assert value("f IS NOT DISTINCT FROM 0", f=-0.0) is True
    assert value("f IS NOT DISTINCT FROM INFINITY", f=float("inf")) is True
    assert value("i IS DISTINCT FROM 2.5", i=2) is True
    assert value("d IS NOT DISTINCT FROM '2024-01-31'", d=dt.date(2024, 1, 31)) is True
    assert value("tags IS NOT DISTINCT FROM 'a'", tags=["b", "a"]) is True
    assert value("tags IS DISTINCT FROM 'a'", tags=["b", "a"]) is False
    assert value("tags IS DISTINCT FROM 'a'", tags=[]) is True
    assert value("tags IS DISTINCT FROM 'a'") is True
    assert value("tags IS NOT DISTINCT FROM NULL", tags=[]) is False
    with pytest.raises(SchemaError, match="'i' has type int64 and is compared with 'x'"):
        value("i IS DISTINCT FROM 'x'")
