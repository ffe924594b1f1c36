from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import SchemaError
from gpumatch.events.batch import EventBatch, Sparse, Strings
from gpumatch.expr.atoms import Timestamp
from gpumatch.schema import Schema

DAY = 86_400


def raw(values: np.ndarray | Strings) -> list[Any]:
    if isinstance(values, Strings):
        return [values.dictionary[index].as_py() for index in values.indices.tolist()]
    assert values.dtype in (np.float64, np.int64)
    return values.tolist()


def entries(sparse: Sparse) -> list[list[tuple[int, Any]]]:
    assert sparse.offsets.dtype == np.int64
    assert sparse.attribute.dtype == np.int32
    pairs = list(zip(sparse.attribute.tolist(), raw(sparse.values), strict=True))
    ends = sparse.offsets.tolist()
    return [pairs[a:b] for a, b in pairwise(ends)]


def bind(batch: EventBatch, schema: Schema) -> list[list[tuple[int, Any]]]:
    sparse = batch.sparse(schema)
    assert sparse is not None
    assert len(sparse.offsets) == len(batch) + 1
    return entries(sparse)


def test_csr() -> None:
    schema = Schema.of({"a": "float64", "b": "float64", "c": "list<float64>"})
    batch = EventBatch.from_csr([0, 2, 2, 5], [0, 2, 2, 1, 2], [1.5, 2.5, 3.5, 4.5, 3.5], ["a", "b", "c"])
    assert len(batch) == 3
    assert repr(batch) == "EventBatch(3 events, CSR)"
    assert EventBatch.of(batch, schema) is batch
    assert bind(batch, schema) == [[(0, 1.5), (2, 2.5)], [], [(1, 4.5), (2, 3.5), (2, 3.5)]]
    assert [batch.row(i) for i in range(3)] == [{"a": 1.5, "c": [2.5]}, {}, {"b": 4.5, "c": [3.5, 3.5]}]
    with pytest.raises(TypeError, match="sparse"):
        batch.columns(schema)


def test_csr_names_are_mapped() -> None:
    schema = Schema.of({"a": "int64", "b": "int64"})
    batch = EventBatch.from_csr([0, 3, 4], [0, 1, 2, 1], np.array([1, 2, 3, 4]), ["b", "no", "a"])
    assert bind(batch, schema) == [[(0, 3), (1, 1)], []]
    other = Schema.of({"no": "int64"})
    assert bind(batch, other) == [[(0, 2)], [(0, 4)]]
    assert bind(batch, schema) == [[(0, 3), (1, 1)], []]


