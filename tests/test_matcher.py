"""The matcher's public face, against the oracle and a plain dict."""

from __future__ import annotations

import copy
import datetime as dt
import math
import pickle
import tempfile
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch import col
from gpumatch.expr import evaluate, parse
from gpumatch.expr.constants import constant_text
from gpumatch.subscriptions.intake import Rejected
from tests.conformance.strategies import events, expressions

SCHEMA = {"i": "int64", "x": "float64", "s": "string", "tags": "list<string>"}
TYPED = gm.Schema.of(SCHEMA)


def filled(subscriptions: dict[Any, Any], index: str = "auto") -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, index=index)
    matcher.add(subscriptions)
    return matcher


def face(matcher: gm.Matcher) -> tuple[Any, ...]:
    """All that a user sees, but for times: it must not change when a call fails."""
    batch = [{"i": 1, "x": 1.0, "s": "a", "tags": ["a"]}, {"i": 2}, {}]
    plan = [(part.subscriptions, part.index, part.reason) for part in matcher.plan().segments]
    return len(matcher), matcher.ids.tolist(), list(matcher.match(batch)), plan


# Adding


def test_text_and_col_mean_the_same() -> None:
    matcher = gm.Matcher(SCHEMA)
    assert matcher.add({"hot": "s = 'NVDA' AND x > 900", "odd": "x < 10 OR i IN (1, 2)"}) == []
    assert matcher.add({"dsl": (col("x") > 5) & ~col("s").is_in(["X"])}) == []
    batch = [{"s": "NVDA", "x": 950.0}, {"s": "X", "x": 7.0}, {"s": "Y", "x": 7.0}, {"i": 2}, {"x": 20.0}, {}]
    assert list(matcher.match(batch)) == [["hot", "dsl"], ["odd"], ["odd", "dsl"], ["odd"], [], []]


def test_add_nothing() -> None:
    matcher = filled({})
    assert matcher.add({}, on_error="collect") == []
    assert face(matcher) == (0, [], [[], [], []], [])
    assert "no subscriptions" in str(matcher.plan())
    assert matcher.stats()["subscriptions"] == 0
    matcher.compact()
    assert matcher.count([{}]).tolist() == [0]
    assert len(matcher.match([])) == 0


BAD: list[tuple[Any, Any, type[Exception], int | None, str]] = [
    (9, "i < < 3", gm.ParseError, 4, "expected a constant, found '<'"),
    (9, "", gm.ParseError, None, "the expression is empty"),
    (9, r"s LIKE '%\a'", gm.ParseError, 7, "has its escape character"),
    (9, "s LIKE '!a' ESCAPE '!'", gm.SchemaError, None, "attribute 's': the pattern '!a' has its escape character !"),
    (9, "i ILIKE '%1%'", gm.SchemaError, None, "'i' has type int64; ILIKE works on strings only"),
    (9, "i IS TRUE", gm.SchemaError, None, "'i' has type int64 and is compared with TRUE; expected a number"),
    (9, "ii = 1", gm.SchemaError, None, "unknown attribute 'ii'; did you mean 'i'?"),
    (9, "i < 'x'", gm.SchemaError, None, "'i' has type int64 and is compared with 'x'; expected a number"),
    (9, "s = 5", gm.SchemaError, None, "'s' has type string and is compared with 5"),
    (9, "tags > 5", gm.SchemaError, None, "'tags' has type list<string>"),
    (9, None, gm.ParseError, None, "an expression is text, found None"),
    (9, 5, gm.ParseError, None, "an expression is text, found 5"),
    (9, col("q") == 1, gm.SchemaError, None, "unknown attribute 'q'"),
    (1, "i = 1", gm.IdError, None, "the id 1 is there already; use replace()"),
    (2, "i = 1", gm.IdError, None, "the id 2 is there already; use replace()"),
    ("nine", "i = 1", gm.IdError, None, "ids are all strings or all integers"),
    (None, "i = 1", gm.IdError, None, "ids are all strings or all integers, found None"),
    (1.5, "i = 1", gm.IdError, None, "found 1.5"),
    (False, "i = 1", gm.IdError, None, "found False"),
    (np.True_, "i = 1", gm.IdError, None, "found np.True_"),
    (2**63, "i = 1", gm.IdError, None, "the id 9223372036854775808 does not fit into 64 bits"),
    ((1, 2), "i = 1", gm.IdError, None, "found (1, 2)"),
]


@pytest.mark.parametrize(("name", "expression", "kind", "position", "message"), BAD)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_all_or_nothing_or_collected(
    name: Any, expression: Any, kind: type[Exception], position: int | None, message: str, where: int
) -> None:
    matcher = filled({1: "i = 1"})
    matcher.match_one({})
    matcher.add({2: "i = 2"})  # still in the tail
    good: list[tuple[Any, Any]] = [(7, "i = 1"), (8, "i = 2")]
    given = dict([*good[:where], (name, expression), *good[where:]])
    with pytest.raises(kind) as caught:
        matcher.add(given)
    assert message in str(caught.value)
    assert len(matcher) == 2
    assert matcher.match_one({"i": 1}) == [1]
    rejected = matcher.add(given, on_error="collect")
    assert [one.id for one in rejected] == [name]
    assert message in rejected[0].message
    assert position is None or rejected[0].position == position
    assert list(matcher.match([{"i": 1}, {"i": 2}])) == [[1, 7], [2, 8]]
    assert matcher.ids.tolist() == [1, 2, 7, 8]


@pytest.mark.parametrize("wrong", ["i > 5 /* open", "s = 'x", "i > 5 -- a comment", 5])
def test_one_bad_text_among_many_alike(wrong: Any) -> None:
    matcher = gm.Matcher({"i": "int64", "s": "string"})
    rejected = matcher.add({**{at: f"i > {at}" for at in range(40)}, 99: wrong}, on_error="collect")
    good = isinstance(wrong, str) and wrong.endswith("comment")
    assert [one.id for one in rejected] == ([] if good else [99])
    assert len(matcher) == 40 + good


