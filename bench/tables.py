"""Subscriptions in a table, and delivery, on Spark in local mode. ``python bench/tables.py``.

The demo's alerts are built as an index; then 1 % of them change, several times: 60 % of the changes are new texts of
alerts, 20 % are removed and 20 % are new ones. Seconds of each way to follow the table, Spark's part included. In the
end the index must hold what one built of the table does, and match the same pairs as that one and as DuckDB's join.

Then bars are delivered to a thousand destinations, in one stage and in two: rows and bytes as planned and as counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from stored import join_sql

import gpumatch as gm
from generators.stocks import demo
from gpumatch.cli.demo import local_session
from gpumatch.spark import Shuffled, build_index, deliver, plan_delivery, update_index
from gpumatch.workloads import stocks
from measuring.options import RESULTS
from measuring.report import headed, machine, save, terminal

SHARE = 0.01  # of the alerts that change
DESTINATIONS = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subscriptions", type=int, default=100_000, metavar="N")
    parser.add_argument("--events", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULTS / "tables.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = local_session(Path(folder, "spark.log"))
        extra = int(given.subscriptions * SHARE * given.rounds) + 1
        alerts, bars = demo(given.subscriptions + extra, given.events)
        updates = followed(spark, folder, alerts, given.subscriptions, bars, given.rounds)
        delivered = deliveries(spark, folder, alerts, bars)
    table = headed(f"{given.subscriptions:,} alerts, {SHARE:.0%} change", "seconds", "median", "slowest")
    for name, seconds in updates.items():
        table.add_row(name, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}")
    terminal().print(table)
    table = headed("delivery", "", "planned rows", "counted rows", "planned bytes", "counted bytes", "seconds")
    for name, row in delivered.items():
        table.add_row(name, *(f"{row[key]:,.0f}" for key in list(row)[:-1]), f"{row['seconds']:.1f}")
    terminal().print(table)
    options = {**vars(given), "out": ""}
    save(given.out, {"machine": machine(), "options": options, "seconds": updates, "delivery": delivered})


def followed(
    spark: Any, folder: str, alerts: pa.Table, count: int, bars: pa.Table, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each round, by the way in which the index follows the table."""
    rng = np.random.default_rng(3)
    held, spare = alerts.slice(0, count), alerts.slice(count)
    rows = pa.array(np.zeros(0, np.int64))
    write(held, f"{folder}/table")
    for name in ("changes", "open", "snapshot"):
        build_index(spark.read.parquet(f"{folder}/table"), f"{folder}/{name}", schema=stocks.SCHEMA)
    seconds: dict[str, list[float]] = {}
    with gm.open(f"{folder}/open", "a", device="cpu") as matcher:
        for at in range(rounds):
            held, spare, rows = changed(held, spare, max(int(count * SHARE), 10), rng)
            write(held, f"{folder}/table")
            write(rows, f"{folder}/rows{at}")
            table, changes = (spark.read.parquet(f"{folder}/{name}") for name in ("table", f"rows{at}"))
            steps: dict[str, Callable[[], Any]] = {
                "update_index, folder": lambda f=changes: update_index(f, f"{folder}/changes"),
                "the same again": lambda f=changes: update_index(f, f"{folder}/changes"),
                "update_index, open matcher": lambda f=changes: update_index(f, matcher),
                "update_index, snapshot": lambda f=table: update_index(f, f"{folder}/snapshot", mode="snapshot"),
                "build_index": lambda f=table: build_index(f, f"{folder}/built", schema=stocks.SCHEMA),
            }
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                seconds.setdefault(name, []).append(time.perf_counter() - start)
    check(folder, held, bars)
    return seconds


