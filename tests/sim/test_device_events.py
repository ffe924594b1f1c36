"""Events and results in the memory of a device: what they hold is what the same data on the host would."""

from __future__ import annotations

import datetime as dt
import gc
import importlib
import math
import sys
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim import fakes
from sim.fakes import CudaArray, DeviceArrowArray, Series, Tensor

from gpumatch import device_memory as arrays
from gpumatch.device_memory import DeviceArray, library, simulated, to_host
from gpumatch.errors import DeviceError, SchemaError
from gpumatch.events import arrow_device
from gpumatch.events import csr as sparse
from gpumatch.events import cuda as cuda_in
from gpumatch.events.batch import EventBatch
from gpumatch.events.columns import Column, Strings
from gpumatch.events.csr import Sparse
from gpumatch.results import Matches
from gpumatch.schema import Schema

pytestmark = pytest.mark.skipif(not simulated(), reason="needs NUMBA_ENABLE_CUDASIM=1")

UTC = dt.UTC
WORDS = ["b", None, "a", "é😀", "", "b", None, "zz", "a"]


def parts(column: Column) -> list[Any]:
    values = column.values.indices if isinstance(column.values, Strings) else column.values
    return [array for array in (values, column.valid, column.offsets) if array is not None]


def cells(column: Column, length: int) -> list[Any]:
    """One raw value per event as Python, None if missing; checks the form that columns promise."""
    assert len({isinstance(array, DeviceArray) for array in parts(column)}) == 1
    assert all(array.flags.c_contiguous for array in parts(column))
    column = column.to_host()
    assert not any(isinstance(array, DeviceArray) for array in parts(column))
    if isinstance(column.values, Strings):
        assert column.values.dictionary.type == pa.large_string()
        assert column.values.dictionary.null_count == 0
        assert column.values.indices.dtype == np.int32
        words = [*column.values.dictionary.to_pylist(), None]
        raw = [words[index] for index in column.values.indices]
    else:
        assert column.values.dtype in (np.float64, np.int64)
        raw = [None if value != value else value for value in column.values.tolist()]
    if column.offsets is not None:
        assert column.offsets.dtype == np.int64
        assert column.offsets[-1] == len(raw)
        raw = [raw[start:stop] for start, stop in pairwise(column.offsets.tolist())]
    if column.valid is not None:
        assert column.valid.dtype == np.bool_
        raw = [value if there else None for value, there in zip(raw, column.valid, strict=True)]
    assert len(raw) == length
    return raw


def outcome(kind: str, data: Any) -> str | list[Any] | None:
    """The cells of an attribute ``a``, None if no event has it, or what was said against its column."""
    schema = Schema.of({"a": kind})
    try:
        batch = EventBatch.of({"a": data}, schema)
    except SchemaError as error:
        return str(error)
    column = batch.columns(schema).get(0)
    return None if column is None else cells(column, len(batch))


def stays(kind: str, data: Any) -> Column:
    """The column of an attribute, which must be on the device."""
    schema = Schema.of({"a": kind})
    batch = EventBatch.of({"a": data}, schema)
    assert batch.on_device
    column = batch.columns(schema)[0]
    assert column.on_device
    return column


def same_memory(there: DeviceArray, here: np.ndarray) -> bool:
    return np.shares_memory(there.view(np.ndarray), here)


