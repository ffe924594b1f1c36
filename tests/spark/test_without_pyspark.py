"""What the functions say where PySpark is not installed; neither it nor Java is needed for that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gpumatch.spark import build_index, match_events


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    frame: Any = object()
    with pytest.raises(ImportError, match=r"pip install 'gpumatch\[spark\]'"):
        match_events(frame, tmp_path)
    with pytest.raises(ImportError, match=r"pip install 'gpumatch\[spark\]'"):
        build_index(frame, tmp_path / "index", schema={"px": "float64"})
