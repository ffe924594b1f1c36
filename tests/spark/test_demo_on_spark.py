"""The demo through Spark, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch.cli import demo

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_demo(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "SAMPLE", 500)
    demo.run(subscriptions=1_000, events=3_000, out=tmp_path, seed=5)
    said = capsys.readouterr().out
    pairs = pq.read_table(tmp_path / "matches.parquet")
    matcher = gm.load(tmp_path / "index")
    assert len(matcher) == 1_000
    assert len(pairs) == int(matcher.count(pq.read_table(tmp_path / "bars.parquet")).sum())
    assert f"{len(pairs):,}" in said
    assert "Spark's own range join on 500 of the bars" in said
    assert "the same" in said
    assert spark.range(1).count() == 1  # the demo leaves a session alone that it did not start
