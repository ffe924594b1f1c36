"""Types of a schema as Python and its libraries have them."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.schema import parse_type

TYPES: list[tuple[Any, str]] = [
    (int, "int64"),
    (float, "float64"),
    (str, "string"),
    (bool, "bool"),
    (dt.datetime, "timestamp[us]"),
    (dt.date, "date"),
    (list[str], "list<string>"),
    (set[int], "list<int64>"),
    (frozenset[dt.date], "list<date>"),
    (np.int8, "int8"),
    (np.dtype("int64"), "int64"),
    (np.dtype(">i4"), "int32"),
    (np.float32, "float32"),
    (np.bool_, "bool"),
    (np.dtype("U5"), "string"),
    (np.str_, "string"),
    (np.dtypes.StringDType(), "string"),
    (np.dtype("M8[D]"), "date"),
    (np.dtype("M8[M]"), "date"),
    (np.dtype("M8[s]"), "timestamp[us]"),
    (np.dtype("M8[ns]"), "timestamp[ns]"),
    (list[np.float32], "list<float32>"),
    (pa.float32(), "float32"),
    (pa.string_view(), "string"),
    (pa.list_(pa.float32()), "list<float32>"),
    (pa.list_(pa.int8(), 3), "list<int8>"),
    (pa.large_list(pa.dictionary(pa.int8(), pa.string())), "list<string>"),
    (pa.list_(pa.field("item", pa.string(), nullable=False)), "list<string>"),
    (pa.dictionary(pa.int32(), pa.large_string()), "string"),
    (pa.timestamp("ms", "Asia/Tokyo"), "timestamp[us, tz=Asia/Tokyo]"),
    (pl.Int16, "int16"),
    (pl.Int64(), "int64"),
    (pl.Float32, "float32"),
    (pl.Boolean, "bool"),
    (pl.String, "string"),
    (pl.Categorical, "string"),
    (pl.Enum(["a"]), "string"),
    (pl.Date, "date"),
    (pl.Datetime, "timestamp[us]"),
    (pl.Datetime("ns"), "timestamp[ns]"),
    (pl.Datetime("ms", "Europe/Berlin"), "timestamp[us, tz=Europe/Berlin]"),
    (pl.List(pl.String), "list<string>"),
    (pl.Array(pl.Float64, 3), "list<float64>"),
    (pd.Int8Dtype(), "int8"),
    (pd.Float64Dtype(), "float64"),
    (pd.BooleanDtype(), "bool"),
    (pd.StringDtype(), "string"),
    (pd.StringDtype("pyarrow", na_value=np.nan), "string"),
    (pd.CategoricalDtype(["a", "b"]), "string"),
    (pd.CategoricalDtype([1, 2]), "int64"),
    (pd.SparseDtype(np.float64), "float64"),
    (pd.DatetimeTZDtype("ns", "UTC"), "timestamp[ns, tz=UTC]"),
    (pd.DatetimeTZDtype("us", dt.timezone(dt.timedelta(hours=-3))), "timestamp[us, tz=-03:00]"),
    (pd.ArrowDtype(pa.list_(pa.string())), "list<string>"),
    (pd.ArrowDtype(pa.float32()), "float32"),
]


@pytest.mark.parametrize(("given", "name"), TYPES, ids=str)
def test_types_of_libraries(given: Any, name: str) -> None:
    assert parse_type("x", given) == parse_type("x", name)
    assert gm.Matcher({"x": given}).schema.to_dict() == {"x": name}


@pytest.mark.parametrize(
    "given",
    [
        *(complex, bytes, list, dict, Decimal, list[list[int]], tuple[int], int | None, None, 5, type("int64", (), {})),
        *(np.uint8, np.float16, np.dtype("S3"), np.dtype("m8[s]"), np.datetime64, np.dtype("M8[ps]"), np.dtype("V4")),
        *(pa.null(), pa.uint8(), pa.binary(), pa.struct({"a": pa.int8()}), pa.list_(pa.list_(pa.int8())), pa.float16()),
        *(pl.UInt8, pl.List, pl.Decimal(5, 2), pl.Struct({"a": pl.Int8}), pl.Object, pl.Duration, pl.Null),
        *(pd.UInt8Dtype(), pd.PeriodDtype("D"), pd.IntervalDtype(), pd.CategoricalDtype(), pd.ArrowDtype(pa.uint8())),
    ],
    ids=str,
)
def test_types_that_are_refused(given: Any) -> None:
    with pytest.raises(gm.SchemaError, match=r"attribute 'x' has type .* not supported; use one of int8"):
        gm.Matcher({"x": given})


@pytest.mark.parametrize("given", [object, np.dtype(object), pd.CategoricalDtype([])], ids=str)
def test_objects_say_nothing(given: Any) -> None:
    with pytest.raises(gm.SchemaError, match=r"attribute 'x' has type 'object', .*convert_dtypes\(\)"):
        gm.Matcher({"x": given})


def test_schemas_of_frames() -> None:
    frame = pd.DataFrame({"i": [1], "s": ["a"], "c": pd.Categorical(["x"]), "t": [pd.Timestamp("2024-01-01")]})
    frame["n"] = pd.array([None], "Int32")
    kinds = {"i": "int64", "s": "string", "c": "string", "t": "timestamp[us]", "n": "int32"}
    frame["s"] = frame["s"].astype("string")
    matcher = gm.Matcher(frame.dtypes)
    assert matcher.schema.to_dict() == kinds
    matcher.add({1: "i = 1 AND s = 'a' AND c = 'x' AND t >= '2024-01-01' AND n IS NULL"})
    assert list(matcher.match(frame)) == [[1]]
    polars = pl.from_pandas(frame)
    assert gm.Matcher(polars.schema).schema.to_dict() == kinds
    assert gm.Matcher(polars.to_arrow().schema).schema.to_dict() == kinds


def test_schemas_that_cannot_be() -> None:
    doubled = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(gm.SchemaError, match="several fields named 'a'"):
        gm.Matcher(doubled.dtypes)
    with pytest.raises(gm.SchemaError, match="attribute names are non-empty strings, found 0"):
        gm.Matcher(pd.DataFrame([[1]]).dtypes)
    for frame in (doubled, pl.DataFrame({"a": [1]}), pa.table({"a": [1]})):
        with pytest.raises(gm.SchemaError, match=r"a schema is a dict of attribute -> type.*the dtypes of a pandas"):
            gm.Matcher(frame)  # type: ignore[arg-type]


def test_no_library_is_loaded_for_asking() -> None:
    code = (
        "import sys, datetime, gpumatch.schema as s\n"
        "s.Schema.of({'a': int, 'b': list[str], 'c': datetime.date, 'd': 'float64'})\n"
        "assert not {'pandas', 'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("given", "meant"), [("int", "int64"), ("STR", "string"), ("datetime", "timestamp")])
def test_a_name_that_is_nearly_one_is_told(given: str, meant: str) -> None:
    with pytest.raises(gm.SchemaError, match=f"has type '{given}', which is not supported; write '{meant}'"):
        gm.Schema.of({"x": given})
