"""Numbers of events: exact, or refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gpumatch.events.batch import EventBatch
from gpumatch.schema import Schema
from tests.events.cells import one, read, refusal


def test_mixed_numbers_in_rows() -> None:
    schema = Schema.of({"px": "float64", "qty": "int64"})
    rows = [{"px": 1, "qty": 1}, {"px": 2.5, "qty": 2.0}, {"px": None, "qty": None}, {"px": 2**70, "qty": -(2**63)}]
    assert read(rows, schema) == {"px": [1.0, 2.5, None, 2.0**70], "qty": [1, 2, None, -(2**63)]}


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4", ">f8"])
@pytest.mark.parametrize("kind", ["int8", "int64", "float32", "float64"])
def test_every_number_type_fits_every_number_attribute(dtype: str, kind: str) -> None:
    assert one(kind, np.array([1, 0, 100], dtype)) == [1, 0, 100]
    assert one(kind, np.array([1, 0, 100], dtype)[::2]) == [1, 100]
    assert one(kind, list(np.array([1, 0, 100], dtype))) == [1, 0, 100]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_nan_is_a_missing_integer(dtype: Any) -> None:
    assert one("int64", np.array([1, np.nan, 3], dtype)) == [1, None, 3]
    assert one("int64", [1, math.nan, np.float32("nan")]) == [1, None, None]
    assert one("int64", pa.array([1.0, None, math.nan])) == [1, None, None]


def test_nan_stays_in_float_columns() -> None:
    column = EventBatch.of({"a": np.array([1.0, np.nan])}, Schema.of({"a": "float64"})).columns(
        Schema.of({"a": "float64"})
    )[0]
    assert column.valid is None
    assert np.isnan(column.values[1])


def both(values: list[Any], dtype: Any) -> list[Any]:
    return [values, np.array(values, dtype), pa.array(np.array(values, dtype))]


@pytest.mark.parametrize("form", range(3))
def test_numbers_that_do_not_fit(form: int) -> None:
    text = refusal("int64", both([1.0, 2.5], np.float64)[form])
    assert "event 1 holds 2.5" in text
    assert "not whole" in text
    for value in (2.0**63, -(2.0**64), math.inf, -math.inf, 1e300):
        text = refusal("int32", both([0.0, 0.0, value], np.float64)[form])
        assert "event 2" in text
        assert "range of int64" in text
    assert "range of int64" in refusal("int64", both([0, 2**63], np.uint64)[form])
    for value in (2**53 + 1, -(2**53) - 1, 2**63 - 1):
        text = refusal("float64", both([0, value], np.int64)[form])
        assert f"event 1 holds {value}" in text
        assert "exactly" in text
    assert "exactly" in refusal("float64", both([2**64 - 1], np.uint64)[form])
    assert one("int64", both([-(2.0**63)], np.float64)[form]) == [-(2**63)]
    big = [2**53, -(2**53), 2**62, -(2**63), 3 * 2**60, 0]
    assert one("float64", both(big, np.int64)[form]) == big
    assert one("float64", both([2**63, 2**64 - 2**11], np.uint64)[form]) == [2**63, 2**64 - 2**11]


def test_huge_python_integers() -> None:
    assert "event 1" in refusal("int64", [0, 2**70])
    assert "range of int64" in refusal("int64", [None, -(2**63) - 1])
    assert "exactly" in refusal("float64", [10**400])
    assert "event 1" in refusal("list<int64>", [[1], [2, 2**63]])


def test_int64_keeps_all_bits() -> None:
    values = [2**63 - 1, -(2**63), 2**53 + 1]
    assert one("int64", values) == values
    assert one("int64", np.array(values)) == values
    assert one("int64", pa.array([*values, None])) == [*values, None]
    assert one("int64", pd.Series([*values, None], dtype="Int64")) == [*values, None]


def test_booleans_are_not_numbers() -> None:
    for kind in ("int64", "float64", "string"):
        for data in ([True], np.array([True]), pa.array([True]), pd.Series([True]), pl.Series([True]), [np.True_]):
            assert "bool" in refusal(kind, data)
    for data in ([1], np.array([1]), pa.array([1.0]), ["true"], np.array([0.0])):
        refusal("bool", data)
    assert one("bool", [np.True_, False, None]) == [1, 0, None]
    assert one("bool", pd.Series([True, None], dtype="boolean")) == [1, None]
