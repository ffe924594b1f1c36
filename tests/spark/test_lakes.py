"""The recipes for tables of Delta and Iceberg, run on real ones. Maven fetches the jars: 10 MB and 50 MB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from tests.spark.jars import DELTA, ICEBERG, fetched
from tests.spark.streams import events

pytestmark = [pytest.mark.spark, pytest.mark.delta, pytest.mark.long]

PROGRAM = Path(__file__).with_name("lake_program.py")


def found_in(lake: str, folder: Path, *jars: str) -> dict[str, Any]:
    """What the program reports."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    if not pyspark.__version__.startswith("4.1."):
        pytest.skip(f"{jars[1]} is for PySpark 4.1, found {pyspark.__version__}")
    paths = ",".join(map(str, fetched(*jars, alone=True)))
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "GPUMATCH_TRIALS": "0"}
    # not by its path, which would have Python search this folder first
    code = f"import runpy, sys; sys.argv[1:] = {[str(folder), paths, lake]!r}; "
    code += "runpy.run_module('tests.spark.lake_program', run_name='__main__')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=os.environ | own, cwd=PROGRAM.parents[2], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def check_alerts(found: dict[str, Any], folder: Path) -> None:
    """A batch whose MERGE ran twice, while the index has changed, is there once, as its version has it."""
    right = []
    assert list(found["versions"]) == ["0", "1"]
    for batch, version in found["versions"].items():
        ids = gm.load(folder / "alerts", version=version, device="cpu").match(events(100 * int(batch), 100))
        right += [[100 * int(batch) + k, name] for k, names in enumerate(ids) for name in names]
    assert found["pairs"] == right
    assert {name for _, name in right} == {"a", "b"}


def test_delta(tmp_path: Path) -> None:
    found = found_in("delta", tmp_path, *DELTA)
    check_alerts(found["alerts"], tmp_path)
    first = {user: ["rome"] * (user % 2 == 0) + ["young"] * (user < 10) for user in range(20)}
    # Rules that change are seen by profiles that do
    second = {**first, 3: ["north", "young"], 4: ["north", "young"], 15: ["north", "young"], 90: ["young"]}
    assert [dict(rows) for rows in found["segments"]] == [
        first,
        {user: names for user, names in second.items() if user not in (5, 6)},
    ]


@pytest.mark.skipif("GPUMATCH_ALL" not in os.environ, reason="it fetches 50 MB: make test-long runs it")
def test_iceberg(tmp_path: Path) -> None:
    found = found_in("iceberg", tmp_path, *ICEBERG)
    check_alerts(found["alerts"], tmp_path)
    assert found["changes"] == [[5, 0], [1, 0], [1, 1], [1, 1], [0, 0]]  # put and removed, the last by comparison