@pytest.mark.parametrize(
    "text", ["s <> 'a{0}' AND i = 'x{0}'", r"i <> {0} AND s LIKE 'a\x{0}' ESCAPE '\'", "i NOT IN ({0}, 7) AND s = {0}"]
)
def test_all_of_many_alike_are_bad(text: str) -> None:
    matcher = gm.Matcher({"i": "int64", "s": "string"})
    rejected = matcher.add({at: text.format(at) for at in range(40)}, on_error="collect")
    assert [one.id for one in rejected] == list(range(40))
    assert len(matcher) == 0


def test_a_parse_error_points_at_the_place() -> None:
    with pytest.raises(gm.ParseError) as caught:
        filled({"a": "i = 1", "b": "x > 5 AND AND i = 1"})
    assert caught.value.position == 10
    line, caret = str(caught.value).splitlines()[-2:]
    assert line[caret.index("^") :].startswith("AND i")


def test_surrogates_are_no_ids() -> None:
    with pytest.raises(gm.IdError, match="lone surrogate"):
        filled({"\ud800": "i = 1"})


def test_everything_rejected() -> None:
    matcher = filled({"a": "i = 1"})
    assert len(matcher.add({1: "i = 1", 2: "i = 2"}, on_error="collect")) == 2
    assert matcher.ids.tolist() == ["a"]


def test_the_first_good_id_says_which_type_is_meant() -> None:
    matcher = gm.Matcher(SCHEMA)
    rejected = matcher.add({None: "i = 1", "a": "i = 1", 5: "i = 1", "b": "i = 2"}, on_error="collect")
    assert [one.id for one in rejected] == [None, 5]
    assert matcher.ids.tolist() == ["a", "b"]


