"""Which Python runs the workers, each time in a session of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from pyspark.sql import SparkSession

import gpumatch as gm
from gpumatch.spark import match_events

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = spark.sparkContext.pythonExec
matcher = gm.Matcher({"px": "float64"})
matcher.add({"a": "px > 1"})
pairs = match_events(spark.sql("SELECT * FROM VALUES (0.5D), (2.0D) AS t(px)"), matcher)
assert spark.sparkContext.pythonExec == before
try:
    print([tuple(row) for row in pairs.collect()])
except Exception as error:
    print(error)
"""


def run(folder: Path, **environment: str) -> str:
    """What the program prints, where the first python3 on the PATH cannot start."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed: Spark needs a JDK 17 or 21")
    script(folder / "python3", "exit 7")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    kept |= {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=kept, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
def test_local_workers_run_the_python_of_the_driver(tmp_path: Path) -> None:
    assert run(tmp_path).strip() == "[(2.0, 'a')]"


@pytest.mark.long
def test_a_python_without_gpumatch_is_told(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['gpumatch'] = None\n")
    other = script(tmp_path / "other", f'PYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"')
    shown = run(tmp_path, PYSPARK_PYTHON=other)
    assert "the Python of Spark's workers" in shown
    assert "set PYSPARK_PYTHON to a Python that has it" in shown
