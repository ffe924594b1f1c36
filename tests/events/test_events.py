from __future__ import annotations

import array
import datetime as dt
import enum
import math
from collections import deque
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import SchemaError
from gpumatch.events.batch import Column, EventBatch, Strings
from gpumatch.expr.atoms import Timestamp
from gpumatch.schema import Schema

UTC = dt.UTC
BERLIN = dt.timezone(dt.timedelta(hours=2))


def plain(values: np.ndarray | Strings) -> list[Any]:
    """Raw values as Python; None for NaN and for the index that stands for a missing string."""
    if isinstance(values, Strings):
        assert values.dictionary.type == pa.large_string()
        assert values.dictionary.null_count == 0
        assert values.indices.dtype == np.int32
        words = values.dictionary.to_pylist()
        assert len(set(words)) == len(words)
        return [None if index < 0 else words[index] for index in values.indices]
    assert values.dtype in (np.float64, np.int64)
    assert values.flags.c_contiguous
    return [None if value != value else value for value in values.tolist()]


def cells(column: Column, length: int) -> list[Any]:
    """One raw value per event, None if missing; a list for list attributes."""
    raw = plain(column.values)
    if column.offsets is not None:
        assert column.offsets.dtype == np.int64
        assert column.offsets[0] == 0
        assert column.offsets[-1] == len(raw)
        assert None not in raw
        ends = column.offsets.tolist()
        raw = [raw[a:b] for a, b in pairwise(ends)]
    if column.valid is not None:
        assert column.valid.dtype == np.bool_
        raw = [value if there else None for value, there in zip(raw, column.valid, strict=True)]
    assert len(raw) == length
    return raw


def read(data: Any, schema: Schema) -> dict[str, list[Any]]:
    batch = EventBatch.of(data, schema)
    assert batch.sparse(schema) is None
    return {schema.names[at]: cells(column, len(batch)) for at, column in batch.columns(schema).items()}


def one(kind: str, data: Any) -> list[Any] | None:
    """The cells of a single attribute ``a`` from its column."""
    return read({"a": data}, Schema.of({"a": kind})).get("a")


def refusal(kind: str, data: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        EventBatch.of({"a": data}, Schema.of({"a": kind}))
    text = str(caught.value)
    assert "'a'" in text
    assert kind in text
    return text


# Every input kind x every type, with nulls.

KINDS = {
    "i": ("int32", pa.int16(), [1, None, -3], [1, None, -3]),
    "f": ("float64", pa.float64(), [1.5, None, -0.0], [1.5, None, -0.0]),
    "g": ("float32", pa.float32(), [0.1, None, math.inf], [float(np.float32(0.1)), None, math.inf]),
    "b": ("bool", pa.bool_(), [True, None, False], [1, None, 0]),
    "s": ("string", pa.string(), ["", None, "é😀"], ["", None, "é😀"]),
    "d": ("date", pa.date32(), [dt.date(1970, 1, 3), None, dt.date(1969, 12, 31)], [2, None, -1]),
    "t": ("timestamp[us]", pa.timestamp("us"), [dt.datetime(1970, 1, 1, 0, 0, 1), None, dt.datetime(1969, 12, 31)],
          [10**6, None, -86_400 * 10**6]),
    "z": ("timestamp[ns, tz=UTC]", pa.timestamp("us", "UTC"),
          [dt.datetime(1970, 1, 1, 2, tzinfo=BERLIN), None, dt.datetime(1970, 1, 1, 1, tzinfo=UTC)],
          [0, None, 3600 * 10**9]),
    "li": ("list<int64>", pa.list_(pa.int32()), [[1, None, 2], None, []], [[1, 2], None, []]),
    "lf": ("list<float64>", pa.list_(pa.float64()), [[math.nan, 2.5], None, [math.nan]], [[2.5], None, []]),
    "ls": ("list<string>", pa.large_list(pa.large_string()), [["x", "y", "x"], None, [None]],
           [["x", "y", "x"], None, []]),
    "lb": ("list<bool>", pa.list_(pa.bool_()), [[True, None], None, [False, True]], [[1], None, [0, 1]]),
    "ld": ("list<date>", pa.list_(pa.date32()), [[dt.date(1970, 1, 2)], None, []], [[1], None, []]),
    "lt": ("list<timestamp[us]>", pa.list_(pa.timestamp("ms")), [[dt.datetime(1970, 1, 1, 0, 0, 2)], None, []],
           [[2 * 10**6], None, []]),
}  # fmt: skip
SCHEMA = Schema.of({name: kind for name, (kind, *_) in KINDS.items()} | {"absent": "int64"})
TABLE = pa.table(
    {name: pa.array(values, arrow) for name, (_, arrow, values, _) in KINDS.items()} | {"extra": pa.array([{}, {}, {}])}
)
EXPECTED = {name: expected for name, (*_, expected) in KINDS.items()}


class Stream:
    def __init__(self, table: pa.Table | pa.ChunkedArray) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class ArrowArray:
    def __init__(self, batch: pa.RecordBatch | pa.Array) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch)

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


