"""The demo's alerts and bars on Spark in local mode: what each kind of output costs. ``python bench/spark.py``.

Core-microseconds per event: seconds times cores, from the scan of a Parquet file to a sink that drops everything, or
to Parquet. All outputs are timed in turns, the best of ``--repeats``; each is checked against the matcher first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import gpumatch as gm
from generators.stocks import demo
from gpumatch.cli.demo import local_session
from gpumatch.spark import build_index, count_subscriptions, match_events, plan_match
from gpumatch.workloads import stocks
from measuring.clock import in_turns
from measuring.options import RESULTS
from measuring.report import headed, machine, save, terminal


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subscriptions", type=int, default=200_000, metavar="N")
    parser.add_argument("--events", type=int, default=500_000, metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--shards", type=int, default=8, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULTS / "spark.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = local_session(Path(folder, "spark.log"))
        cores = spark.sparkContext.defaultParallelism
        alerts, bars = demo(given.subscriptions, given.events)
        pq.write_table(bars, f"{folder}/bars.parquet", row_group_size=50_000)
        pq.write_table(alerts, f"{folder}/alerts.parquet")
        builds = _builds(spark, folder, given.shards)
        print(plan_match(spark, f"{folder}/shards"))
        frames = _outputs(spark.read.parquet(f"{folder}/bars.parquet"), folder)
        _check(gm.load(f"{folder}/whole", device="cpu"), bars, frames)
        calls = {}
        for name, frame in frames.items():
            calls[f"{name}, dropped"] = partial(_seconds, frame, None)
            calls[f"{name}, written"] = partial(_seconds, frame, f"{folder}/out")
        seconds = in_turns(calls, given.repeats)
    cost = {name: found * cores / given.events * 1e6 for name, found in seconds.items()}
    title = f"{given.events:,} bars, {given.subscriptions:,} alerts, {cores} cores"
    table = headed(title, "core-µs per event", "dropped", "written")
    for name in frames:
        table.add_row(name, *(f"{cost[f'{name}, {sink}']:.1f}" for sink in ("dropped", "written")))
    terminal().print(table, builds)
    save(given.out, {"machine": machine(), "options": {**vars(given), "out": ""}, "core_us": cost, "build_s": builds})


def _builds(spark: Any, folder: str, shards: int) -> dict[str, float]:
    """Seconds to build the index on the driver, as shards on the executors, and again where all shards are there."""
    texts = spark.read.parquet(f"{folder}/alerts.parquet")
    build, bars = partial(build_index, texts, schema=stocks.SCHEMA), spark.read.parquet(f"{folder}/bars.parquet")
    steps = {
        "driver": partial(build, f"{folder}/whole"),
        f"{shards} shards": partial(build, f"{folder}/shards", shards=shards, events=bars),
        f"{shards} shards again": partial(build, f"{folder}/shards", shards=shards),
    }
    seconds = {}
    for name, step in steps.items():
        start = time.perf_counter()
        step()
        seconds[name] = time.perf_counter() - start
    return seconds


def _outputs(bars: Any, folder: str) -> dict[str, Any]:
    index = f"{folder}/whole"
    frames = {name: match_events(bars, index, output=name, columns=["event"]) for name in ("pairs", "array", "count")}
    frames["totals"] = count_subscriptions(bars, index)
    shards = partial(match_events, bars, f"{folder}/shards", columns=["event"])
    for strategy in ("replicated", "routed", "passes"):
        frames[f"pairs, {strategy} shards"] = shards(strategy=strategy)
    frames["array, routed shards"] = shards(strategy="routed", output="array")
    return frames


def _check(matcher: gm.Matcher, bars: Any, frames: dict[str, Any]) -> None:
    right = int(matcher.count(bars).sum())
    sums = {"pairs": "count(*)", "array": "sum(size(subscriptions))", "count": "sum(matches)", "totals": "sum(count)"}
    for name, frame in frames.items():
        [[found]] = frame.selectExpr(sums[name.partition(",")[0]]).collect()
        assert found == right, f"{name}: {found} matches, expected {right}"


def _seconds(frame: Any, path: str | None) -> float:
    start = time.perf_counter()
    if path is None:
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.mode("overwrite").parquet(path)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
