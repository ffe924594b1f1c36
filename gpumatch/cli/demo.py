"""The demo: match stock alerts on Spark, explain some matches, and compare with the time of Spark's own join."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import gpumatch as gm
from gpumatch.cli.console import make_console
from gpumatch.workloads import stocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE = 20_000  # events for Spark's own join
BATCH = 100_000  # events per batch
BLUE = "#1f3a5f"
LOOKS = (  # kind of alert, marker, colour, name
    (0, "o", "#e3b04b", "between two prices"),
    (1, "^", "#2e8b57", "above a price"),
    (-1, "v", "#c0392b", "below a price"),
)


class Outcome(NamedTuple):
    """The figures shown at the end."""

    matcher: gm.Matcher
    where: str
    seconds: float  # for matching all bars
    join: tuple[int, float] | None  # bars and seconds of Spark's join


def run(subscriptions: int = 200_000, events: int = 500_000, out: str | Path = "demo-output", seed: int = 7) -> None:
    """Generate alerts and prices, match them and show the results; the files stay in ``out``."""
    console, folder = make_console(markup=True), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    _remove(folder / "matches.parquet")
    with _step(console, f"Generating {events:,} daily bars and {subscriptions:,} alerts"):
        rng = np.random.default_rng(seed)
        walk = stocks.draw_bars(events, rng)
        bars, alerts = stocks.to_events(walk, events), stocks.draw_alerts(subscriptions, walk, rng)
        pq.write_table(bars, folder / "bars.parquet", row_group_size=max(1, events // 16))
        pq.write_table(alerts, folder / "alerts.parquet")
    missing = _missing_for_spark()
    if missing:
        console.print(f"[yellow]{missing}: matching in this process, without a comparison with Spark's join")
        outcome = _in_process(console, folder)
    else:
        outcome = _on_spark(console, folder, rng)
    pairs = ds.dataset(folder / "matches.parquet")
    show_examples(console, outcome.matcher, bars, pairs, rng)
    show_numbers(console, outcome, events, pairs.count_rows())
    if _has_matplotlib():
        with _step(console, "Drawing the picture"):
            peak = walk.values["high"].argmax(axis=1)
            symbol = str(
                walk.symbols[np.abs(peak - len(walk.days) / 2).argmin()]
            )  # with its peak near the middle of the picture
            draw(folder / "demo.png", symbol, bars, alerts, pairs, rates(outcome, events))
    else:
        console.print("[yellow]matplotlib is not installed: no picture (pip install 'gpumatch\\[bench]')")
    console.print(f"Written to {folder}/: {', '.join(sorted(path.name for path in folder.iterdir()))}")


def _remove(path: Path) -> None:
    """Spark writes a folder where a single process writes a file."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _missing_for_spark() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'gpumatch\\[spark]')"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Java is not installed (Spark needs a JDK 17 or 21)"
    return None


def _has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


@contextmanager
def _step(console: Console, text: str) -> Iterator[None]:
    """A spinner with the elapsed time, replaced by one line at the end."""
    start = time.perf_counter()
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(text, total=None)
        yield
    console.print(f"[green]✓[/] {text} [dim]({time.perf_counter() - start:.1f} s)")


def _in_process(console: Console, folder: Path) -> Outcome:
    with _step(console, "Building the index from the alerts' text"):
        matcher = gm.Matcher(stocks.SCHEMA)
        matcher.add_table(pq.read_table(folder / "alerts.parquet"), id="id", where="expr")
    _compile(console, matcher, folder)
    schema = pa.schema({"event": pa.int64(), "symbol": pa.string(), "subscription": pa.large_string()})
    seconds = 0.0
    with _step(console, "Matching in this process"), pq.ParquetWriter(folder / "matches.parquet", schema) as writer:
        for batch in pq.ParquetFile(folder / "bars.parquet").iter_batches(BATCH):
            start = time.perf_counter()
            pairs = matcher.match(batch).to_arrow()
            events = batch.select(["event", "symbol"]).take(pairs["event"].combine_chunks())
            seconds += time.perf_counter() - start
            writer.write(pa.table([*events.columns, pairs["subscription"]], schema=schema))
    return Outcome(matcher, "in one process", seconds, None)


def _compile(console: Console, matcher: gm.Matcher, folder: Path) -> None:
    """Compile now: Spark's workers then find the code in the cache on disk."""
    with _step(console, "Compiling the kernels (first time only)"):
        matcher.match(next(pq.ParquetFile(folder / "bars.parquet").iter_batches(1000)))