def test_on_error_and_what_is_added_are_checked() -> None:
    matcher = gm.Matcher(SCHEMA)
    with pytest.raises(gm.SchemaError, match="'raise' or 'collect', found 'ignore'"):
        matcher.add({1: "i = 1"}, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(gm.SchemaError, match="a dict of id -> expression, found list"):
        matcher.add([(1, "i = 1")])  # type: ignore[arg-type]
    assert len(matcher) == 0


IDS = [
    [1, 2, 3],
    range(1, 4),
    (1, np.int8(2), np.uint64(3)),
    np.array([1, 2, 3], np.uint16),
    np.array([1, 2, 3], object),
    pd.Series([1, 2, 3], dtype="Int64"),
    pd.Index([1, 2, 3]),
    pl.Series([1, 2, 3]),
    pa.array([1, 2, 3], pa.int32()),
    pa.chunked_array([[1, 2], [3]]),
    ["1", "2", "3"],
    np.array(["1", "2", "3"]),
    pd.Series(["1", "2", "3"]),
    pd.Categorical(["1", "2", "3"]),
    pl.Series(["1", "2", "3"]),
    pa.array(["1", "2", "3"], pa.large_string()),
    pa.array(["1", "2", "3"]).dictionary_encode(),
]


@pytest.mark.parametrize("ids", IDS, ids=lambda ids: f"{type(ids).__module__}.{type(ids).__name__}")
def test_ids_of_any_library(ids: Any) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_ranges(ids, {"i": ([1, 2, 3], None)})
    names = [int(one) if str(matcher.ids.dtype) == "int64" else one for one in ("1", "2", "3")]
    assert matcher.match_one({"i": 2}) == names[:2]
    assert names[0] in matcher
    matcher.remove(ids[:2])
    assert matcher.ids.tolist() == names[2:]


@pytest.mark.parametrize(
    "ids",
    [
        [1, "a"],
        ["a", 1],
        [1, None],
        [1.0, 2.0],
        [True, False],
        [1, 2**64],
        [1, 1],
        np.array([1.0, 2.0]),
        np.array([True, False]),
        np.array([1, 2**63], np.uint64),
        pa.array([1, None]),
        pa.array([1.0, 2.0]),
        pa.nulls(2),
        [b"a", b"b"],
        np.zeros((2, 2), np.int64),
        "ab",
        None,
        5,
    ],
    ids=repr,
)
def test_bad_ids_of_ranges(ids: Any) -> None:
    matcher = filled({0: "i = 1"})
    before = face(matcher)
    with pytest.raises(gm.IdError):
        matcher.add_ranges(ids, {"i": ([1, 2], None)})
    assert face(matcher) == before


# Tables


def tables(path: Path) -> list[Any]:
    columns = {"id": ["a", "b"], "expr": ["i = 1", "x > 2"], "more": [1, 2]}
    pq.write_table(pa.table(columns), path / "t.parquet")
    batch = pa.table(columns).to_batches()[0]
    return [columns, pa.table(columns), batch, pd.DataFrame(columns), pl.DataFrame(columns), path / "t.parquet"]


def test_add_table_from_anything(tmp_path: Path) -> None:
    for table in [*tables(tmp_path), str(tmp_path / "t.parquet")]:
        matcher = gm.Matcher(SCHEMA)
        assert matcher.add_table(table) == []
        assert list(matcher.match([{"i": 1}, {"x": 3.0, "i": 1}])) == [["a"], ["a", "b"]]


def test_columns_of_a_table_by_name() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_table({"key": [5, 6], "rule": ["i = 1", "i = 2"]}, id="key", where="rule")
    assert matcher.match_one({"i": 2}) == [6]
    with pytest.raises(gm.SchemaError, match="no column 'expr'; it has key, rule"):
        matcher.add_table({"key": [5, 6], "rule": ["i = 1", "i = 2"]}, id="key")


def test_errors_in_a_table() -> None:
    matcher = gm.Matcher(SCHEMA)
    table = {"id": [1, 2, 3, 3, None], "expr": ["i = 1", None, "i = (", "i = 3", "i = 1"]}
    with pytest.raises(gm.GpumatchError):
        matcher.add_table(table)
    assert len(matcher) == 0
    rejected = matcher.add_table(table, on_error="collect")
    assert sorted((str(one.id), one.position) for one in rejected if one.id != 3) == [("2", None), ("None", None)]
    assert Rejected(3, 4, "expected a constant, found '('") in rejected
    assert matcher.match_one({"i": 1}) == [1]


def test_an_id_twice_in_a_table() -> None:
    matcher = gm.Matcher(SCHEMA)
    table = {"id": ["a", "b", "a"], "expr": ["i = 1", "i = 1", "i = 2"]}
    with pytest.raises(gm.IdError, match="'a'"):
        matcher.add_table(table)
    assert len(matcher) == 0
    assert [one.id for one in matcher.add_table(table, on_error="collect")] == ["a"]
    assert list(matcher.match([{"i": 1}, {"i": 2}])) == [["a", "b"], []]


@pytest.mark.parametrize("table", [None, 5, [1, 2], {"id": [1, "a"], "expr": ["i = 1", "i = 2"]}], ids=repr)
def test_what_is_no_table(table: Any) -> None:
    with pytest.raises(gm.SchemaError):
        gm.Matcher(SCHEMA).add_table(table)


# Matching


def test_events_of_all_kinds() -> None:
    matcher = filled({k: f"i >= {k}" for k in range(5)})
    columns = {"i": [0, 2, None, 9], "other": [1, 2, 3, 4]}
    table = pa.table(columns)
    expected = [[0], [0, 1, 2], [], [0, 1, 2, 3, 4]]
    kinds = [[{"i": i} for i in columns["i"]], columns, table, table.to_batches()[0], table.to_reader()]
    kinds += [pd.DataFrame(columns), pl.DataFrame(columns), gm.EventBatch.of(table, matcher.schema)]
    kinds += [gm.EventBatch.from_csr([0, 1, 2, 2, 3], [0, 0, 0], [0, 2, 9], ["i"])]
    for given_events in kinds:
        assert list(matcher.match(given_events)) == expected
    readers = [table.to_reader() for _ in range(3)]
    assert matcher.count(readers[0]).tolist() == [1, 3, 0, 5]
    assert matcher.any(readers[1]).tolist() == [True, True, False, True]
    assert [ids for part in matcher.match_iter(readers[2]) for ids in part] == expected


def test_match_iter_cuts_large_batches() -> None:
    matcher = filled({1: "i >= 10000", 2: "i < 100"})
    values = np.arange(20_000)
    parts = list(matcher.match_iter({"i": values}))
    assert len(parts) > 1
    assert [ids for part in parts for ids in part] == [[2]] * 100 + [[]] * 9900 + [[1]] * 10_000
    assert matcher.count({"i": values}).sum() == 10_100
    reader = pa.RecordBatchReader.from_batches(
        pa.schema({"i": pa.int64()}), (pa.record_batch({"i": values[k : k + 7000]}) for k in range(0, 20_000, 7000))
    )
    assert matcher.any(reader).sum() == 10_100


def test_one_event_and_none() -> None:
    matcher = filled({1: "i = 1", 2: "x IS NULL"})
    assert matcher.match_one({"i": 1}) == [1, 2]
    assert matcher.match_one({}) == [2]
    assert matcher.match_one({"unknown": 5, "x": 1.0}) == []
    assert len(matcher.match([])) == 0
    assert list(matcher.match_iter([])) == []
    for given_events in ([], {"i": []}, pa.table({"i": pa.array([], pa.int64())})):
        assert matcher.count(given_events).tolist() == []
        assert matcher.any(given_events).tolist() == []


@pytest.mark.parametrize("given_events", [[{"i": "x"}], {"i": [1.5]}, [5], 5, {"s": [1]}, {"tags": ["a"]}], ids=repr)
def test_bad_events(given_events: Any) -> None:
    matcher = filled({1: "i = 1"})
    calls: list[Any] = [matcher.match, matcher.count, matcher.any, matcher.observe]
    for call in [*calls, lambda given: list(matcher.match_iter(given))]:
        with pytest.raises(gm.SchemaError):
            call(given_events)
    assert matcher.match_one({"i": 1}) == [1]


def test_rows_are_ascending_and_index_the_ids() -> None:
    matcher = filled({f"k{k}": f"i >= {k} OR x >= {k} OR s = 'a'" for k in range(200)})
    matcher.match_one({})
    matcher.remove([f"k{k}" for k in range(0, 200, 3)])
    matcher.add({f"l{k}": f"i >= {k}" for k in range(40)})
    found = matcher.match([{"i": 150, "x": 30.0, "s": "a"}, {"x": 3.0}, {"i": 1, "tags": []}])
    for event in range(3):
        rows = found.rows[found.offsets[event] : found.offsets[event + 1]]
        assert (np.diff(rows) > 0).all()
        assert matcher.ids[rows].tolist() == found.ids(event)
    assert found.counts.tolist() == matcher.count([{"i": 150, "x": 30.0, "s": "a"}, {"x": 3.0}, {"i": 1}]).tolist()


def test_a_result_keeps_its_snapshot() -> None:
    matcher = filled({1: "i = 1", 2: "i = 1", 3: "i = 1"})
    found = matcher.match([{"i": 1}])
    matcher.remove([1])
    matcher.replace({2: "i = 2"})
    matcher.add({0: "i = 1"})
    matcher.compact()
    assert found.ids(0) == [1, 2, 3]
    assert found.to_arrow()["subscription"].to_pylist() == [1, 2, 3]
    assert matcher.match_one({"i": 1}) == [3, 0]


# Changes


def test_remove() -> None:
    matcher = filled({1: "i = 1", 2: "i = 1"})
    matcher.add({3: "i = 1"})
    for ids in ([1, 9], [9], ["1"], [1.0], [None], [True], [[1]], [2**70]):
        with pytest.raises(gm.IdError, match="there is no subscription with the id"):
            matcher.remove(ids)
    with pytest.raises(gm.IdError, match="takes a list of ids, found the single id 1"):
        matcher.remove(1)  # type: ignore[arg-type]
    assert matcher.ids.tolist() == [1, 2, 3]
    matcher.remove([])
    matcher.remove([3, 1, 3])
    assert matcher.match_one({"i": 1}) == [2]
    with pytest.raises(gm.IdError):
        matcher.remove([1])
    matcher.remove({2: None})
    assert face(matcher)[:3] == (0, [], [[], [], []])
    matcher.add({1: "i = 1"})
    assert matcher.match_one({"i": 1}) == [1]


def test_a_string_is_no_list_of_ids() -> None:
    with pytest.raises(gm.IdError, match="found the single id 'ab'"):
        filled({"a": "i = 1", "b": "i = 2"}).remove("ab")


def test_replace_moves_to_the_end() -> None:
    matcher = filled({1: "i = 1", 2: "i = 1", 3: "i = 1"})
    matcher.replace({1: "i = 2", 2: "i = 1"})
    assert matcher.ids.tolist() == [3, 1, 2]
    assert list(matcher.match([{"i": 1}, {"i": 2}])) == [[3, 2], [1]]
    assert len(matcher) == 3


@pytest.mark.parametrize(
    ("given_expressions", "kind"),
    [
        ({1: "i = (", 2: "i = 2"}, gm.ParseError),
        ({1: "i = 2", 2: "q = 2"}, gm.SchemaError),
        ({1: "i = 2", 9: "i = 2"}, gm.IdError),
        ({"1": "i = 2"}, gm.IdError),
        ({1: None}, gm.ParseError),
    ],
)
def test_replace_all_or_nothing(given_expressions: Any, kind: type[Exception]) -> None:
    matcher = filled({1: "i = 1", 2: "i = 1", 3: "i = 1"})
    before = face(matcher)
    with pytest.raises(kind):
        matcher.replace(given_expressions)
    assert face(matcher) == before


def test_an_interrupted_replace_loses_nothing() -> None:
    class Interrupting(str):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    matcher = filled({1: "i = 1"})
    before = face(matcher)
    with pytest.raises(KeyboardInterrupt):
        matcher.replace({1: Interrupting("i = 2")})
    assert face(matcher) == before


# As a mapping


def test_upsert_adds_and_replaces() -> None:
    matcher = filled({"a": "i = 1", "b": "i = 1"})
    matcher.upsert({"c": "i = 1", "a": col("i") == 2})
    assert list(matcher) == ["b", "c", "a"]
    assert list(matcher.match([{"i": 1}, {"i": 2}])) == [["b", "c"], ["a"]]
    matcher.upsert({})
    assert list(matcher) == ["b", "c", "a"]
    empty = gm.Matcher(SCHEMA)
    empty.upsert({5: "i = 1"})
    assert list(empty) == [5]


def test_upsert_of_what_was_just_added_or_removed() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({1: "i = 1"})
    matcher.upsert({1: "i = 2", 2: "i = 2"})
    matcher.remove([1])
    matcher.upsert({1: "i = 3"})
    assert list(matcher.match([{"i": 1}, {"i": 2}, {"i": 3}])) == [[], [2], [1]]


@pytest.mark.parametrize(
    ("given_expressions", "kind", "name"),
    [
        ({1: "i = 2", 9: "i = ("}, gm.ParseError, 9),
        ({9: "i = 2", 2: "q = 2"}, gm.SchemaError, 2),
        ({"9": "i = 2"}, gm.IdError, "9"),
        ({1: "i = 2", "9": "i = 2"}, gm.IdError, "9"),
        ({1: "i = 2", 1.5: "i = 2"}, gm.IdError, 1.5),
        ({2**63: "i = 2"}, gm.IdError, 2**63),
        ({1: None}, gm.ParseError, 1),
        ([1], gm.SchemaError, None),
        (None, gm.SchemaError, None),
    ],
)
def test_upsert_all_or_nothing(given_expressions: Any, kind: type[gm.GpumatchError], name: Any) -> None:
    matcher = filled({1: "i = 1", 2: "i = 1", 3: "i = 1"})
    before = face(matcher)
    with pytest.raises(kind) as caught:
        matcher.upsert(given_expressions)
    assert caught.value.id == name
    assert face(matcher) == before


def test_expressions_by_id() -> None:
    matcher = filled({"a": "x > 5 OR s = 'it''s'", "b": (col("i") == 1) & ~col("tags").is_null()})
    assert matcher["a"] == parse("x > 5 OR s = 'it''s'")
    assert matcher["b"] == parse("i = 1 AND NOT tags IS NULL")
    assert str(matcher["b"]) == "i = 1 AND NOT tags IS NULL"
    matcher.add_ranges(["r", "none"], {"i": ([1, 5], [3, 5]), "x": ([0.5, None], None)})
    assert matcher["r"] == parse("i BETWEEN 1 AND 3 AND x >= 0.5")
    assert matcher["none"] == parse("i = 5")
    matcher.add_predicates({"id": ["p"] * 3, "attribute": ["i", "x", None], "op": ["<", ">", "or"], "value": [1, 2, 2]})
    for event in ({"i": 0}, {"x": 3.0}, {"i": 5, "x": 1.0}, {}):
        assert evaluate(matcher["p"], event, TYPED) == evaluate(parse("i < 1 OR x > 2"), event, TYPED)
    assert isinstance(matcher["p"], gm.Expr)
    matcher.remove(["a"])
    with pytest.raises(KeyError, match="no subscription with the id 'a'"):
        matcher["a"]


def test_expressions_by_id_of_a_saved_index(tmp_path: Path) -> None:
    matcher = filled({7: "i = 1"})
    matcher.add_ranges([8], {"x": ([1.0], [2.0])})
    matcher.save(tmp_path / "idx")
    again = gm.load(tmp_path / "idx")
    assert (again[np.int64(7)], again[8]) == (parse("i = 1"), parse("x BETWEEN 1.0 AND 2.0"))
    assert (list(again), 8 in again, "8" in again) == ([7, 8], True, False)


@pytest.mark.parametrize("name", ["a", True, None, 1.5, [1], slice(0, 1), 2**70, "\ud800"], ids=repr)
def test_ids_that_are_none(name: Any) -> None:
    matcher = filled({1: "i = 1"})
    with pytest.raises(gm.UnknownIdError) as caught:
        matcher[name]
    assert caught.value.id == name
    assert name not in matcher


def test_iteration_sees_what_there_was() -> None:
    matcher = filled(dict.fromkeys(range(5), "i = 1"))
    started = iter(matcher)
    first = next(started)
    matcher.remove([1])
    matcher.add({9: "i = 1"})
    assert [first, *started] == [0, 1, 2, 3, 4]
    assert list(matcher) == [0, 2, 3, 4, 9]
    assert all(type(name) is int for name in matcher)
    assert list(gm.Matcher(SCHEMA)) == []
    many = gm.Matcher(SCHEMA)
    many.add_ranges(np.arange(10_000), {"i": (np.zeros(10_000, int), None)})
    assert list(many) == list(range(10_000))


@pytest.mark.parametrize("cut", [-(2**63), 1 - 2**63, -5, 2**63 - 3])
def test_values_far_from_the_only_constant(cut: int) -> None:
    matcher = filled({1: f"i > {cut}", 2: f"i = {cut}"})
    values = [-(2**63), 1 - 2**63, -1, 0, 5, 2**62, 2**63 - 3, 2**63 - 2, 2**63 - 1]
    expected = [[1] if value > cut else [2] if value == cut else [] for value in values]
    assert list(matcher.match({"i": values})) == expected


def test_contains() -> None:
    matcher = filled({1: "i = 1"})
    matcher.match_one({})
    matcher.add({2: "i = 1"})
    assert all(one in matcher for one in (1, 2, np.int64(2)))
    assert not any(one in matcher for one in (3, 1.0, True, None, "1", [1]))
    matcher.remove([1])
    assert 1 not in matcher


def test_observing_changes_no_answer() -> None:
    rng = np.random.default_rng(3)
    expressions_by_id = {k: f"i > {k} AND x < {k % 7} AND s IN ('a', '{k % 3}')" for k in range(300)}
    batch = {"i": rng.integers(0, 300, 200), "x": rng.integers(0, 7, 200).astype(float), "s": ["a", "1"] * 100}
    plain, observed = filled(expressions_by_id, "pstbloom"), gm.Matcher(SCHEMA, index="pstbloom")
    for _ in range(3):
        observed.observe(batch)
    observed.observe([])
    observed.observe(gm.EventBatch.from_csr([0, 1], [0], [5], ["i"]))
    observed.add(expressions_by_id)
    assert observed.match(batch) == plain.match(batch)
    observed.observe({"i": np.zeros(5000, np.int64)})
    observed.compact()
    assert observed.match(batch) == plain.match(batch)


def test_stats_and_repr() -> None:
    matcher = filled({1: "i = 1", 2: "i = 1 OR x = 2"})
    matcher.match_one({})
    matcher.remove([1])
    stats = matcher.stats()
    assert (stats["subscriptions"], stats["removed"], stats["clauses"]) == (1, 1, 3)
    assert stats["bytes"] > 0
    matcher.compact()
    assert (matcher.stats()["removed"], matcher.stats()["clauses"]) == (0, 2)
    assert repr(matcher) == "Matcher(1 subscriptions, 4 attributes, device 'cpu')"


# Against a model

HARD = [
    " XOR ".join(f"i {op} 2 XOR x {op} 1 XOR s {op} 'b' XOR tags {op} 'a'" for op in ("<", ">", "=")),
    " AND ".join(f"(i = {k} OR x > {k} OR s < '{k}' OR tags = '{k}')" for k in range(-4, 4)),
    "NOT (" + " OR ".join(f"(i <> {k} AND x <= {k} AND tags <> '{k}')" for k in range(8)) + ")",
    "(i = 1 XNOR x > 0) XOR (s LIKE 'a%' XNOR tags > 'a') XOR (i IS NULL XNOR x BETWEEN 0 AND 2)",
    "NOT (NOT (i = 1 AND tags = 'a') XOR x = 0.5) OR s IN ('a', 'ab', 'é', 'z')",
    f"i IN ({', '.join(map(str, range(0, 400, 3)))})",
    "TRUE",
    "i < 0 AND i > 0",
]


def model_answers(model: dict[int, gm.Expr], batch: list[dict[str, Any]]) -> list[list[int]]:
    return [[name for name, expr in model.items() if evaluate(expr, event, TYPED) is True] for event in batch]


def hard(index: int) -> gm.Expr:
    return parse(HARD[index])


EXPRESSIONS = expressions(SCHEMA, 5) | st.sampled_from(range(len(HARD))).map(hard)
IDS_OF_MODEL = st.integers(0, 11)
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5)),
    st.tuples(st.just("collect"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5)),
    st.tuples(st.just("ranges"), st.lists(st.tuples(IDS_OF_MODEL, st.integers(-3, 3)), max_size=4)),
    st.tuples(st.just("remove"), st.lists(IDS_OF_MODEL, max_size=4)),
    st.tuples(st.just("replace"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=3)),
    st.tuples(st.just("upsert"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5)),
    st.tuples(st.just("match"), st.none()),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("reload"), st.booleans()),
)


