"""Columns of events as plain Python."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gpumatch.errors import SchemaError
from gpumatch.events.batch import Column, EventBatch, Strings
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
