"""The same rows in one process, in local mode and on clusters of real executors, also when those fail."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch import warming

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCHEMA = {"sym": "string", "px": "float64", "qty": "int64", "tags": "list<string>"}
EVENTS, SUBSCRIPTIONS = 1500, 300
PROGRAM = Path(__file__).with_name("cluster_program.py")
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",  # so that faults strike between batches
}
CLUSTER = "local-cluster[2,1,1024]"  # two executors with one core and 1024 MB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Random events and subscriptions, and their index."""
    rng = np.random.default_rng(41)

    def gaps(values: Any) -> list[Any]:
        return [None if gap else value for gap, value in zip(rng.random(EVENTS) < 0.1, values.tolist(), strict=True)]

    tags = np.array([[f"t{tag}" for tag in rng.integers(0, 6, 2)] for _ in range(EVENTS)])
    events = {
        "k": pa.array(range(EVENTS)),
        "sym": pa.array(gaps(rng.choice(["A", "B", "C"], EVENTS))),
        "px": pa.array(gaps(rng.uniform(0, 100, EVENTS))),
        "qty": pa.array(gaps(rng.integers(0, 100, EVENTS))),
        "tags": pa.array(gaps(tags), pa.list_(pa.string())),
    }
    shapes = (
        "px BETWEEN {low} AND {high}", "sym = '{sym}' AND qty < {low}", "tags = 't{tag}' OR px > 9{tag}",
        "NOT (qty < {high}) AND sym <> '{sym}'", "px IS NULL AND qty = {low}",
    )  # fmt: skip
    drawn = zip(rng.integers(0, 80, SUBSCRIPTIONS), rng.choice(["A", "B", "C"], SUBSCRIPTIONS), strict=True)
    texts = [shapes[at % 5].format(low=low, high=low + 9, sym=sym, tag=at % 8) for at, (low, sym) in enumerate(drawn)]
    ids, weights = [f"r{at}" for at in range(SUBSCRIPTIONS)], rng.permutation(SUBSCRIPTIONS).astype(float)
    pq.write_table(pa.table(events), tmp_path / "events.parquet", row_group_size=200)
    pq.write_table(pa.table({"id": ids, "expr": texts, "weight": weights}), tmp_path / "subscriptions.parquet")
    matcher = gm.Matcher(SCHEMA)
    matcher.add(dict(zip(ids, texts, strict=True)), weight=weights)
    matcher.save(tmp_path / "whole")
    return tmp_path


def run(folder: Path, step: str, settings: dict[str, str]) -> dict[str, list[Any]]:
    """The answers of the program on Spark with these settings."""
    done = subprocess.run(**command(folder, step, settings), timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[Any]] = json.loads((folder / "answers.json").read_text())
    return found


def command(folder: Path, step: str, settings: dict[str, str]) -> dict[str, Any]:
    """Arguments of a subprocess."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    program = [sys.executable, str(PROGRAM), str(folder), json.dumps(SETTINGS | settings), step]
    return {"args": program, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def in_process(folder: Path) -> dict[str, list[Any]]:
    """What the program must answer."""
    matcher, events = gm.load(folder / "whole", device="cpu"), pq.read_table(folder / "events.parquet")
    arrays = [[k, list(ids)] for k, ids in enumerate(matcher.match(events))]
    pairs = sorted([k, name] for k, ids in arrays for name in ids)
    names = [name for _, name in pairs]
    assert len(pairs) > 2 * EVENTS
    return {
        "pairs": pairs,
        "array": [[k, sorted(ids)] for k, ids in arrays],
        "count": [[k, len(ids)] for k, ids in arrays],
        "top": [[k, list(ids)] for k, ids in enumerate(matcher.top(events, 3))],
        "totals": sorted([name, names.count(name)] for name in set(names)),
    }


def strikes(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("fault-*"))


@pytest.mark.parametrize("master", ["local[2]", CLUSTER])
def test_the_same_rows_everywhere(folder: Path, master: str) -> None:
    wanted = in_process(folder)
    warming.warm_up()
    cold = {f"spark.executorEnv.{name}": str(folder / "cold") for name in ("GPUMATCH_CACHE_DIR", "TMPDIR")}
    (folder / "cold").mkdir()
    found = run(folder, "match", {"spark.master": master, **(cold if master == CLUSTER else {})})
    assert list((folder / "cold").rglob("*.nbc")) == []  # the driver's machine code serves the executors
    sql = {"whole match_ids": wanted["array"], "whole match_events": wanted["pairs"]}
    ways = ("whole replicated", "shards replicated", "shards routed", "shards passes")
    expected = {f"{way} {key}": rows for way in ways for key, rows in wanted.items()}
    assert found == expected | {key: rows for key, rows in sql.items() if key in found}


@pytest.mark.parametrize(
    ("fault", "master", "marks"),
    [
        ("killed executor", CLUSTER, ["fault-0"]),
        ("failed twice", CLUSTER, ["fault-0", "fault-1"]),
    ],
)
def test_no_row_is_lost_or_doubled(folder: Path, fault: str, master: str, marks: list[str]) -> None:
    wanted = in_process(folder)
    found = run(folder, fault, {"spark.master": master})
    assert strikes(folder) == marks
    assert found == {"written": wanted["pairs"], **{key: wanted[key] for key in ("pairs", "totals", "array")}}


def test_speculative_duplicates(folder: Path) -> None:
    wanted = in_process(folder)
    eager = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.executor.memory": "1024m",
        "spark.executor.cores": "1",
    }
    with two_hosts(folder) as master:
        found = run(folder, "slow task", eager | {"spark.master": master})
    assert strikes(folder) == ["fault-0", "fault-1"]
    assert found == {"written": wanted["pairs"], **{key: wanted[key] for key in ("pairs", "totals", "array")}}


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """The address of a standalone cluster of two workers, which take each other for different machines.

    Spark starts a duplicate on another machine only, and those of ``local-cluster`` are all the same.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g", address]
    parts = [
        ("127.0.0.1", ["org.apache.spark.deploy.master.Master", "--port", str(port)]),
        ("127.0.0.1", worker),
        ("127.0.0.2", worker),
    ]
    running = []
    try:
        for at, (host, words) in enumerate(parts):
            own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
            own["SPARK_WORKER_DIR"] = str(folder / f"work-{at}")
            line = [str(home / "bin" / "spark-class"), *words, "--host", host, "--webui-port", "0"]
            running.append(
                subprocess.Popen(line, env=os.environ | own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
        yield address
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)


def test_a_build_that_was_killed_goes_on(folder: Path) -> None:
    shards = folder / "shards"
    process = subprocess.Popen(**command(folder, "build", {"spark.master": "local[1]"}), start_new_session=True)
    try:
        end = time.monotonic() + 200
        while len(complete(shards)) < 2:
            assert process.poll() is None, process.communicate()[1][-3000:]
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    first = complete(shards)
    with pytest.raises(gm.StorageError, match="no manifest"):
        gm.load(shards)
    subprocess.run(**command(folder, "build", {"spark.master": "local[1]"}), check=True, timeout=300)
    second = complete(shards)
    assert len(first) < len(second)
    assert first.items() <= second.items()  # they were not built again
    events = pq.read_table(folder / "events.parquet")
    found, wanted = (gm.load(folder / name).match(events) for name in ("shards", "whole"))
    assert [sorted(ids) for ids in found] == [sorted(ids) for ids in wanted]


def complete(shards: Path) -> dict[str, int]:
    """Shards with a manifest, and when it was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in shards.glob("shard-*/manifest.json")}
