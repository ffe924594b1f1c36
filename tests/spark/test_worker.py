"""The executors' half of ``match_events``, called without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.spark import answers, opened, worker
from gpumatch.spark.answers import Output


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "_open", type(opened._open)())


def saved(folder: Path, **subscriptions: str) -> str:
    matcher = gm.Matcher({"x": "int64"})
    matcher.add(subscriptions)
    matcher.save(folder)
    return str(folder)


def batch(n: int, **more: Any) -> Any:
    return pa.RecordBatch.from_pydict({"k": range(n), "x": range(n), **more})


def query(columns: list[str], *names: str, output: Output = "pairs") -> worker.Query:
    return worker.Query(columns, [*names, "id"], output, None, integers=False, device="cpu", is_local=True)


def matched(path: str, batch: Any, *names: str, output: Output = "pairs") -> list[Any]:
    """The slices that ``match_batches`` makes of one batch; the names are those of the columns to return."""
    return list(
        worker.match_batches([batch], worker.Location(path, False), query(batch.schema.names, *names, output=output))
    )


def rows(slices: list[Any]) -> list[dict[str, Any]]:
    return pa.Table.from_batches(slices).to_pylist()


def test_output_comes_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "i", low="x < 6", high="x >= 3", every="x >= 0")
    whole = matched(path, batch(10), "k")
    assert [piece.num_rows for piece in whole] == [23]
    assert whole[0].schema.names == ["k", "id"]
    monkeypatch.setattr(answers, "SLICE_ROWS", 7)
    cut = matched(path, batch(10), "k")
    assert [piece.num_rows for piece in cut] == [7, 7, 7, 2]
    assert rows(cut) == rows(whole)
    assert rows(whole)[:3] == [{"k": 0, "id": "low"}, {"k": 0, "id": "every"}, {"k": 1, "id": "low"}]


def test_wide_events_come_in_smaller_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "i", every="x >= 0")
    monkeypatch.setattr(answers, "SLICE_BYTES", 4_000)
    wide = batch(20, text=["w" * 1_000] * 20)
    pieces = matched(path, wide, "k", "x", "text")
    assert max(piece.num_rows for piece in pieces) == 3
    assert sum(piece.num_rows for piece in pieces) == 20


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_arrays_come_in_slices(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "i", low="x < 6", high="x >= 3", even="x IN (0, 2, 4)")
    monkeypatch.setattr(answers, "SLICE_IDS", most)
    pieces = matched(path, batch(8), "k", output="array")
    expected = [["low", "even"], ["low"], ["low", "even"], ["low", "high"], ["low", "high", "even"], ["low", "high"]]
    assert rows(pieces) == [{"k": k, "id": ids} for k, ids in enumerate([*expected, ["high"], ["high"]])]
    assert all(piece.num_rows == 1 or len(piece["id"].flatten()) <= most for piece in pieces)


def test_counts_and_destinations(tmp_path: Path) -> None:
    matcher = gm.Matcher({"x": "int64"})
    matcher.add({"a": "x < 2", "b": "x < 4", "c": "x > 2"}, destination=["north", "north", "south"])
    matcher.save(tmp_path / "i")
    counted = matched(str(tmp_path / "i"), batch(5), output="count")
    assert rows(counted) == [{"id": n} for n in (2, 2, 1, 2, 1)]
    sent = matched(str(tmp_path / "i"), batch(5), output="destinations")
    assert [row["id"] for row in rows(sent)] == [["north"], ["north"], ["north"], ["north", "south"], ["south"]]


def test_totals_per_subscription(tmp_path: Path) -> None:
    path = saved(tmp_path / "i", low="x < 6", never="x < 0", high="x >= 3")
    counted = worker.Query(["k", "x"], ["subscription", "count"], "count", None, False, "cpu", True)
    [found] = worker.count_batches([batch(4), batch(10)], worker.Location(path, False), counted)
    assert found.to_pydict() == {"subscription": ["low", "high"], "count": [10, 8]}
    assert list(worker.count_batches([], worker.Location("/nowhere", False), counted)) == []


def test_no_batches_open_no_index() -> None:
    assert list(worker.match_batches([], worker.Location("/nowhere", False), query(["x"]))) == []


def test_an_index_is_opened_once(tmp_path: Path) -> None:
    path = saved(tmp_path / "i", a="x < 6")
    first = opened.open_index(path, "cpu")
    assert opened.open_index(path, "cpu") is first
    saved(tmp_path / "i", b="x > 6")
    assert list(opened.open_index(path, "cpu").ids) == ["b"]


def test_a_save_between_manifest_and_files_is_kept_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "i", a="x < 6")
    look = opened.read_manifest

    def look_then_save(folder: Path) -> dict[str, Any]:
        seen = look(folder)
        saved(tmp_path / "i", b="x > 6")
        return seen

    monkeypatch.setattr(opened, "read_manifest", look_then_save)
    assert list(opened.open_index(path, "cpu").ids) == ["b"]
    monkeypatch.setattr(opened, "read_manifest", look)
    saved(tmp_path / "i", a="x < 6")
    assert list(opened.open_index(path, "cpu").ids) == ["a"]


def test_what_was_unused_for_longest_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [saved(tmp_path / str(i), a=f"x < {i}") for i in range(3)]
    first, second = (opened.open_index(path, "cpu") for path in paths[:2])
    sizes = [size for _, size in opened._open.values()]
    monkeypatch.setattr(opened, "_room", lambda: sum(sizes) + 1)
    opened.open_index(paths[0], "cpu")
    opened.open_index(paths[2], "cpu")
    assert len(opened._open) == 2
    assert opened.open_index(paths[0], "cpu") is first
    assert opened.open_index(paths[1], "cpu") is not second
    monkeypatch.setattr(opened, "_room", lambda: 0)
    opened.open_index(paths[0], "cpu")
    assert len(opened._open) == 1  # the one in use stays, however large


def test_a_device_holds_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "from_stored", lambda stored, device: stored.digest)
    for name in ("a", "b"):
        opened.open_index(saved(tmp_path / name, **{name: "x < 6"}), "cuda:0")
    assert len(opened._open) == 1