NAIVE = [dt.datetime(1970, 1, 1, 0, 0, 1), None, dt.datetime(1969, 12, 31), dt.datetime(2020, 1, 1)]
ZONED = [None if time is None else time.replace(tzinfo=UTC) for time in NAIVE]
ARROW = {
    "int8": pa.array([1, None, -3, 127], pa.int8()),
    "int64": pa.array([2**63 - 1, -(2**63), None, 2**53 + 1, 0]),
    "uint8": pa.array([255, None, 0], pa.uint8()),
    "uint32": pa.array([2**32 - 1, 0], pa.uint32()),
    "uint64": pa.array([2**63 - 1, None], pa.uint64()),
    "uint64 too large": pa.array([0, None, 2**63], pa.uint64()),
    "float16": pa.array(np.array([0.5, np.nan, -0.0, np.inf], np.float16)),
    "float32": pa.array([0.1, None, math.nan, -math.inf], pa.float32()),
    "float64": pa.array([1.5, None, -0.0, math.nan, 1e300]),
    "whole floats": pa.array([1.0, None, math.nan, -(2.0**63), -0.0]),
    "floats too large": pa.array([1.0, 2.0**63]),
    "infinity": pa.array([None, math.inf]),
    "halves": pa.array([None, 1.0, 2.5]),
    "nan only": pa.array([math.nan, None]),
    "bool": pa.array([True, None, False, True, True, False, True, None, False, True]),
    "date32": pa.array([dt.date(1970, 1, 3), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "date64": pa.array([86_400_000, None, -86_400_000], pa.date64()),
    "seconds": pa.array(NAIVE, pa.timestamp("s")),
    "millis": pa.array(NAIVE, pa.timestamp("ms")),
    "micros": pa.array(NAIVE, pa.timestamp("us")),
    "nanos": pa.array([1, None, 1000], pa.timestamp("ns")),
    "far": pa.array([0, 32503680000], pa.timestamp("s")),
    "midnight": pa.array([86_400, None], pa.timestamp("s")),
    "zoned": pa.array(ZONED, pa.timestamp("us", "Europe/Berlin")),
    "zoned nanos": pa.array(ZONED, pa.timestamp("ns", "UTC")),
    "words": pa.array(WORDS).dictionary_encode(),
    "numbers in a dictionary": pa.array([5, None, 2**62, 5]).dictionary_encode(),
    "floats in a dictionary": pa.array([1.5, None, math.nan, 2.5]).dictionary_encode(),
    "dates in a dictionary": pa.array([dt.date(1970, 1, 2), None]).dictionary_encode(),
    "text": pa.array(WORDS),
    "large text": pa.array(WORDS, pa.large_string()),
    "lists": pa.array([[1, None, 2], None, [], [3]], pa.list_(pa.int32())),
    "large lists": pa.array([[1.5, math.nan], None, [math.nan], [None]], pa.large_list(pa.float64())),
    "fixed lists": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2)),
    "lists of bool": pa.array([[True, None], None, [False] * 9]),
    "lists of times": pa.array([[NAIVE[0]], None, [None]], pa.list_(pa.timestamp("ms"))),
    "lists of halves": pa.array([[1.0], [], None, [2.0, 2.5]]),
    "lists of text": pa.array([["x", None], None, [], ["é", "x"]]),
    "lists of words": pa.array([["x", None], None, ["y", "x"]]).cast(pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "lists of nothing": pa.array([[], None]),
    "lists of nulls": pa.array([[None], None], pa.list_(pa.int8())),
    "nulls": pa.nulls(3),
    "null integers": pa.nulls(2, pa.int8()),
    "decimal": pa.array([None, 1], pa.decimal128(5)),
    "duration": pa.array([1], pa.duration("s")),
    "binary": pa.array([b"x"]),
    "struct": pa.array([{"x": 1}]),
    "lists of lists": pa.array([[[1]]]),
    "decimals in a dictionary": pa.array([1], pa.decimal128(5)).dictionary_encode(),
}  # fmt: skip
KINDS = (
    "int64", "int32", "float64", "float32", "bool", "string", "date", "timestamp[us]", "timestamp[ns]",
    "timestamp[us, tz=UTC]", "list<int64>", "list<float64>", "list<string>", "list<bool>", "list<timestamp[us]>",
    "list<date>",
)  # fmt: skip


@pytest.mark.parametrize("name", ARROW)
def test_arrow_as_on_the_host(name: str) -> None:
    array = ARROW[name]
    many = pa.concat_arrays([array] * 5)
    cuts = [array, array[1:], array[:0], many[3:-1], many[8:], many[11:]]
    for kind in KINDS:
        assert outcome(kind, DeviceArrowArray(array, device=13)) == outcome(kind, array)
        for cut in cuts:
            expected = outcome(kind, cut)
            assert outcome(kind, DeviceArrowArray(cut)) == expected
            if isinstance(expected, list) and "text" not in name:
                stays(kind, DeviceArrowArray(cut))


OF_CUDF = [name for name in ARROW if not {"float16", "date64", "fixed", "large", "decimals"} & set(name.split())]


@pytest.mark.parametrize("name", OF_CUDF)
def test_cudf_as_on_the_host(name: str) -> None:
    array = ARROW[name]
    for kind in KINDS:
        assert outcome(kind, Series(array)) == outcome(kind, array)
        assert outcome(kind, Series(array[1:])) == outcome(kind, array[1:])
        if isinstance(outcome(kind, array), list) and "text" not in name:
            stays(kind, Series(array))
    schema = Schema.of({"a": "int64"})
    batch = EventBatch.of(fakes.DataFrame({"a": Series(pa.array([1, None])), "extra": Series(array[:2])}), schema)
    assert batch.on_device
    assert cells(batch.columns(schema)[0], len(batch)) == [1, None]


NUMPY = {
    **{f"{kind}{size}": np.array([1, 0, 100], f"{kind}{size}") for kind in "iuf" for size in (2, 4, 8)},
    **{f"{kind}1": np.array([1, 0, 100], f"{kind}1") for kind in "iu"},
    "strided": np.arange(12.0)[::3],
    "backwards": np.arange(5)[::-1],
    "column": np.arange(6).reshape(3, 2)[:, 1],
    "extremes": np.array([2**63 - 1, -(2**63)]),
    "uint64": np.array([0, 2**63], np.uint64),
    "halves": np.array([1.0, 2.5]),
    "nan": np.array([1, np.nan, -0.0]),
    "nan only": np.array([np.nan, np.nan]),
    "bool": np.array([True, False, True]),
    "seconds": np.array(["1970-01-01T00:00:05", "NaT"], "M8[s]"),
    "nanos": np.array([1, "NaT"], "M8[ns]"),
    "micros": np.array([1000, 2000], "M8[us]"),
    "NaT only": np.array(["NaT"], "M8[us]"),
    "days": np.array([1, "NaT"], "M8[D]"),
    "years": np.array(["1971", "NaT"], "M8[Y]"),
    "25 seconds": np.array([1, "NaT"], "M8[25s]"),
    "far days": np.array([0, 2**62], "M8[D]"),
    "picoseconds": np.array([1], "M8[ps]"),
    "duration": np.array([1], "m8[s]"),
    "complex": np.array([1j]),
    "two dimensions": np.array([[1, 2], [3, 4]]),
    "two dimensions, turned": np.array([[1.0, np.nan], [3.0, 4.5]]).T,
    "two dimensions of times": np.array([["1970-01-01", "NaT"]], "M8[s]"),
    "three dimensions": np.zeros((1, 1, 1)),
    "no values": np.zeros(0),
    "no values in two dimensions": np.zeros((2, 0), np.int64),
}


def frozen(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "CUDA array": CudaArray,
    "CUDA array, read-only": lambda array: CudaArray(frozen(array)),
    "CuPy": lambda array: array.view(DeviceArray),
}


@pytest.mark.parametrize("name", NUMPY)
def test_arrays_as_on_the_host(name: str) -> None:
    array = NUMPY[name]
    forms = list(FORMS.values()) if array.dtype.kind in "mM" else [*FORMS.values(), Tensor]  # DLPack has no times
    for kind in KINDS:
        expected = outcome(kind, array)
        for form in forms:
            assert outcome(kind, form(array)) == expected
            if isinstance(expected, list) and name not in ("days", "years", "25 seconds"):
                stays(kind, form(array))


@pytest.mark.parametrize("dtype", ["?", "i1"])
def test_masks(dtype: str) -> None:
    """What is not zero in the mask is there, as in NumPy's array interface."""
    mask = CudaArray(np.array([1, 0, 1], dtype))
    hidden = np.array([False, True, False])
    for kind, array in (
        ("int64", np.array([1, 2, 3], np.int8)),
        ("float64", np.array([1.0, 2.0, 3.0])),
        ("int64", np.array([1.0, 2.5, 3.0])),  # what is masked need not fit
        ("float64", np.array([1, 2**53 + 1, 3])),
        ("bool", np.array([True, True, False])),
        ("timestamp[us]", np.array([1, 2, "NaT"], "M8[s]")),
        ("timestamp[us]", np.array([1, 2, "NaT"], "M8[m]")),
    ):
        expected = outcome(kind, np.ma.array(array, mask=hidden))
        assert outcome(kind, CudaArray(array, mask)) == expected
        assert isinstance(expected, list)
        assert expected[1] is None
    matrix = np.array([[1, 2], [3, 4]])
    both = CudaArray(np.array([[1, 0], [0, 0]], dtype))
    assert outcome("list<int64>", CudaArray(matrix, both)) == [[1], []]
    assert outcome("int64", CudaArray(np.arange(3), CudaArray(np.zeros(3, dtype)))) is None
    assert stays("int64", CudaArray(np.arange(3), CudaArray(np.ones(3, dtype)))).valid is None
    text = outcome("int64", CudaArray(np.arange(3), CudaArray(np.zeros(2, dtype))))
    assert isinstance(text, str)
    assert "shape (2,)" in text


def test_other_byte_orders_are_refused() -> None:
    text = outcome("int64", CudaArray(np.array([1], ">i4")))
    assert isinstance(text, str)
    assert ">i4" in text


# Where things are, and who waits for whom.


def test_nothing_is_copied_where_the_layout_fits() -> None:
    floats, ints, stamps = np.arange(3.0), np.arange(3), np.arange(3).astype("M8[us]")
    for form in (
        *FORMS.values(),
        Tensor,
        lambda array: DeviceArrowArray(pa.array(array)),
        lambda a: Series(pa.array(a)),
    ):
        assert same_memory(stays("float64", form(floats)).values, floats)
        assert same_memory(stays("int64", form(ints)).values, ints)
        if form is not Tensor:
            assert same_memory(stays("timestamp[us]", form(stamps)).values, stamps)
    codes = np.array([0, 1, 0], np.int32)
    words = pa.DictionaryArray.from_arrays(codes, ["x", "y"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), floats)
    assert same_memory(stays("list<float64>", DeviceArrowArray(lists)).values, floats)
    assert stays("string", DeviceArrowArray(words)).values.dictionary.to_pylist() == ["x", "y"]


def test_text_is_encoded_on_the_host() -> None:
    schema = Schema.of({"s": "string", "l": "list<string>", "i": "int64"})
    text = {"s": pa.array(["x", None]), "l": pa.array([["x"], []])}
    for form in (DeviceArrowArray, Series):
        batch = EventBatch.of({name: form(array) for name, array in text.items()}, schema)
        assert not batch.on_device
        assert batch.to_host() is batch
        mixed = EventBatch.of({"s": form(text["s"]), "i": CudaArray(np.arange(2)), "l": [["x"], []]}, schema)
        assert mixed.on_device
        assert not mixed.columns(schema)[0].on_device
        assert mixed.columns(schema)[2].on_device
        assert [mixed.row(0), mixed.row(1)] == [{"s": "x", "i": 0, "l": ["x"]}, {"i": 1, "l": []}]
        host = mixed.to_host()
        assert not host.on_device
        assert [host.row(0), host.row(1)] == [mixed.row(0), mixed.row(1)]


def test_arrays_of_the_host_stay_there() -> None:
    schema = Schema.of({"a": "int64"})
    array = pa.array([1, 2])
    for data in (np.arange(2), array, [1, 2], Tensor(np.arange(2), device=1), DeviceArrowArray(array, device=1)):
        assert not cuda_in.on_device(data)
    assert outcome("int64", Fixed(DeviceArrowArray(array, device=1))) == [1, 2]
    for table in (pa.table({"a": array}), pa.record_batch({"a": array}), {"a": array}, [{"a": 1}, {"a": 2}]):
        assert not EventBatch.of(table, schema).on_device


class Fixed:
    """Something with a length that exports Arrow data by the device interface only."""

    def __init__(self, exporter: DeviceArrowArray) -> None:
        self.exporter = exporter

    def __len__(self) -> int:
        return len(self.exporter.array)

    def __arrow_c_device_array__(self, requested_schema: object = None, **_: object) -> object:
        return self.exporter.__arrow_c_device_array__(requested_schema)


def test_streams_and_events_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[str, int]] = []
    for module in (cuda_in, arrow_device):
        monkeypatch.setattr(module, "wait_for", lambda kind, handle: waited.append((kind, handle)))
    values = np.arange(3)
    mask = CudaArray(np.ones(3, np.bool_), stream=8)
    stays("int64", CudaArray(values, stream=7))
    assert waited == [("stream", 7)]
    stays("int64", CudaArray(values, mask, stream=None))
    assert waited[1:] == [("stream", 8)]
    waited.clear()
    stays("int64", DeviceArrowArray(pa.array(values), event=77))
    assert set(waited) == {("event", 77)}
    waited.clear()
    stays("int64", DeviceArrowArray(pa.array(values), event=0))
    assert not waited
    older, newer = Tensor(values, interface=2), Tensor(values, interface=3)
    stays("int64", older)
    stays("int64", newer)
    assert older.streams == [1]  # by DLPack, since the interface does not name a stream
    assert newer.streams == []


