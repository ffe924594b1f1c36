"""add_predicates with rows of operators: the same as the expression as text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import Expr, Op, Predicate, evaluate
from gpumatch.expr.normal import Splitting
from gpumatch.expr.tree import MAX_DEPTH
from gpumatch.expr.typing_rules import pattern_of
from gpumatch.subscriptions import longform
from gpumatch.subscriptions.block import Attributes, Block
from gpumatch.subscriptions.longform import predicate_block
from tests.conformance.strategies import events, expressions, schemas
from tests.examples import examples
from tests.subscriptions.test_longform import operator, table, written

SCHEMA = {"i": "int64", "j": "int64", "x": "float64", "s": "string", "tags": "list<int64>"}
NUMBERS = {"a": "int64", "b": "int64", "c": "float64"}


def rows_of(number: Any, expr: Expr) -> list[tuple[Any, Any, str, Any]]:
    """The rows of an expression, constants as numbers."""
    made: list[tuple[Any, Any, str, Any]] = []
    for item in expr.program:
        if isinstance(item, Op):
            made.append((number, None, item.kind, item.arity))
        else:
            assert isinstance(item, Predicate)
            several = item.op in ("between", "in")
            made.append((number, item.attribute, operator(item), list(item.values) if several else item.values[0]))
    return made


def filled(given: Any, splitting: Splitting = Splitting.PRODUCTS, schema: dict[str, str] = SCHEMA) -> gm.Matcher:
    matcher = gm.Matcher(schema, index="scan")
    matcher._splitting = splitting
    matcher.add_predicates(given)
    return matcher


def block_of(given: Any, splitting: Splitting, schema: dict[str, str] = SCHEMA) -> Block:
    _, _, block, errors = predicate_block(Attributes.of(gm.Schema.of(schema)), pa.table(given), splitting)
    assert not errors
    return block


def is_writable(item: Any) -> bool:
    """TRUE, FALSE and NOT of < and its like have no row."""
    return isinstance(item, Op) or (
        isinstance(item, Predicate) and not (item.negated and item.op in ("<", "<=", ">", ">="))
    )


@st.composite
def number_expressions(draw: Any) -> Expr:
    """Comparisons with small integers, joined at random."""
    program: list[Any] = []
    height = 0
    for _ in range(draw(st.integers(1, 9))):
        op = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "between"]))
        values = tuple(draw(st.lists(st.integers(-3, 3), min_size=2, max_size=2)))[: 1 + (op == "between")]
        negated = op in ("=", "between") and draw(st.booleans())
        program.append(Predicate(draw(st.sampled_from("abc")), op, values, negated))
        height += 1
        for kind in draw(st.lists(st.sampled_from(["and", "or", "xor", "xnor", "not"]), max_size=2)):
            arity = {"not": 1, "xnor": 2}.get(kind, draw(st.integers(2, 4)))
            if arity <= height:
                program.append(Op(kind, arity))  # type: ignore[arg-type]
                height += 1 - arity
    if height > 1 and draw(st.booleans()):
        program.append(Op(draw(st.sampled_from(["and", "or"])), height))
        height = 1
    return Expr((*program, Op("and", height))) if height > 1 else Expr(tuple(program))


NUMBER_EVENTS = st.fixed_dictionaries({}, optional={name: st.integers(-4, 4) for name in "abc"})


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[Expr], list[dict[str, Any]]]:
    schema = draw(schemas(4))
    wanted = [e for e in draw(st.lists(expressions(schema, 10), max_size=8)) if all(map(is_writable, e.program))]
    return schema, wanted, draw(st.lists(events(schema), min_size=1, max_size=6))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=examples(200))
@given(
    wanted=st.lists(number_expressions(), max_size=8),
    batch=st.lists(NUMBER_EVENTS, min_size=1, max_size=8),
    splitting=st.sampled_from(Splitting),
    mixed=st.booleans(),
    at_once=st.integers(1, 40),
)
def test_comparisons_of_numbers_equal_the_oracle(
    wanted: list[Expr], batch: list[dict[str, Any]], splitting: Splitting, mixed: bool, at_once: int
) -> None:
    made = []
    for number, expr in enumerate(wanted):
        rows = rows_of(number, expr)
        left_out = number % 2 and rows[-1][2] == "and"  # what is left at the end is joined by AND anyhow
        made += rows[:-1] if left_out else rows
    columns: dict[str, Any] = table(*(_shuffled(made, at_once) if mixed else made))
    columns["value"] = pa.array(columns["value"], pa.int64())
    columns["values"] = pa.array(columns["values"], pa.list_(pa.int64()))
    columns["id"], columns["op"] = pa.array(columns["id"], pa.int64()), pa.array(columns["op"], pa.string())
    columns["attribute"] = pa.array(columns["attribute"], pa.string())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longform, "_AT_ONCE", at_once)
        matcher = filled(columns, splitting, NUMBERS)
    schema = gm.Schema.of(NUMBERS)
    right = [[at for at, expr in enumerate(wanted) if evaluate(expr, event, schema) is True] for event in batch]
    assert [sorted(ids) for ids in matcher.match(batch)] == right, [str(expr) for expr in wanted]
    for number, event in ((number, event) for number in range(len(wanted)) for event in batch):
        assert bool(matcher.explain(event, number)) == (evaluate(wanted[number], event, schema) is True)


def _shuffled(rows: list[Any], seed: int) -> list[Any]:
    """The rows of all ids mixed, those of each in their order."""
    rng = np.random.default_rng(seed)
    waiting: dict[Any, list[Any]] = {}
    for row in rows:
        waiting.setdefault(row[0], []).append(row)
    mixed = []
    while waiting:
        name = list(waiting)[int(rng.integers(len(waiting)))]
        mixed.append(waiting[name].pop(0))
        if not waiting[name]:
            del waiting[name]
    return mixed


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), splitting=st.sampled_from(Splitting))
def test_texts_equal_the_oracle(case: tuple[Any, ...], splitting: Splitting) -> None:
    schema, wanted, batch = case
    made: list[tuple[Any, Any, str, Any]] = []
    for number, expr in enumerate(wanted):
        for item in expr.program:
            if isinstance(item, Op):
                made.append((number, None, f" {item.kind.upper()} ", str(item.arity)))
                continue
            assert isinstance(item, Predicate)
            constants: Any = [written(value) for value in item.values]
            if item.op in ("like", "ilike"):
                constants = [pattern_of(item.values, "")]
            if item.op not in ("between", "in"):
                constants = constants[0] if constants else None
            made.append((number, item.attribute, operator(item), constants))
    columns: dict[str, Any] = table(*made)
    columns["value"] = pa.array(columns["value"], pa.string())
    columns["values"] = pa.array(columns["values"], pa.list_(pa.string()))
    columns["id"], columns["op"] = pa.array(columns["id"], pa.int64()), pa.array(columns["op"], pa.string())
    columns["attribute"] = pa.array(columns["attribute"], pa.string())
    typed = gm.Schema.of(schema)
    right = [[at for at, expr in enumerate(wanted) if evaluate(expr, event, typed) is True] for event in batch]
    assert list(filled(columns, splitting, schema).match(batch)) == right, [str(expr) for expr in wanted]


EXAMPLE = [
    ("p", "i", "=", 1),
    ("p", "j", "<>", 2),
    ("p", "i", "between", [5, 9]),
    ("p", None, "Or", 3),
    ("p", None, "not", None),
    ("p", "x", ">", 0),
    ("q", "i", "=", 1),
    ("q", "j", "=", 2),
    ("q", None, "XOR", None),
    ("q", None, "NOT", 1),
    ("r", "j", "=", 2),
]
EXAMPLE_TEXTS = {
    "p": "NOT (i = 1 OR j <> 2 OR i BETWEEN 5 AND 9) AND x > 0",
    "q": "NOT (i = 1 XOR j = 2)",
    "r": "j = 2",
}
FRAMES = [
    lambda columns: columns,
    pa.table,
    pd.DataFrame,
    pl.DataFrame,
    lambda columns: pd.DataFrame(columns).astype({"op": "category", "attribute": "category"}),
]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("splitting", Splitting)
def test_any_kind_of_table_is_as_the_text(frame: Any, splitting: Splitting) -> None:
    matcher = filled(frame(table(*EXAMPLE)), splitting)
    same = gm.Matcher(SCHEMA)
    same.add(EXAMPLE_TEXTS)
    batch = [{"i": i, "j": j, "x": x} for i in (None, 1, 3, 7) for j in (None, 2, 3) for x in (None, 0.0, 1.0)]
    assert list(matcher.match(batch)) == list(same.match(batch))
    assert list(matcher.ids) == ["p", "q", "r"]


def test_through_the_a_tree() -> None:
    matcher, same = gm.Matcher(SCHEMA, index="atree"), gm.Matcher(SCHEMA, index="atree")
    matcher.add_predicates(table(*EXAMPLE))
    same.add(EXAMPLE_TEXTS)
    assert matcher.stats()["clauses"] == 3
    batch = [{"i": i, "j": j, "x": x} for i in (None, 1, 3, 7) for j in (None, 2, 3) for x in (None, 0.0, 1.0)]
    assert list(matcher.match(batch)) == list(same.match(batch))
    same.replace({"r": "j = 2 OR i = 3"})
    same.compact()
    assert same.stats()["clauses"] == 3


def test_operators_alone_are_no_subscription() -> None:
    rows = {"id": [1], "attribute": pa.nulls(1), "op": ["and"], "value": pa.nulls(1)}
    with pytest.raises(gm.SchemaError, match="AND at position 0 takes 2 operands, found 0 before it"):
        filled(rows)


def test_a_column_of_lists_holds_no_number_of_operands() -> None:
    rows = {"id": [1, 1, 1], "attribute": ["i", "j", None], "op": ["is null", "is null", "or"]}
    assert filled({**rows, "value": pa.array([None, None, None], pa.list_(pa.int64()))}).match_one({}) == [1]
    with pytest.raises(gm.SchemaError, match=r"a whole number of 2 or more, or null for 2; found \[2\]"):
        filled({**rows, "value": [None, None, [2]]})


def test_numbers_of_operands_may_be_floats_or_text() -> None:
    for value in (pa.array([1.0, 2.0, 3.0, 3.0]), pa.array(["1", "2", "3", " 3 "])):
        rows = {"id": [1] * 4, "attribute": ["i", "j", "x", None], "op": ["=", "=", "=", "or"], "value": value}
        assert list(filled(rows).match([{"i": 1}, {"j": 2}, {"x": 3.0}, {"i": 0}])) == [[1], [1], [1], []]


def test_without_values_of_any_kind() -> None:
    rows = {"id": [1, 1, 1], "attribute": ["i", "j", None], "op": ["is null", "is null", "or"], "values": pa.nulls(3)}
    assert list(filled(rows).match([{"i": 1}, {"i": 1, "j": 1}])) == [[1], []]


def test_the_outermost_and_has_literals_and_one_program() -> None:
    rows = [(1, "i", "=", 1), (1, "j", "=", 2), (1, "x", "<", 3), (1, None, "or", 2), (1, "i", ">", 0)]
    block = block_of(table(*rows, (1, None, "and", 3)), Splitting.NEVER)
    assert np.diff(block.clause_ptr).tolist() == [1]  # i = 1 and i > 0 are one range
    assert (block.predicates.lo[0], block.predicates.hi[0], block.program_item.tolist()) == (1, 1, [1, 2, -19])
    assert block_of(table(*rows), Splitting.NEVER).program_item.tolist() == [1, 2, -19]


def test_an_or_of_conjunctions_is_split_where_branches_are() -> None:
    rows = [(1, "i", "=", 1), (1, "j", "=", 2), (1, None, "and", 2), (1, "x", "<", 3), (1, None, "or", 2)]
    block = block_of(table(*rows), Splitting.BRANCHES)
    assert (np.diff(block.clause_ptr).tolist(), len(block.program_item)) == ([2, 1], 0)
    never = block_of(table(*rows), Splitting.NEVER)
    assert (np.diff(never.clause_ptr).tolist(), len(never.program_item)) == ([0], 5)


def test_equal_predicates_are_one() -> None:
    rng = np.random.default_rng(3)
    count = 3000
    values = rng.integers(0, 10, (count, 3))
    columns = {
        "id": np.repeat(np.arange(count), 5),
        "attribute": np.tile(np.array(["i", "j", None, "x", None]), count),
        "op": np.tile(np.array(["=", "<", "xor", ">", "or"]), count),
        "value": np.stack([*values.T[:2], np.full(count, 2), values[:, 2], np.full(count, 2)], axis=1).ravel(),
    }
    block = block_of(columns, Splitting.NEVER)
    assert (len(block.predicates), len(block.program_item)) == (30, 5 * len(np.unique(values, axis=0)))
    matcher = filled(columns, Splitting.NEVER)
    batch = rng.integers(0, 10, (20, 3))
    i, j, x = batch.T
    found = matcher.match({"i": i, "j": j, "x": x.astype(float)})
    holds = ((i[:, None] == values[:, 0]) ^ (j[:, None] < values[:, 1])) | (x[:, None] > values[:, 2])
    assert list(found) == [np.flatnonzero(row).tolist() for row in holds]
    gone = list(range(0, count, 3))
    matcher.remove(gone)
    matcher.compact()
    assert matcher.stats()["predicates"] == 30
    holds[:, gone] = False
    found = matcher.match({"i": i, "j": j, "x": x.astype(float)})
    assert list(found) == [np.flatnonzero(row).tolist() for row in holds]


@pytest.mark.long
@pytest.mark.parametrize("splitting", Splitting)
@pytest.mark.parametrize("text", [False, True])
def test_depth_12_and_ten_thousand_predicates(splitting: Splitting, text: bool) -> None:
    rows: list[tuple[Any, Any, str, Any]] = [("deep", "i", "=", 1)]
    for level in range(12):
        kind = ("and", "or", "xor", "xnor")[level % 4]
        rows += [("deep", "j", "<", level), ("deep", None, kind, 2), ("deep", None, "not", None)]
    for at in range(5000):
        rows += [("long", "i", "=", at), ("long", "j", "=", at + 1), ("long", None, "xor", 2)]
    rows.append(("long", None, "or", 5000))
    if text:
        rows.append(("long", "tags", "in", [1, 2]))
    matcher = filled(table(*rows), splitting)
    deep: Any = gm.col("i") == 1
    for level in range(12):
        other = gm.col("j") < level
        deep = ~(deep & other, deep | other, deep ^ other, deep.xnor(other))[level % 4]
    for event in [{"i": 1, "j": 3}, {"i": 7, "j": 7}, {"i": 7, "j": 8}, {"i": 1}, {"j": -1}, {}]:
        expected = ["deep"] if evaluate(deep, event, matcher.schema) is True else []
        pairs = {(at, at + 1) for at in range(5000)}
        known = {"i", "j"} <= set(event) and (event["i"] < 5000 or event["j"] <= 5000)
        if known and (event["i"], event["j"]) not in pairs:
            expected.append("long")
        held = {**event, "tags": [2]} if text else event
        assert matcher.match_one(held) == expected, event


def test_nesting_has_a_limit() -> None:
    rows: list[tuple[Any, Any, str, Any]] = [(1, "i", "=", 1)]
    for _ in range(MAX_DEPTH + 1):
        rows += [(1, None, "not", None)]
    good = [(2, *row[1:]) for row in rows[:-1]]
    for splitting in Splitting:
        with pytest.raises(gm.ParseError, match="subscription 1: the expression is nested more than 1000 levels deep"):
            filled(table(*rows), splitting)
        assert filled(table(*good), splitting).match_one({"i": 1}) == [2]
        chain = [(3, "i", "=", 0)] + [(3, "i", "=", at) for at in range(1, 4000)]
        joined = [row for at in chain for row in ((at,) if at[3] == 0 else (at, (3, None, "or", 2)))]
        assert filled(table(*joined), splitting).match_one({"i": 3999}) == [3]


@pytest.mark.parametrize("splitting", Splitting)
def test_explain_knows_programs(splitting: Splitting) -> None:
    rows = [
        (1, "i", ">=", -(2**63)),
        (1, None, "not", None),
        (1, "j", ">", 2**63 - 1),
        (1, "x", "<>", 2),
        (1, None, "or", 3),
    ]
    matcher = filled(table(*rows, (1, "j", "<", 5)), splitting)
    told = matcher.explain({"j": 3, "x": 1.0}, 1)
    assert bool(told)
    assert len(told.decided) == 2
    assert [bool(matcher.explain(event, 1)) for event in ({"j": 3}, {"i": 1, "j": 3}, {"j": 3, "x": 2.0})] == [
        False
    ] * 3
    assert matcher.match([{"j": 3, "x": 1.0}, {"j": 3}, {"i": 1, "j": 3}]).counts.tolist() == [1, 0, 0]


WRONG: list[tuple[list[tuple[Any, ...]], str]] = [
    ([("i", "=", 1), (None, "or", 2)], "OR at position 2 takes 2 operands, found 1 before it"),
    ([(None, "not", None), ("i", "=", 1)], "NOT at position 1 takes 1 operand, found 0"),
    ([("i", "=", 1), ("j", "=", 1), (None, "and", 2), (None, "xor", 3)], "XOR at position 4 takes 3"),
    ([("i", "=", 1), (None, "and", 1)], "AND at position 2 needs the number of its operands in 'value', a"),
    ([("i", "=", 1), ("i", "=", 1), (None, "or", 0)], "a whole number of 2 or more, or null for 2; found 0"),
    ([("i", "=", 1), ("i", "=", 1), (None, "or", -2)], "found -2"),
    (
        [("i", "=", 1), (None, "not", 2)],
        "NOT at position 2 needs the number of its operands in 'value', 1 ",
    ),
    ([("i", "=", 1), ("i", "=", 1), ("i", "=", 1), (None, "xnor", 3)], "2 or null; found 3"),
    (
        [("i", "=", 1), ("i", "=", 1), ("i", "or", 2)],
        "joins conditions and takes no attribute, found 'i'; leave it null",
    ),
    ([("i", "=", 1), ("i", "=", 1), (None, "or", [2])], "OR at position 3 takes no values, found [2]"),
    ([("i", "=", 1), ("i", "=", 1), (None, "xnr", 2)], "unknown operator 'xnr'; did you mean 'xnor'"),
    ([("i", "=", 1), (None, "nott", None), (None, "or", 5)], "unknown operator 'nott'; did you mean 'not'"),
    ([("s", "=", "x"), (None, "or", "2")], "takes 2 operands, found 1"),
    ([("s", "=", "x"), ("s", "=", "x"), (None, "or", "two")], "found 'two'"),
    ([("s", "=", "x"), ("s", "=", "x"), (None, "or", "2.5")], "found '2.5'"),
    ([("s", "=", "x"), ("i", "=", "x"), (None, "or", "2")], "expected a number"),
    ([("i", "=", 1.0), ("i", "=", 1.0), (None, "or", 2.5)], "found 2.5"),
]


@pytest.mark.parametrize(("rows", "message"), WRONG)
@pytest.mark.parametrize("splitting", Splitting)
def test_bad_operators_add_nothing_or_are_collected(rows: list[Any], message: str, splitting: Splitting) -> None:
    good: Any = type(rows[0][2] if rows[0][2] is not None else 1)(4)
    made = table((1, "i", "=", good), *((2, *row) for row in rows), (3, "i", "=", good), (3, "j", "=", good))
    made = {name: [*column, end] for (name, column), end in zip(made.items(), [3, None, "or", None, None], strict=True)}
    matcher = gm.Matcher(SCHEMA, index="scan")
    matcher._splitting = splitting
    with pytest.raises(gm.GpumatchError) as caught:
        matcher.add_predicates(made)
    assert message in str(caught.value)
    assert len(matcher) == 0
    rejected = matcher.add_predicates(made, on_error="collect")
    assert [(one.id, message in one.message) for one in rejected] == [(2, True)]
    assert matcher.match_one({"i": 4}) == [1, 3]


def test_operators_take_their_operands_from_a_column_of_decimals() -> None:
    matcher = gm.Matcher({"n": "int64"}, device="cpu")
    value = pa.array([Decimal(5), Decimal(6), Decimal(2)], pa.decimal128(20, 0))
    rows = {"id": [1, 1, 1], "attribute": ["n", "n", None], "op": ["=", "=", "or"], "value": value}
    matcher.add_predicates(pa.table(rows))
    assert matcher.match({"n": [5, 6, 7]}).counts.tolist() == [1, 1, 0]
