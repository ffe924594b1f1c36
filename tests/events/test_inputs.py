"""Events in every form give the same columns, or an error that names what is wrong."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import SchemaError
from gpumatch.events.batch import EventBatch
from gpumatch.expr.atoms import Timestamp
from gpumatch.schema import Schema
from tests.events.cells import BERLIN, UTC, cells, one, read, refusal

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