def _on_spark(console: Console, folder: Path, rng: np.random.Generator) -> Outcome:
    from pyspark.sql import SparkSession

    from gpumatch.spark import build_index, match_events

    already = SparkSession.getActiveSession()
    with _step(console, "Starting Spark"):
        spark = already or local_session(folder / "spark.log")
    cores = spark.sparkContext.defaultParallelism
    try:
        with _step(console, "Building the index from the alerts' text"):
            texts = spark.read.parquet(str(folder / "alerts.parquet"))
            matcher = build_index(texts, folder / "index", schema=stocks.SCHEMA)
        _compile(console, matcher, folder)
        bars = spark.read.parquet(str(folder / "bars.parquet"))
        pairs = match_events(bars, folder / "index", columns=["event", "symbol"])
        with _step(console, f"Matching on Spark with {cores} cores, writing the matches"):
            pairs.write.mode("overwrite").parquet(str(folder / "matches.parquet"))
        with _step(console, "Matching again without writing, for timing"):
            seconds = _seconds(pairs)
        join = _join(console, spark, folder, rng)
    finally:
        if already is None:
            spark.stop()
    return Outcome(matcher, f"on Spark, {cores} cores", seconds, join)


def local_session(log: Path) -> SparkSession:
    """A local session; the JVM's standard error goes to the log."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = min(8, os.cpu_count() or 1)
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
        "spark.sql.files.minPartitionNum": str(2 * cores),  # few tasks, but more than cores, since their lengths differ
        "spark.sql.shuffle.partitions": str(cores),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("gpumatch demo")
    for key, value in settings.items():
        builder = builder.config(key, value)
    stderr = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        return builder.getOrCreate()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _join(console: Console, spark: SparkSession, folder: Path, rng: np.random.Generator) -> tuple[int, float]:
    """Time Spark's own join on a sample, and check that it finds the same matches."""
    bars = pq.read_table(folder / "bars.parquet")
    sample = bars.take(np.sort(rng.choice(len(bars), min(SAMPLE, len(bars)), replace=False)))
    with _step(console, f"Spark's own range join on {len(sample):,} of the bars"):
        alerts = spark.read.parquet(str(folder / "alerts.parquet")).repartition(spark.sparkContext.defaultParallelism)
        for name, frame in (("alerts", alerts), ("bars", spark.createDataFrame(sample))):
            frame.cache().count()
            frame.createOrReplaceTempView(name)
        join = spark.sql(join_sql())
        joined = join.toArrow()
        ours = ds.dataset(folder / "matches.parquet").to_table(filter=ds.field("event").isin(sample["event"]))
        order = [("event", "ascending"), ("subscription", "ascending")]
        both = [table.select(["event", "subscription"]).sort_by(order) for table in (joined, ours)]
        if both[0] != both[1]:
            raise AssertionError(f"Spark's join found {len(joined):,} matches, gpumatch {len(ours):,}: they differ")
    console.print(f"  {len(ours):,} matches, the same as gpumatch")
    with _step(console, "The join again, for timing"):
        return len(sample), _seconds(join)


def _seconds(frame: DataFrame) -> float:
    """The time to compute all rows, without keeping them."""
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def join_sql() -> str:
    """The fastest query we know: broadcast the few bars, and hash join the alerts that name a symbol."""
    ranges = " AND ".join(
        f"(a.{name}_lo IS NULL OR b.{name} >= a.{name}_lo) AND (a.{name}_hi IS NULL OR b.{name} <= a.{name}_hi)"
        for name in stocks.RANGED
    )
    select = "SELECT /*+ BROADCAST(b) */ b.event, a.id AS subscription FROM bars b JOIN alerts a ON"
    return f"{select} a.symbol = b.symbol AND {ranges} UNION ALL {select} a.symbol IS NULL AND {ranges}"


def rates(outcome: Outcome, events: int) -> dict[str, float]:
    """Events per second, by method."""
    found = {f"gpumatch {outcome.where}": events / outcome.seconds}
    if outcome.join is not None:
        found["Spark's own join"] = outcome.join[0] / outcome.join[1]
    return found


def show_examples(console: Console, matcher: gm.Matcher, bars: pa.Table, pairs: Any, rng: np.random.Generator) -> None:
    """A few matches, each with its bar and the reason why the alert rang."""
    count = pairs.count_rows()
    table = Table("alert", "rings because", "bar", title="Some of the matches", title_justify="left", show_lines=True)
    for row in pairs.take(np.sort(rng.choice(max(1, count), min(4, count), replace=False))).to_pylist():
        [bar] = bars.slice(row["event"], 1).select(list(stocks.SCHEMA)).to_pylist()
        explained = matcher.explain(bar, row["subscription"])
        reasons = "\n".join(step.predicate for step in explained.steps)
        values = "\n".join(f"{step.predicate.split()[0]} is {step.value}" for step in explained.steps)
        table.add_row(row["subscription"], reasons, values)
    console.print(table)


