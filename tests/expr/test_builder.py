"""``col()`` makes what the parser makes, from Python, numpy and pandas values."""

from __future__ import annotations

import copy
import datetime as dt
import enum
import pickle
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpumatch.errors import ParseError, SchemaError
from gpumatch.expr import Expr, Op, Timestamp, col, parse
from gpumatch.expr.tree import MAX_DEPTH

x = col("x")


class Color(str, enum.Enum):  # noqa: UP042
    RED = "red"


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (x == 5, "x = 5"),
        (x != "a", "x <> 'a'"),
        (x < 2.5, "x < 2.5"),
        (x <= -1, "x <= -1"),
        (x > True, "x > TRUE"),
        (x >= dt.date(2024, 1, 31), "x >= DATE '2024-01-31'"),
        (5 < x, "x > 5"),  # noqa: SIM300
        (np.float64(5) >= x, "x <= 5.0"),
        (x.between(1, 2), "x BETWEEN 1 AND 2"),
        (x.is_in([1, "a", 2.0]), "x IN (1, 'a', 2.0)"),
        (x.is_in(np.array([1, 2], "int8")), "x IN (1, 2)"),
        (x.is_in(()), "x IN ()"),
        (x.startswith("50%_\\"), r"x LIKE '50\%\_\\%'"),
        (x.is_null(), "x IS NULL"),
        (x.is_not_null(), "x IS NOT NULL"),
        (~x.is_in([1]), "NOT x IN (1)"),
        (((x > 1) | (x < 0)) & ~((x == 5) ^ (x == 6)), "(x > 1 OR x < 0) AND NOT (x = 5 XOR x = 6)"),
        ((x > 1).xnor(x < 0).xnor(x == 5), "x > 1 XNOR x < 0 XNOR x = 5"),
        (col('say "hi"') == "it's", '"say ""hi""" = \'it\'\'s\''),
        (col("not") == 1, '"not" = 1'),
        (x == float("inf"), "x = INFINITY"),
        (x == -0.0, "x = 0.0"),
        (x == Color.RED, "x = 'red'"),
    ],
)
def test_text(expr: Expr, text: str) -> None:
    assert str(expr) == text
    assert parse(text) == expr


@pytest.mark.parametrize(
    ("value", "constant"),
    [
        (np.int8(-5), -5),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float16(1.5), 1.5),
        (np.longdouble(1.5), 1.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.datetime64("2024-01-31"), dt.date(2024, 1, 31)),
        (np.datetime64("2024-02"), dt.date(2024, 2, 1)),
        (np.datetime64(1, "ns"), Timestamp(1)),
        (np.datetime64(-1, "us"), Timestamp(-1000)),
        (np.datetime64(2**62, "s"), Timestamp(2**62 * 10**9)),
        (np.datetime64(3, "h"), Timestamp(3 * 3600 * 10**9)),
        (np.datetime64(3, ("s", 25)), Timestamp(75 * 10**9)),
        (np.datetime64(5000, "ps"), Timestamp(5)),
        (dt.datetime(1970, 1, 1, 0, 0, 0, 1), Timestamp(1000)),
        (dt.datetime.min, Timestamp(-62135596800 * 10**9)),
        (dt.datetime(1970, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))), Timestamp(-7200 * 10**9, True)),
        (
            dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
            Timestamp(1729992600 * 10**9, True),
        ),
        (pd.Timestamp(1, unit="ns"), Timestamp(1)),
        (pd.Timestamp("2024-01-01T00:00:00.123456789"), Timestamp(1704067200123456789)),
        (pd.Timestamp("1970-01-01 01:00:00.000000001", tz="Europe/Berlin"), Timestamp(1, True)),
        (pd.Timestamp("3000-01-01").as_unit("s"), Timestamp(32503680000 * 10**9)),
        (Timestamp(7, True), Timestamp(7, True)),
    ],
)
def test_constants_are_exact(value: object, constant: object) -> None:
    expr = x == value
    (found,) = next(expr.predicates()).values
    assert (type(found), found) == (type(constant), constant)
    assert parse(str(expr)) == expr


@pytest.mark.parametrize("value", [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NaT, pd.NA], ids=str)
def test_missing_constants(value: object) -> None:
    makes: list[Callable[[], Expr]] = [lambda: x == value, lambda: x.is_in([1, value]), lambda: x.between(1, value)]
    for make in makes:
        with pytest.raises(SchemaError, match=r"'x'.*is_null\(\)"):
            make()


