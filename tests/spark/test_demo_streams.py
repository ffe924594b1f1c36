"""The demo of streams, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch.cli import demo_stream, main

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_it_checks_itself(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_stream, "FILES", 6)
    demo_stream.run(subscriptions=500, events=1200, out=tmp_path, seed=5, seconds=3)
    said = capsys.readouterr().out
    assert "1,200 bars" in said
    assert "no difference" in said
    folder = tmp_path / "stream"
    assert len(gm.load(folder / "index")) == 500
    [query] = [path.name for path in (folder / "index" / "pins").iterdir()]
    pairs, versions = demo_stream.check(folder, query)
    assert f"{pairs:,} matches, {versions} versions" in said
    assert pairs > 0
    assert versions > 1
    wrong = demo_stream._written(folder)
    assert len(wrong) == pairs
    written = next(path for path in (folder / "matches").glob("*.parquet") if len(pq.read_table(path)))
    pq.write_table(pq.read_table(written).slice(1), written)
    with pytest.raises(AssertionError, match=rf"wrote {pairs - 1:,} matches, and {pairs:,} are right: they differ"):
        demo_stream.check(folder, query)
    assert spark.range(1).count() == 1


def test_it_needs_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo_stream, "_missing_for_spark", lambda: "No Java")
    assert main(["demo", "--stream", "--out", str(tmp_path)]) == 2
    assert "the demo of streams needs Spark: No Java" in capsys.readouterr().err
    monkeypatch.setattr(demo_stream, "_missing_for_spark", lambda: None)
    assert main(["demo", "--stream", "--out", str(tmp_path), "--events", "59"]) == 2
    assert "needs a bar for each of 60 files, found 59" in capsys.readouterr().err