def chunked(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])


def pandas_objects(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(table[name].to_pylist(), dtype=object) for name in table.column_names})


INPUTS = {
    "rows": lambda t: t.to_pylist(),
    "rows without nulls": lambda t: [{k: v for k, v in row.items() if v is not None} for row in t.to_pylist()],
    "tuple of rows": lambda t: tuple(t.to_pylist()),
    "dict of lists": lambda t: t.to_pydict(),
    "dict of object arrays": lambda t: {name: pandas_objects(t)[name].to_numpy() for name in t.column_names},
    "dict of arrow": lambda t: {name: t[name] for name in t.column_names},
    "dict of polars": lambda t: {name: pl.from_arrow(t)[name] for name in t.column_names},
    "dict of pandas": lambda t: dict(t.to_pandas().items()),
    "pandas": lambda t: t.to_pandas(),
    "pandas objects": pandas_objects,
    "pandas nullable": lambda t: pandas_objects(t).convert_dtypes(),
    "pandas arrow": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda t: pl.from_arrow(t),
    "table": lambda t: t,
    "chunks": chunked,
    "batch": lambda t: t.to_batches()[0],
    "reader": lambda t: chunked(t).to_reader(),
    "stream": lambda t: Stream(chunked(t)),
    "array": lambda t: ArrowArray(t.to_batches()[0]),
    "struct array": lambda t: t.to_struct_array().combine_chunks(),
}


@pytest.mark.parametrize("form", INPUTS)
def test_every_input_gives_the_same_columns(form: str) -> None:
    assert read(INPUTS[form](TABLE), SCHEMA) == EXPECTED


@pytest.mark.parametrize("form", INPUTS)
def test_no_nulls_means_no_mask(form: str) -> None:
    table = TABLE.slice(0, 1)
    batch = EventBatch.of(INPUTS[form](table), SCHEMA)
    columns = batch.columns(SCHEMA)
    assert len(columns) == len(KINDS)
    assert all(column.valid is None for column in columns.values())


@pytest.mark.parametrize("form", INPUTS)
def test_no_events(form: str) -> None:
    data = INPUTS[form](TABLE.slice(0, 0)) if "array" not in form and form != "batch" else TABLE.slice(0, 0)
    batch = EventBatch.of(data, SCHEMA)
    assert len(batch) == 0
    assert batch.columns(SCHEMA) == {}


@pytest.mark.parametrize("empty", [[], (), {}, pd.DataFrame(), pl.DataFrame(), pa.table({})])
def test_nothing_at_all(empty: Any) -> None:
    batch = EventBatch.of(empty, SCHEMA)
    assert len(batch) == 0
    assert batch.columns(SCHEMA) == {}


def test_the_number_of_events_does_not_need_a_known_column() -> None:
    for data in ([{"no": 1}, {}], {"no": [1, 2]}, pd.DataFrame({"no": [1, 2]}), pl.DataFrame({"no": [1, 2]})):
        batch = EventBatch.of(data, SCHEMA)
        assert len(batch) == 2
        assert batch.columns(SCHEMA) == {}


# Numbers.


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


# Strings.


class Colour(enum.StrEnum):
    RED = "red"


def test_strings_of_every_layout() -> None:
    words, expected = ["b", None, "a", "b"], ["b", None, "a", "b"]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        text = pa.array(words, kind)
        assert one("string", text) == expected
        assert one("string", pa.chunked_array([text, text[1:]])) == expected + expected[1:]
    encoded = pa.array(words).dictionary_encode()
    assert one("string", encoded) == expected
    assert one("string", encoded[1:]) == expected[1:]
    other = pa.array(["z", "a", None]).dictionary_encode()
    assert one("string", pa.chunked_array([encoded, other])) == [*expected, "z", "a", None]
    assert one("string", pd.Series(words, dtype="category")) == expected
    assert one("string", pl.Series(words, dtype=pl.Categorical)) == expected
    assert one("string", pl.Series(words, dtype=pl.Enum(["a", "b", "c"]))) == expected
    assert one("string", np.array(["b", "a"])) == ["b", "a"]
    assert one("string", np.array(["b", "a"], np.dtypes.StringDType())) == ["b", "a"]
    assert one("string", [np.str_("x"), Colour.RED, "y\0z"]) == ["x", "red", "y\0z"]


