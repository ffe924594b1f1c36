"""add_predicates against the oracle: the predicates of an id are one conjunction."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import Predicate, Timestamp, evaluate
from gpumatch.expr.constants import constant_text
from gpumatch.expr.times import timestamp_text
from gpumatch.expr.tree import Expr
from gpumatch.expr.typing_rules import pattern_of
from gpumatch.subscriptions.intake import Rejected
from tests.conformance.strategies import events, predicates, schemas
from tests.examples import examples

SCHEMA = {"i": "int64", "x": "float64", "s": "string", "b": "bool", "d": "date", "t": "timestamp"}
SCHEMA |= {"tags": "list<int64>"}
Case: TypeAlias = tuple[dict[str, str], list[tuple[int, Predicate]], list[dict[str, Any]]]


def table(*rows: tuple[Any, str, str, Any]) -> dict[str, list[Any]]:
    """Lists go to ``values``, everything else to ``value``."""
    several = [isinstance(row[3], list) for row in rows]
    return {
        "id": [row[0] for row in rows],
        "attribute": [row[1] for row in rows],
        "op": [row[2] for row in rows],
        "value": [None if many else row[3] for row, many in zip(rows, several, strict=True)],
        "values": [row[3] if many else None for row, many in zip(rows, several, strict=True)],
    }


def filled(given: Any) -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_predicates(given)
    return matcher


def written(value: Any) -> str:
    """A constant as the text of its value."""
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, (str, dt.date)):
        return str(value)
    return constant_text(value)


def operator(predicate: Predicate) -> str:
    if predicate.op == "null":
        return "is not null" if predicate.negated else "is null"
    if predicate.op == "is":
        return "is distinct from" if predicate.negated else "is not distinct from"
    if predicate.op in ("between", "in", "like", "ilike"):
        return f"not {predicate.op}" if predicate.negated else predicate.op
    return "<>" if predicate.negated else predicate.op


def expected(schema: dict[str, str], held: dict[int, list[Predicate]], batch: list[Any]) -> list[list[int]]:
    typed = gm.Schema.of(schema)
    return [
        [at for at, found in held.items() if all(evaluate(Expr((p,)), event, typed) is True for p in found)]
        for event in batch
    ]


@st.composite
def cases(draw: Any, kinds: tuple[str, ...] | None = None) -> Case:
    schema = draw(schemas(4)) if kinds is None else {f"a{i}": kind for i, kind in enumerate(kinds)}
    # Of the plain comparisons only = has a negated form in a table.
    one = predicates(schema).filter(lambda p: not (p.negated and p.op in ("<", "<=", ">", ">=")))
    rows = draw(st.lists(st.tuples(st.integers(0, 5), one), min_size=1, max_size=10))
    return schema, rows, draw(st.lists(events(schema), min_size=1, max_size=5))


def held_by_id(rows: list[tuple[int, Predicate]]) -> dict[int, list[Predicate]]:
    held: dict[int, list[Predicate]] = {}
    for number, predicate in rows:
        held.setdefault(number, []).append(predicate)
    return held


@settings(max_examples=examples(100))
@given(case=cases(), upper=st.booleans())
def test_texts_equal_the_oracle(case: Case, upper: bool) -> None:
    schema, rows, batch = case
    made = []
    for number, predicate in rows:
        op = operator(predicate)
        constants: Any = [written(value) for value in predicate.values]
        if predicate.op in ("like", "ilike"):
            constants = [pattern_of(predicate.values, "")]
        if predicate.op not in ("between", "in"):
            constants = constants[0] if constants else None
        made.append((number, predicate.attribute, f" {op.upper() if upper else op}  ", constants))
    columns: dict[str, Any] = table(*made)
    columns["value"] = pa.array(columns["value"], pa.string())
    columns["values"] = pa.array(columns["values"], pa.list_(pa.string()))
    matcher = gm.Matcher(schema)
    matcher.add_predicates(columns)
    held = held_by_id(rows)
    assert matcher.ids.tolist() == list(held)
    found = [sorted(ids) for ids in matcher.match(batch)]
    assert found == [sorted(ids) for ids in expected(schema, held, batch)]
    for number in held:
        assert bool(matcher.explain(batch[0], number)) == (number in found[0])


@settings(max_examples=examples(80))
@given(case=cases(("int64", "float64", "int8", "float32")), whole=st.booleans())
def test_numbers_equal_the_oracle(case: Case, whole: bool) -> None:
    schema, rows, batch = case
    kind = pa.int64() if whole else pa.float64()
    fitting = []
    for number, predicate in rows:
        if any(abs(value) > 2**62 or (whole and not isinstance(value, int)) for value in predicate.values):
            continue
        values = tuple(value if whole else float(value) for value in predicate.values)
        fitting.append((number, Predicate(predicate.attribute, predicate.op, values, predicate.negated)))
    made = []
    for number, p in fitting:
        constants = list(p.values) if p.op in ("between", "in") else next(iter(p.values), None)
        made.append((number, p.attribute, operator(p), constants))
    columns: dict[str, Any] = table(*made)
    columns["value"] = pa.array(columns["value"], kind)
    columns["values"] = pa.array(columns["values"], pa.list_(kind))
    columns["id"] = pa.array(columns["id"], pa.int64())
    matcher = gm.Matcher(schema)
    matcher.add_predicates(pa.table(columns) if fitting else {**columns, "attribute": pa.array([], pa.string())})
    held = held_by_id(fitting)
    found = [sorted(ids) for ids in matcher.match(batch)]
    assert found == [sorted(ids) for ids in expected(schema, held, batch)]
    for number in held:
        assert bool(matcher.explain(batch[0], number)) == (number in found[0])


def test_rows_of_an_id_join_wherever_they_stand() -> None:
    matcher = filled(table((1, "i", ">=", 1), (2, "i", "=", 5), (1, "i", "<=", 3), (1, "x", "between", [0.5, 2.0])))
    batch = [{"i": 2, "x": 1.0}, {"i": 2, "x": 0.25}, {"i": 5, "x": 1.0}, {"i": 2}]
    assert list(matcher.match(batch)) == [[1], [], [2], []]
    assert matcher.ids.tolist() == [1, 2]


def test_ranges_that_exclude_each_other_never_match() -> None:
    matcher = filled(table((1, "i", ">", 3), (1, "i", "<", 3), (2, "i", ">", 2**63 - 1), (3, "i", "<=", 3)))
    assert list(matcher.match([{"i": 3}, {"i": 2**63 - 1}])) == [[3], []]
    assert not matcher.explain({"i": 3}, 1)


def test_two_rows_on_a_list_need_not_hold_for_one_value() -> None:
    matcher = filled(table((1, "tags", ">", 5), (1, "tags", "<", 3), (2, "tags", "between", [3, 5])))
    assert list(matcher.match([{"tags": [1, 9]}, {"tags": [4]}, {"tags": []}, {}])) == [[1], [2], [], []]


def test_constants_of_temporal_columns() -> None:
    day = dt.date(2024, 1, 2)
    matcher = filled({"id": ["a"], "attribute": ["d"], "op": [">="], "value": [day]})
    matcher.add_predicates({"id": ["b", "c"], "attribute": ["t", "d"], "op": ["<", "="], "value": [str(day)] * 2})
    stamps = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))
    matcher.add_predicates({"id": ["e"], "attribute": ["t"], "op": ["in"], "values": [stamps.to_pylist()]})
    assert matcher.match_one({"d": day, "t": dt.datetime(2024, 1, 1)}) == ["a", "b", "c", "e"]
    assert matcher.match_one({"d": dt.date(2024, 1, 1), "t": dt.datetime(2024, 1, 2)}) == []


@pytest.mark.parametrize("text", ["2.5", " 2.5 ", "25e-1", "+2.5", "2.50"])
def test_numbers_as_text(text: str) -> None:
    matcher = filled({"id": [1, 2], "attribute": ["x", "i"], "op": ["=", "<"], "value": [text, text]})
    assert list(matcher.match([{"x": 2.5, "i": 2}, {"x": 2.0, "i": 3}])) == [[1, 2], []]


@pytest.mark.parametrize(("text", "ids"), [("INFINITY", [1]), ("-inf", []), ("+Infinity", [1])])
def test_infinity_as_text(text: str, ids: list[int]) -> None:
    assert filled({"id": [1], "attribute": ["x"], "op": ["<"], "value": [text]}).match_one({"x": 1e300}) == ids


def test_an_integer_text_keeps_all_its_bits() -> None:
    matcher = filled({"id": [1], "attribute": ["i"], "op": ["="], "value": [str(2**63 - 1)]})
    assert list(matcher.match([{"i": 2**63 - 1}, {"i": 2**63 - 2}])) == [[1], []]


def with_repeats(columns: dict[str, list[Any]], *more: Any) -> pa.Table:
    """The attributes in a dictionary that has some twice, and others that no row has."""
    names = pa.array([*columns["attribute"], *more], pa.string())
    encoded = pa.DictionaryArray.from_arrays(np.arange(len(columns["attribute"])), names)
    frame = pa.table(columns)
    return frame.set_column(frame.column_names.index("attribute"), "attribute", encoded)


FRAMES = [
    lambda columns: columns,
    pa.table,
    lambda columns: pa.table(columns).to_batches()[0],
    pd.DataFrame,
    pl.DataFrame,
    lambda columns: pd.DataFrame(columns).astype({"op": "category", "attribute": "category"}),
    lambda columns: pa.table(columns).set_column(0, "id", pa.array(columns["id"]).dictionary_encode()),
    with_repeats,
    lambda columns: with_repeats(columns, "nowhere"),
    lambda columns: with_repeats(columns, None),
]


@pytest.mark.parametrize("frame", FRAMES)
def test_any_kind_of_table(frame: Any) -> None:
    rows = [(7, "i", ">=", 1.5), (7, "x", "BETWEEN", [0.0, 1.0]), (8, "i", "Not In", [2.0, 3.0])]
    columns = table(*rows, (9, "s", "IS NULL", None))
    matcher = filled(frame(columns))
    batch = [{"i": 2, "x": 0.5}, {"i": 1, "s": "a"}, {"i": 4, "x": 0.5, "s": "a"}]
    assert list(matcher.match(batch)) == [[7, 9], [8], [7, 8]]


def test_parquet(tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table(table(("a", "s", "like", "ab%"))), tmp_path / "p.parquet")
    assert filled(tmp_path / "p.parquet").match_one({"s": "abc"}) == ["a"]


def test_categories_that_no_row_has_are_no_error() -> None:
    frame = pd.DataFrame({"id": [1], "op": pd.Categorical(["="], ["=", "~"]), "attribute": ["i"], "value": [1]})
    assert filled(frame).match_one({"i": 1}) == [1]


def test_a_table_without_rows() -> None:
    text = pa.array([], pa.string())
    matcher = filled({"id": pa.array([], pa.int64()), "attribute": text, "op": text, "value": text})
    assert len(matcher) == 0
    assert matcher.match_one({"i": 1}) == []


BAD: list[tuple[tuple[Any, ...], str]] = [
    (("i", "~", 1), "unknown operator '~'"),
    (("i", "betwen", 1), "did you mean 'between'"),
    (("i", None, 1), "unknown operator None"),
    (("ii", "=", 1), "unknown attribute 'ii'; did you mean 'i'"),
    ((None, "=", 1), "a predicate needs the name of its attribute, found None"),
    (("i", "=", None), "= on attribute 'i' takes a constant in 'value', found []"),
    (("i", "between", 1), "BETWEEN on attribute 'i' takes 2 constants in 'values', found [1]"),
    (("i", "between", [1, 2, 3]), "takes 2 constants in 'values', found [1, 2, 3]"),
    (("i", "in", None), "IN on attribute 'i' takes a constant in 'values'"),
    (("i", "in", [1, None]), "'i' is compared with None"),
    (("i", "is null", 1), "IS NULL on attribute 'i' takes no constant in 'value', found [1]"),
    (("s", "like", 1), "LIKE on attribute 's' takes a pattern such as 'abc%', found 1"),
    (("i", "is true", None), "'i' has type int64 and is compared with TRUE"),
    (("b", "is true", 1), "IS TRUE on attribute 'b' takes no constant in 'value', found [1]"),
    (("b", "is distinct from", [True, False]), "IS DISTINCT FROM on attribute 'b' takes a constant in 'value'"),
    (("b", "is distinct", 1), "unknown operator 'is distinct'; did you mean 'is distinct from'"),
    (("s", "=", 1), "'s' has type string and is compared with 1"),
    (("b", "=", 1), "'b' has type bool and is compared with 1"),
]
BAD_TEXTS: list[tuple[tuple[Any, ...], str]] = [
    (("i", "=", "x"), "'i' has type int64 and is compared with 'x'; expected a number"),
    (("i", "=", "nan"), "expected a number"),
    (("i", "=", "1_0"), "expected a number"),
    (("i", "=", "'1'"), "expected a number"),
    (("i", "=", ""), "expected a number"),
    (("x", "=", "1 OR 1"), "expected a number"),
    (("b", "=", "yes"), "expected true or false"),
    (("d", "=", "yesterday"), "'yesterday' is not a date"),
    (("t", "=", "2024-01-01 00:00Z"), "a wall clock without zone"),
    (("s", "like", r"a\b"), "has its escape character"),
    (("i", "ilike", "1%"), "ILIKE works on strings only"),
    (("i", "=", "5/*"), "expected a number"),
    (("i", "=", "5--"), "expected a number"),
    (("i", "like", "1%"), "LIKE works on strings only"),
]


@pytest.mark.parametrize(("row", "message"), BAD + BAD_TEXTS)
def test_bad_rows_add_nothing_or_are_collected(row: tuple[Any, ...], message: str) -> None:
    good = "4" if isinstance(row[2], str) else 4
    given = table((1, "i", "=", good), (2, "i", "=", good), (2, *row), (3, "i", "=", good))
    matcher = gm.Matcher(SCHEMA)
    matcher.add({0: "i = 4"})
    with pytest.raises(gm.GpumatchError) as caught:
        matcher.add_predicates(given)
    assert message in str(caught.value)
    assert matcher.match_one({"i": 4}) == [0]
    rejected = matcher.add_predicates(given, on_error="collect")
    assert [(one.id, message in one.message) for one in rejected] == [(2, True)]
    assert matcher.match_one({"i": 4}) == [0, 1, 3]


def test_both_value_and_values() -> None:
    given = {"id": [1], "attribute": ["i"], "op": ["="], "value": [1], "values": [[2]]}
    with pytest.raises(gm.SchemaError, match="has both a value and values"):
        filled(given)
    with pytest.raises(gm.SchemaError, match="has both a value and values"):
        filled({**given, "op": ["between"], "values": [[2, 3]]})


def test_ids_are_checked() -> None:
    good = {"attribute": ["i", "i"], "op": ["=", "="], "value": [1, 2]}
    matcher = filled({"id": ["a", "b"], **good})
    for ids in ([1.5, 2.5], [True, False], [None, "c"], [1, 2]):
        with pytest.raises(gm.IdError):
            matcher.add_predicates({"id": ids, **good})
    rejected = matcher.add_predicates({"id": ["a", "c"], **good}, on_error="collect")
    assert [one.id for one in rejected] == ["a"]
    assert rejected[0] == Rejected("a", None, "the id 'a' is there already; use replace() to change it")
    assert matcher.ids.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": [1], "attribute": ["i"]}, "it lacks op, value"),
        ({"id": [1], "attribute": ["i"], "op": ["="], "values": [1]}, "column 'values' must hold lists, found int64"),
        ({"id": [1, 2], "attribute": ["i", "s"], "op": ["=", "="], "value": [1, "x"]}, "cannot read the table"),
        ([1, 2], "found list"),
    ],
)
def test_bad_tables(given: Any, message: str) -> None:
    with pytest.raises(gm.SchemaError) as caught:
        filled(given)
    assert message in str(caught.value)


def test_many_rows_against_numpy() -> None:
    rng = np.random.default_rng(5)
    count = 4000
    owner, column, bound = rng.integers(0, 1500, count), rng.integers(0, 2, count), rng.integers(0, 300, count)
    below = rng.random(count) < 0.5
    ops = np.where(below, "<=", ">")
    matcher = filled({"id": owner, "attribute": np.array(["i", "x"])[column], "op": ops, "value": bound})
    values = rng.integers(0, 300, (30, 2))
    holds = (values[:, column] <= bound) == below
    bad = np.zeros((30, 1500), np.bool_)
    for event in range(30):
        np.logical_or.at(bad[event], owner, ~holds[event])
    known = np.unique(owner)
    found = matcher.match({"i": values[:, 0], "x": values[:, 1].astype(float)})
    assert [sorted(ids) for ids in found] == [[int(k) for k in known if not row[k]] for row in bad]