class Twin:
    """A matcher beside the dict that it should behave like."""

    def __init__(self, index: str, folder: str) -> None:
        self.matcher, self.model, self.folder = gm.Matcher(SCHEMA, index=index), dict[int, gm.Expr](), folder

    def add(self, given_expressions: dict[int, gm.Expr]) -> None:
        if given_expressions.keys() & self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.add(given_expressions)
        else:
            self.matcher.add({k: str(e) if k % 2 else e for k, e in given_expressions.items()})
            self.model.update(given_expressions)

    def collect(self, given_expressions: dict[int, gm.Expr]) -> None:
        rejected = self.matcher.add(given_expressions, on_error="collect")
        known = [name for name in given_expressions if name in self.model]
        assert [one.id for one in rejected] == known
        self.model.update({name: e for name, e in given_expressions.items() if name not in known})

    def ranges(self, pairs: list[tuple[int, int]]) -> None:
        ids, low = [name for name, _ in pairs], [end for _, end in pairs]
        given_ranges = {"i": (low, [end + 2 for end in low]), "s": (["a"] * len(low), None)}
        if len(set(ids)) < len(ids) or set(ids) & self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.add_ranges(ids, given_ranges)
        else:
            self.matcher.add_ranges(ids, given_ranges)
            self.model.update({name: parse(f"i BETWEEN {end} AND {end + 2} AND s >= 'a'") for name, end in pairs})

    def remove(self, ids: list[int]) -> None:
        if set(ids) - self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.remove(ids)
        else:
            self.matcher.remove(ids)
            for name in set(ids):
                del self.model[name]

    def replace(self, given_expressions: dict[int, gm.Expr]) -> None:
        if given_expressions.keys() - self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.replace(given_expressions)
        else:
            self.matcher.replace(given_expressions)
            for name, expr in given_expressions.items():
                del self.model[name]
                self.model[name] = expr

    def upsert(self, given_expressions: dict[int, gm.Expr]) -> None:
        self.matcher.upsert({k: str(e) if k % 2 else e for k, e in given_expressions.items()})
        for name, expr in given_expressions.items():
            self.model.pop(name, None)
            self.model[name] = expr

    def match(self, _: None) -> None:
        self.matcher.match_one({})

    def compact(self, _: None) -> None:
        self.matcher.compact()
        assert len(self.matcher.plan().segments) <= 1

    def reload(self, mmap: bool) -> None:
        self.matcher.save(self.folder)
        self.matcher = gm.load(self.folder, mmap=mmap)