def test_arrow_memory_is_kept_and_then_released() -> None:
    pool = pa.default_memory_pool()
    gc.collect()
    before = pool.bytes_allocated()
    size = 1 << 20
    schema = Schema.of({"i": "int64", "f": "float64"})
    table = pa.record_batch({"i": pa.array(range(size)), "f": pa.array([0.5] * size)})
    batch = EventBatch.of(DeviceArrowArray(table), schema)
    part = batch.slice(size - 2, size)
    del table, batch
    gc.collect()
    assert pool.bytes_allocated() - before >= 16 * size
    assert cells(part.columns(schema)[0], 2) == [size - 2, size - 1]
    del part
    gc.collect()
    assert pool.bytes_allocated() - before < 8 * size


def test_what_cannot_be_read() -> None:
    class Broken:
        def __len__(self) -> int:
            return 1

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **_: object) -> None:
            raise BufferError("requires grad")

    for kind in ("int64", "list<string>"):
        text = outcome(kind, Broken())
        assert isinstance(text, str)
        assert f"'a' is {kind}" in text
        assert "cannot be read: requires grad" in text
    for view in (pa.array(["x"], pa.string_view()), pa.array([[1]], pa.list_view(pa.int64()))):
        kind = "string" if pa.types.is_string_view(view.type) else "list<int64>"
        text = outcome(kind, DeviceArrowArray(view))
        assert isinstance(text, str)
        assert "copy the column to the host" in text