def show_numbers(console: Console, outcome: Outcome, events: int, pairs: int) -> None:
    """Totals, the rates of both methods, and their ratio."""
    rate = rates(outcome, events)
    table = Table("", "bars", "seconds", "bars per second", title="Throughput", title_justify="left")
    runs = [(events, outcome.seconds), *([outcome.join] if outcome.join else [])]
    for (name, speed), (bars, seconds) in zip(rate.items(), runs, strict=True):
        table.add_row(name, f"{bars:,}", f"{seconds:.1f}", f"{speed:,.0f}")
    console.print(table)
    console.print(f"{pairs:,} matches, {pairs / events:.1f} per bar, of {len(outcome.matcher):,} alerts")
    if outcome.join is not None:
        ours, join = rate.values()
        console.print(f"gpumatch matches [bold]{ours / join:,.1f} times[/] as many bars per second as Spark's own join")


def draw(path: Path, symbol: str, bars: pa.Table, alerts: pa.Table, pairs: Any, rate: dict[str, float]) -> None:
    """The price of a symbol with the alerts that rang and, if there are two, the rates."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(3, 4 if len(rate) > 1 else 3)
    price = figure.add_subplot(grid[:2, :3])
    count = figure.add_subplot(grid[2, :3], sharex=price)
    _draw_price(price, count, bars.filter(pc.field("symbol") == symbol), _rung(symbol, alerts, pairs))
    price.set_title(f"{symbol} and the alerts that rang", loc="left", fontsize=13, fontweight="bold")
    if len(rate) > 1:
        _draw_rates(figure.add_subplot(grid[:, 3]), rate)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _rung(symbol: str, alerts: pa.Table, pairs: Any) -> pa.Table:
    """The matches of one symbol with the kind of alert: 1 above a price, -1 below one, 0 between two."""
    rung = pairs.to_table(columns=["event", "subscription"], filter=ds.field("symbol") == symbol)
    lo, hi = (
        reduce(pc.or_, (alerts[f"{name}_{side}"].is_valid() for name in stocks.PRICES)).cast(pa.int8())
        for side in ("lo", "hi")
    )
    alerts = alerts.append_column("kind", pc.subtract(lo, hi))
    at = pc.index_in(rung["subscription"].cast(pa.string()), alerts["id"].combine_chunks())
    return alerts.take(at).append_column("event", rung["event"])


def _draw_price(price: Any, count: Any, bars: pa.Table, rung: pa.Table) -> None:
    """The price with the days of break-outs and break-downs; below it, the alerts per day by kind."""
    columns = {name: bars[name].to_numpy() for name in bars.column_names}
    date, kinds = columns["date"], rung["kind"].to_numpy()
    at = np.searchsorted(columns["event"], rung["event"].to_numpy())
    price.fill_between(date, columns["low"], columns["high"], color="#c3d0de", lw=0)
    price.plot(date, columns["close"], color=BLUE, lw=1, label="close")
    below = np.zeros(len(date))
    for kind, marker, colour, label in LOOKS:
        rings = np.bincount(at[kinds == kind], minlength=len(date))
        count.fill_between(date, below, below + rings, step="mid", color=colour, lw=0, label=label)
        below += rings
        if kind:
            days = rings > 0
            edge = columns["high" if kind > 0 else "low"][days] * (1 + 0.012 * kind)
            price.scatter(date[days], edge, 8 + 2 * rings[days], color=colour, marker=marker, lw=0)
            _draw_level(price, rung.filter(pc.field("kind") == kind), "high_lo" if kind > 0 else "low_hi", colour)
    price.tick_params(labelbottom=False)
    price.set_ylabel("price")
    count.set_ylabel("alerts per day")
    count.set_ylim(0, 1.3 * max(1, below.max()))
    count.legend(frameon=False, fontsize=9, ncols=3, loc="upper center")


def _draw_level(price: Any, rung: pa.Table, bound: str, colour: str) -> None:
    """The threshold and the text of one alert."""
    some = rung.filter(pc.field(bound).is_valid())
    if some.num_rows:
        level, text = some[bound][0].as_py(), some["expr"][0].as_py()
        price.axhline(level, color=colour, lw=0.8, ls="--", zorder=0)
        style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": 8, "color": colour}
        price.annotate(text, (0.1, level), (0, 4), **style)


def _draw_rates(axes: Any, rate: dict[str, float]) -> None:
    names = [name.replace(" on ", "\non ").replace(", ", ",\n") for name in rate]
    columns = axes.bar(names, list(rate.values()), color=[BLUE, "#aab4be"], width=0.6)
    axes.bar_label(columns, [f"{value:,.0f}" for value in rate.values()], padding=3, fontweight="bold")
    axes.set_title("bars per second", loc="left", fontsize=13, fontweight="bold")
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
