"""Removing, replacing, and matchers as mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch import col
from gpumatch.expr import evaluate, parse
from gpumatch.store import store
from tests.matcher.faces import SCHEMA, TYPED, face, filled


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
    class Interrupting(gm.Expr):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    matcher = filled({1: "i = 1"})
    before = face(matcher)
    with pytest.raises(KeyboardInterrupt):
        matcher.replace({1: Interrupting(gm.parse("i = 2").program)})
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


# Several kinds at once


def test_change() -> None:
    matcher = filled({"a": "i = 1", "b": "i = 1", "c": "i = 1"})
    assert matcher.change({"b": "i = 2", "d": col("i") == 1}, ["a", "none", "a"]) == []
    assert list(matcher) == ["c", "b", "d"]
    assert list(matcher.match([{"i": 1}, {"i": 2}])) == [["c", "d"], ["b"]]
    matcher.change(remove=["c"])
    matcher.change({"e": "i = 2"})
    matcher.change()
    assert list(matcher.match([{"i": 1}, {"i": 2}])) == [["d"], ["b", "e"]]
    empty = gm.Matcher(SCHEMA)
    empty.change(remove=["x"])
    empty.change({5: "i = 1"}, remove=[6])
    empty.change({}, remove=np.array([6, 7]))
    assert list(empty) == [5]
    empty.change(remove=[5])
    empty.change({"now": "i = 1"}, remove=["strings"])
    assert list(empty) == ["now"]


def test_what_is_the_same_stays_where_it_is() -> None:
    matcher = filled({"a": "i = 1", "b": "i = 1", "c": "i = 1"})
    matcher.add_ranges(["r"], {"i": ([1], [1])})
    matcher.change({"a": "i = 1", "b": "i=1", "r": "i BETWEEN 1 AND 1"})
    assert list(matcher) == ["a", "c", "b", "r"]  # texts are compared, and ranges have none
    matcher.change({"a": "i = 1"}, destination="d")
    assert list(matcher) == ["c", "b", "r", "a"]
    matcher.change({"c": "i = 1", "a": "i = 1", "b": "i=1"}, destination=[None, "d", "d"], weight=[None, None, 2])
    assert list(matcher) == ["c", "r", "a", "b"]
    matcher.change({"c": "i = 1", "a": "i = 1", "b": "i=1"})
    assert list(matcher) == ["c", "r", "a", "b"]
    assert matcher.destinations([{"i": 1}]).ids(0) == ["d"]


def test_change_keeps_or_sets_destinations_and_weights() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "i = 1", "b": "i = 1"}, destination=["d1", "d2"], weight=[1, 2])
    matcher.change({"a": "i = 2", "b": "i = 2"}, destination=["d3", None])
    assert matcher.destinations([{"i": 2}]).ids(0) == ["d3"]
    assert matcher.top([{"i": 2}], 1).ids(0) == ["b"]
    matcher.change({"a": "i = 3", "b": "i = 3"}, weight=[5, 4])
    assert matcher.destinations([{"i": 3}]).ids(0) == ["d3"]
    assert matcher.top([{"i": 3}], 1).ids(0) == ["a"]


@pytest.mark.parametrize(
    ("upsert", "remove", "kind", "message"),
    [
        ({1: "i = ("}, [2], gm.ParseError, "subscription 1: "),
        ({9: "i = 2", 2: "q = 2"}, [1], gm.SchemaError, "subscription 2: "),
        ({1: "i = 2"}, ["2"], gm.IdError, "the new ones, such as '2', are strings, those added before integers"),
        ({"1": "i = 2"}, [2], gm.IdError, "the new ones, such as '1', are strings"),
        ({}, [2, "x"], gm.IdError, "'x' is a string"),
        ({1: "i = 2"}, [3, 1], gm.IdError, "the id 1 is to be changed and to be removed"),
        ({}, 1, gm.IdError, "change takes a list of ids, found the single id 1"),
        ([1], [], gm.SchemaError, "change takes a dict"),
    ],
)
def test_change_all_or_nothing(upsert: Any, remove: Any, kind: type[gm.GpumatchError], message: str) -> None:
    matcher = filled({1: "i = 1", 2: "i = 1", 3: "i = 1"})
    before = face(matcher)
    with pytest.raises(kind) as caught:
        matcher.change(upsert, remove)
    assert message in str(caught.value)
    assert face(matcher) == before


def test_change_collects_errors() -> None:
    matcher = filled({"a": "i = 1", "b": "i = 1", "c": "i = 1"})
    rejected = matcher.change({"a": "i = (", 7: "i = 1", "b": "i = 2", "n": "q = 1"}, ["c"], on_error="collect")
    assert {one.id: (one.position, one.message[:11]) for one in rejected} == {
        7: (None, "ids are all"),
        "a": (4, "expected a "),
        "n": (None, "unknown att"),
    }
    assert list(matcher) == ["a", "b"]
    assert list(matcher.match([{"i": 1}, {"i": 2}])) == [["a"], ["b"]]


def test_a_large_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index is built before it is seen; what others change meanwhile counts."""
    monkeypatch.setattr(store, "SCANNED", 10)
    matcher = filled({at: f"i = {at}" for at in range(40)})
    matcher.match_one({"i": 0})
    original, others = matcher._store.build, [lambda: matcher.remove([39]), lambda: matcher.replace({7: "i = 100"})]
    sizes = []

    def build(*given: Any) -> Any:
        sizes.append(len(given[0]))
        if others:
            others.pop()()
        return original(*given)

    monkeypatch.setattr(matcher._store, "build", build)
    matcher.change({at: f"i = {at + 100 * (at >= 20)}" for at in range(40)}, [41])
    assert sizes[:2] == [20, 21]
    assert len(matcher) == 40
    assert sorted(matcher.match_one({"i": 7})) == [7]
    assert [matcher.match_one({"i": at + 100}) for at in range(20, 40)] == [[at] for at in range(20, 40)]


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