@pytest.mark.parametrize(
    "value",
    [
        b"a",
        1j,
        object(),
        [1],
        np.datetime64(1, "ps"),
        np.datetime64(10**8, "D"),
        np.longdouble(1) / 3,
        np.timedelta64(1),
        "\ud800",
        10**4000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_unsupported_constants(value: object) -> None:
    with pytest.raises(SchemaError, match="'x'"):
        x == value  # noqa: B015


def test_wrong_arguments() -> None:
    with pytest.raises(SchemaError, match="expected a constant, found attribute 'y'"):
        x == col("y")  # noqa: B015
    with pytest.raises(SchemaError, match="expects a list of constants, found 'abc'"):
        x.is_in("abc")
    with pytest.raises(SchemaError, match="expects a string, found 5"):
        x.startswith(5)  # type: ignore[arg-type]
    for name in ("", 5, "\udc00"):
        with pytest.raises(SchemaError, match="non-empty strings"):
            col(name)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="xnor expects an expression, found True"):
        (x > 1).xnor(True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: (x > 1) and (x < 5),
        lambda: (x > 1) or (x < 5),
        lambda: not (x > 1),
        lambda: 1 < x < 5,
        lambda: 5 if x > 1 else 6,
    ],
)
def test_python_logic_is_refused(misuse: Any) -> None:
    with pytest.raises(TypeError, match="combine expressions with & "):
        misuse()


@pytest.mark.parametrize("misuse", [lambda: x > 5 & x, lambda: ~x, lambda: x & (x > 5), lambda: (x > 5) | x])
def test_bare_columns_are_refused(misuse: Any) -> None:
    with pytest.raises(TypeError, match="parentheses"):
        misuse()


def test_truth_and_hash_of_a_column() -> None:
    with pytest.raises(TypeError, match="'x' has no truth value"):
        bool(x)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(TypeError):
        (x > 1) & True
    assert repr(x) == "col('x')"


def test_depth_is_limited() -> None:
    expr = x == 1
    for _ in range(MAX_DEPTH):
        expr = ~expr
    assert parse(str(expr)) == expr
    with pytest.raises(ParseError, match="1000 levels"):
        expr = ~expr
    expr = x == 0
    for _ in range(MAX_DEPTH):
        expr = ((expr | (x == 1)) & (x == 2)).xnor(x == 3)
        if expr.depth >= MAX_DEPTH - 1:
            break
    assert parse(str(expr)) == expr
    expr = x == 0
    with pytest.raises(ParseError, match="1000 levels"):  # noqa: PT012
        for _ in range(MAX_DEPTH + 2):
            expr = (x == 1).xnor(expr)


def test_long_chains() -> None:
    expr = x == 0
    reverse = x == 9_999
    for i in range(1, 10_000):
        expr = expr & (x == i)
        reverse = (x == 9_999 - i) & reverse
    assert expr.program[-1] == Op("and", 10_000)
    assert expr == reverse
    assert expr.depth == 0


def test_expressions_copy_and_pickle() -> None:
    expr = (x > 1) ^ ~(x == "a")
    assert pickle.loads(pickle.dumps(expr)) == copy.deepcopy(expr) == expr
    assert len({expr, copy.copy(expr), ~expr}) == 2


def test_patterns() -> None:
    assert col("s").startswith("a%_\\") == parse(r"s LIKE 'a\%\_\\%'")
    assert col("s").like("%a_b") == parse("s LIKE '%a_b'")
    assert col("s").ilike("%a!_b", escape="!") == parse("s ILIKE '%a!_b' ESCAPE '!'")
    assert col("s").like("a\\", escape="") == parse("s LIKE 'a\\' ESCAPE ''")
    with pytest.raises(SchemaError, match=r"attribute 's': the pattern 'a\\' has its escape character \\ at the end"):
        col("s").like("a\\")
    with pytest.raises(SchemaError, match="ESCAPE expects one character, or '' for none; found 'ab'"):
        col("s").ilike("a", escape="ab")
    with pytest.raises(SchemaError, match=r"like\(\) expects a pattern, a string, found 5"):
        col("s").like(5)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"ilike\(\) expects an escape character, a string, found None"):
        col("s").ilike("a", None)  # type: ignore[arg-type]


def test_tests_that_are_never_unknown() -> None:
    assert col("b").is_true() == parse("b IS TRUE")
    assert col("b").is_false() == parse("b IS FALSE")
    assert str(~col("b").is_true()) == "NOT b IS TRUE"
    assert col("x").is_distinct_from(5) == parse("x IS DISTINCT FROM 5")
    assert col("x").is_not_distinct_from("a") == parse("x IS NOT DISTINCT FROM 'a'")
    for missing in (None, float("nan")):
        assert col("x").is_distinct_from(missing) == parse("x IS NOT NULL")
        assert col("x").is_not_distinct_from(missing) == parse("x IS NULL")