@settings(max_examples=60)
@given(
    index=st.sampled_from(["auto", "scan", "pstbloom"]),
    operations=st.lists(OPERATIONS, min_size=1, max_size=12),
    batch=st.lists(events(SCHEMA), min_size=1, max_size=4),
)
def test_any_history_equals_the_model(index: str, operations: list[Any], batch: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        twin = Twin(index, f"{folder}/idx")
        for name, argument in operations:
            getattr(twin, name)(argument)
            assert len(twin.matcher) == len(twin.model)
        assert twin.matcher.ids.tolist() == list(twin.matcher) == list(twin.model)
        assert list(twin.matcher.match(batch)) == model_answers(twin.model, batch)
        for name in list(twin.model)[:3]:
            held, model = twin.matcher[name], twin.model[name]
            assert [evaluate(held, one, TYPED) for one in batch] == [evaluate(model, one, TYPED) for one in batch]
            assert twin.matcher.explain(batch[0], name).result == evaluate(twin.model[name], batch[0], TYPED)


@pytest.mark.parametrize("index", ["scan", "pstbloom"])
@settings(max_examples=60)
@given(batch=st.lists(events(SCHEMA), min_size=1, max_size=20))
def test_what_stays_a_program(index: str, batch: list[dict[str, Any]]) -> None:
    model = {k: hard(k) for k in range(len(HARD))}
    matcher = filled(model, index)
    assert matcher.stats()["programs"] >= 3
    assert list(matcher.match(batch)) == model_answers(model, batch)


WHOLE = [0, 1, -1, 2, 127, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63, 2**63, 2**64, -(2**70), 10**30]
REAL = [0.0, 0.5, -0.5, 2.5, 0.1, 5e-324, -5e-324, 1e300, 2.0**53, 2.0**63, -(2.0**63), 1e19, math.inf, -math.inf]
TEXT = ["", "a", "ab", "b", "é", "a\x00", "\ud7ff", "\U0010ffff", "z", "it's", "ÿ", "\U0001f600", "A", " ", "%", "'"]
DAYS = [dt.date.fromordinal(at) for at in (1, 2, 700_000, 719_162, 719_163, 3_652_058, 3_652_059)]
SMALL = [one for one in WHOLE if -(2**63) <= one < 2**63] * 2
CONSTANTS = [("int64", SMALL), ("int64", WHOLE + REAL), ("float64", REAL * 2), ("float64", SMALL), ("string", TEXT)]
CONSTANTS += [("int8", WHOLE + REAL), ("float64", REAL + WHOLE), ("date", DAYS * 3)]
SHAPES = ["a = {}", "a <> {}", "a < {}", "a <= {}", "a > {}", "a >= {}", "a > {} AND a <= {}", "a > {} XOR a > {}"]
SHAPES += ["a BETWEEN {} AND {}", "NOT a BETWEEN {} AND {}", "a IN ({}, {})", "NOT (a < {} OR a = {})"]
SHAPES += ["a = {} OR b < {}"]


@pytest.mark.parametrize(("kind", "constants"), CONSTANTS, ids=lambda one: one if isinstance(one, str) else "")
@pytest.mark.parametrize("shape", SHAPES)
def test_many_rows_of_one_shape(kind: str, constants: list[Any], shape: str) -> None:
    """So many that their constants are bound as columns where they are all exact, one by one where they are not."""
    typed = gm.Schema.of({"a": kind, "b": kind})
    texts = [constant_text(one) for one in constants]
    model = dict(enumerate(shape.format(*pair) for pair in zip(texts, reversed(texts), strict=True)))
    matcher = gm.Matcher(typed, index="pstbloom")
    matcher.add(model)
    values = [one for one in constants if held(one, kind)] or REAL
    batch = [{"a": one, "b": values[at - 3]} for at, one in enumerate(values)]
    expected = [[k for k, text in model.items() if evaluate(parse(text), event, typed)] for event in batch]
    assert list(matcher.match(batch)) == expected


def held(value: Any, kind: str) -> bool:
    """Whether an event can hold a value."""
    if kind == "float64":
        return isinstance(value, float)
    least, most = (-128, 127) if kind == "int8" else (-(2**63), 2**63 - 1)
    return not kind.startswith("int") or (least <= value <= most and value == int(value))


@pytest.mark.parametrize("index", ["scan", "pstbloom"])
def test_many_segments_against_numpy(index: str) -> None:
    """More constants than 16 bits number, ranges narrow and wide, in segments of all sizes and with holes."""
    rng = np.random.default_rng(11)
    count = 40_000
    low = rng.integers(0, 10**9, (2, count))
    high = low + rng.choice([1, 1000, 10**7, 10**9], (2, count))
    matcher = gm.Matcher({"a": "int64", "b": "int64"}, index=index)
    cuts = [0, 30_000, 38_000, 39_900, 40_000]
    for start, stop in pairwise(cuts):
        part = (slice(None), slice(start, stop))
        pairs = zip(low[part], high[part], strict=True)
        matcher.add_ranges(np.arange(start, stop), dict(zip("ab", pairs, strict=True)))
        matcher.match_one({})
    assert len(matcher.plan().segments) > 1
    alive = rng.random(count) < 0.9
    matcher.remove(np.flatnonzero(~alive))
    values = rng.integers(0, 2 * 10**9, (2, 50))
    values[:, :10] = low[:, :10]
    found = matcher.match({"a": values[0], "b": values[1]})
    holds = ((low[:, None] <= values[:, :, None]) & (values[:, :, None] <= high[:, None])).all(axis=0) & alive
    assert [list(ids) for ids in found] == [np.flatnonzero(row).tolist() for row in holds]
    matcher.compact()
    assert matcher.match({"a": values[0], "b": values[1]}) == found


def test_replace_is_seen_at_once() -> None:
    """A reader sees the old expression or the new one, never none."""
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({3: "i >= 0", 4: "i < 0"})
    stop = threading.Event()
    seen: list[list[int | str]] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(matcher.match_one({"i": 100}))

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(30):
        matcher.replace({3: f"i >= {at}"})
    stop.set()
    reader.join()
    assert seen
    assert all(ids == [3] for ids in seen)


def test_rejected_rows_do_not_take_their_ids() -> None:
    matcher = gm.Matcher({"i": "int64"})
    rejected = matcher.add_table({"id": [1, 1, 1], "expr": ["i = (", "i = 1", "i = 2"]}, on_error="collect")
    assert [(bad.id, "twice" in bad.message) for bad in rejected] == [(1, False), (1, True)]
    assert list(matcher.match({"i": [1, 2]})) == [[1], []]


def test_other_ids_once_all_are_gone() -> None:
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({1: "i = 1"})
    matcher.remove([1])
    matcher.add({"a": "i = 1"})
    assert matcher.match_one({"i": 1}) == ["a"]


def test_match_iter_takes_its_snapshot_when_called() -> None:
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({1: "i = 1"})
    results = matcher.match_iter([{"i": 1}])
    matcher.add({2: "i = 1"})
    assert [list(result) for result in results] == [[[1]]]
    with pytest.raises(gm.SchemaError, match="'i'"):
        matcher.match_iter([{"i": "x"}])


def test_errors_name_the_subscription() -> None:
    matcher = gm.Matcher({"i": "int64"})
    with pytest.raises(gm.SchemaError) as caught:
        matcher.add({"good": "i = 1", "bad": "i = 'x'"})
    assert str(caught.value).startswith("subscription 'bad': attribute 'i' has type int64")
    assert (caught.value.id, caught.value.position) == ("bad", None)
    with pytest.raises(gm.ParseError) as parsing:
        matcher.add_table({"id": [7, 8], "expr": ["i = 1", "i = = 2"]})
    assert str(parsing.value).startswith("subscription 8: ")
    assert str(parsing.value).splitlines()[1:] == ["  i = = 2", "      ^"]
    assert (parsing.value.id, parsing.value.position) == (8, 4)
    with pytest.raises(gm.SchemaError, match="subscription 'y': ") as ranged:
        matcher.add_ranges(["x", "y"], {"i": ([1, 9], [2, 3])})
    assert ranged.value.id == "y"
    with pytest.raises(gm.SchemaError, match="subscription 0: OR at position 1 takes 2 operands") as operator:
        matcher.add_predicates({"id": [0, 0], "attribute": ["i", None], "op": ["=", "or"], "value": [1, 2]})
    assert operator.value.id == 0


def test_errors_without_a_subscription() -> None:
    with pytest.raises(gm.ParseError) as caught:
        gm.parse("i = = 2")
    assert (caught.value.id, caught.value.position) == (None, 4)
    assert str(caught.value).startswith("expected a constant")
    with pytest.raises(gm.SchemaError) as events:
        gm.Matcher({"i": "int64"}).match([{"i": "x"}])
    assert (events.value.id, events.value.position) == (None, None)


@pytest.mark.parametrize("name", ["bad", 0, -5, "", "it's 100%\n{x}"])
def test_ids_in_errors_are_as_they_were_given(name: Any) -> None:
    matcher = gm.Matcher({"i": "int64"})
    with pytest.raises(gm.ParseError) as caught:
        matcher.add({name: "i ="})
    assert caught.value.id == name
    assert str(caught.value).startswith(f"subscription {name!r}: ")


def test_errors_of_ids_name_them_once() -> None:
    matcher = filled({"a": "i = 1"})
    for name in ("a", 1.5, 5):
        with pytest.raises(gm.IdError) as caught:
            matcher.add({name: "i = 1"})
        assert caught.value.id == name
        assert str(caught.value).count(repr(name)) == 1
        assert not str(caught.value).startswith("subscription")


def test_an_unknown_id_is_a_key_error() -> None:
    matcher = filled({"a": "i = 1"})
    for call in (
        lambda: matcher.remove(["b"]),
        lambda: matcher.replace({"b": "i = 1"}),
        lambda: matcher.explain({}, "b"),
    ):
        with pytest.raises(KeyError) as caught:
            call()
        assert isinstance(caught.value, gm.UnknownIdError)
        assert isinstance(caught.value, gm.IdError)
        assert (str(caught.value), caught.value.id) == ("there is no subscription with the id 'b'", "b")


@pytest.mark.parametrize(
    "expressions", [{"a": "i = = 1"}, {"a": "q = 1"}, {"b": "i = 1"}, {2: "i = 1"}, {"c": ""}, {"c": None}], ids=str
)
def test_errors_are_pickled(expressions: Any) -> None:
    matcher = filled({"b": "i = 1"})
    with pytest.raises(gm.GpumatchError) as caught:
        matcher.add(expressions)
    error = caught.value
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.id, again.position, again.message) == (error.id, error.position, error.message)