def test_dictionaries_that_break_the_rules() -> None:
    indices = pa.array([0, 1, 2, None, 3], pa.uint8())
    assert one("string", pa.DictionaryArray.from_arrays(indices, pa.array(["x", None, "y", "z"]))) == [
        "x", None, "y", None, "z",
    ]  # fmt: skip
    wide = pa.DictionaryArray.from_arrays(pa.array([7, 7]), pa.array([str(i) for i in range(1000)]))
    schema = Schema.of({"a": "string"})
    values = EventBatch.of({"a": wide}, schema).columns(schema)[0].values
    assert isinstance(values, Strings)
    assert values.dictionary.to_pylist() == ["7"]


def test_dictionaries_of_other_types() -> None:
    assert one("int64", pa.array([5, None, 5]).dictionary_encode()) == [5, None, 5]
    assert one("float64", pd.Series([1.5, 2.5, 1.5], dtype="category")) == [1.5, 2.5, 1.5]
    assert one("date", pa.array([dt.date(1970, 1, 2)]).dictionary_encode()) == [1]


def bad_utf8(data: bytes) -> pa.Array:
    ends = pa.py_buffer(np.array([0, 1, 1 + len(data)], np.int32))
    return pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"a" + data))


@pytest.mark.parametrize(
    "data",
    [
        ["a", "x\ud800"],
        np.array(["a", "x\ud800"]),
        np.array(["a", "x\ud800"], object),
        pd.Series(["a", "x\ud800"], dtype=object),
        bad_utf8(b"\xed\xa0\x80"),
        bad_utf8(b"\xff"),
        bad_utf8(b"\xff").dictionary_encode(),
    ],
)
def test_broken_text(data: Any) -> None:
    text = refusal("string", data)
    assert "event 1" in text
    assert "lone surrogate" in text


def test_broken_text_in_lists() -> None:
    assert "event 2" in refusal("list<string>", [["a"], None, ["b", "\udfff"]])


# Dates and timestamps.

DAY = 86_400


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("target", ["us", "ns"])
def test_timestamps_of_every_unit(unit: str, target: str) -> None:
    per_second = {"us": 10**6, "ns": 10**9}[target]
    array = np.array(["1970-01-01T00:00:05", "NaT", "1969-12-31T23:59:59"], f"datetime64[{unit}]")
    expected = [5 * per_second, None, -per_second]
    for data in (array, list(array), pa.array(array), pd.Series(array), pl.Series(pa.array(array))):
        if isinstance(data, pl.Series) and unit == "s":
            continue  # polars has no such unit
        assert one(f"timestamp[{target}]", data) == expected
        assert one(f"list<timestamp[{target}]>", [[value] for value in array]) == [[expected[0]], [], [expected[2]]]
    zoned = pa.array(array).cast(pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, "Europe/Berlin"))
    for data in (zoned, pd.Series(array).dt.tz_localize("UTC")):
        assert one(f"timestamp[{target}, tz=UTC]", data) == expected


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "25s", "10us"])
def test_other_units_of_numpy(unit: str) -> None:
    array = np.array(["1971-01-01", "NaT"], f"datetime64[{unit}]")
    expected = int(array[0].astype("datetime64[us]").astype(int))
    assert one("timestamp[us]", array) == [expected, None]
    assert one("timestamp[us]", list(array)) == [expected, None]


def test_timestamps_that_do_not_fit() -> None:
    fine = np.array([0, 1], "datetime64[ns]")
    for data in (fine, list(fine), pa.array(fine), pd.Series(fine), list(pd.Series(fine))):
        text = refusal("timestamp[us]", data)
        assert "event 1" in text
        assert "timestamp[ns]" in text
        assert one("timestamp[ns]", data) == [0, 1]
    far = np.array(["1970-01-01", "3000-01-01"], "datetime64[s]")
    for data in (far, list(far), pa.array(far), [dt.datetime(1970, 1, 1), dt.datetime(3000, 1, 1)]):
        text = refusal("timestamp[ns]", data)
        assert "event 1" in text
        assert "outside the range" in text
        assert one("timestamp[us]", data) == [0, 32503680000 * 10**6]
    for days in (2**62, -(2**62)):
        assert "outside the range" in refusal("timestamp[us]", np.array([0, days], "datetime64[D]"))
        assert "outside the range" in refusal("timestamp[us]", [np.datetime64(days, "D")])
        assert "outside the range" in refusal("timestamp[us]", np.array([0, days], "datetime64[s]"))
    assert "ps" in refusal("timestamp[ns]", np.array([1], "datetime64[ps]"))
    assert "ps" in refusal("timestamp[ns]", [np.datetime64(1, "ps")])