def changed(held: pa.Table, spare: pa.Table, count: int, rng: Any) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The table after some changes, what is left to add, and the changes: 60 % new texts, 20 % removed, 20 % new."""
    updated, removed = np.split(rng.choice(len(held), count * 8 // 10, replace=False), [count * 6 // 10])
    added = spare.slice(0, count * 2 // 10)
    others = held.take(pa.array(rng.permutation(updated))).drop(["id"])
    new = others.add_column(0, "id", held["id"].take(pa.array(updated)))
    gone = held.take(pa.array(removed))
    keep = np.ones(len(held), np.bool_)
    keep[updated] = keep[removed] = False
    parts = [(new, "update_postimage"), (gone, "delete"), (added, "insert")]
    rows = [part.append_column("_change_type", pa.array([kind] * len(part))) for part, kind in parts]
    after = pa.concat_tables([held.filter(pa.array(keep)), new, added])
    return after, spare.slice(len(added)), pa.concat_tables(rows)


def write(table: pa.Table, path: str) -> None:
    Path(path).mkdir(exist_ok=True)
    pq.write_table(table, f"{path}/part.parquet", row_group_size=20_000)


def check(folder: str, held: pa.Table, bars: pa.Table) -> None:
    """All indexes hold the table, and match what DuckDB finds in it."""
    texts = dict(zip(held["id"].to_pylist(), held["expr"].to_pylist(), strict=True))
    some = bars.slice(0, 2_000)
    database = duckdb.connect()
    database.register("alerts", held)
    database.register("incoming", some)
    right = set(zip(*database.sql(join_sql("incoming")).to_arrow_table().to_pydict().values(), strict=True))
    first = some["event"].to_pylist()
    for name in ("changes", "open", "snapshot", "built"):
        matcher = gm.load(f"{folder}/{name}", device="cpu")
        if matcher.ids.tolist() != list(texts):
            assert set(matcher.ids.tolist()) == set(texts), f"{name}: other ids than the table's"
        rows = matcher._store.source()
        assert rows is not None
        assert dict(zip(rows.ids.to_pylist(), rows.texts.to_pylist(), strict=True)) == texts, f"{name}: other texts"
        pairs = matcher.match(some).to_arrow()
        found = {(first[at], one) for at, one in zip(*pairs.to_pydict().values(), strict=True)}
        assert found == right, f"{name}: {len(found):,} pairs, DuckDB finds {len(right):,}"


def deliveries(spark: Any, folder: str, alerts: pa.Table, bars: pa.Table) -> dict[str, dict[str, float]]:
    """Rows, bytes and seconds for numbers of groups and stages."""
    numbers = np.arange(len(alerts)) % DESTINATIONS
    table = alerts.select(["id", "expr"]).append_column("to", pa.array([f"user-{at}" for at in numbers.tolist()]))
    write(table, f"{folder}/sent")
    write(bars, f"{folder}/bars")
    index = f"{folder}/destinations"
    build_index(spark.read.parquet(f"{folder}/sent"), index, schema=stocks.SCHEMA, destination="to")
    count = pc.count(bars["event"]).as_py()
    found = {}
    for width in (0, 1024):
        noise = ", ".join(f"sha2(concat(event, '-{at}'), 512)" for at in range(width // 128))
        events = spark.read.parquet(f"{folder}/bars").selectExpr("*", f"concat('', {noise or 'event'}) AS text")
        for groups in (4, 64):
            plan = plan_delivery(events, index, groups=groups)
            for stages in (1, 2):
                frame = deliver(events, index, stages=stages, groups=groups)  # type: ignore[arg-type]
                start = time.perf_counter()
                with Shuffled(spark) as shuffled:
                    frame.write.format("noop").mode("overwrite").save()
                mark = "*" if plan.stages == stages else ""
                found[f"{width} bytes more, {groups} groups, {stages} stages{mark}"] = {
                    "planned rows": plan.rows(stages) * count,
                    "counted rows": shuffled.rows,
                    "planned bytes": plan.bytes(stages) * count,
                    "counted bytes": shuffled.bytes,
                    "seconds": time.perf_counter() - start,
                }
    return found


if __name__ == "__main__":
    main()