def test_csr_looks_up_only_names_that_occur(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a{i}" for i in range(3000)]
    schema = Schema.of(dict.fromkeys(names, "float64"))
    asked: list[str] = []
    find = Schema.find
    monkeypatch.setattr(Schema, "find", lambda self, name: asked.append(name) or find(self, name))
    bind(EventBatch.from_csr([0, 2], [7, 2999], [1.0, 2.0], names), schema)
    assert sorted(asked) == ["a2999", "a7"]
    asked.clear()
    batch = EventBatch.from_csr([0, 2], [7, 2999], [1.0, 2.0], schema.names)
    assert bind(batch, schema) == bind(batch, schema) == [[(7, 1.0), (2999, 2.0)]]
    assert batch.sparse(schema) is batch.sparse(schema)
    assert asked == []


def test_csr_shares_the_values_and_nothing_that_is_trusted_later() -> None:
    schema = Schema.of({"a": "float64", "b": "float64"})
    attribute, value = np.array([0, 1, 1], np.int32), np.array([1.0, 2.0, 3.0])
    sparse = EventBatch.from_csr(np.array([0, 2, 3]), attribute, value, ("a", "b")).sparse(schema)
    assert sparse is not None
    assert not np.shares_memory(sparse.attribute, attribute)
    assert np.shares_memory(sparse.values, value)


def csr(kind: str, value: Any, names: Any = ("a",)) -> list[list[tuple[int, Any]]]:
    """Each value an event of its own, of one attribute."""
    n = len(value)
    return bind(EventBatch.from_csr(range(n + 1), [0] * n, value, names), Schema.of({"a": kind}))


def test_csr_values() -> None:
    two = [[(0, 1)], [(0, 2)]]
    for value in (np.array([1, 2]), np.array([1.0, 2.0]), np.array([1, 2], "u1"), [1, 2], [1, 2.0], pa.array([1, 2])):
        for kind in ("int64", "float32", "list<int8>"):
            assert csr(kind, value) == two
    for missing in ([1, None, 3], [1.0, math.nan, 3.0], pa.array([1, None, 3]), np.array([1, np.nan, 3], "f4")):
        assert csr("int64", missing) == [[(0, 1)], [], [(0, 3)]]
        assert csr("float64", missing) == [[(0, 1)], [], [(0, 3)]]
    for words in (
        ["x", None],
        np.array(["x", None], object),
        pa.array(["x", None]),
        pa.array(["x", None]).dictionary_encode(),
    ):
        assert csr("string", words) == [[(0, "x")], []]
    assert csr("string", np.array(["x", "y"])) == [[(0, "x")], [(0, "y")]]
    assert csr("bool", np.array([True, False])) == csr("bool", [True, False]) == [[(0, 1)], [(0, 0)]]
    assert csr("date", np.array([1, "NaT"], "datetime64[D]")) == [[(0, 1)], []]
    assert csr("date", pa.array([dt.date(1970, 1, 2)])) == [[(0, 1)]]
    assert csr("timestamp[ns]", np.array([1, "NaT"], "datetime64[us]")) == [[(0, 1000)], []]
    assert csr("timestamp[us, tz=UTC]", pa.array([5], pa.timestamp("ms", "UTC"))) == [[(0, 5000)]]
    for nothing in ([None], pa.nulls(1), [math.nan]):
        for kind in ("int64", "float64"):
            assert csr(kind, nothing) == [[]]
    assert csr("string", pa.nulls(2, pa.string())) == [[], []]
    assert csr("int64", []) == []


def test_csr_of_several_types() -> None:
    schema = Schema.of({"i": "int64", "f": "float64", "t": "timestamp[ns]", "d": "date", "u": "timestamp[us]"})
    batch = EventBatch.from_csr([0, 2, 3], [1, 0, 1], [2.5, 3.0, math.nan], schema.names)
    assert bind(batch, schema) == [[(0, 3.0), (1, 2.5)], []]
    times = EventBatch.from_csr([0, 3], [2, 3, 4], np.array([DAY, DAY, DAY], "datetime64[s]"), schema.names)
    assert bind(times, schema) == [[(2, DAY * 10**9), (3, 1), (4, DAY * 10**6)]]
    assert times.row(0) == {"t": Timestamp(DAY * 10**9), "d": dt.date(1970, 1, 2), "u": Timestamp(DAY * 10**9)}
    with pytest.raises(SchemaError, match=r"'i' is int64, but event 1 holds 2.5.*not whole"):
        bind(EventBatch.from_csr([0, 1, 3], [1, 1, 0], [2.5, 2.5, 2.5], schema.names), schema)
    with pytest.raises(SchemaError, match=r"'f' is float64, but event 1 holds 9007199254740993.*exactly"):
        bind(EventBatch.from_csr([0, 1, 3], [1, 0, 1], [1, 2**53 + 1, 2**53 + 1], schema.names), schema)
    with pytest.raises(SchemaError, match=r"'d' is date, but event 0 holds .*midnight"):
        bind(EventBatch.from_csr([0, 1], [3], np.array([1], "datetime64[s]"), schema.names), schema)
    with pytest.raises(SchemaError, match=r"'u' is timestamp\[us\], but event 0 holds .*timestamp\[ns\]"):
        bind(EventBatch.from_csr([0, 1], [4], np.array([1], "datetime64[ns]"), schema.names), schema)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", [1]), ("string", [1.5]), ("bool", [1]), ("int64", [True]), ("int64", ["x"]), ("float64", ["x"]),
        ("date", [1]), ("timestamp[us]", [1]), ("timestamp[us]", pa.array([dt.date(2020, 1, 1)])),
        ("int64", np.array([1], "datetime64[s]")), ("timestamp[us, tz=UTC]", np.array([1], "datetime64[s]")),
        ("date", pa.array([0], pa.timestamp("ms", "UTC"))), ("list<string>", [1]),
    ],
)  # fmt: skip
def test_csr_wrong_types(kind: str, value: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        csr(kind, value)
    assert str(caught.value).startswith(f"attribute 'a' is {kind}, but event 0 holds")


@pytest.mark.parametrize(
    ("offsets", "attribute", "value", "message"),
    [
        ([], [], [], "offsets are empty"),
        ([0, 1], [0, 0], [1, 2], "offsets must go from 0 to 2"),
        ([1, 2], [0, 0], [1, 2], "offsets must go from 0 to 2"),
        ([0, 2, 1, 3], [0, 1, 0], [1, 2, 3], "offsets fall from 2 to 1 at event 1"),
        ([0.0, 1.0], [0], [1], "offsets must be a one-dimensional array of integers, found 1-dimensional float64"),
        ([0, 1], [[0]], [1], "attribute must be a one-dimensional array"),
        ([0, 1], ["a"], [1], "attribute must be a one-dimensional array of integers"),
        ([0, 1], [2], [1], r"attribute\[0\] is 2, but there are 2 names"),
        ([0, 1], [-1], [1], r"attribute\[0\] is -1"),
        ([0, 1], [0], [1, 2], "one value for each attribute, found 2 for 1"),
        ([0, 2], [0, 1], [1, "x"], "all numbers"),
        ([0, 1], [0], [Decimal(1)], "decimal128"),
        ([0, 1], [0], np.array([1j]), "complex128"),
        ([0, 1], [0], np.array([2**63], np.uint64), "range of int64"),
        ([0, 1], [0], ["\ud800"], "surrogate"),
        ([0, 1], [0], [[1]], "list"),
    ],
)
def test_csr_refusals(offsets: Any, attribute: Any, value: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        EventBatch.from_csr(offsets, attribute, value, ["a", "b"])


def test_csr_repeated_entries() -> None:
    schema = Schema.of({"a": "int64", "b": "list<int64>"})
    batch = EventBatch.from_csr([0, 1, 4], [0, 1, 0, 1], [1, 2, 3, 4], schema.names)
    assert [sorted(event) for event in bind(batch, schema)] == [[(0, 1)], [(0, 3), (1, 2), (1, 4)]]
    twice = EventBatch.from_csr([0, 1, 4], [0, 0, 1, 0], [1, 2, 3, 4], schema.names)
    with pytest.raises(SchemaError, match=r"'a' is int64, but event 1 has two values .* list<int64>"):
        twice.sparse(schema)
    same = EventBatch.from_csr([0, 2], [0, 1], [1, 2], ["a", "a"])
    with pytest.raises(SchemaError, match="two values"):
        same.sparse(schema)


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(-5, 5) | st.none(), max_size=6), max_size=6),
    st.data(),
)
def test_csr_equals_rows(rows: list[dict[str, int | None]], data: st.DataObject) -> None:
    schema = Schema.of(dict.fromkeys("badc", "int64"))
    names = data.draw(st.permutations("abcdef"))
    flat = [(names.index(name), value) for row in rows for name, value in row.items()]
    offsets = [0, *np.cumsum([len(row) for row in rows], dtype=int).tolist()]
    batch = EventBatch.from_csr(offsets, [at for at, _ in flat], pa.array([v for _, v in flat], pa.int64()), names)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    if data.draw(st.booleans()):
        batch = EventBatch.of(batch, schema)
    part = EventBatch.of(batch.slice(start, stop), schema)
    dense = EventBatch.of(rows, schema).slice(start, stop)
    assert len(part) == len(dense) == stop - start
    assert [part.row(i) for i in range(len(part))] == [dense.row(i) for i in range(len(part))]
    for event in bind(part, schema):
        assert [at for at, _ in event] == sorted(at for at, _ in event)


def test_csr_rows_need_a_schema() -> None:
    with pytest.raises(TypeError, match="before it is bound"):
        EventBatch.from_csr([0, 1], [0], [1], ["a"]).row(0)


def test_an_integer_beyond_64_bits_is_told() -> None:
    with pytest.raises(SchemaError, match="from_csr: the values must be"):
        EventBatch.from_csr([0, 1], [0], [2**64], ["n"])