def test_zones_must_agree() -> None:
    naive = dt.datetime(2020, 1, 1)
    aware = naive.replace(tzinfo=UTC)
    for data in (
        [naive],
        np.array([naive], "datetime64[us]"),
        pa.array([naive]),
        pd.Series([naive]),
        pl.Series([naive]),
    ):
        text = refusal("timestamp[us, tz=UTC]", data)
        assert "with a time zone" in text
        assert one("timestamp[us]", data) == [1577836800 * 10**6]
    for data in ([aware], pa.array([aware]), pd.Series([aware]), pl.Series([aware]), [pd.Timestamp(aware)]):
        text = refusal("timestamp[us]", data)
        assert "without a time zone" in text
        assert "without a time zone" in refusal("date", data)
        assert one("timestamp[us, tz=America/New_York]", data) == [1577836800 * 10**6]
    assert "with a time zone" in refusal("list<timestamp[us, tz=UTC]>", pa.array([[naive]]))
    assert "with a time zone" in refusal("list<timestamp[us, tz=UTC]>", [[naive]])


def test_dates() -> None:
    for data in (
        pa.array([DAY * 1000, None], pa.date64()),
        pa.array([1, None], pa.date32()),
        pa.array([DAY, None], pa.timestamp("s")),
        pa.array([DAY * 10**9, None], pa.timestamp("ns")),
        np.array([1, "NaT"], "datetime64[D]"),
        np.array([DAY * 10**9, "NaT"], "datetime64[ns]"),
        [dt.date(1970, 1, 2), None],
        [dt.datetime(1970, 1, 2), pd.NaT],
        [np.datetime64(1, "D"), np.datetime64("NaT")],
        [pd.Timestamp("1970-01-02"), pd.NaT],
    ):
        assert one("date", data) == [1, None]
    noon = dt.datetime(1970, 1, 2, 12)
    for data in (
        [None, noon],
        pa.array([None, noon]),
        np.array([None, noon], "datetime64[us]"),
        pd.Series([None, noon]),
    ):
        text = refusal("date", data)
        assert "event 1" in text
        assert "midnight" in text
    for data in ([dt.date(1970, 1, 2)], pa.array([dt.date(1970, 1, 2)])):
        assert "date" in refusal("timestamp[us]", data)
    ends = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    assert one("date", ends) == one("date", pa.array(ends)) == [-719162, 2932896]


def test_pandas_timestamps_keep_nanoseconds() -> None:
    stamp = pd.Timestamp("1970-01-01T00:00:00.000001002")
    assert one("timestamp[ns]", [stamp]) == [1002]
    assert one("timestamp[ns, tz=UTC]", [stamp.tz_localize("Europe/Berlin")]) == [1002 - 3600 * 10**9]
    assert "timestamp[ns]" in refusal("timestamp[us]", [stamp])


# Missing values and masks.


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


# Wrong types.


@pytest.mark.parametrize("kind", ["int64", "float64", "bool", "date", "timestamp[us]", "timestamp[us, tz=UTC]"])
def test_text_is_not_parsed(kind: str) -> None:
    for data in (["1"], np.array(["1"]), pa.array(["1"]), pd.Series(["1"]), pl.Series(["1"]), [np.str_("1")]):
        text = refusal(kind, data)
        assert "str" in text