def test_data_of_a_device_where_there_is_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(arrays, "simulated", lambda: False)
    monkeypatch.setattr(importlib, "import_module", missing)
    for data in (CudaArray(np.arange(3)), DeviceArrowArray(pa.array([1, 2]))):
        with pytest.raises(DeviceError, match="need CuPy"):
            EventBatch.of({"a": data}, Schema.of({"a": "int64"}))
        with pytest.raises(DeviceError, match="need CuPy"):
            EventBatch.from_csr(data, [0], [1.0], ["a"])


# Tables, dictionaries and lists that strain the rules.


def test_record_batches_and_struct_arrays() -> None:
    schema = Schema.of({"i": "int64", "s": "string", "l": "list<float64>", "b": "bool"})
    table = pa.record_batch(
        {
            "b": pa.array([True, None, False] * 7),
            "i": pa.array([1, None, 3] * 7),
            "s": pa.array(["x", None, "é"] * 7).dictionary_encode(),
            "l": pa.array([[1.5], None, []] * 7),
            "extra": pa.array([{}] * 21),
        }
    )
    for start in (0, 1, 9, 21):
        expected = EventBatch.of(table[start:], schema)
        for form in (table[start:], table.to_struct_array()[start:]):
            batch = EventBatch.of(DeviceArrowArray(form), schema)
            assert len(batch) == 21 - start
            assert batch.on_device == (start < 21)
            assert [batch.row(i) for i in range(len(batch))] == [expected.row(i) for i in range(len(batch))]
    twice = pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["i", "i"])
    with pytest.raises(SchemaError, match="2 columns named 'i'"):
        EventBatch.of(DeviceArrowArray(twice), schema)
    with pytest.raises(SchemaError, match="some events of the Arrow struct array are null"):
        EventBatch.of(DeviceArrowArray(pa.array([{"i": 1}, None])), schema)
    for data in (DeviceArrowArray(pa.array([1])), CudaArray(np.arange(3)), Series(pa.array([1]))):
        with pytest.raises(SchemaError, match="cannot read events from"):
            EventBatch.of(data, schema)


