"""Events in, matches out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import gpumatch as gm
from tests.matcher.faces import filled


def test_events_of_all_kinds() -> None:
    matcher = filled({k: f"i >= {k}" for k in range(5)})
    columns = {"i": [0, 2, None, 9], "other": [1, 2, 3, 4]}
    table = pa.table(columns)
    expected = [[0], [0, 1, 2], [], [0, 1, 2, 3, 4]]
    kinds = [[{"i": i} for i in columns["i"]], columns, table, table.to_batches()[0], table.to_reader()]
    kinds += [pd.DataFrame(columns), pl.DataFrame(columns), gm.EventBatch.of(table, matcher.schema)]
    kinds += [gm.EventBatch.from_csr([0, 1, 2, 2, 3], [0, 0, 0], [0, 2, 9], ["i"])]
    for given_events in kinds:
        assert list(matcher.match(given_events)) == expected
    readers = [table.to_reader() for _ in range(3)]
    assert matcher.count(readers[0]).tolist() == [1, 3, 0, 5]
    assert matcher.any(readers[1]).tolist() == [True, True, False, True]
    assert [ids for part in matcher.match_iter(readers[2]) for ids in part] == expected


def test_match_iter_cuts_large_batches() -> None:
    matcher = filled({1: "i >= 10000", 2: "i < 100"})
    values = np.arange(20_000)
    parts = list(matcher.match_iter({"i": values}))
    assert len(parts) > 1
    assert [ids for part in parts for ids in part] == [[2]] * 100 + [[]] * 9900 + [[1]] * 10_000
    assert matcher.count({"i": values}).sum() == 10_100
    reader = pa.RecordBatchReader.from_batches(
        pa.schema({"i": pa.int64()}), (pa.record_batch({"i": values[k : k + 7000]}) for k in range(0, 20_000, 7000))
    )
    assert matcher.any(reader).sum() == 10_100


def test_one_event_and_none() -> None:
    matcher = filled({1: "i = 1", 2: "x IS NULL"})
    assert matcher.match_one({"i": 1}) == [1, 2]
    assert matcher.match_one({}) == [2]
    assert matcher.match_one({"unknown": 5, "x": 1.0}) == []
    assert len(matcher.match([])) == 0
    assert list(matcher.match_iter([])) == []
    for given_events in ([], {"i": []}, pa.table({"i": pa.array([], pa.int64())})):
        assert matcher.count(given_events).tolist() == []
        assert matcher.any(given_events).tolist() == []


@pytest.mark.parametrize("given_events", [[{"i": "x"}], {"i": [1.5]}, [5], 5, {"s": [1]}, {"tags": ["a"]}], ids=repr)
def test_bad_events(given_events: Any) -> None:
    matcher = filled({1: "i = 1"})
    calls: list[Any] = [matcher.match, matcher.count, matcher.any, matcher.observe]
    for call in [*calls, lambda given: list(matcher.match_iter(given))]:
        with pytest.raises(gm.SchemaError):
            call(given_events)
    assert matcher.match_one({"i": 1}) == [1]


def test_rows_are_ascending_and_index_the_ids() -> None:
    matcher = filled({f"k{k}": f"i >= {k} OR x >= {k} OR s = 'a'" for k in range(200)})
    matcher.match_one({})
    matcher.remove([f"k{k}" for k in range(0, 200, 3)])
    matcher.add({f"l{k}": f"i >= {k}" for k in range(40)})
    found = matcher.match([{"i": 150, "x": 30.0, "s": "a"}, {"x": 3.0}, {"i": 1, "tags": []}])
    for event in range(3):
        rows = found.rows[found.offsets[event] : found.offsets[event + 1]]
        assert (np.diff(rows) > 0).all()
        assert matcher.ids[rows].tolist() == found.ids(event)
    assert found.counts.tolist() == matcher.count([{"i": 150, "x": 30.0, "s": "a"}, {"x": 3.0}, {"i": 1}]).tolist()


def test_a_result_keeps_its_snapshot() -> None:
    matcher = filled({1: "i = 1", 2: "i = 1", 3: "i = 1"})
    found = matcher.match([{"i": 1}])
    matcher.remove([1])
    matcher.replace({2: "i = 2"})
    matcher.add({0: "i = 1"})
    matcher.compact()
    assert found.ids(0) == [1, 2, 3]
    assert found.to_arrow()["subscription"].to_pylist() == [1, 2, 3]
    assert matcher.match_one({"i": 1}) == [3, 0]
