"""``top``: the heaviest subscriptions of each event."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumatch as gm

SCHEMA = {"x": "int64"}
WEIGHTS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, 7.0]))


def heaviest(ids: list[Any], weights: dict[Any, float | None], most: int) -> list[Any]:
    """The same in a few lines."""

    def order(name: Any) -> tuple[bool, float, Any]:
        weight = weights.get(name)
        missing = weight is None or math.isnan(weight)
        return missing, 0.0 if missing or weight is None else -weight, name

    return sorted(ids, key=order)[:most]


@given(
    st.lists(st.tuples(st.integers(-5, 5), WEIGHTS), min_size=1, max_size=30),
    st.integers(1, 5),
    st.booleans(),
    st.data(),
)
def test_the_heaviest_as_sorting_tells(
    drawn: list[tuple[int, float | None]], most: int, strings: bool, data: st.DataObject
) -> None:
    ids = data.draw(st.permutations([f"é{at}" if strings else at - 3 for at in range(len(drawn))]))
    weights = {name: weight for name, (_, weight) in zip(ids, drawn, strict=True)}
    half = len(ids) // 2
    matcher = gm.Matcher(SCHEMA, device="cpu")
    for some in (slice(half), slice(half, None)):  # two segments, or weights in one of them only
        texts = {name: f"x >= {least}" for name, (least, _) in zip(ids[some], drawn[some], strict=True)}
        matcher.add(texts, weight=[weights[name] for name in texts] if texts else None)
        matcher.match([{"x": 0}])
    gone = data.draw(st.sets(st.sampled_from(ids), max_size=len(ids) // 3))
    matcher.remove(gone)
    if data.draw(st.booleans()):
        matcher.compact()
    events = [{"x": x} for x in range(-6, 7)]
    expected = [heaviest(found, weights, most) for found in matcher.match(events)]
    assert list(matcher.top(events, most)) == expected


def test_weights_stay_with_their_subscriptions(tmp_path: Path) -> None:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    assert len(matcher.add({"a": "x > 0", "b": "x > (", "c": "x > 0"}, "collect", weight=[1, 2, 3])) == 1
    matcher.upsert({"a": "x > 1", "d": "x > 1"}, weight=[9, 2])
    matcher.replace({"c": "x > 2"})
    for held in (matcher, saved(matcher, tmp_path)):
        assert list(held.top([{"x": 5}, {"x": 2}, {"x": 0}], 2)) == [["c", "d"], ["d", "a"], []]


def saved(matcher: gm.Matcher, folder: Path) -> gm.Matcher:
    matcher.save(folder / "index")
    return gm.load(folder / "index", device="cpu")


def test_every_way_to_add_takes_weights() -> None:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    matcher.add({1: "x > 0"}, weight=5)
    matcher.add_table(pa.table({"id": [2], "expr": ["x > 0"]}), weight=pa.array([7]))
    matcher.add_ranges([3, 4], {"x": ([0, 0], [9, 9])}, weight=np.array([8, 1], np.float32))
    matcher.add_predicates(pd.DataFrame({"id": [5], "attribute": ["x"], "op": [">"], "value": [0]}), weight=[6])
    matcher.add({6: "x > 0"})
    assert matcher.top([{"x": 5}], 10).ids(0) == [3, 2, 5, 1, 4, 6]


def test_large_integers_are_weights() -> None:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    matcher.add({1: "x > 0", 2: "x > 0"}, weight=[10**17 + 1, 2**62])
    assert matcher.top([{"x": 1}], 2).ids(0) == [2, 1]


def test_without_weights_ids_decide() -> None:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    assert list(matcher.top([{"x": 1}], 3)) == [[]]
    matcher.add({3: "x > 0", 1: "x > 0", 2: "x > 0"})
    assert list(matcher.top([{"x": 1}], 2)) == [[1, 2]]
    assert list(matcher.top([], 2)) == []


@pytest.mark.parametrize("weight", [[1], [1, 2, 3], "heavy", ["a", "b"], [True, False], object()])
def test_weights_that_are_none(weight: Any) -> None:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    with pytest.raises(gm.SchemaError, match="weight"):
        matcher.add({"a": "x > 0", "b": "x > 0"}, weight=weight)
    assert len(matcher) == 0


@pytest.mark.parametrize("most", [0, -1, True, 1.5, None])
def test_how_many_is_a_whole_number(most: Any) -> None:
    with pytest.raises(ValueError, match="top takes a whole number of at least 1"):
        gm.Matcher(SCHEMA, device="cpu").top([], most)