@pytest.mark.parametrize("frame", [fakes.DataFrame({}), DeviceArrowArray(pa.RecordBatch.from_arrays([], []))])
def test_no_columns(frame: Any) -> None:
    schema = Schema.of({"a": "int64"})
    batch = EventBatch.of(frame, schema)
    assert len(batch) == 0
    assert batch.columns(schema) == {}
    assert not batch.on_device


def test_lengths_without_len() -> None:
    schema = Schema.of({"a": "int64", "b": "int64"})
    assert len(EventBatch.of({"a": DeviceArrowArray(pa.array([1, 2]))}, schema)) == 2
    with pytest.raises(SchemaError, match="'a' has 2 values, 'b' has 3"):
        EventBatch.of({"a": DeviceArrowArray(pa.array([1, 2])), "b": np.arange(3)}, schema)
    with pytest.raises(SchemaError, match="column 'a' is one DeviceArray"):
        EventBatch.of({"a": np.array(3).view(DeviceArray)}, schema)


def dictionary(codes: Any, words: list[str | None]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes, pa.array(words), safe=False)


@pytest.mark.parametrize("form", [DeviceArrowArray, Series])
def test_dictionaries_that_break_the_rules(form: Any) -> None:
    for array in (
        dictionary(pa.array([0, 1, 2, None, 3], pa.uint8()), ["x", None, "y", "z"]),
        dictionary(pa.array([0, 1, 2], pa.int64()), ["x", "x", "y"]),
        dictionary(pa.array([7, None, 7], pa.uint16()), [str(i) for i in range(1000)]),
        dictionary(pa.array([999, 3], pa.int16()), [None if i == 3 else f"ü{i}" for i in range(1000)]),
        dictionary(pa.array([1, 1, 1], pa.int8()), ["x", None]),
        dictionary(pa.array([None, 0], pa.int8()), [""]),
    ):
        assert outcome("string", form(array)) == outcome("string", array) == array.to_pylist()
        assert stays("string", form(array)).values.indices.dtype == np.int32
    wide = dictionary(pa.array([7, 7]), [str(i) for i in range(1000)])
    assert stays("string", form(wide)).values.dictionary.to_pylist() == ["7"]
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    broken = pa.DictionaryArray.from_arrays(
        pa.array([0, 1]), pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"a\xff"))
    )
    text = outcome("string", form(broken))
    assert text == outcome("string", broken)
    assert isinstance(text, str)
    assert "event 1" in text


