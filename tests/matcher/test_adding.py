"""Expressions, ids and tables in: all of them, or the errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch import col
from gpumatch.subscriptions.intake import Rejected
from tests.matcher.faces import SCHEMA, face, filled


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
