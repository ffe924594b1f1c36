"""Paths that begin where small cases end: many predicates, many rows of a shape, constants that repeat."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import gpumatch as gm
from gpumatch import col
from gpumatch.expr import evaluate
from gpumatch.expr.tokens import divide
from gpumatch.index import KINDS
from gpumatch.workloads import stocks

each_kind = pytest.mark.parametrize("index", KINDS)


@pytest.mark.long
@pytest.mark.parametrize("index", ["auto", "atree", "pstbloom"])
def test_more_distinct_predicates_than_a_table_numbers(index: str) -> None:
    count, width = 100_000, 50
    matcher = gm.Matcher({f"a{at}": "int64" for at in range(width)}, index=index, device="cpu")
    matcher.add({i: f"a{i % width} > {i} XOR a{(i + 1) % width} > {i}" for i in range(count)})
    rng = np.random.default_rng(1)
    events = rng.integers(0, count, (20, width))
    number = np.arange(count)
    above = [event[(number + k) % width] > number for event in events for k in (0, 1)]
    right = [np.flatnonzero(first ^ second) for first, second in zip(above[::2], above[1::2], strict=True)]
    found = matcher.match({f"a{at}": events[:, at] for at in range(width)})
    assert [found.rows[a:b].tolist() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)] == [
        rows.tolist() for rows in right
    ]


def satisfied(alerts: pa.Table, event: dict[str, Any]) -> NDArray[np.int64]:
    """Rows of the stock alerts, as symbols and bounds, that an event satisfies."""
    symbol = alerts["symbol"].to_numpy()
    holds = (symbol == event["symbol"]) | (symbol == None)  # noqa: E711
    for name in stocks.RANGED:
        low, high = (alerts[f"{name}_{side}"].to_numpy() for side in ("lo", "hi"))
        value = np.datetime64(event[name]) if name == "date" else event[name]
        with np.errstate(invalid="ignore"):
            holds &= (np.isnan(low) | (value >= low)) & (np.isnan(high) | (value <= high))
    return np.flatnonzero(holds)


@pytest.mark.long
def test_stock_alerts_in_groups() -> None:
    """Hundreds of alerts share each symbol, and are told apart by their prices."""
    rng = np.random.default_rng(1)
    bars = stocks.draw_bars(20_000, rng)
    alerts = stocks.draw_alerts(200_000, bars, rng)
    events = stocks.to_events(bars, 20_000)
    events = events.take(rng.choice(20_000, 300, replace=False))
    matcher = gm.Matcher(stocks.SCHEMA, index="pstbloom", device="cpu")
    matcher.add_table(alerts.select(["id", "expr"]))
    found = matcher.match(events.drop_columns(["event"]))
    assert matcher.stats()["segments"][0]["parts"][0]["groups"] >= 6 * 500
    assert found.n_pairs > 1000
    for at, event in enumerate(events.to_pylist()):
        assert found.rows[found.offsets[at] : found.offsets[at + 1]].tolist() == satisfied(alerts, event).tolist()


REPEATED = {  # one shape each, in 20 rows: conditions on b, and an event's value of b for which they hold or do not
    "b IN (5, 5)": {5: True, 6: False},
    "b IN (5, 7, 5, 7)": {5: True, 6: False, 7: True},
    "b NOT IN (5, 5)": {5: False, 6: True},
    "b NOT IN (7, 5, 5, 6)": {4: True, 5: False, 6: False, 7: False, 8: True},
    "s IN ('x', 'x', 'y')": {"x": True, "y": True, "z": False},
    "s NOT IN ('x', 'x')": {"w": True, "x": False, "y": True},
    "f IN (0.0, -0.0, 1e0, 1)": {0.0: True, 1.0: True, 0.5: False},
    "d IN ('2024-01-01', DATE '2024-01-01')": {"2024-01-01": True, "2024-01-02": False},
}
SCHEMA = {"a": "int64", "b": "int64", "s": "string", "f": "float64", "d": "date"}


def way_in(matcher: gm.Matcher, how: str, condition: str, rows: int) -> None:
    if how == "text":
        matcher.add({i: f"a = {i} AND {condition}" for i in range(rows)})
    elif how == "built":
        matcher.add({i: (col("a") == i) & gm.parse(condition) for i in range(rows)})
    else:
        [predicate] = gm.parse(condition).predicates()
        op = f"{'not ' if predicate.negated else ''}in"
        values = [str(value) for value in predicate.values]
        table = [{"id": i, "attribute": "a", "op": "=", "value": str(i), "values": None} for i in range(rows)]
        table += [
            {"id": i, "attribute": predicate.attribute, "op": op, "value": None, "values": values} for i in range(rows)
        ]
        matcher.add_predicates(pa.Table.from_pylist(table))


@each_kind
@pytest.mark.parametrize("how", ["text", "built", "predicates"])
def test_constants_that_repeat_count_once(index: str, how: str) -> None:
    for condition, cases in REPEATED.items():
        matcher = gm.Matcher(SCHEMA, index=index, device="cpu")
        way_in(matcher, how, condition, 20)
        for value, holds in cases.items():
            value = np.datetime64(value) if condition[0] == "d" else value
            events: list[dict[str, Any]] = [{"a": a, condition[0]: value} for a in (-1, 0, 7)]
            assert list(matcher.match(events)) == ([[], [0], [7]] if holds else [[], [], []]), condition


DECIMALS = {  # on an int64 attribute: which of these values satisfy them
    "i = 9007199254740993.0": [2**53 + 1],
    "i = 9007199254740992.0": [2**53],
    "i < 9007199254740993.0": [0, 1, 2**53],
    "i IN (9007199254740993.0, 1.0)": [1, 2**53 + 1],
    "i = 9.007199254740993e15": [2**53 + 1],
    "i BETWEEN 0.99999999999999999999 AND 1.00000000000000000001": [1],
    "i <= 0.99999999999999999999": [0],
    "i > 1e-400 AND i < 2.5": [1],
    "i >= 9223372036854775806.5": [2**63 - 1],
    "i > 9223372036854775807.5": [],
    "i = 0.5": [],
}


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("how", ["text", "built"])
def test_decimals_are_exact_on_integers(how: str, rows: int) -> None:
    values = [0, 1, 2**53, 2**53 + 1, 2**63 - 1]
    matcher = gm.Matcher({"i": "int64"}, device="cpu")
    for text in DECIMALS:
        matcher.add({f"{text} {row}": text if how == "text" else gm.parse(text) for row in range(rows)})
    found = list(matcher.match({"i": values}))
    for text, right in DECIMALS.items():
        for row in range(rows):
            assert [value for value, ids in zip(values, found, strict=True) if f"{text} {row}" in ids] == right


def test_decimals_as_constants() -> None:
    matcher = gm.Matcher({"i": "int64", "x": "float64"}, device="cpu")
    matcher.add({"built": col("i") == Decimal("9007199254740993.0"), "float": col("x") == Decimal("0.1")})
    value = pa.array([Decimal("9007199254740993.00"), Decimal("0.10")])
    matcher.add_predicates(
        pa.table({"id": ["rows", "tenth"], "attribute": ["i", "x"], "op": ["=", "="], "value": value})
    )
    assert matcher.match_one({"i": 2**53 + 1}) == ["built", "rows"]
    assert matcher.match_one({"i": 2**53, "x": 0.1}) == ["float", "tenth"]
    with pytest.raises(gm.SchemaError, match="Decimal"):
        col("i") == Decimal("nan")  # noqa: B015
    text = str(col("i") == Decimal("9007199254740993"))
    assert text == "i = 9007199254740993"


def test_a_decimal_on_a_float_is_the_nearest_float() -> None:
    matcher = gm.Matcher({"x": "float64"}, device="cpu")
    matcher.add({"decimal": "x = 9007199254740993.0", "integer": "x = 9007199254740993", "tenth": "x = 0.1"})
    assert list(matcher.match({"x": [2.0**53, 0.1]})) == [["decimal"], ["tenth"]]
    for text in ("x = 9007199254740993.0", "x = 9.007199254740993e15", "x = 1e-400"):
        assert gm.parse(str(gm.parse(text))) == gm.parse(text)
        assert not str(gm.parse(text)).removeprefix("x = ").isdigit()
    with pytest.raises(gm.ParseError, match="too small"):
        gm.parse("x = 1e-9999999999999999999999")


@pytest.mark.parametrize("value", [2.0**60, -(2.0**62), 1e16, 12345678901234567890.0, 1e300, 5e-324, 0.1, 1e22])
def test_floats_print_as_what_they_are(value: float) -> None:
    expr = col("n") == value
    assert gm.parse(str(expr)) == expr
    assert [item.values for item in gm.parse(str(expr)).predicates()] == [(value,)]
    matcher = gm.Matcher({"n": "int64"}, device="cpu")
    matcher.add({"a": expr, "b": str(expr)})
    if value == int(value) and abs(value) < 2**63:
        assert matcher.match_one({"n": int(value)}) == ["a", "b"]
        assert matcher.explain({"n": int(value)}, "a")
    assert matcher.match_one({"n": 1}) == []


@pytest.mark.parametrize("text", ["0e99999999999999999999", "-0.000000000000000000000", "0E-5"])
def test_zero_in_many_digits(text: str) -> None:
    assert gm.parse(f"n = {text}") == (col("n") == 0.0)


def unlike(count: int) -> list[str]:
    """Texts of which hardly two have the same shape."""
    rng = random.Random(1)
    tests = {
        "a": lambda: f"{rng.choice(['<', '>', '<>', '<=', '='])} {rng.randrange(100)}",
        "b": lambda: f"{rng.choice(['', 'NOT '])}BETWEEN {rng.randrange(50)} AND {rng.randrange(40, 100)}",
        "s": lambda: rng.choice(
            [f"LIKE 'w{rng.randrange(9)}%'", f">= 'w{rng.randrange(99)}'", "IN ('w1', 'w22', 'w3')"]
        ),
        "f": lambda: rng.choice(
            [f"> {rng.random():.3f}", f"NOT IN (0.5, {rng.random():.2f})", "IS NULL", "IS NOT NULL"]
        ),
        "d": lambda: f"{rng.choice(['<', '>='])} {rng.choice(['', 'DATE '])}'2024-0{rng.randrange(1, 10)}-15'",
    }
    texts = []
    for _ in range(count):
        text = "k" if rng.random() < 0.1 else ""
        for _ in range(rng.randrange(2, 7)):
            name = rng.choice("aabbssfd")
            test = f"{rng.choice(['', '', '', 'NOT '])}{name} {tests[name]()}"
            joined = rng.choice(["{} AND {}", "{} OR {}", "({}) AND {}", "NOT ({}) OR {}"])
            text = joined.format(text, test) if text else test
        texts.append(text)
    return texts


@pytest.mark.long
@pytest.mark.parametrize(("index", "count"), [("auto", 100_000), ("gem", 10_000), ("atree", 10_000)])
def test_many_texts_of_unlike_shapes(index: str, count: int) -> None:
    texts = unlike(count)
    assert len({divide(text)[0] for text in texts}) > 0.6 * count
    matcher = gm.Matcher({**SCHEMA, "k": "bool"}, index=index, device="cpu")
    matcher.add(dict(enumerate(texts)))
    rng = np.random.default_rng(2)
    events: list[dict[str, Any]] = [
        {
            "a": int(rng.integers(100)),
            "b": None if at == 3 else int(rng.integers(100)),
            "s": f"w{rng.integers(100)}",
            "f": None if at % 2 else float(rng.integers(4)) / 4,
            "d": np.datetime64("2024-01-01") + int(rng.integers(366)),
            "k": [True, False, None][at % 3],
        }
        for at in range(12)
    ]
    found = matcher.match(events)
    sample = rng.choice(len(texts), 1500, replace=False)
    for at, event in enumerate(events):
        held = np.isin(sample, found.rows[found.offsets[at] : found.offsets[at + 1]])
        plain = {**event, "d": event["d"].item()}
        right = [evaluate(gm.parse(texts[row]), plain, matcher.schema) is True for row in sample.tolist()]
        assert held.tolist() == right
