"""Hashes tell events apart by what they hold, and by nothing else."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.spark.hashes import hashes

_text = st.none() | st.text("ab\0é", max_size=3)
_row = st.fixed_dictionaries(
    {
        "s": _text,
        "t": _text,
        "x": st.none() | st.integers(-2, 2),
        "y": st.none() | st.integers(-2, 2),
        "b": st.none() | st.booleans(),
        "f": st.none() | st.sampled_from([0.5, 1.5, float("inf")]),
        "tags": st.none() | st.lists(_text, max_size=3),
        "more": st.none() | st.lists(st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2), max_size=2),
        "p": st.none() | st.fixed_dictionaries({"q": _text, "r": st.none() | st.integers(0, 1)}),
        "m": st.none() | st.lists(st.tuples(st.text("ab", max_size=1), _text), max_size=2),
        "d": st.none() | st.sampled_from([Decimal("1.50"), Decimal("2.50")]),
        "day": st.none() | st.sampled_from([dt.date(2024, 1, 31), dt.date(2024, 2, 1)]),
        "raw": st.none() | st.binary(max_size=2),
    }
)
SCHEMA = pa.schema(
    {
        "s": pa.string(), "t": pa.string(), "x": pa.int64(), "y": pa.int32(), "b": pa.bool_(), "f": pa.float64(),
        "tags": pa.list_(pa.string()), "more": pa.list_(pa.list_(pa.int8())),
        "p": pa.struct({"q": pa.string(), "r": pa.int16()}), "m": pa.map_(pa.string(), pa.string()),
        "d": pa.decimal128(9, 2), "day": pa.date32(), "raw": pa.binary(),
    }
)  # fmt: skip


def of(rows: list[dict[str, Any]], first: int = 0) -> list[tuple[int, int]]:
    batch = pa.RecordBatch.from_pylist([*[{}] * first, *rows], SCHEMA).slice(first)
    return list(zip(*(part.tolist() for part in hashes(batch)), strict=True))


@given(rows=st.lists(_row, max_size=8), first=st.integers(0, 3))
def test_equal_events_and_no_others_have_equal_hashes(rows: list[dict[str, Any]], first: int) -> None:
    found = of(rows, first)
    assert found == of(rows)  # wherever they lie
    assert found[::-1] == of(rows[::-1])
    keys = [repr(row) for row in rows]
    for at, key in enumerate(keys):
        for other in range(at):
            assert (found[at] == found[other]) == (key == keys[other])


def test_what_a_simple_hash_would_mix_up() -> None:
    rows: list[dict[str, Any]] = [
        {"s": "a"}, {"t": "a"}, {"x": 1}, {"y": 1}, {"s": "", "t": "a"}, {"s": "a", "t": ""}, {}, {"tags": []},
        {"tags": [None]}, {"tags": [None, None]}, {"tags": ["a", "b"]}, {"tags": ["b", "a"]}, {"tags": ["ab"]},
        {"tags": ["a, b"]}, {"more": [[1], [2]]}, {"more": [[1, 2]]}, {"more": [[1, 2], []]}, {"more": [[], [1, 2]]},
        {"p": {}}, {"p": {"q": ""}}, {"m": []}, {"m": [("a", "b")]}, {"m": [("a", None)]}, {"s": "\0"}, {"s": "\0\0"},
    ]  # fmt: skip
    found = of(rows)
    assert len(set(found)) == len(rows)
    assert len({first for first, _ in found} | {second for _, second in found}) == 2 * len(rows)


def test_dictionaries_large_lists_and_nothing() -> None:
    plain = pa.array(["a", None, "b"])
    batch = pa.RecordBatch.from_arrays([plain, pa.nulls(3)], names=["s", "n"])
    coded = pa.RecordBatch.from_arrays([plain.dictionary_encode(), pa.nulls(3)], names=["s", "n"])
    assert hashes(batch)[0].tolist() == hashes(coded)[0].tolist()
    small, large = (pa.RecordBatch.from_arrays([pa.array([["a"], []], pa_list(pa.string()))], names=["l"])
                    for pa_list in (pa.list_, pa.large_list))  # fmt: skip
    assert hashes(small)[1].tolist() == hashes(large)[1].tolist()
    assert [part.tolist() for part in hashes(batch.slice(0, 0))] == [[], []]
    bytes_, wide = (pa.RecordBatch.from_arrays([pa.array([b"\xff", b""], kind)], names=["b"])
                    for kind in (pa.binary(), pa.large_binary()))  # fmt: skip
    assert hashes(bytes_)[0].tolist() == hashes(wide)[0].tolist()