@pytest.mark.parametrize("kind", [getattr(gm, name) for name in gm.__all__ if name.endswith("Error")])
def test_errors_of_every_kind_are_pickled(kind: type[gm.GpumatchError]) -> None:
    assert (str(kind("why")), kind("why").id, kind("why").position) == ("why", None, None)
    error = kind("why")
    error.id = 3
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.id, str(again)) == (kind, 3, str(error))


def test_collected_errors_do_not_repeat_the_id() -> None:
    matcher = gm.Matcher({"i": "int64"})
    rejected = matcher.add({"x": "i = = 1", "y": "q = 1", "z": ""}, on_error="collect")
    assert [(one.id, one.position) for one in rejected] == [("x", 4), ("y", None), ("z", 0)]
    assert not any("subscription" in one.message or "^" in one.message for one in rejected)


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    matcher = gm.Matcher({"i": "int64"})
    path = tmp_path / "subs.parquet"
    path.write_text("no parquet")
    with pytest.raises(gm.SchemaError, match="not a Parquet file"):
        matcher.add_table(path)
    doubled = pa.table([pa.array([1]), pa.array([2]), pa.array(["i = 1"])], names=["id", "id", "expr"])
    with pytest.raises(gm.SchemaError, match="several columns named 'id'"):
        matcher.add_table(doubled)


