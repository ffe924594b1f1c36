"""``gpumatch bench``: what it reports is of the workload that was asked for, and nothing wrong is timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.cli import main
from gpumatch.cli.benchmark import measure
from gpumatch.results import Matches


def test_a_workload_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "timings.json"
    sizes = ["--scale", "0.002", "--events", "30", "--batch", "20", "--repeats", "1"]
    assert main(["bench", "w5", "w2", "--device", "cpu", *sizes, "--save", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [(one["workload"], one["device"], one["events_from"]) for one in found] == [
        ("w5", "cpu", "host"),
        ("w2", "cpu", "host"),
    ]
    assert [one["subscriptions"] for one in found] == [200, 2000]
    assert found[0]["matches"] > 1
    assert all(one["us"] > 0 and one["rate"] == pytest.approx(1e6 / one["us"]) for one in found)
    assert "w5" in capsys.readouterr().out


def test_wrong_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = gm.Matcher.match

    def wrong(self: Any, events: Any) -> Matches:
        found = right(self, events)
        if self.plan().segments[0].index.kind == "scan":
            return found
        return Matches(np.zeros_like(found.offsets), found.rows[:0], found._ids)

    monkeypatch.setattr(gm.Matcher, "match", wrong)
    with pytest.raises(gm.GpumatchError, match="cpu and a scan on the CPU disagree on 64 events"):
        next(measure("w5", "cpu", "gem", 0.002, 100, 100, 1))


def test_an_unknown_workload(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "w9"])
    assert "invalid choice: 'w9'" in capsys.readouterr().err
