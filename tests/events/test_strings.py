"""Strings of events, in every layout."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gpumatch.events.batch import EventBatch, Strings
from gpumatch.schema import Schema
from tests.events.cells import one, refusal


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
