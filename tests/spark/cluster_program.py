"""What ``test_cluster`` runs in a process of its own, since a process has one session: builds and matches on Spark.

``python cluster_program.py FOLDER SETTINGS STEP``: the folder has events and subscriptions, and takes the answers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gpumatch.spark import build_index, count_subscriptions, match_events, register
from gpumatch.spark.answers import Output

SCHEMA = {"sym": "string", "px": "float64", "qty": "int64", "tags": "list<string>"}
SHARDS = 10


def main(folder: Path, settings: dict[str, str], step: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("gpumatch tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    subscriptions = spark.read.parquet(str(folder / "subscriptions.parquet"))
    if step == "build":
        build_index(subscriptions, folder / "shards", schema=SCHEMA, weight="weight", shards=SHARDS)
        return
    events = spark.read.parquet(str(folder / "events.parquet")).repartition(5)
    if step == "match":
        build_index(subscriptions, folder / "shards", schema=SCHEMA, weight="weight", shards=3)
        ways = [("whole", "replicated"), *(("shards", strategy) for strategy in ("replicated", "routed", "passes"))]
        found = {f"{at} {way} {key}": rows for at, way in ways for key, rows in answers(events, folder / at, way)}
        found |= in_sql(spark, events, folder / "whole")
    else:
        wrong = events.mapInArrow(FAULTS[step](str(folder / "fault")), events.schema)
        pairs = match_events(wrong, folder / "whole", columns=["k"])
        pairs.write.parquet(str(folder / "pairs"))
        found = {
            "written": rows_of(spark.read.parquet(str(folder / "pairs"))),
            "pairs": rows_of(pairs),
            "totals": rows_of(count_subscriptions(wrong, folder / "whole")),
        }
        for mark in folder.glob("fault-*"):
            mark.unlink()
        build_index(subscriptions, folder / "shards", schema=SCHEMA, weight="weight", shards=3)
        routed = match_events(wrong, folder / "shards", output="array", columns=["k"], strategy="routed")
        found["array"] = rows_of(routed, sort_ids=True)
    (folder / "answers.json").write_text(json.dumps(found))
    spark.stop()


def answers(events: Any, index: Path, strategy: Any) -> Iterator[tuple[str, list[Any]]]:
    match = partial(match_events, events, index, columns=["k"], strategy=strategy)
    outputs: tuple[Output, ...] = ("pairs", "array", "count")
    for output in outputs:
        yield output, rows_of(match(output=output), sort_ids=True)
    yield "top", rows_of(match(output="array", top=3))
    yield "totals", rows_of(count_subscriptions(events, index, strategy=strategy))


def in_sql(spark: Any, events: Any, index: Path) -> dict[str, list[Any]]:
    """With PySpark 4.1 or newer."""
    try:
        register(spark, columns="k bigint")
    except ImportError:
        return {}
    events.createOrReplaceTempView("events")
    arrays = spark.sql(f"SELECT k, match_ids('{index}', 'sym, px, qty, tags', sym, px, qty, tags) FROM events")
    pairs = spark.sql(f"SELECT * FROM match_events(TABLE(events), '{index}')")
    return {"whole match_ids": rows_of(arrays, sort_ids=True), "whole match_events": rows_of(pairs)}


def rows_of(frame: Any, sort_ids: bool = False) -> list[Any]:
    """Rows in an order of their own; ids in arrays come in the order of the shards."""
    rows = [list(row) for row in frame.collect()]
    return sorted([sorted(value) if sort_ids and isinstance(value, list) else value for value in row] for row in rows)


# Faults, in a step before the match that hands events on unchanged. Each leaves a file for each time that it strikes.


def killed_executor(mark: str) -> Callable[[Any], Iterator[Any]]:
    """Kills the JVM of the executor, once, when some of a task's events have been matched."""

    def run(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        for at, batch in enumerate(batches):
            yield batch
            if TaskContext.get().partitionId() == 1 and at == 2 and not os.path.exists(f"{mark}-0"):
                open(f"{mark}-0", "x").close()
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)  # its parent
                time.sleep(60)

    return run


def failed_twice(mark: str) -> Callable[[Any], Iterator[Any]]:
    """Fails the first two attempts of a task, when some of its events have been matched."""

    def run(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        for at, batch in enumerate(batches):
            yield batch
            if task.partitionId() == 1 and at == 2 and task.attemptNumber() < 2:
                open(f"{mark}-{task.attemptNumber()}", "w").close()
                raise RuntimeError("on purpose")

    return run


def slow_task(mark: str) -> Callable[[Any], Iterator[Any]]:
    """Stops in the first attempt of a task, so that Spark starts a second one beside it."""

    def run(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        for at, batch in enumerate(batches):
            yield batch
            if task.partitionId() == 1 and at == 2:
                open(f"{mark}-{task.attemptNumber()}", "w").close()
                time.sleep(0 if task.attemptNumber() else 60)

    return run


FAULTS = {"killed executor": killed_executor, "failed twice": failed_twice, "slow task": slow_task}

if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