def test_unused_numbers_of_a_dictionary_need_not_fit() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array([1.0, 2.5]))
    for form in (DeviceArrowArray, Series):
        assert outcome("int64", form(array)) == outcome("int64", array) == [1, None]


def test_codes_below_zero_are_missing() -> None:
    for words, kind in ((["x", "y"], "string"), ([1, 2], "int64")):
        array = pa.DictionaryArray.from_arrays(pa.array([0, -1, 1], pa.int8()), pa.array(words), safe=False)
        assert outcome(kind, Series(array)) == [words[0], None, words[1]]


def test_null_lists_may_hold_elements() -> None:
    for elements, kind in ((pa.array([1.0, 2.5, 3.0, None, 4.0]), "list<int64>"), (pa.array(list("abcde")), None)):
        offsets, valid = np.array([0, 1, 3, 3, 5], np.int32), np.packbits([1, 0, 1, 1], bitorder="little")
        lists = pa.ListArray.from_buffers(
            pa.list_(elements.type), 4, [pa.py_buffer(valid), pa.py_buffer(offsets)], children=[elements]
        )
        kind = kind or "list<string>"
        assert lists.to_pylist()[1] is None
        for array in (lists, lists[1:], lists[1:3]):
            assert outcome(kind, DeviceArrowArray(array)) == outcome(kind, array)


# Slices and copies.


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 4), (1, 2), (2, 2), (0, 0), (-2, 4), (1, 99), (3, 1)])
def test_slices(start: int, stop: int) -> None:
    schema = Schema.of({"i": "int64", "f": "float64", "s": "string", "l": "list<int64>"})
    table = {
        "i": pa.array([1, None, 3, 4]),
        "f": pa.array([1.5, None, -0.0, 2.0]),
        "s": pa.array(["x", None, "y", "x"]).dictionary_encode(),
        "l": pa.array([[1, 2], None, [], [3]]),
    }
    batch = EventBatch.of({name: DeviceArrowArray(array) for name, array in table.items()}, schema)
    part, expected = batch.slice(start, stop), EventBatch.of(table, schema).slice(start, stop)
    assert part.on_device
    assert len(part) == len(expected)
    for at, column in part.columns(schema).items():
        assert column.on_device
        assert cells(column, len(part)) == cells(expected.columns(schema)[at], len(part))
    host = part.to_host()
    assert not host.on_device
    assert [host.row(i) for i in range(len(part))] == [expected.row(i) for i in range(len(part))]
    assert math.copysign(1, batch.row(2)["f"]) == -1


# CSR.


def csr(upload: Any, *which: str) -> EventBatch:
    arrays_of = {
        "offsets": np.array([0, 3, 3, 5, 6]),
        "attribute": np.array([2, 0, 1, 1, 3, 0], np.uint8),
        "value": np.array([1.0, 2.0, np.nan, 4.0, 5.0, -0.0]),
    }
    held = {name: upload(array) if name in which else array for name, array in arrays_of.items()}
    return EventBatch.from_csr(**held, names=["a", "b", "c", "unknown"])


def entries(held: Sparse) -> list[list[tuple[int, Any]]]:
    held = held.moved(to_host)
    assert held.offsets.dtype == np.int64
    assert held.attribute.dtype == np.int32
    values = held.values
    raw = (
        values.dictionary.take(pa.array(values.indices)).to_pylist() if isinstance(values, Strings) else values.tolist()
    )
    pairs = list(zip(held.attribute.tolist(), raw, strict=True))
    return [pairs[start:stop] for start, stop in pairwise(held.offsets.tolist())]


@pytest.mark.parametrize("upload", [CudaArray, lambda a: DeviceArrowArray(pa.array(a)), lambda a: Series(pa.array(a))])
@pytest.mark.parametrize("which", [("offsets", "attribute", "value"), ("value",), ("attribute",), ("offsets",)])
def test_csr(upload: Any, which: tuple[str, ...]) -> None:
    schema = Schema.of({"c": "int64", "a": "list<float64>", "b": "float64", "more": "string"})
    batch, expected = csr(upload, *which), csr(upload)
    assert batch.on_device
    assert not expected.on_device
    bound, right = batch.sparse(schema), expected.sparse(schema)
    assert bound is not None
    assert right is not None
    assert entries(bound) == entries(right) == [[(0, 1.0), (1, 2.0)], [], [(2, 4.0)], [(1, 0.0)]]
    assert all(isinstance(array, DeviceArray) for array in (bound.offsets, bound.attribute, bound.values))
    assert [batch.row(i) for i in range(4)] == [expected.row(i) for i in range(4)]
    part = batch.slice(1, 3)
    assert part.on_device
    assert [part.row(i) for i in range(2)] == [{}, {"b": 4.0}]
    for host in (batch.to_host(), csr(upload, *which).to_host()):  # bound, and not
        assert not host.on_device
        found = host.sparse(schema)
        assert found is not None
        assert entries(found) == entries(right)