@pytest.mark.parametrize("kind", ["string", "bool", "date", "timestamp[us]", "list<string>"])
def test_numbers_are_not_converted(kind: str) -> None:
    for data in (
        [1],
        np.array([1]),
        np.array([1.5]),
        pa.array([1]),
        pd.Series([1, None], dtype="Int64"),
        pl.Series([1]),
    ):
        refusal(kind, data)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (pa.array([Decimal("1.5")]), "decimal128"),
        (pa.array([{"x": 1}]), "struct"),
        (pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64())), "map"),
        (pa.array([b"x"]), "binary"),
        (np.array([b"x"]), "binary"),
        (np.array([1j]), "complex128"),
        (np.array([1], "timedelta64[s]"), "duration"),
        (pa.array([dt.time(1)]), "time64"),
        ([Decimal("1.5")], "Decimal"),
        ([b"x"], "bytes"),
        ([{"x": 1}], "dict"),
        ([dt.time(1)], "time"),
        ([1j], "complex"),
        (pd.Series(pd.period_range("2020", periods=1)), "period"),
        (pd.Series([Decimal(1)], dtype=object), "Decimal"),
        (pl.Series([Decimal(1)]), "decimal"),
        (pl.Series([1], dtype=pl.Int128), ""),
        (pd.Series(pd.interval_range(0, 1)), "interval"),
        ({1}, "0-dimensional"),
    ],
)
@pytest.mark.parametrize("kind", ["int64", "float64", "string", "bool", "date", "timestamp[us]"])
def test_types_that_nothing_takes(kind: str, data: Any, found: str) -> None:
    assert found in refusal(kind, data)


def test_extra_columns_are_not_touched() -> None:
    class Explosive:
        def __len__(self) -> int:
            return 2

        def __array__(self, *_: object) -> np.ndarray:
            raise AssertionError

    schema = Schema.of({"a": "int64"})
    assert read({"a": [1, 2], "extra": Explosive()}, schema) == {"a": [1, 2]}
    assert read(pl.DataFrame({"a": [1], "o": pl.Series([object()], dtype=pl.Object)}), schema) == {"a": [1]}
    assert read(pd.DataFrame({"a": [1], "o": [object()], 7: [1], ("x", "y"): [2]}), schema) == {"a": [1]}
    assert read([{"a": 1, "extra": object(), 7: 8}], schema) == {"a": [1]}


def test_columns_of_one_name() -> None:
    schema = Schema.of({"a": "int64"})
    arrow = pa.Table.from_arrays([pa.array([1])] * 3, ["a", "b", "a"])
    pandas = pd.DataFrame([[1, 2]], columns=["a", "a"])
    for data in (arrow, arrow.to_batches()[0], pandas):
        with pytest.raises(SchemaError, match="2 columns named 'a'"):
            EventBatch.of(data, schema)
    assert read(pa.Table.from_arrays([pa.array([1])] * 3, ["a", "b", "b"]), schema) == {"a": [1]}


def test_dict_of_arrays_is_checked() -> None:
    schema = Schema.of({"a": "int64", "b": "string"})
    with pytest.raises(SchemaError, match="'a' has 2 values, 'b' has 1"):
        EventBatch.of({"a": [1, 2], "b": ["x"]}, schema)
    for scalar in (1, "x", b"x", None, np.float64(1), np.array(1), {"x": 1}, dt.date(2020, 1, 1)):
        with pytest.raises(SchemaError, match=r"column 'a' is one .* list of dicts"):
            EventBatch.of({"a": scalar, "b": ["x"]}, schema)


@pytest.mark.parametrize("data", [1, None, {1, 2}, np.zeros(3), pa.array([1]), object()])
def test_inputs_that_are_no_events(data: Any) -> None:
    with pytest.raises(SchemaError, match=r"cannot read events from .* list of dicts"):
        EventBatch.of(data, SCHEMA)


def test_rows_that_are_no_dicts() -> None:
    with pytest.raises(SchemaError, match="event 1 is int"):
        EventBatch.of([{}, 3], SCHEMA)
    with pytest.raises(SchemaError, match="collect"):
        EventBatch.of(pl.LazyFrame({"i": [1]}), SCHEMA)


# Copies, slices, rows, schemas.


def test_no_copy_where_none_is_needed() -> None:
    schema = Schema.of({"f": "float64", "i": "int64"})
    floats, ints = np.arange(3.0), np.arange(3)
    for data in ({"f": floats, "i": ints}, pa.table({"f": floats, "i": ints}), pl.DataFrame({"f": floats, "i": ints})):
        columns = EventBatch.of(data, schema).columns(schema)
        if not isinstance(data, pl.DataFrame):
            assert np.shares_memory(columns[0].values, floats)
            assert np.shares_memory(columns[1].values, ints)
        assert columns[0].values.tolist() == [0, 1, 2]
    stamps = np.arange(3).astype("datetime64[us]")
    schema = Schema.of({"t": "timestamp"})
    assert np.shares_memory(EventBatch.of({"t": stamps}, schema).columns(schema)[0].values, stamps)


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (1, 3), (1, 2), (2, 2), (0, 0), (-2, 3), (1, 99), (3, 1)])
def test_slices(start: int, stop: int) -> None:
    batch = EventBatch.of(TABLE, SCHEMA)
    part = batch.slice(start, stop)
    expected = {name: values[start:stop] for name, values in EXPECTED.items()}
    assert len(part) == len(expected["i"])
    found = part.columns(SCHEMA)
    assert {SCHEMA.names[at]: cells(column, len(part)) for at, column in found.items()} == expected
    whole = batch.columns(SCHEMA)[0].values
    assert len(part) == 0 or np.shares_memory(found[0].values, whole)


