"""How far expressions are split into clauses, and what of them stays a program."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.expr import Expr, Op, Predicate, evaluate, parse
from gpumatch.expr.evaluate import connect
from gpumatch.expr.normal import Elements, Form, Formula, Literal, Presence, Splitting, Values, normal_form, plain
from gpumatch.schema import Schema
from tests.conformance.strategies import events, expressions, schemas

PRODUCTS, SMALL, BRANCHES, NEVER = Splitting
KINDS = {name: "list<int64>" if name == "t" else "int64" for name in "abcdefght"}


def form(text: str, splitting: Splitting) -> Form:
    return normal_form(parse(text), lambda name: name == "t", splitting)


def sizes(found: Form) -> list[int]:
    return [len(clause) for clause in found.clauses]


def truth(found: Form, expr: Expr, event: dict[str, Any], schema: Schema) -> bool:
    """What a form says of an event, by the oracle's answers on single predicates."""

    def single(at: int) -> bool | None:
        item = expr.program[at]
        assert isinstance(item, Predicate)
        return evaluate(Expr((Predicate(item.attribute, item.op, item.values),)), event, schema)

    def values(formula: Formula) -> bool | None:
        if isinstance(formula, int):
            return single(formula)
        return connect(formula[0], [values(part) for part in formula[1]])  # type: ignore[arg-type]

    def literal(one: Literal) -> bool | None:
        if isinstance(one, Values):
            return values(one.formula)
        if isinstance(one, Elements):
            held = single(one.predicate)
            return None if held is None else held != one.negated
        return evaluate(Expr((Predicate(one.attribute, "null", (), one.present),)), event, schema)

    stack: list[bool | None] = []
    for step in found.program:
        if isinstance(step, Op):
            stack[len(stack) - step.arity :] = [connect(step.kind, stack[len(stack) - step.arity :])]
        else:
            stack.append(step if isinstance(step, bool) else literal(step))
    assert len(stack) == (1 if found.program else 0)
    clauses = any(all(literal(one) is True for one in clause) for clause in found.clauses)
    return clauses and stack in ([], [True])


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[Expr], list[dict[str, Any]]]:
    schema = draw(schemas())
    return schema, draw(st.lists(expressions(schema, 12), max_size=4)), draw(st.lists(events(schema), max_size=6))


@pytest.mark.parametrize("splitting", Splitting)
@given(case=cases())
def test_a_form_is_true_where_the_expression_is(splitting: Splitting, case: tuple[Any, ...]) -> None:
    kinds, wanted, batch = case
    schema = Schema.of(kinds)
    for expr in wanted:
        plainer = plain(expr, ())
        found = normal_form(plainer, lambda name: schema[name].multi, splitting)
        for event in batch:
            assert truth(found, plainer, event, schema) == (evaluate(expr, event, schema) is True), (str(expr), found)
        leaves = sum(1 for item in plainer.program if not isinstance(item, Op))
        if splitting is not PRODUCTS:
            literals = sum(sizes(found)) + sum(1 for step in found.program if not isinstance(step, Op))
            assert literals <= (2 if splitting is SMALL else 1) * leaves
        if splitting is NEVER:
            assert len(found.clauses) <= 1


def test_products_are_made_only_where_they_are_asked_for() -> None:
    text = "(a = 1 OR b = 2) AND (c = 3 OR d = 4)"
    assert (sizes(form(text, PRODUCTS)), form(text, PRODUCTS).program) == ([2, 2, 2, 2], ())
    for splitting in (BRANCHES, NEVER):
        found = form(text, splitting)
        assert sizes(found) == [0]
        assert [step for step in found.program if isinstance(step, Op)] == [Op("or", 2), Op("or", 2), Op("and", 2)]


def test_an_or_of_conjunctions_is_split_into_branches() -> None:
    text = "a = 1 AND b = 2 OR NOT (c = 3 OR t = 4) OR (d = 5 OR e = 6)"
    assert (sizes(form(text, BRANCHES)), form(text, BRANCHES).program) == ([2, 2, 1, 1], ())
    never = form(text, NEVER)
    assert (sizes(never), never.program[-1]) == ([0], Op("or", 4))


