"""A million subscriptions on Spark: its own join beside the strategies of this package: ``python bench/spark_join.py``.

Seconds from a Parquet file of events to a sink that drops the pairs, in local mode. The join is what users would write:
ranges on all attributes as the condition of a nested loop, predicates on a few of many as an equi-join on the attribute
with a count. It is run on ``--joined`` events and its time scaled to all of them. Pairs are counted and compared first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import gpumatch as gm
from engines.ours import batch_of, loaded
from gpumatch.cli.demo import local_session
from gpumatch.routing.shards.plan import save_shards
from gpumatch.spark import match_events, plan_match
from gpumatch.workloads import RangeWorkload, make
from measuring.clock import in_turns
from measuring.options import RESULTS, positive
from measuring.report import headed, machine, save, terminal

SIZES = {"w1-1m": 1_000_000, "w2": 1_000_000, "ads": 3_000_000}
WAYS = {
    "replicated": ("whole", "replicated"),
    "shards, replicated": ("shards", "replicated"),
    "shards, routed": ("shards", "routed"),
    "shards, passes": ("shards", "passes"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subscriptions", type=positive, default=1_000_000, metavar="N")
    parser.add_argument("--events", type=positive, default=10_000, metavar="N")
    parser.add_argument("--joined", type=positive, default=50, metavar="N")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N")
    parser.add_argument("--shards", type=positive, default=8, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULTS / "spark_join.json")
    given = parser.parse_args()
    found = {}
    for name in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = _measured(name, given, folder)
    table = headed(f"{given.events:,} events, {given.subscriptions:,} subscriptions; seconds", "", *SIZES)
    for way in ("join, scaled", *WAYS):
        table.add_row(way, *(f"{found[name]['seconds'].get(way, float('nan')):.2f}" for name in SIZES))
    terminal().print(table, {name: one["plan"] for name, one in found.items()})
    save(given.out, {"machine": machine(), "options": {**vars(given), "out": ""}, "found": found})


def _measured(name: str, given: argparse.Namespace, folder: str) -> dict[str, Any]:
    workload = make(name, given.subscriptions / SIZES[name])
    matcher = loaded(workload, device="cpu")
    events = _table(workload, given.events)
    pq.write_table(events, f"{folder}/events.parquet", row_group_size=max(given.events // 4, 1))
    pq.write_table(_subscriptions(workload), f"{folder}/subscriptions.parquet", row_group_size=100_000)
    matcher.save(f"{folder}/whole")
    plan = save_shards(matcher, f"{folder}/shards", given.shards, batch_of(workload.events(4000, 1)))
    spark = local_session(Path(folder, "spark.log"))
    try:
        frame = spark.read.parquet(f"{folder}/events.parquet")
        frames = {
            way: match_events(frame, f"{folder}/{index}", columns=["k"], strategy=strategy)
            for way, (index, strategy) in WAYS.items()
            if strategy != "routed" or plan.report.pays
        }
        _check(matcher, events, frames)
        seconds = in_turns({way: partial(_seconds, one) for way, one in frames.items()}, given.repeats)
        joined = _joined(spark, workload, frame.limit(given.joined), folder)
        right = int(matcher.count(events.slice(0, given.joined).drop_columns(["k"])).sum())
        assert joined.count() == right, f"the join finds other pairs than {right:,}"
        seconds["join, scaled"] = _seconds(joined) * given.events / given.joined
        return {"seconds": seconds, "plan": str(plan.report), "auto": str(plan_match(spark, f"{folder}/shards"))}
    finally:
        spark.stop()


def _table(workload: Any, count: int) -> Any:
    """Events with a column for each attribute."""
    made = workload.events(count, 2)
    if isinstance(workload, RangeWorkload):
        return pa.table({"k": np.arange(count), **made})
    event = np.repeat(np.arange(count), np.diff(made.offsets))
    columns = {}
    for number, name in enumerate(made.names):
        own = made.attribute == number
        values, missing = np.zeros(count, made.value.dtype), np.ones(count, np.bool_)
        values[event[own]], missing[event[own]] = made.value[own], False
        columns[name] = pa.array(values, mask=missing)
    return pa.table({"k": np.arange(count), **columns})


def _subscriptions(workload: Any) -> Any:
    """As the join wants them: a row for each subscription, or for each of its predicates."""
    if isinstance(workload, RangeWorkload):
        ends = {
            f"{name}_{end}": bound
            for name, pair in workload.ranges.items()
            for end, bound in zip("lh", pair, strict=True)
        }
        return pa.table({"id": workload.ids, **ends})
    used = workload.sub_attr >= 0
    count = used.sum(axis=1)
    columns = {"id": workload.ids, "n": count}
    long = {name: np.repeat(values, count) for name, values in columns.items()}
    return pa.table({**long, "a": workload.sub_attr[used], "l": workload.lo[used], "h": workload.hi[used]})


def _joined(spark: Any, workload: Any, events: Any, folder: str) -> Any:
    events.createOrReplaceTempView("events")
    spark.read.parquet(f"{folder}/subscriptions.parquet").createOrReplaceTempView("subscriptions")
    if isinstance(workload, RangeWorkload):
        condition = " AND ".join(f"e.{name} BETWEEN s.{name}_l AND s.{name}_h" for name in workload.ranges)
        return spark.sql(f"SELECT /*+ BROADCAST(e) */ e.k, s.id FROM events e JOIN subscriptions s ON {condition}")
    pairs = ", ".join(f"{number}, {name}" for number, name in enumerate(workload.schema))
    return spark.sql(
        f"SELECT /*+ BROADCAST(e) */ e.k, s.id FROM (SELECT k, stack({len(workload.schema)}, {pairs}) AS (a, v) FROM "
        "events) e JOIN subscriptions s ON e.a = s.a AND e.v BETWEEN s.l AND s.h GROUP BY e.k, s.id, s.n "
        "HAVING count(*) = s.n"
    )


def _check(matcher: gm.Matcher, events: Any, frames: dict[str, Any]) -> None:
    right = int(matcher.count(events.drop_columns(["k"])).sum())
    for way, frame in frames.items():
        assert frame.count() == right, f"{way} does not find {right:,} pairs"


def _seconds(frame: Any) -> float:
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
