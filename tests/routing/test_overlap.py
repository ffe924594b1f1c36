"""Overlap: never a false no, and exact where expressions are clauses alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import Expr, Op, Predicate, evaluate
from gpumatch.expr.normal import normal_form
from gpumatch.routing.overlays.overlap import Overlaps, overlap
from tests.conformance.strategies import events, expressions, schemas
from tests.examples import examples

SCHEMA = {
    "i": "int64",
    "small": "int8",
    "x": "float64",
    "y": "float32",
    "s": "string",
    "flag": "bool",
    "tags": "list<string>",
    "day": "date",
}


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], Expr, Expr, list[dict[str, Any]]]:
    schema = draw(schemas(2))
    one, other = draw(expressions(schema, 4)), draw(expressions(schema, 4))
    return schema, one, other, draw(st.lists(events(schema), min_size=1, max_size=4))


@pytest.mark.long
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(case=cases())
def test_an_event_that_satisfies_both_is_overlap(case: Any) -> None:
    schema, one, other, batch = case
    typed = gm.Schema.of(schema)
    table = Overlaps(schema)
    found = table.overlap(one, other)
    assert found == table.overlap(other, one)
    for event in batch:
        mine, theirs = (evaluate(expr, event, typed) is True for expr in (one, other))
        assert not (mine and theirs) or found, f"{event}: {one}; {other}"
        assert not mine or table.satisfiable(one)


# Small domains: every event there is

SMALL = {"b": "bool", "n": "int8", "t": "list<bool>", "u": "list<int8>"}
NUMBERS = [-128, -127, 3, 4, 127]
# Constants with their neighbours, and what lies between them: an event may have integers wider than the type.
INTEGERS = [-2000, -1000, -500, -129, -128, -127, -126, 0, 3, 4, 5, 126, 127, 128, 129]
VALUES: dict[str, list[Any]] = {
    "b": [None, False, True],
    "n": [None, *INTEGERS],
    "t": [None, [], [False], [True], [False, True]],
    "u": [None, [], *([a, b] for a, b in product(INTEGERS, repeat=2))],
}


@st.composite
def small_predicates(draw: Any, names: list[str]) -> Predicate:
    name = draw(st.sampled_from(names))
    constants = st.booleans() if name in "bt" else st.sampled_from([-1000, -129, *NUMBERS, 128, 3.5])
    op = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "between", "in", "null"]))
    size = {"between": 2, "in": draw(st.integers(0, 2)), "null": 0}.get(op, 1)
    values = tuple(draw(constants) for _ in range(size))
    return Predicate(name, op, values, draw(st.booleans()))  # type: ignore[arg-type]


def conjunction(literals: list[Predicate]) -> Expr:
    return Expr((*literals, Op("and", len(literals)))) if len(literals) > 1 else Expr((literals[0],))


@settings(max_examples=examples(200))
@given(
    one=st.lists(small_predicates(list(SMALL)), min_size=1, max_size=4),
    other=st.lists(small_predicates(list(SMALL)), min_size=1, max_size=4),
)
def test_conjunctions_are_exact(one: list[Predicate], other: list[Predicate]) -> None:
    # Attributes of a conjunction are independent of each other: it can be true if each of them alone can. Elements
    # too: two of them may be enough or not, so lists are limited to two positive conditions.
    typed = gm.Schema.of(SMALL)
    both = one + other
    for name in ("t", "u"):
        positive = [p for p in both if p.attribute == name and not p.negated and p.op != "null"]
        if len(positive) > 2:
            return
    possible = True
    for name, values in VALUES.items():
        mine = [p for p in both if p.attribute == name]
        if mine:
            expr = conjunction(mine)
            possible &= any(evaluate(expr, {name: value}, typed) is True for value in values)
    assert overlap(conjunction(one), conjunction(other), SMALL) == possible


@st.composite
def small_expressions(draw: Any) -> Expr:
    literals = draw(st.lists(small_predicates(["b", "n", "t"]), min_size=1, max_size=3))
    expr = Expr((literals[0],))
    for literal in literals[1:]:
        right = Expr((literal,))
        kind = draw(st.sampled_from(["and", "or", "xor", "not"]))
        expr = {"and": expr & right, "or": expr | right, "xor": expr ^ right, "not": ~expr & right}[kind]
    return expr


@settings(max_examples=examples(100))
@given(one=small_expressions(), other=small_expressions())
def test_expressions_without_a_program_are_exact(one: Expr, other: Expr) -> None:
    typed = gm.Schema.of(SMALL)
    names = ["b", "n", "t"]
    for expr in (one, other):
        assert not normal_form(expr, lambda name: typed[name].multi).program
    every = (dict(zip(names, values, strict=True)) for values in product(*(VALUES[name] for name in names)))
    possible = any(evaluate(one, e, typed) is True and evaluate(other, e, typed) is True for e in every)
    assert overlap(one, other, SMALL) == possible


# By hand


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("i > 1", "i < 2", False),
        ("i > 1", "i < 3", True),
        ("x > 1", "x < 2", True),
        ("i = 9223372036854775807", "i > 9223372036854775806", True),
        ("i >= 9223372036854775808", "TRUE", False),
        ("i < -9223372036854775808", "TRUE", False),
        ("small > 127", "TRUE", True),  # an event may have 300
        ("small >= 127", "small <> 0", True),
        ("TRUE", "TRUE", True),
        ("FALSE", "TRUE", False),
        ("i IN ()", "TRUE", False),
        ("i = 1 OR i = 5", "i BETWEEN 2 AND 4", False),
        ("i = 1 OR i = 5", "i BETWEEN 2 AND 5", True),
        ("i NOT IN (1, 2, 3)", "i BETWEEN 1 AND 3", False),
        ("i IS NULL", "i = 1", False),
        ("i IS NULL", "x = 1", True),
        ("i IS NULL", "i IS NOT NULL", False),
        ("NOT (i = 1)", "i IS NULL", False),
        ("flag = TRUE", "flag <> TRUE", False),
        ("s LIKE 'ab%'", "s LIKE 'abc%'", True),
        ("s LIKE 'ab%'", "s LIKE 'b%'", False),
        ("s LIKE 'ab'", "s LIKE 'abc%'", False),
        ("s LIKE '%a'", "s IS NULL", False),
        ("s LIKE '%a'", "s = 'b'", True),  # which patterns are no prefixes is not looked at
        ("s NOT ILIKE 'A%' AND i = 1", "i = 2", False),
        ("flag IS NOT TRUE", "flag = TRUE", False),
        ("flag IS NOT TRUE", "flag IS NULL", True),
        ("i IS NOT DISTINCT FROM 3", "i > 3", False),
        ("i IS DISTINCT FROM 3", "i >= 3", True),
        ("s > 'a'", "s < 'a\0'", False),
        ("s > 'a'", "s <= 'a\0'", True),
        ("y > 0.1", "y < 0.1000000001", False),
        ("x > 0.1", "x < 0.1000000001", True),
        ("y > 1e300", "y < 1e308", False),
        ("y > 1e300", "TRUE", True),
        ("day >= DATE '9999-12-31'", "day = DATE '9999-12-31'", True),
        ("tags = 'a'", "tags = 'b'", True),
        ("tags = 'a'", "NOT tags = 'a'", False),
        ("tags LIKE 'a%'", "NOT tags = 'a'", True),
        ("tags LIKE '%a'", "tags IS NULL", False),
        ("tags LIKE '%a' AND tags = 'b'", "NOT tags = 'b'", False),
        ("tags IN ('a', 'b')", "NOT tags IN ('a', 'b', 'c')", False),
        ("tags = 'a' AND NOT tags = 'b'", "tags = 'c' AND NOT tags = 'd'", True),
        ("tags = 'a' AND NOT tags = 'b'", "tags = 'b'", False),
        ("NOT tags = 'a'", "NOT tags <> 'a'", False),
        ("i = 1 XOR x = 1", "i = 1 AND x = 1", False),
        ("i = 1 AND x = 1", "i = 2 AND x = 1 OR x = 2", False),
    ],
)
def test_by_hand(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other, SCHEMA) is expected
    assert overlap(other, one, SCHEMA) is expected


def test_no_float_lies_between_the_least_negative_one_and_zero() -> None:
    least = gm.col("x") > -5e-324
    assert not overlap(least, "x < 0", SCHEMA)
    assert overlap(least, "x <= 0", SCHEMA)


def test_infinities_are_values() -> None:
    infinite = gm.col("x") == float("inf")
    assert overlap(infinite, "x > 1e308", SCHEMA)
    assert not overlap(infinite, gm.col("x") < float("inf"), SCHEMA)
    assert not overlap(gm.col("x") > float("inf"), "TRUE", SCHEMA)
    assert overlap(gm.col("y") == float("-inf"), "y < 0", SCHEMA)


def test_a_program_is_taken_as_possible() -> None:
    # (i=0 OR x=0) AND … over many pairs cannot be multiplied out: the rest is a program.
    schema = {f"a{at}": "int64" for at in range(40)}
    hard = " AND ".join(f"(a{at} = 0 OR a{at + 1} = 1)" for at in range(0, 40, 2))
    assert normal_form(gm.expr.parse(hard), lambda name: False).program
    table = Overlaps(schema)
    assert table.overlap(hard, "a38 = 7 AND a39 = 7")  # never true of an event, and not seen
    assert not table.overlap(f"({hard}) AND a0 = 3", "a0 = 4")


def test_expressions_are_prepared_once() -> None:
    table = Overlaps(SCHEMA)
    assert table.prepare("i > 1") is table.prepare("i > 1")
    assert table.prepare(gm.col("i") > 1) is table.prepare(gm.col("i") > 1)
    with pytest.raises(gm.SchemaError, match="flag"):
        table.prepare(gm.col("flag") == 1)  # equal to TRUE for Python
    assert table.satisfiable(gm.col("flag") == True)  # noqa: E712


def test_what_does_not_suit_the_schema_is_an_error() -> None:
    table = Overlaps(SCHEMA)
    with pytest.raises(gm.SchemaError, match="unknown attribute 'z'"):
        table.overlap("i = 1", "z = 1")
    with pytest.raises(gm.SchemaError, match="expected a number"):
        table.prepare("i = 'a'")
    with pytest.raises(gm.ParseError):
        table.prepare("i >")
    with pytest.raises(gm.SchemaError, match="LIKE"):
        table.prepare("i LIKE 'a%'")
