"""The executors' half of ``match_events``, called without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.spark import worker


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_open", type(worker._open)())


def saved(folder: Path, **subscriptions: str) -> str:
    matcher = gm.Matcher({"x": "int64"})
    matcher.add(subscriptions)
    matcher.save(folder)
    return str(folder)


def batch(n: int, **more: Any) -> Any:
    return pa.RecordBatch.from_pydict({"k": range(n), "x": range(n), **more})


def matched(path: str, batch: Any, *names: str) -> list[Any]:
    """The slices that ``match_folder`` makes of one batch; the names are those of the columns to return."""
    query = worker.Query(batch.schema.names, [*names, "id"], integers=False)
    return list(worker.match_folder([batch], path=path, query=query))


def rows(slices: list[Any]) -> list[dict[str, Any]]:
    return pa.Table.from_batches(slices).to_pylist()


def test_output_comes_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "i", low="x < 6", high="x >= 3", every="x >= 0")
    whole = matched(path, batch(10), "k")
    assert [piece.num_rows for piece in whole] == [23]
    assert whole[0].schema.names == ["k", "id"]
    monkeypatch.setattr(worker, "SLICE_ROWS", 7)
    cut = matched(path, batch(10), "k")
    assert [piece.num_rows for piece in cut] == [7, 7, 7, 2]
    assert rows(cut) == rows(whole)
    assert rows(whole)[:3] == [{"k": 0, "id": "low"}, {"k": 0, "id": "every"}, {"k": 1, "id": "low"}]


def test_wide_events_come_in_smaller_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "i", every="x >= 0")
    monkeypatch.setattr(worker, "SLICE_BYTES", 4_000)
    wide = batch(20, text=["w" * 1_000] * 20)
    pieces = matched(path, wide, "k", "x", "text")
    assert max(piece.num_rows for piece in pieces) == 3
    assert sum(piece.num_rows for piece in pieces) == 20


def test_no_batches_open_no_index() -> None:
    assert list(worker.match_folder([], path="/nowhere", query=worker.Query(["x"], ["id"], integers=False))) == []


def test_an_index_is_opened_once(tmp_path: Path) -> None:
    path = saved(tmp_path / "i", a="x < 6")
    first = worker.open_index(path)
    assert worker.open_index(path) is first
    saved(tmp_path / "i", b="x > 6")
    assert list(worker.open_index(path).ids) == ["b"]


def test_the_least_recently_used_is_closed(tmp_path: Path) -> None:
    paths = [saved(tmp_path / str(i), a=f"x < {i}") for i in range(worker.OPEN_INDEXES + 1)]
    first = worker.open_index(paths[0])
    second = worker.open_index(paths[1])
    for path in (*paths[2:-1], paths[0], paths[-1]):
        worker.open_index(path)
    assert len(worker._open) == worker.OPEN_INDEXES
    assert worker.open_index(paths[0]) is first
    assert worker.open_index(paths[1]) is not second