@pytest.mark.parametrize("splitting", [BRANCHES, NEVER])
@pytest.mark.parametrize(
    ("text", "literals", "operators"),
    [
        ("a = 1 AND b = 2 AND (c = 3 OR d = 4)", 2, ["or"]),
        ("NOT (a = 1 OR b = 2 OR (c = 3 XOR d = 4))", 2, ["xor", "not"]),
        ("NOT (a = 1 OR NOT (b = 2 AND NOT (c = 3 AND d = 4)))", 2, ["and", "not"]),
        ("a = 1 OR b = 2 AND (c = 3 OR d = 4)", 0, ["or", "and", "or"]),
        ("a = 1 XOR b = 2", 0, ["xor"]),
        ("NOT (a = 1 XNOR b = 2)", 0, ["xnor", "not"]),
        ("a = 1 AND (b = 2 AND (c <> 3 OR d = 4))", 2, ["not", "or"]),
        ("a = 1 AND (b IS NOT NULL OR t <> 4)", 1, ["not", "not", "or"]),
        ("(a = 1 OR b = 1) AND (c = 1 OR d = 1) AND e = 1", 1, ["or", "or", "and"]),
    ],
)
def test_what_is_no_conjunction_is_a_program(
    splitting: Splitting, text: str, literals: int, operators: list[str]
) -> None:
    found = form(text, splitting)
    assert sizes(found) == [literals]
    assert [step.kind for step in found.program if isinstance(step, Op)] == operators


@pytest.mark.parametrize("splitting", Splitting)
def test_conditions_on_one_attribute_are_one_set(splitting: Splitting) -> None:
    found = form("(a = 1 OR a > 5 AND a < 9) AND (b = 1 XOR b IN (1, 2)) AND NOT a = 7", splitting)
    assert (sizes(found), found.program) == ([2], ())
    assert {one.attribute for one in found.clauses[0]} == {"a", "b"}


@pytest.mark.parametrize("splitting", [BRANCHES, NEVER])
def test_conditions_on_one_attribute_are_one_set_in_a_program(splitting: Splitting) -> None:
    found = form("(a > 1 AND a < 5 AND b = 1 OR c = 1 OR c = 2 OR c > 7) AND (d = 1 OR e = 1)", splitting)
    held = [step.attribute for step in found.program if isinstance(step, Values)]
    assert sorted(held) == ["a", "b", "c", "d", "e"]
    assert [step for step in found.program if isinstance(step, Op)] == [
        Op("and", 2),
        Op("or", 2),
        Op("or", 2),
        Op("and", 2),
    ]


@pytest.mark.parametrize("splitting", Splitting)
@pytest.mark.parametrize("text", ["a = 1 AND a IS NULL", "FALSE", "a = 1 AND FALSE", "t IS NULL AND t IS NOT NULL"])
def test_contradictions_have_no_clause(splitting: Splitting, text: str) -> None:
    assert form(text, splitting) == Form(())
    assert form(f"NOT ({text})", splitting).clauses


@pytest.mark.parametrize("splitting", Splitting)
def test_literals_of_a_program_are_not_negated(splitting: Splitting) -> None:
    many = " OR ".join(f"(a <> {i} AND b <> {i} XOR t <> {i}) AND (c IS NOT NULL XNOR d NOT IN (1))" for i in range(40))
    for step in form(many, splitting).program:
        assert not (isinstance(step, Elements) and step.negated)
        assert not (isinstance(step, Presence) and step.present)
        assert not (isinstance(step, Values) and isinstance(step.formula, tuple) and step.formula[0] == "not")


@pytest.mark.parametrize("splitting", Splitting)
def test_deep_nesting_needs_no_recursion(splitting: Splitting) -> None:
    program: list[Any] = [Predicate("a", "=", (1,))]
    for level in range(20_000):
        program += [Predicate("bc"[level % 2], "=", (level,)), Op(("and", "or", "xor")[level % 3], 2), Op("not", 1)]
    found = normal_form(Expr(tuple(program)), lambda name: False, splitting)
    assert found.clauses
    assert len(found.program) > 20_000


@pytest.mark.parametrize("splitting", Splitting)
@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_ten_thousand_predicates(splitting: Splitting, kind: str) -> None:
    predicates = [Predicate(f"a{at}", "=", (at,)) for at in range(10_000)]
    found = normal_form(Expr((*predicates, Op(kind, 10_000))), lambda name: False, splitting)  # type: ignore[arg-type]
    expected = {"and": ([10_000], 0), "or": ([1] * 10_000, 0), "xor": ([0], 10_001)}[kind]
    if kind == "or" and splitting is NEVER:
        expected = ([0], 10_001)
    assert (sizes(found), len(found.program)) == expected


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("(a = 1 OR b = 2) AND c = 3 AND d = 4", [3, 3]),
        ("a = 1 AND b = 2 OR c = 3", [2, 1]),
        ("(a = 1 OR b = 2 OR c = 3) AND (d = 4 OR e = 5) AND f = 6", None),  # would be 18 literals of 6
        ("(a = 1 XOR b = 2) AND c = 3", [3, 3]),
    ],
)
def test_small_products(text: str, clauses: list[int] | None) -> None:
    found = form(text, SMALL)
    if clauses is None:
        assert found == form(text, BRANCHES)
        assert found.program
    else:
        assert sizes(found) == clauses
        assert not found.program