def test_schemas_that_are_none() -> None:
    for wrong in ("x", [("a", "int8")], 5):
        with pytest.raises(gm.SchemaError, match="a schema is a dict"):
            gm.Matcher(wrong)  # type: ignore[arg-type]
    with pytest.raises(gm.SchemaError, match="several fields named 'a'"):
        gm.Matcher(pa.schema([("a", pa.int8()), ("a", pa.string())]))
    with pytest.raises(gm.SchemaError, match=r"'float'.*float32, float64"):
        gm.Matcher({"a": "float"})
    with pytest.raises(gm.SchemaError, match="Mars/X"):
        gm.Matcher({"t": "timestamp[us, tz=Mars/X]"})
    assert gm.Matcher(pa.schema([("a", pa.list_(pa.float32()))])).schema.to_dict() == {"a": "list<float32>"}


def test_nearest_name_ignores_case() -> None:
    with pytest.raises(gm.SchemaError, match="did you mean 'Price'"):
        gm.Matcher({"Price": "int64"}).add({1: "PRICE = 1"})


def test_matchers_are_not_pickled() -> None:
    with pytest.raises(TypeError, match="save"):
        pickle.dumps(gm.Matcher({"i": "int64"}))


def test_ranges_may_be_collected() -> None:
    matcher = gm.Matcher({"i": "int64"})
    rejected = matcher.add_ranges([1, 2, 2], {"i": ([5, 0, 0], [1, 9, 9])}, on_error="collect")
    assert [(bad.id, bad.message.split(" ")[1]) for bad in rejected] == [(1, "range"), (2, "id")]
    assert matcher.match_one({"i": 3}) == [2]


