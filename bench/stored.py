"""Stock alerts, compared with DuckDB: a stored table, batches, one event, one change. ``python bench/stored.py``.

Both get the demo's alerts, DuckDB as a table with a column for each bound, and the same events. DuckDB uses the fastest
join we know: alerts that name a symbol by hashing it, the others by their ranges. Times are CPU time of all threads,
medians for short calls. The pairs of both are compared before timing.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from rich.table import Table

import gpumatch as gm
from generators.stocks import demo
from gpumatch.workloads import stocks
from measuring.clock import best, cpu_seconds
from measuring.options import RESULTS
from measuring.report import machine, save, terminal

BATCH = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[20_000, 100_000], metavar="N")
    parser.add_argument("--events", type=int, default=100_000, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULTS / "stored.json")
    given = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "events": given.events, "results": {}}
    for count in given.subscriptions:
        found = report["results"][count] = measure(count, given.events)
        table = Table(f"{count:,} alerts", "gpumatch", "DuckDB", "ratio")
        for name, both in found.items():
            ours, other = both["gpumatch"], both.get("duckdb")
            times = ("", "") if other is None else (f"{other:,.3g}", f"{other / ours:,.1f}")
            table.add_row(name, f"{ours:,.3g}", *times)
        terminal().print(table)
    save(given.out, report)


def measure(subscriptions: int, count: int) -> dict[str, dict[str, float]]:
    """All measurements for this number of alerts and events."""
    alerts, events = demo(subscriptions, count)
    matcher = gm.Matcher(stocks.SCHEMA, device="cpu")
    matcher.add_table(alerts)
    database = duckdb.connect()
    database.register("given", alerts)
    database.execute("CREATE TABLE alerts AS SELECT * FROM given")
    found = {**against_duckdb(matcher, database, events), **alone(matcher, events)}
    found["bytes of an alert, text and id included"] = {"gpumatch": matcher.stats()["bytes"] / subscriptions}
    return {**found, **changes(matcher, alerts, events)}


def against_duckdb(matcher: gm.Matcher, database: Any, events: pa.Table) -> dict[str, dict[str, float]]:
    """Seconds for a stored table, milliseconds for a batch."""
    batches = [events.slice(first, BATCH).combine_chunks() for first in range(0, 20 * BATCH, BATCH)]
    ours, theirs = matcher.match(batches[0]).to_arrow(), joined(database, batches[0])
    pairs = [set(zip(t.column(0).to_pylist(), t.column(1).to_pylist(), strict=True)) for t in (ours, theirs)]
    if pairs[0] != pairs[1]:
        raise AssertionError(f"DuckDB finds {len(pairs[1]):,} pairs, gpumatch {len(pairs[0]):,}: they differ")
    ours_s = best(lambda: [part.to_arrow() for part in matcher.match_iter(events)], 2)
    database.register("incoming", events)
    database.execute("CREATE OR REPLACE TABLE stored AS SELECT * FROM incoming")
    theirs_s = best(lambda: database.sql(join_sql("stored")).to_arrow_table(), 2)
    ours_ms = 1000 * median(lambda batch: matcher.match(batch).to_arrow(), batches)
    theirs_ms = 1000 * median(partial(joined, database), batches)
    return {
        "a stored table, s": {"gpumatch": ours_s, "duckdb": theirs_s},
        f"a batch of {BATCH:,}, ms": {"gpumatch": ours_ms, "duckdb": theirs_ms},
    }


def joined(database: Any, batch: pa.Table) -> pa.Table:
    database.register("incoming", batch)
    return database.sql(join_sql("incoming")).to_arrow_table()


def join_sql(events: str) -> str:
    ranges = " AND ".join(
        f"(a.{name}_lo IS NULL OR b.{name} >= a.{name}_lo) AND (a.{name}_hi IS NULL OR b.{name} <= a.{name}_hi)"
        for name in stocks.RANGED
    )
    select = f"SELECT b.event, a.id AS subscription FROM {events} b JOIN alerts a ON"
    return f"{select} a.symbol = b.symbol AND {ranges} UNION ALL {select} a.symbol IS NULL AND {ranges}"


def alone(matcher: gm.Matcher, events: pa.Table) -> dict[str, dict[str, float]]:
    """Microseconds of ``match_one``."""
    rows = events.slice(0, 1_000).select(list(stocks.SCHEMA)).to_pylist()
    return {"match_one, µs": {"gpumatch": 1e6 * median(matcher.match_one, rows)}}


def changes(matcher: gm.Matcher, alerts: pa.Table, events: pa.Table) -> dict[str, dict[str, float]]:
    """Milliseconds for changing one subscription, including the first match after it."""
    [row] = events.slice(0, 1).select(list(stocks.SCHEMA)).to_pylist()
    texts = alerts["expr"].slice(0, 50).to_pylist()
    ids = alerts["id"].slice(0, 50).to_pylist()
    calls: dict[str, Callable[[int], Any]] = {
        "add": lambda i: matcher.add({f"new-{i}": texts[i]}),
        "replace": lambda i: matcher.replace({ids[i]: texts[-i]}),
        "upsert": lambda i: matcher.upsert({f"newer-{i}": texts[i]}),
        "remove": lambda i: matcher.remove([f"new-{i}"]),
    }

    def changed(change: Callable[[int], Any], i: int) -> None:
        change(i)
        matcher.match_one(row)

    return {
        f"{name}, then match_one, ms": {"gpumatch": 1000 * median(partial(changed, change), range(50))}
        for name, change in calls.items()
    }


def median(call: Callable[[Any], Any], given: Iterable[Any]) -> float:
    """Median CPU seconds of a call."""
    return statistics.median(cpu_seconds(partial(call, one)) for one in given)


if __name__ == "__main__":
    main()