def test_csr_of_strings_and_times() -> None:
    schema = Schema.of({"s": "list<string>"})
    words = pa.array(["x", None, "y", "x"]).dictionary_encode()
    for value in (DeviceArrowArray(words), Series(words), words):
        batch = EventBatch.from_csr(CudaArray(np.array([0, 2, 4])), [0, 0, 0, 0], value, ["s"])
        bound = batch.sparse(schema)
        assert bound is not None
        assert isinstance(bound.values.indices, DeviceArray)
        assert entries(bound) == [[(0, "x")], [(0, "y"), (0, "x")]]
    schema = Schema.of({"d": "date", "t": "timestamp[ns]"})
    stamps = np.array(["1970-01-02", "1970-01-02T00:00:01", "NaT"], "M8[s]")
    batch = EventBatch.from_csr(CudaArray(np.array([0, 3])), [0, 1, 1], CudaArray(stamps), ["d", "t"])
    bound = batch.sparse(schema)
    assert bound is not None
    assert entries(bound) == [[(0, 1), (1, 86_401 * 10**9)]]
    nothing = EventBatch.from_csr(CudaArray(np.array([0, 1])), [0], CudaArray(np.array(["NaT"], "M8[s]")), ["d"])
    bound = nothing.sparse(schema)
    assert bound is not None
    assert entries(bound) == [[]]
    empty = EventBatch.from_csr(CudaArray(np.array([0])), CudaArray(np.zeros(0)), CudaArray(np.zeros(0)), ["d"])
    assert len(empty) == 0


def test_work_is_done_before_a_batch_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(cuda_in, "finish", lambda: done.append("column"))
    monkeypatch.setattr(sparse, "finish", lambda: done.append("entries"))
    stays("int64", CudaArray(np.arange(3, dtype=np.int8)))
    assert done == ["column"]
    csr(CudaArray, "offsets").sparse(Schema.of({"a": "float64", "b": "float64", "c": "float64"}))
    assert done[1:] == ["column", "entries", "entries"]  # the offsets are a column, too
    done.clear()
    csr(CudaArray).sparse(Schema.of({"a": "float64"}))
    assert not done


CSR_ERRORS = {
    "offsets": ([0, 2], [0], [1.0]),
    "falling offsets": ([0, 1, 0, 2], [0, 0], [1.0, 1.0]),
    "attribute": ([0, 1], [3], [1.0]),
    "values": ([0, 1], [0], [1.0, 2.0]),
    "twice": ([0, 0, 2], [0, 0], [1.0, 2.0]),
    "halves": ([0, 1, 2], [1, 1], [1.0, 2.5]),
    "large": ([0, 0, 2], [0, 1], np.array([2**53, 2**53 + 1])),
    "text": ([0, 1], [2], [1.0]),
}


@pytest.mark.parametrize("case", CSR_ERRORS)
def test_csr_errors_as_on_the_host(case: str) -> None:
    schema = Schema.of({"a": "float64", "b": "int64" if case == "halves" else "float64", "s": "string"})

    def said(upload: Any) -> str:
        with pytest.raises(SchemaError) as caught:
            EventBatch.from_csr(*map(upload, CSR_ERRORS[case]), ["a", "b", "s"]).sparse(schema)
        return str(caught.value)

    assert said(lambda array: CudaArray(np.asarray(array))) == said(np.asarray)


@pytest.mark.parametrize(
    "offsets", [np.array([0.0, 1.0]), np.array([[0, 1]]), pa.array([0, None]), np.array([0, 2**63], np.uint64)]
)
def test_csr_needs_integers(offsets: Any) -> None:
    held = DeviceArrowArray(offsets) if isinstance(offsets, pa.Array) else CudaArray(offsets)
    with pytest.raises(SchemaError, match="offsets"):
        EventBatch.from_csr(held, [0], [1.0], ["a"])


# What stands for a device must not be mistaken for the host.