def test_explain_a_range_beyond_infinity() -> None:
    matcher = gm.Matcher({"f": "float64"})
    above = pa.table({"id": ["a"], "attribute": ["f"], "op": [">"], "value": [float("inf")]})
    matcher.add_predicates(above)
    matcher.add({"b": "f > 0.0"})
    assert not matcher.explain({"f": -1.0}, "a")
    assert matcher.match_one({"f": float("inf")}) == ["b"]


def test_two_threads_save_into_one_folder(tmp_path: Path) -> None:
    one, two = gm.Matcher({"i": "int64"}), gm.Matcher({"i": "int64"})
    one.add({1: "i = 1"})
    two.add({2: "i = 1 OR i = 2"})
    problems: list[BaseException] = []

    def save(matcher: gm.Matcher) -> None:
        try:
            for _ in range(5):
                matcher.save(tmp_path / "idx")
        except BaseException as error:
            problems.append(error)

    workers = [threading.Thread(target=save, args=(matcher,)) for matcher in (one, two, one, two)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems
    assert gm.load(tmp_path / "idx").match_one({"i": 1}) in ([1], [2])


def test_observed_events_are_kept_as_they_were() -> None:
    """The caller may go on to use its arrays."""
    found = []
    for reused in (False, True):
        matcher = gm.Matcher({"x": "float64"}, index=gm.Tama(max_fpr=0.3, approximate=True), device="cpu")
        values = np.random.default_rng(0).random(2000)
        matcher.observe({"x": values})
        if reused:
            values[:] = 0
        low = np.random.default_rng(1).random(500)
        matcher.add_ranges(np.arange(500), {"x": (low, low + 0.02)})
        found.append(matcher.stats()["segments"][0]["parts"][0]["levels"])
    assert found[0] == found[1]