def test_rows_are_constants() -> None:
    batch = EventBatch.of(TABLE, SCHEMA)
    assert batch.row(0) == {
        "i": 1,
        "f": 1.5,
        "g": float(np.float32(0.1)),
        "b": True,
        "s": "",
        "d": dt.date(1970, 1, 3),
        "t": Timestamp(10**9, zoned=False),
        "z": Timestamp(0, zoned=True),
        "li": [1, 2],
        "lf": [2.5],
        "ls": ["x", "y", "x"],
        "lb": [True],
        "ld": [dt.date(1970, 1, 2)],
        "lt": [Timestamp(2 * 10**9)],
    }
    assert batch.row(1) == {}
    assert batch.row(-1)["ls"] == []
    assert type(batch.row(0)["b"]) is bool
    with pytest.raises(IndexError, match="event 3 of a batch of 3"):
        batch.row(3)


def test_a_batch_belongs_to_its_schema() -> None:
    schema, other = Schema.of({"a": "int64"}), Schema.of({"a": "float64"})
    batch = EventBatch.of([{"a": 1}], schema)
    assert EventBatch.of(batch, Schema.of({"a": "int64"})) is batch
    for use in (lambda: EventBatch.of(batch, other), lambda: batch.columns(other), lambda: batch.sparse(other)):
        with pytest.raises(SchemaError, match="another schema"):
            use()
    assert repr(batch) == "EventBatch(1 events)"


def test_only_the_keys_that_occur_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema.of({f"a{i}": "float64" for i in range(3000)})
    asked: list[str] = []
    find = Schema.find
    monkeypatch.setattr(Schema, "find", lambda self, name: asked.append(name) or find(self, name))
    assert read([{"a7": 1.0, "a2999": 2}], schema) == {"a7": [1.0], "a2999": [2.0]}
    assert len(asked) == 2


# Python and Arrow agree.

TIMES = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
VALUES = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float64": (pa.float64(), st.floats(allow_nan=True)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=4)),
    "date": (pa.date32(), st.dates()),
    "timestamp[us]": (pa.timestamp("us"), st.datetimes()),
    "timestamp[ns]": (pa.timestamp("ns"), TIMES),
    "timestamp[us, tz=UTC]": (pa.timestamp("us", "UTC"), TIMES.map(lambda t: t.replace(tzinfo=BERLIN))),
}


@given(st.data(), st.sampled_from(list(VALUES)), st.booleans())
def test_python_and_arrow_agree(data: st.DataObject, kind: str, multi: bool) -> None:
    arrow, element = VALUES[kind]
    if multi:
        kind, arrow, element = f"list<{kind}>", pa.list_(arrow), st.lists(st.none() | element, max_size=4)
    values = data.draw(st.lists(st.none() | element, max_size=8))
    array = pa.array(values, arrow)
    missing = [None] * len(values)
    python = one(kind, values) or missing
    assert python == (one(kind, array) or missing)
    assert python == (read([{"a": value} for value in values], Schema.of({"a": kind})).get("a") or missing)
    assert python == (read(pl.DataFrame({"a": pl.from_arrow(array)}), Schema.of({"a": kind})).get("a") or missing)
    start = data.draw(st.integers(0, len(values)))
    assert python[start:] == (one(kind, array[start:]) or missing[start:])


@given(st.lists(st.none() | st.integers(-(2**65), 2**65) | st.floats() | st.integers(-3, 3)))
def test_numbers_convert_exactly_or_not_at_all(values: list[Any]) -> None:
    present = [value for value in values if value is not None and value == value]
    whole = all(-(2**63) <= value < 2**63 and value == int(value) for value in present)
    exact = all(float(value) == value for value in present)
    for kind, convert, fits in (("int64", int, whole), ("float64", float, exact)):
        if fits:
            expected = [None if value is None or value != value else convert(value) for value in values]
            assert (one(kind, values) or [None] * len(values)) == expected
        else:
            refusal(kind, values)
