"""explain: which predicate decided, and the expressions of subscriptions that were never text."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.explain import Explanation, Step
from gpumatch.expr import evaluate, parse
from tests.conformance.strategies import events, expressions, schemas
from tests.examples import examples

SCHEMA = {
    "i": "int64",
    "x": "float64",
    "s": "string",
    "b": "bool",
    "d": "date",
    "t": "timestamp",
    "z": "timestamp[us, tz=Europe/Berlin]",
    "tags": "list<string>",
}


def explained(expression: str, event: dict[str, Any]) -> Explanation:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": expression})
    return matcher.explain(event, "a")


@pytest.mark.parametrize(
    ("expression", "event", "result", "decided"),
    [
        ("i = 1 AND x > 5", {"i": 1, "x": 6.0}, True, ["i = 1", "x > 5"]),
        ("i = 1 AND x > 5", {"i": 1, "x": 5.0}, False, ["x > 5"]),
        ("i = 1 AND x > 5", {"i": 2, "x": 5.0}, False, ["i = 1", "x > 5"]),
        ("i = 1 AND x > 5", {"i": 1}, None, ["x > 5"]),
        ("i = 1 AND x > 5", {"i": 2}, False, ["i = 1"]),
        ("i = 1 OR x > 5", {"i": 2, "x": 6.0}, True, ["x > 5"]),
        ("i = 1 OR x > 5", {"i": 2, "x": 1.0}, False, ["i = 1", "x > 5"]),
        ("i = 1 OR x > 5", {"i": 2}, None, ["x > 5"]),
        ("i = 1 XOR x > 5", {"i": 1, "x": 1.0}, True, ["i = 1", "x > 5"]),
        ("i = 1 XOR x > 5", {"i": 1}, None, ["x > 5"]),
        ("NOT (i = 1 AND x > 5)", {"i": 1, "x": 1.0}, True, ["x > 5"]),
        ("i IS NULL", {}, True, ["i IS NULL"]),
        ("s LIKE 'a%' AND (i = 1 OR i = 2)", {"s": "ab", "i": 2}, True, ["s LIKE 'a%'", "i = 2"]),
        ("s LIKE '%b_' AND i = 1", {"s": "abc", "i": 2}, False, ["i = 1"]),
        ("s NOT ILIKE 'A!_%' ESCAPE '!'", {"s": "a_c"}, False, ["s NOT ILIKE 'A!_%' ESCAPE '!'"]),
        ("s LIKE '%b' AND i IS DISTINCT FROM 1", {"i": 1}, False, ["i IS DISTINCT FROM 1"]),
        ("s LIKE '%b' OR i IS DISTINCT FROM 1", {}, True, ["i IS DISTINCT FROM 1"]),
        ("TRUE", {}, True, []),
        ("FALSE OR FALSE", {}, False, []),
    ],
)
def test_what_decided(expression: str, event: dict[str, Any], result: bool | None, decided: list[str]) -> None:
    found = explained(expression, event)
    assert (found.result, found.decided, bool(found)) == (result, decided, result is True)


def test_steps_hold_the_values() -> None:
    found = explained("i = 1 OR tags = 'a' OR x > 2 AND d < DATE '2024-01-01'", {"i": 2, "tags": ["b", None, "c"]})
    assert found.steps == (
        Step("i = 1", 2, False, False),
        Step("tags = 'a'", ["b", "c"], False, False),
        Step("x > 2", None, None, True),
        Step("d < DATE '2024-01-01'", None, None, True),
    )


def test_text() -> None:
    event = {"i": 2, "s": "it's", "tags": [], "t": dt.datetime(2024, 1, 1, 12), "b": True, "x": 0.1}
    assert str(explained("i = 1 AND s = 'x' OR tags = 'a' OR x IS NULL OR t IS NULL OR b = FALSE", event)) == (
        "'a' does not match: the expression is false\n"
        "  i = 1 AND s = 'x' OR tags = 'a' OR x IS NULL OR t IS NULL OR b = FALSE\n"
        "  i = 1       false    value: 2  <- decided\n"
        "  s = 'x'     false    value: 'it''s'  <- decided\n"
        "  tags = 'a'  false    value: []  <- decided\n"
        "  x IS NULL   false    value: 0.1  <- decided\n"
        "  t IS NULL   false    value: TIMESTAMP '2024-01-01 12:00:00'  <- decided\n"
        "  b = FALSE   false    value: TRUE  <- decided"
    )
    assert str(explained("i = 1", {"x": float("nan")})) == (
        "'a' does not match: the expression is unknown\n  i = 1\n  i = 1  unknown  value: missing  <- decided"
    )
    assert str(explained("i = 1", {"i": 1})).startswith("'a' matches\n")


def test_what_cannot_be_explained() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "i = 1"})
    for name in ("b", 1, None, ["a"]):
        with pytest.raises(gm.IdError, match="there is no subscription with the id"):
            matcher.explain({}, name)
    for event in ({"i": "x"}, 5, [{"i": 1}]):
        with pytest.raises(gm.SchemaError):
            matcher.explain(event, "a")  # type: ignore[arg-type]
    matcher.remove(["a"])
    with pytest.raises(gm.IdError):
        matcher.explain({}, "a")


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[gm.Expr], dict[str, Any]]:
    schema = draw(schemas(3))
    return schema, draw(st.lists(expressions(schema, 5), max_size=4)), draw(events(schema))


@settings(max_examples=examples(80))
@given(case=cases())
def test_explanations_agree_with_matches(case: tuple[dict[str, str], list[gm.Expr], dict[str, Any]]) -> None:
    schema, wanted, event = case
    matcher = gm.Matcher(schema)
    matcher.add(dict(enumerate(wanted)))
    found = [matcher.explain(event, k) for k in range(len(wanted))]
    assert [one.result for one in found] == [evaluate(e, event, gm.Schema.of(schema)) for e in wanted]
    assert [k for k, one in enumerate(found) if one] == matcher.match_one(event)
    assert [parse(one.expression) for one in found] == [parse(str(e)) for e in wanted]


BERLIN = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("name", "low", "high", "closed", "text"),
    [
        ("i", 1, 5, "both", "i BETWEEN 1 AND 5"),
        ("i", 1, 5, "neither", "i BETWEEN 2 AND 4"),
        ("i", 1, 1, "both", "i = 1"),
        ("i", 1, None, "both", "i >= 1"),
        ("i", None, 1.5, "both", "i <= 1"),
        ("i", 1, 1, "left", "FALSE"),
        ("i", -(2**63), None, "both", "i IS NOT NULL"),
        ("x", 0.5, 2.5, "both", "x BETWEEN 0.5 AND 2.5"),
        ("x", None, 0.0, "left", "x <= -5e-324"),
        ("x", 0.0, None, "right", "x >= 5e-324"),
        ("x", float("-inf"), None, "both", "x IS NOT NULL"),
        ("x", float("inf"), None, "both", "x >= INFINITY"),
        ("s", "a", "b", "both", "s >= 'a' AND s <= 'b'"),
        ("s", "a", "b", "neither", "s > 'a' AND s < 'b'"),
        ("s", "a", "a", "both", "s = 'a'"),
        ("s", None, "it's", "left", "s < 'it''s'"),
        ("b", True, None, "both", "b >= TRUE"),
        ("b", False, True, "both", "b IS NOT NULL"),
        ("d", dt.date(2024, 1, 1), dt.date(2024, 1, 31), "left", "d BETWEEN DATE '2024-01-01' AND DATE '2024-01-30'"),
        ("d", dt.date.max, None, "neither", "d > DATE '9999-12-31'"),
        ("d", None, dt.date.min, "neither", "d < DATE '0001-01-01'"),
        ("t", dt.datetime(2024, 1, 1), None, "both", "t >= TIMESTAMP '2024-01-01 00:00:00'"),
        ("t", None, dt.datetime(2024, 1, 1), "left", "t <= TIMESTAMP '2023-12-31 23:59:59.999999'"),
        ("z", dt.datetime(2024, 1, 1, tzinfo=BERLIN), None, "both", "z >= TIMESTAMP '2023-12-31 23:00:00Z'"),
    ],
)
def test_ranges_are_shown_as_expressions(name: str, low: Any, high: Any, closed: str, text: str) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_ranges([1], {name: ([low], [high])}, closed=closed)
    assert matcher.explain({}, 1).expression == text
    # It means the same: every end that an event can hold gives the same answer by text.
    matcher.add({2: text})
    for end in (low, high):
        if end is not None and not (name == "i" and end != int(end)):
            assert matcher.match_one({name: end}) in ([], [1, 2])
            assert bool(matcher.explain({name: end}, 1)) == (matcher.match_one({name: end}) == [1, 2])


def test_several_ranges_and_none() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_ranges([1, 2], {"i": ([1, None], [1, None]), "x": ([0.5, np.nan], None)})
    assert set(matcher.explain({}, 1).expression.split(" AND ")) == {"i = 1", "x >= 0.5"}
    assert matcher.explain({}, 2).expression == "TRUE"
    assert matcher.explain({"i": 1, "x": 0.0}, 1).decided == ["x >= 0.5"]


def test_tables_of_predicates_are_shown_as_expressions() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_predicates(
        {
            "id": ["n", "n", "s", "s", "t"],
            "attribute": ["i", "i", "s", "b", "t"],
            "op": [">", "<=", "like", "=", ">="],
            "value": ["1", "5", "a%", "true", "2024-01-01"],
        }
    )
    matcher.add_predicates({"id": ["f"], "attribute": ["x"], "op": [">"], "value": [2]})
    assert matcher.explain({}, "n").expression == "i > 1 AND i <= 5"
    assert matcher.explain({"s": "b", "b": True}, "s").decided == ["s LIKE 'a%'"]
    assert str(matcher.explain({"t": dt.datetime(2024, 1, 1)}, "t")).startswith("'t' matches")
    assert matcher.explain({"x": 2.0}, "f").result is False
    assert matcher.explain({"x": 2.5}, "f").result is True


def test_explanations_after_merging_and_removing() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_ranges(np.arange(100), {"s": ([f"{k:03}" for k in range(100)], None), "i": (np.arange(100), None)})
    matcher.match_one({})
    matcher.remove(range(0, 100, 2))
    matcher.add({k: f"tags = 't{k}'" for k in range(1000, 1100)})
    matcher.compact()
    assert set(matcher.explain({}, 51).expression.split(" AND ")) == {"i >= 51", "s >= '051'"}
    assert matcher.explain({"tags": ["t1050"]}, 1050).decided == ["tags = 't1050'"]