def test_arrays_of_the_device_refuse_those_of_the_host() -> None:
    xp = library()
    there, here = xp.arange(3), np.arange(3)
    for use in (
        lambda: there + here,
        lambda: here * there,
        lambda: xp.concatenate([there, here]),
        lambda: xp.cumsum(here),
        lambda: np.concatenate([here, there]),
        lambda: np.add(there, 1, out=here),
    ):
        with pytest.raises(TypeError, match="array of the host"):
            use()
    with pytest.raises(TypeError, match="not listed"):
        np.diff(there)
    with pytest.raises(AttributeError):
        _ = xp.median
    for made in (there + 1, there[1:], there.cumsum(), xp.where(there > 1, there, 0), xp.asarray(here), np.sort(there)):
        assert isinstance(made, DeviceArray)
    assert type(arrays.to_host(there)) is np.ndarray
    assert arrays.to_host(here) is here
    assert not same_memory(xp.asarray(here), here)
    there += 1
    assert there.tolist() == [1, 2, 3]


# Results.


def results(ids: Any = ("a", "b", "é", "d")) -> Matches:
    xp = library()
    offsets, rows = xp.asarray(np.array([0, 2, 2, 3])), xp.asarray(np.array([0, 2, 3], np.int32))
    return Matches(offsets, rows, pa.array(ids))


@pytest.fixture
def cudf(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("cudf")
    module.Series, module.DataFrame = fakes.Series, fakes.DataFrame
    monkeypatch.setitem(sys.modules, "cudf", module)
    return module


def test_results_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Any] = []
    monkeypatch.setattr("gpumatch.results.to_host", lambda array: copies.append(array) or arrays.to_host(array))
    found = results()
    assert len(found) == 3
    assert found.n_pairs == 3
    assert repr(found) == "Matches(3 events, 3 matches)"
    offsets, rows = found.to_cupy()
    assert isinstance(offsets, DeviceArray)
    assert isinstance(rows, DeviceArray)
    assert found.to_cupy()[0] is offsets
    assert not copies
    assert type(found.offsets) is type(found.rows) is np.ndarray
    assert found.offsets.tolist() == [0, 2, 2, 3]
    assert found.counts.tolist() == [2, 0, 1]
    assert [found.ids(i) for i in range(3)] == list(found) == [["a", "é"], [], ["d"]]
    assert found.to_arrow().to_pydict() == {"event": [0, 0, 2], "subscription": ["a", "é", "d"]}
    assert found == Matches(np.array([0, 2, 2, 3]), np.array([0, 2, 3]), pa.array(["a", "b", "é", "d"]))
    assert sum(isinstance(array, DeviceArray) for array in copies) == 2  # each once


@pytest.mark.usefixtures("cudf")
@pytest.mark.parametrize("ids", [("a", "b", "é", "d"), (7, -1, 2**62, 0)])
def test_results_to_cudf(ids: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(ids)
    expected = found.to_arrow().to_pydict()
    monkeypatch.setattr("gpumatch.results.to_host", lambda array: pytest.fail("copied to the host"))
    for result in (results(ids), Matches(found.offsets, found.rows, pa.array(ids))):
        frame = result.to_cudf()
        assert isinstance(frame, fakes.DataFrame)
        assert {name: frame[name].to_arrow().to_pylist() for name in frame.columns} == expected
        assert frame["event"].to_arrow().type == pa.int64()
    nothing = Matches(library().zeros(3, dtype=np.int64), library().zeros(0, dtype=np.int32), pa.array([], pa.string()))
    assert len(nothing.to_cudf()) == 0


def test_results_of_the_host_are_copied_to_the_device() -> None:
    offsets, rows = Matches(np.array([0, 1]), np.array([0]), pa.array(["a"])).to_cupy()
    assert isinstance(offsets, DeviceArray)
    assert rows.tolist() == [0]


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"to_cudf\(\) needs cudf: pip install 'gpumatch\[cudf13\]'"):
        results().to_cudf()


# Random data.

VALUES = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float64": (pa.float64(), st.floats(allow_nan=True)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=4)),
    "date": (pa.date32(), st.dates()),
    "timestamp[us]": (pa.timestamp("us"), st.datetimes()),
}


@given(st.data(), st.sampled_from(list(VALUES)), st.sampled_from(list(VALUES)), st.booleans(), st.booleans())
def test_device_and_host_agree(data: st.DataObject, held: str, kind: str, multi: bool, encoded: bool) -> None:
    arrow, element = VALUES[held]
    values = data.draw(st.lists(st.none() | (st.lists(st.none() | element, max_size=4) if multi else element)))
    array = pa.array(values, pa.list_(arrow) if multi else arrow)
    if encoded and not multi:
        array = array.dictionary_encode()
    array = array[data.draw(st.integers(0, len(values))) :]
    for wanted in (kind, f"list<{kind}>"):
        assert outcome(wanted, DeviceArrowArray(array)) == outcome(wanted, array)
        assert outcome(wanted, Series(array)) == outcome(wanted, array)
