"""Missing values, masks and lists of events."""

from __future__ import annotations

import array
import math
from collections import deque
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.events.cells import one, refusal
from tests.events.test_inputs import KINDS, ArrowArray, Stream


@pytest.mark.parametrize("kind", [kind for kind, *_ in KINDS.values()])
@pytest.mark.parametrize(
    "data",
    [
        [None, None],
        np.array([None, np.nan], object),
        np.array([np.nan, np.nan]),
        pa.nulls(2),
        pa.nulls(2, pa.int8()),
        pa.nulls(2, pa.decimal128(5)),
        pd.Series([None, None], dtype=object),
        pd.Series([pd.NA, pd.NaT], dtype=object),
        pd.Series([np.nan, np.nan]),
        pl.Series([None, None]),
    ],
)
def test_all_null_fits_every_type(kind: str, data: Any) -> None:
    found = one(kind, data)
    assert found is None or found == [None, None]


def test_missing_of_pandas_in_object_columns() -> None:
    nothing = [pd.NA, pd.NaT, None, math.nan]
    assert one("int64", [1, *nothing]) == [1, None, None, None, None]
    assert one("string", pd.Series(["x", *nothing], dtype=object)) == ["x", None, None, None, None]
    assert one("list<string>", [["x", *nothing], *nothing]) == [["x"], None, None, None, None]
    assert one("bool", np.array([True, *nothing], object)) == [1, None, None, None, None]


def test_masked_arrays() -> None:
    mask = [False, True, False]
    assert one("int64", np.ma.array([1, 2, 3], mask=mask)) == [1, None, 3]
    assert one("float64", np.ma.array([1.0, 2.0, 3.0], mask=mask)) == [1, None, 3]
    assert one("float64", np.ma.array([1, 2, 3], mask=mask)) == [1, None, 3]
    assert one("bool", np.ma.array([True, True, False], mask=mask)) == [1, None, 0]
    assert one("string", np.ma.array(["x", "y", "z"], mask=mask)) == ["x", None, "z"]
    assert one("string", np.ma.array(["x", "y", "z"], mask=mask, dtype=object)) == ["x", None, "z"]
    assert one("date", np.ma.array(np.arange(3).astype("datetime64[D]"), mask=mask)) == [0, None, 2]
    assert one("list<int64>", np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [1, 1]])) == [[1], []]
    assert one("int64", list(np.ma.array([1, 2, 3], mask=mask))) == [1, None, 3]


# Lists.


def test_lists_of_every_layout() -> None:
    lists, expected = [[1, 2], None, [3, None]], [[1, 2], None, [3]]
    inner = pa.int32()
    for kind in (
        pa.list_(inner), pa.large_list(inner), pa.list_(inner, 2), pa.list_view(inner), pa.large_list_view(inner),
    ):  # fmt: skip
        array = pa.array(lists, kind)
        assert one("list<int64>", array) == expected
        assert one("list<int64>", array[1:]) == expected[1:]
        assert one("list<int64>", pa.chunked_array([array, array[:1]])) == [*expected, [1, 2]]
        assert one("list<float64>", array) == expected
    words = pa.array([["x", None], None, ["y", "x"]])
    assert one("list<string>", words.cast(pa.list_(pa.dictionary(pa.int8(), pa.string())))) == [["x"], None, ["y", "x"]]
    assert one("list<string>", pl.Series([["x"], None, []])) == [["x"], None, []]
    assert one("list<int64>", pl.Series([[1, 2], None], dtype=pl.Array(pl.Int64, 2))) == [[1, 2], None]
    assert one("list<string>", pa.array([[], None])) == [[], None]
    assert one("list<string>", pa.array([[None], None])) == [[], None]


def test_lists_of_python() -> None:
    assert one("list<int64>", [[1, 2.0], (3,), {4}, frozenset([5]), np.array([6, 7]), [], None]) == [
        [1, 2], [3], [4], [5], [6, 7], [], None,
    ]  # fmt: skip
    assert one("list<date>", [np.array([1, 2], "datetime64[D]")]) == [[1, 2]]
    assert one("list<string>", [[None], []]) == [[], []]


def test_sparse_and_encoded_columns() -> None:
    assert one("int64", pd.Series(pd.arrays.SparseArray([0, 0, 5]))) == [0, 0, 5]
    assert one("float64", pd.Series(pd.arrays.SparseArray([1.5, np.nan]))) == [1.5, None]
    assert one("int64", pc.run_end_encode(pa.array([7, 7, None]))) == [7, 7, None]
    assert one("string", pc.run_end_encode(pa.array(["x", "x", None]))) == ["x", "x", None]


def test_other_sequences() -> None:
    assert (
        one("int64", range(3)) == one("int64", array.array("l", range(3))) == one("int64", deque(range(3))) == [0, 1, 2]
    )
    assert one("int64", ArrowArray(pa.array([1, None]))) == [1, None]
    assert one("int64", Stream(pa.chunked_array([[1], [None]]))) == [1, None]


def test_two_dimensional_arrays_are_lists() -> None:
    assert one("list<int64>", np.array([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert one("list<int64>", np.array([[1, 2], [3, 4]]).T) == [[1, 3], [2, 4]]
    assert one("list<float64>", np.array([[1, np.nan], [np.nan, np.nan]])) == [[1], []]
    assert one("list<string>", np.array([["x", "yy"]])) == [["x", "yy"]]
    assert one("list<string>", np.array([["x", None]], object)) == [["x"]]
    assert one("list<int64>", np.zeros((2, 0), np.int64)) == [[], []]
    assert "2-dimensional" in refusal("int64", np.array([[1, 2]]))
    assert "3-dimensional" in refusal("list<int64>", np.zeros((1, 1, 1)))


def test_scalars_and_lists_do_not_mix() -> None:
    for data in ([1], np.array([1]), pa.array([1]), pd.Series([1]), pl.Series([1]), [[1], 2]):
        assert "declare the attribute as int64" in refusal("list<int64>", data)
    for data in (["abc"], np.array(["abc"]), pa.array(["abc"]), pd.Series(["abc"])):
        refusal("list<string>", data)
    for data in ([[1]], pa.array([[1]]), pd.Series([[1]]), pl.Series([[1]])):
        refusal("int64", data)
    assert "list<int64>" in refusal("int64", pa.array([[1]]))
    refusal("list<int64>", [[[1]]])


def test_errors_in_lists_name_the_event() -> None:
    for data in ([[1], [], None, [2, 2.5]], pa.array([[1.0], [], None, [2, 2.5]])):
        assert "event 3 holds 2.5" in refusal("list<int64>", data)
