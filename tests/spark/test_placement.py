"""The GPU that Spark gives a task reaches it, on real executors with made-up GPUs; without any, tasks log it once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm

pytestmark = [pytest.mark.spark, pytest.mark.long]

# Each worker asks once: the first is told of one GPU, the second of another.
SCRIPT = """#!/bin/sh
gpu=2
mkdir {folder}/asked 2> /dev/null || gpu=5
echo "{{\\"name\\": \\"gpu\\", \\"addresses\\": [\\"$gpu\\"]}}"
"""
PROGRAM = """
import json
import sys
from pathlib import Path
from pyspark.sql import SparkSession

folder = sys.argv[1]
amounts = {f"spark.{part}.resource.gpu.amount": "1" for part in ("worker", "executor", "task")}
scripts = {f"spark.{part}.resource.gpu.discoveryScript": f"{folder}/gpus.sh" for part in ("worker", "executor")}
settings = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", **amounts, **scripts}
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
events = spark.range(0, 40, 1, 8).withColumnRenamed("id", "x")


def placed(batches):
    import os
    import time
    import pyarrow as pa
    from gpumatch.spark import devices

    devices.count_devices, devices.why_not = (lambda: 8), (lambda: "")
    time.sleep(0.5)  # so that both executors get tasks
    for batch in batches:
        found = devices.device_of_task("auto", is_local=False)
        yield pa.RecordBatch.from_pydict({"executor": [os.getcwd()], "device": [found]})


def matched(batches):
    import logging
    import os
    from gpumatch.spark import worker

    log = logging.getLogger("gpumatch")
    if not log.handlers:
        log.addHandler(logging.FileHandler(f"{folder}/{os.getpid()}.log"))
        log.setLevel(logging.INFO)
    open(f"{folder}/{os.getpid()}.tasks", "a").write("task\\n")
    query = worker.Query(["x"], ["x", "subscription"], "pairs", None, False, "auto", False)
    return worker.match_batches(batches, worker.Location(f"{folder}/index", is_shipped=False), query)


pairs = events.mapInArrow(matched, "x long, subscription string").count()
gpus = [list(row) for row in events.mapInArrow(placed, "executor string, device string").collect()]
Path(folder, "found.json").write_text(json.dumps({"pairs": pairs, "gpus": gpus}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program leaves: ``found.json``, and the logs of workers by their process."""
    folder = tmp_path_factory.mktemp("placement")
    matcher = gm.Matcher({"x": "int64"})
    matcher.add({"low": "x < 20"})
    matcher.save(folder / "index")
    script = folder / "gpus.sh"
    script.write_text(SCRIPT.format(folder=folder))
    script.chmod(0o755)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def test_every_task_has_the_gpu_of_its_executor(found: dict[str, Any]) -> None:
    assert len(found["gpus"]) == 8
    assert len({tuple(pair) for pair in found["gpus"]}) == len({executor for executor, _ in found["gpus"]}) == 2
    assert {device for _, device in found["gpus"]} == {"cuda:2", "cuda:5"}


def test_the_cpu_is_logged_once_per_worker(folder: Path, found: dict[str, Any]) -> None:
    assert found["pairs"] == 20
    tasks = {path.stem: len(path.read_text().splitlines()) for path in folder.glob("*.tasks")}
    assert sum(tasks.values()) == 8
    assert max(tasks.values()) > 1
    for worker in tasks:
        [line] = Path(folder, f"{worker}.log").read_text().splitlines()
        assert line.startswith("tasks match on the CPU: ")
