"""A stream that follows an index which changes: ``python bench/streaming.py``.

Stock alerts in a folder that ``gm.open`` changes, bars from files, Spark in local mode, a sink that drops everything.
First the time from a change that has been committed to the first batch that uses it: until the batch has chosen its
version, and until it is done. Then bars per second at 0, 1 and 10 changes per second, each change an alert that comes
and one that goes; batches have a file of ``--bars`` bars.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import gpumatch as gm
from gpumatch.cli.demo import local_session
from gpumatch.cli.demo_stream import COLUMNS
from gpumatch.spark import match_events, pinned_versions
from gpumatch.workloads import stocks
from measuring.options import RESULTS, positive
from measuring.report import headed, machine, save, terminal

RATES = (0, 1, 10)  # changes per second


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subscriptions", type=positive, default=100_000, metavar="N")
    parser.add_argument("--bars", type=positive, default=20_000, metavar="N", help="of a batch (default: 20,000)")
    parser.add_argument("--batches", type=positive, default=30, metavar="N", help="at each rate (default: 30)")
    parser.add_argument("--changes", type=positive, default=20, metavar="N", help="to time (default: 20)")
    parser.add_argument("--out", type=Path, default=RESULTS / "streaming.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_session(folder / "spark.log")
        spare = 2 * given.changes + 20_000
        walk = stocks.draw_bars(given.bars, np.random.default_rng(1))
        alerts = stocks.draw_alerts(given.subscriptions + spare, walk, np.random.default_rng(2))
        pq.write_table(stocks.to_events(walk, given.bars), folder / "bars.parquet")
        with gm.open(folder / "index", "a", schema=stocks.SCHEMA) as matcher:
            matcher.add_table(alerts.slice(0, given.subscriptions))
            matcher.compact()
            matcher.match(stocks.to_events(walk, 1000))
            changing = Changing(matcher, alerts.slice(given.subscriptions).to_pylist())
            delays = _delays(spark, folder, changing, given.changes)
            rates = {rate: _throughput(spark, folder, changing, rate, given.batches, given.bars) for rate in RATES}
    _show(delays, rates)
    options = {**vars(given), "out": ""}
    save(given.out, {"machine": machine(), "options": options, "seconds_to_use": delays, "throughput": rates})


class Changing:
    """Alerts that come, and the oldest that go."""

    def __init__(self, matcher: gm.Matcher, spare: list[dict[str, Any]]) -> None:
        self.matcher, self._spare, self._old = matcher, iter(spare), iter(matcher.ids.tolist())

    def change(self) -> None:
        new = next(self._spare)
        self.matcher.add({new["id"]: new["expr"]})
        self.matcher.remove([next(self._old)])

    @contextmanager
    def at(self, rate: int) -> Iterator[list[int]]:
        """Changes in a thread; yields a list with the number of them."""
        stop, made, start = threading.Event(), [0], time.monotonic()

        def run() -> None:
            while not stop.wait(max(0.0, start + made[0] / rate - time.monotonic())):
                self.change()
                made[0] += 1

        thread = threading.Thread(target=run)
        if rate:
            thread.start()
        yield made
        stop.set()
        if rate:
            thread.join()


def _started(spark: Any, folder: Path, name: str) -> Any:
    (folder / name).mkdir()
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
    pairs = match_events(stream, folder / "index", columns=["event"], follow=True)
    return pairs.writeStream.format("noop").option("checkpointLocation", str(folder / f"{name}-check")).start()


def _arrive(folder: Path, name: str, number: int) -> None:
    os.link(folder / "bars.parquet", folder / "draft.parquet")
    os.replace(folder / "draft.parquet", folder / name / f"{number:06d}.parquet")


def _delays(spark: Any, folder: Path, changing: Changing, count: int) -> dict[str, Any]:
    """Files arrive without end while single changes are made; the seconds until a batch uses each."""
    query, stop = _started(spark, folder, "delays"), threading.Event()

    def feed() -> None:
        number = 0
        while not stop.wait(0.05):
            if number < 2 + _done(folder / "delays-check"):
                _arrive(folder, "delays", number)
                number += 1

    feeder = threading.Thread(target=feed)
    feeder.start()
    _wait(query, lambda: _done(folder / "delays-check") >= 3)
    chosen, done = [], []
    for _ in range(count):
        changing.change()
        committed, version = time.time(), _number(str(changing.matcher.version))
        batch = _first_with(query, folder, version)
        pin = folder / "index" / "pins" / query.id / str(batch)
        commit = folder / "delays-check" / "commits" / str(batch)
        _wait(query, commit.exists)
        chosen.append(pin.stat().st_mtime - committed)
        done.append(commit.stat().st_mtime - committed)
        time.sleep(0.3 * np.random.default_rng(len(done)).random())
    stop.set()
    feeder.join()
    batches = [progress["batchDuration"] / 1000 for progress in query.recentProgress if progress["numInputRows"]]
    query.stop()
    return {
        "chosen": {"median": median(chosen), "most": max(chosen)},
        "done": {"median": median(done), "most": max(done)},
        "batch": median(batches),
    }


def _first_with(query: Any, folder: Path, version: int) -> int:
    """The first batch with a version or a later one."""
    found: list[int] = []

    def look() -> bool:
        pinned = pinned_versions(folder / "index", query.id)
        found[:] = [batch for batch in sorted(pinned) if _number(pinned[batch]) >= version]
        return bool(found)

    _wait(query, look)
    return found[0]


def _number(version: str) -> int:
    return int(version.partition("-")[0])


def _done(checkpoint: Path) -> int:
    commits = checkpoint / "commits"
    return sum(path.name.isdecimal() for path in commits.iterdir()) if commits.exists() else 0


def _wait(query: Any, is_there: Any) -> None:
    while not is_there():
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        time.sleep(0.005)


def _throughput(spark: Any, folder: Path, changing: Changing, rate: int, batches: int, bars: int) -> dict[str, float]:
    """All files are there from the start; the first batches are left out."""
    name, early = f"rate{rate}", 3
    query = _started(spark, folder, name)
    for number in range(batches + early):
        _arrive(folder, name, number)
    check = folder / f"{name}-check"
    _wait(query, lambda: _done(check) >= early)
    with changing.at(rate) as made:
        start, before = time.monotonic(), _done(check)
        _wait(query, lambda: _done(check) >= batches + early)
        seconds, matched = time.monotonic() - start, _done(check) - before
    versions = len(set(pinned_versions(folder / "index", query.id).values()))
    query.stop()
    return {
        "bars_per_second": matched * bars / seconds,
        "seconds_per_batch": seconds / matched,
        "changes_per_second": made[0] / seconds,
        "versions": versions,
    }


def _show(delays: dict[str, Any], rates: dict[int, dict[str, float]]) -> None:
    table = headed("throughput", "changes per second", "bars per second", "seconds per batch", "versions")
    for rate, found in rates.items():
        cells = (f"{found['bars_per_second']:,.0f}", f"{found['seconds_per_batch']:.2f}", f"{found['versions']:.0f}")
        table.add_row(str(rate), *cells)
    terminal().print(table)
    for what in ("chosen", "done"):
        found = delays[what]
        print(
            f"from a change to the first batch with it, {what}: {found['median']:.2f} s, at most {found['most']:.2f} s"
        )
    print(f"a batch takes {delays['batch']:.2f} s")


if __name__ == "__main__":
    main()
