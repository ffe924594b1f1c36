"""The demo of streams: bars arrive as files while alerts come and go, and one query on Spark follows both.

Each file is a batch. At the end every batch is matched again in this process, with the version of the index that it was
pinned to: the query must have written the same pairs, each once.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.live import Live
from rich.table import Table

import gpumatch as gm
from gpumatch.cli.console import make_console
from gpumatch.cli.demo import _missing_for_spark, _step, local_session
from gpumatch.errors import GpumatchError
from gpumatch.workloads import stocks

if TYPE_CHECKING:
    from gpumatch.spark import Metrics

FILES = 60  # of bars, one after another
CHANGED = 10  # alerts that are added, and as many removed, with each file
PRICES = ", ".join(f"{name} double" for name in stocks.PRICES)
COLUMNS = f"event bigint, date date, symbol string, {PRICES}, volume bigint"


def run(subscriptions: int, events: int, out: str | Path = "demo-output", seed: int = 7, seconds: float = 40) -> None:
    """Stream bars against alerts that change; the files stay in ``out``/stream."""
    console, folder = make_console(markup=True), Path(out) / "stream"
    if missing := _missing_for_spark():
        raise GpumatchError(f"the demo of streams needs Spark: {missing}")
    if events < FILES:
        raise GpumatchError(f"the demo of streams needs a bar for each of {FILES} files, found {events}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bars").mkdir(parents=True)
    with _step(console, f"Generating {events:,} daily bars and {subscriptions:,} alerts"):
        rng = np.random.default_rng(seed)
        walk = stocks.draw_bars(events, rng)
        bars = stocks.to_events(walk, events)
        spare = FILES * CHANGED
        alerts = stocks.draw_alerts(subscriptions + spare, walk, rng)
    with gm.open(folder / "index", "a", schema=stocks.SCHEMA) as matcher:
        with _step(console, "Building the index from the alerts' text"):
            matcher.add_table(alerts.slice(0, subscriptions))
            matcher.compact()
            matcher.match(bars.slice(0, 1000))  # compiles for Spark's workers
        world = World(folder, matcher, bars, alerts.slice(subscriptions), seconds / FILES)
        query = _stream(console, folder, world)
    with _step(console, "Matching each batch again, with its version of the index"):
        pairs, versions = check(folder, query)
    console.print(f"{events:,} bars, {pairs:,} matches, {versions} versions of the index: no difference")
    console.print(f"Written to {folder}/: {', '.join(sorted(path.name for path in folder.iterdir()))}")


class World(threading.Thread):
    """Writes a file of bars and changes alerts, again and again."""

    def __init__(self, folder: Path, matcher: gm.Matcher, bars: pa.Table, alerts: pa.Table, pause: float) -> None:
        super().__init__(daemon=True)
        self._folder, self._matcher, self._alerts, self._pause = folder, matcher, alerts, pause
        self._ends = np.linspace(0, len(bars), FILES + 1).astype(int)
        self._bars = bars
        self.arrived = 0  # bars
        self.goes_on = threading.Event()  # from the second file on
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for number in range(FILES):
                start = time.monotonic()
                self._arrive(number)
                self.goes_on.wait()
                self._change(number)
                time.sleep(max(0.0, self._pause + start - time.monotonic()))
        except Exception as error:  # the other thread raises it
            self.error = error

    def _arrive(self, number: int) -> None:
        first, last = self._ends[number : number + 2]
        draft = self._folder / "draft.parquet"
        pq.write_table(self._bars.slice(first, last - first), draft)
        os.replace(draft, self._folder / "bars" / f"{number:04d}.parquet")
        self.arrived = int(last)

    def _change(self, number: int) -> None:
        matcher = self._matcher
        matcher.add_table(self._alerts.slice(CHANGED * number, CHANGED))
        old = [name for name, _ in zip(matcher, range(CHANGED), strict=False)]
        matcher.remove(old)


def _stream(console: Console, folder: Path, world: World) -> str:
    """Run the query until all bars are matched; returns its id."""
    from pyspark.sql import SparkSession

    from gpumatch.spark import Metrics, match_events

    already = SparkSession.getActiveSession()
    with _step(console, "Starting Spark"):
        spark = already or local_session(folder / "spark.log")
    try:
        metrics = Metrics(spark)
        stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "bars"))
        pairs = match_events(stream, folder / "index", columns=["event"], follow=True, metrics=metrics)
        writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.start(str(folder / "matches"))
        world.start()
        with Live(console=console, refresh_per_second=4) as live:
            while world.is_alive() or metrics.events < world.arrived:
                live.update(_table(query, metrics, world))
                if metrics.events:  # Python's workers have started
                    world.goes_on.set()
                if world.error is not None:
                    raise world.error
                if query.exception() is not None:
                    raise GpumatchError(f"the query has failed: {query.exception()}")
                time.sleep(0.25)
            query.processAllAvailable()
            live.update(_table(query, metrics, world))
        query.stop()
        return str(query.id)
    finally:
        if already is None:
            spark.stop()


def _table(query: Any, metrics: Metrics, world: World) -> Table:
    from gpumatch.spark import pinned_versions

    progress = query.lastProgress or {}
    pinned = pinned_versions(world._folder / "index", query.id)
    table = Table("", "", title="The query", title_justify="left", show_header=False)
    table.add_row("bars matched", f"{metrics.events:,}")
    table.add_row("bars waiting", f"{world.arrived - metrics.events:,}")
    table.add_row("bars per second", f"{progress.get('processedRowsPerSecond') or 0:,.0f}")
    table.add_row("matches", f"{metrics.matches:,}")
    table.add_row("alerts", f"{len(world._matcher):,}")
    table.add_row("version of the index", str(world._matcher.version))
    table.add_row("version of the last batch", pinned[max(pinned)] if pinned else "none yet")
    return table


def check(folder: Path, query: str) -> tuple[int, int]:
    """How many pairs were written, and with how many versions; raises if they differ from what each version finds."""
    from gpumatch.spark import pinned_versions

    versions = pinned_versions(folder / "index", query)
    right = pa.concat_tables(_expected(folder, versions))
    found = _written(folder)
    order = [("event", "ascending"), ("subscription", "ascending")]
    if right.sort_by(order) != found.sort_by(order):
        raise AssertionError(f"the query wrote {len(found):,} matches, and {len(right):,} are right: they differ")
    return len(found), len(set(versions.values()))


def _expected(folder: Path, versions: dict[int, str]) -> Iterator[pa.Table]:
    """The pairs of each file: files are read in order, one per batch."""
    for batch, path in enumerate(sorted((folder / "bars").iterdir())):
        bars = pq.read_table(path)
        found = gm.load(folder / "index", device="cpu", version=versions[batch]).match(bars).to_arrow()
        events = bars["event"].take(found["event"])
        yield pa.table({"event": events, "subscription": found["subscription"].cast(pa.string())})


def _written(folder: Path) -> pa.Table:
    """What the query wrote, without files of incomplete batches, which are not in the sink's log."""
    names = set()
    for log in (folder / "matches" / "_spark_metadata").iterdir():
        if log.name.removesuffix(".compact").isdecimal():
            names |= {unquote(urlparse(json.loads(line)["path"]).path) for line in log.read_text().splitlines()[1:]}
    table = ds.dataset(sorted(names), format="parquet").to_table()
    return pa.table({"event": table["event"], "subscription": table["subscription"].cast(pa.string())})
