from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.results import Matches

WORDS = pa.array(["a", "b", "é", "d"])


def matches(lists: list[list[int]], ids: Any = WORDS, dtype: Any = np.int32) -> Matches:
    offsets = np.cumsum([0, *map(len, lists)])
    return Matches(offsets, np.array([row for rows in lists for row in rows], dtype), ids)


def test_csr_and_ids() -> None:
    found = matches([[0, 2], [], [3]])
    assert len(found) == 3
    assert found.n_pairs == 3
    assert found.counts.tolist() == [2, 0, 1]
    assert found.offsets.tolist() == [0, 2, 2, 3]
    assert found.rows.tolist() == [0, 2, 3]
    assert [found.ids(i) for i in range(3)] == [["a", "é"], [], ["d"]]
    assert found.ids(-1) == ["d"]
    assert found.ids(np.int64(0)) == ["a", "é"]
    assert list(found) == [["a", "é"], [], ["d"]]
    assert repr(found) == "Matches(3 events, 3 matches)"


@pytest.mark.parametrize("event", [3, -4])
def test_events_out_of_range(event: int) -> None:
    with pytest.raises(IndexError, match=f"event {event} is out of range: the result has 3 events"):
        matches([[0], [], [1]]).ids(event)


@given(st.lists(st.lists(st.integers(0, 3), max_size=20)), st.data())
def test_results_are_sequences(lists: list[list[int]], data: st.DataObject) -> None:
    found, plain = matches(lists), [[WORDS[row].as_py() for row in rows] for rows in lists]
    assert [found[i] for i in range(len(found))] == [found[i - len(found)] for i in range(len(found))] == plain
    assert list(reversed(found)) == plain[::-1]
    chosen = data.draw(st.slices(len(plain)))
    part = found[chosen]
    assert isinstance(part, Matches)
    assert (list(part), len(part), part.n_pairs) == (plain[chosen], len(plain[chosen]), sum(map(len, plain[chosen])))
    assert part.offsets.dtype == np.int64
    assert part.rows.dtype == found.rows.dtype


def test_items_that_are_none() -> None:
    found = matches([[0], [], [1]])
    assert found[np.int64(-1)] == ["b"]
    with pytest.raises(TypeError, match="given by its position, a whole number, found 'a'"):
        found["a"]  # type: ignore[call-overload]
    with pytest.raises(IndexError, match="event 3 is out of range"):
        found[3]
    with pytest.raises(TypeError):
        found["a"]  # type: ignore[call-overload]
    assert list(found[5:]) == []
    assert found[:] == found
    assert found[::-1].to_arrow().to_pydict() == {"event": [0, 2], "subscription": ["b", "a"]}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tables(dtype: Any) -> None:
    found = matches([[0, 2], [], [3]], dtype=dtype)
    table = found.to_arrow()
    assert table.schema == pa.schema({"event": pa.int64(), "subscription": pa.large_string()})
    assert table.to_pydict() == {"event": [0, 0, 2], "subscription": ["a", "é", "d"]}
    frame = found.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.to_dict("list") == table.to_pydict()
    polars = found.to_polars()
    assert isinstance(polars, pl.DataFrame)
    assert polars.to_dict(as_series=False) == table.to_pydict()


def test_integer_ids() -> None:
    found = matches([[1], [0, 1]], pa.array([7, 2**62], pa.int64()))
    assert list(found) == [[2**62], [7, 2**62]]
    assert found.to_arrow().schema.field("subscription").type == pa.int64()


@pytest.mark.parametrize("lists", [[], [[]], [[], []]])
def test_nothing_matches(lists: list[list[int]]) -> None:
    found = matches(lists, pa.array([], pa.large_string()))
    assert list(found) == lists
    assert found.counts.tolist() == [0] * len(lists)
    assert found.to_arrow().num_rows == 0
    assert len(found.to_pandas()) == len(found.to_polars()) == 0


def test_equality_is_by_ids() -> None:
    found = matches([[0], [1, 3]])
    assert found == matches([[0], [1, 3]])
    assert found == matches([[1], [2, 3]], pa.array(["z", "a", "b", "d"], pa.large_string()))
    assert found == matches([[0], [1, 3]], dtype=np.int64)
    assert found != matches([[0, 1], [3]])
    assert found != matches([[0], [1, 2]])
    assert found != matches([[0], [1, 3]], pa.array([0, 1, 2, 3]))
    assert found != [["a"], ["b", "d"]]
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)


@given(st.lists(st.lists(st.integers(0, 3), unique=True).map(sorted), max_size=5), st.integers(0, 2000))
def test_iteration_equals_lookup(lists: list[list[int]], repeats: int) -> None:
    lists = lists + [[1]] * repeats
    found = matches(lists)
    words = WORDS.to_pylist()
    expected = [[words[row] for row in rows] for rows in lists]
    assert list(found) == expected
    assert [found.ids(event) for event in range(len(lists))][:20] == expected[:20]


@pytest.mark.parametrize(
    ("library", "install"),
    [("pandas", "pandas"), ("polars", "polars"), ("cupy", r"'gpumatch\[gpu13\]'"), ("cudf", r"'gpumatch\[cudf13\]'")],
)
def test_what_to_install(library: str, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=rf"to_{library}\(\) needs {library}: pip install {install}"):
        getattr(matches([[0]]), f"to_{library}")()


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_lists_of_any_size(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More ids than 32-bit offsets count make an array with 64-bit ones."""
    monkeypatch.setattr("gpumatch.results._INT32", most)
    found = matches([[0, 2], [], [3]]).to_lists()
    assert found.to_pylist() == [["a", "é"], [], ["d"]]
    assert pa.types.is_large_list(found.type) == (most == 0)


def test_a_few_ids_of_several_segments() -> None:
    """They are looked up at once, or one by one if there is a single array."""
    matcher = gm.Matcher({"x": "int64"}, index="scan")
    for first in range(0, 30, 10):
        matcher.add(dict.fromkeys(range(first, first + 10), "x > 0"))
        matcher.match_one({"x": 1})
    assert matcher.match([{"x": 1}]).ids(0) == list(range(30))
    matcher.remove(range(3, 30))
    assert matcher.match_one({"x": 1}) == [0, 1, 2]
    matcher.compact()
    assert matcher.match_one({"x": 1}) == [0, 1, 2]
