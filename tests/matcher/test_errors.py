"""What errors say, and what failed calls leave behind."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gpumatch as gm
from tests.matcher.faces import filled


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
