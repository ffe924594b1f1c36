"""Streaming queries that match: versions, restarts, sinks, windows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import Metrics, build_index, match_events, pinned_versions
from gpumatch.store.folder import durable
from tests.spark.streams import COLUMNS, SCHEMA, arrive, check, events, written_by_batch

pytestmark = [pytest.mark.spark, pytest.mark.long]


def made(folder: Path, **options: Any) -> gm.Matcher:
    return gm.open(folder / "index", "a", schema=SCHEMA, background=False, **options)


def source(spark: Any, folder: Path, files: int = 1) -> Any:
    (folder / "in").mkdir(exist_ok=True)
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files).parquet(str(folder / "in"))


def started(spark: Any, folder: Path, follow: bool = True, **options: Any) -> Any:
    """A query from files to files."""
    pairs = match_events(source(spark, folder), folder / "index", columns=["k"], follow=follow, **options)
    writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(folder / "check"))
    return writer.start(str(folder / "out"))


def all_written(folder: Path) -> list[Any]:
    return sorted(pair for pairs in written_by_batch(folder / "out").values() for pair in pairs)


def test_each_batch_has_the_newest_version(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_RECORDS", 3)
    matcher, right = made(tmp_path, keep=0), []
    matcher.add({"a": "x > 50", "b": "s = 'a'"})
    query = started(spark, tmp_path)
    for step in range(5):
        arrive(tmp_path / "in", 100 * step, 100)
        query.processAllAvailable()
        found = matcher.match(events(100 * step, 100)).to_arrow()
        right += [(100 * step + k, name) for k, name in zip(*found.to_pydict().values(), strict=True)]
        matcher.add({f"n{step}": f"x < {20 * step}"})
        matcher.replace({"b": f"s = '{'abc'[step % 3]}'"})
    query.stop()
    assert all_written(tmp_path) == sorted(right)
    assert len(set(check(tmp_path / "index", query.id, tmp_path / "check", tmp_path / "out").values())) == 5
    for name in ("a", "n2"):
        matcher.remove([name])
    arrive(tmp_path / "in", 500, 100)
    again = started(spark, tmp_path)  # with the same checkpoint
    again.processAllAvailable()
    again.stop()
    assert again.id == query.id
    assert len(check(tmp_path / "index", query.id, tmp_path / "check", tmp_path / "out")) == 6


def test_a_batch_that_is_repeated_has_its_version(spark: Any, tmp_path: Path) -> None:
    """As after a crash before the batch was committed."""
    matcher = made(tmp_path)
    matcher.add({"a": "x > 50"})
    query = started(spark, tmp_path)
    for step in range(3):
        arrive(tmp_path / "in", 100 * step, 100)
        query.processAllAvailable()
    query.stop()
    before = written_by_batch(tmp_path / "out")
    for path in (tmp_path / "check" / "commits" / "2", tmp_path / "out" / "_spark_metadata" / "2"):
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()
    matcher.remove(["a"])
    matcher.add({"b": "x < 50"})
    arrive(tmp_path / "in", 300, 100)
    again = started(spark, tmp_path)
    again.processAllAvailable()
    again.stop()
    versions = check(tmp_path / "index", query.id, tmp_path / "check", tmp_path / "out")
    assert {batch: rows for batch, rows in written_by_batch(tmp_path / "out").items() if batch < 3} == before
    assert [versions[batch] == versions[0] for batch in range(4)] == [True, True, True, False]
    assert {name for _, name in written_by_batch(tmp_path / "out")[3]} == {"b"}


def test_a_bad_version_in_mid_stream(spark: Any, tmp_path: Path) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 50"})
    metrics = Metrics(spark)
    query = started(spark, tmp_path, metrics=metrics)
    arrive(tmp_path / "in", 0, 100)
    query.processAllAvailable()
    bad = gm.Matcher({"x": "int64"})
    bad.add({7: "x < 50"})
    bad.save(tmp_path / "index")
    for step in range(1, 4):
        arrive(tmp_path / "in", 100 * step, 100)
        query.processAllAvailable()
    assert metrics.refused == 3
    assert "3 batches with an old version, the new one was bad" in str(metrics)
    good = gm.Matcher(SCHEMA)
    good.add({"b": "x < 50"})
    good.save(tmp_path / "index")
    arrive(tmp_path / "in", 400, 100)
    query.processAllAvailable()
    assert query.exception() is None
    query.stop()
    versions = check(tmp_path / "index", query.id, tmp_path / "check", tmp_path / "out")
    assert len({versions[batch] for batch in range(4)}) == 1
    assert {name for _, name in written_by_batch(tmp_path / "out")[4]} == {"b"}
    (tmp_path / "index" / "manifest.json").write_text("{}")
    with pytest.raises(gm.StorageError, match="is not one of gpumatch"):
        started(spark, tmp_path)


def test_available_now(spark: Any, tmp_path: Path) -> None:
    matcher = made(tmp_path)
    for run in range(2):
        matcher.add({f"n{run}": f"x > {50 * run}"})
        for step in range(3):
            arrive(tmp_path / "in", 300 * run + 100 * step, 100)
        pairs = match_events(source(spark, tmp_path), tmp_path / "index", columns=["k"], follow=True)
        writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(120)
    versions = check(tmp_path / "index", query.id, tmp_path / "check", tmp_path / "out")
    assert len(versions) == 6
    assert len(set(versions.values())) == 2
    assert len({k for k, _ in all_written(tmp_path)}) == len([k for k in events(0, 600)["x"].to_pylist() if k > 0])


def test_watermark_and_window_behind(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    matcher = made(tmp_path)
    matcher.add({"a": "x > 50", "b": "s = 'a'"})
    stream = source(spark, tmp_path).withColumn("at", f.timestamp_seconds("k")).withWatermark("at", "10 seconds")
    pairs = match_events(stream, tmp_path / "index", columns=["at", "k"], follow=True)
    counted = pairs.groupBy(f.window("at", "50 seconds"), "subscription").count()
    flat = counted.select(f.unix_timestamp("window.start").alias("start"), "subscription", "count")
    writer = flat.writeStream.format("memory").queryName("counted").outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / "check")).start()
    for step in range(4):
        arrive(tmp_path / "in", 100 * step, 100)
        query.processAllAvailable()
    query.stop()
    found = {(row.start, row.subscription): row["count"] for row in spark.table("counted").collect()}
    right: dict[tuple[int, str], int] = {}
    for k, ids in enumerate(matcher.match(events(0, 400))):
        for name in ids:
            right[k // 50 * 50, name] = right.get((k // 50 * 50, name), 0) + 1
    closed = {key: count for key, count in right.items() if key[0] + 50 <= 389}  # the watermark
    assert found == closed
    assert len(closed) == 14


def test_a_rate_source(spark: Any, tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"even": "x IN (0, 2, 4, 6, 8)", "low": "x < 3"})
    stream = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
    stream = stream.selectExpr("value AS k", "value % 10 AS x", "'a' AS s")
    pairs = match_events(stream, tmp_path / "index", columns=["k"], output="array", follow=True)
    query = pairs.writeStream.format("memory").queryName("rated").start()
    deadline = time.monotonic() + 60
    while spark.table("rated").count() < 1000 and time.monotonic() < deadline:
        time.sleep(0.2)
    query.stop()
    rows = {row.k: row.subscriptions for row in spark.table("rated").collect()}
    assert sorted(rows) == list(range(len(rows)))
    assert len(rows) >= 1000
    for k, ids in rows.items():
        assert ids == ["even"] * (k % 2 == 0) + ["low"] * (k % 10 < 3)


def test_in_foreach_batch(spark: Any, tmp_path: Path) -> None:
    """The batch may be matched there, and more than once; and a stream that was matched may be written there."""
    matcher, found = made(tmp_path), {}
    matcher.add({"a": "x > 50"})

    def inside(frame: Any, batch: int) -> None:
        pairs = match_events(frame, tmp_path / "index", columns=["k"], follow=True)
        first = sorted(map(tuple, pairs.collect()))
        matcher.upsert({f"n{batch}": "x >= 0"})
        found[batch] = first, sorted(map(tuple, pairs.collect()))

    def outside(frame: Any, batch: int) -> None:
        first = sorted(map(tuple, frame.select("k", "subscription").collect()))
        matcher.upsert({f"m{batch}": "x >= 0"})
        found[batch] = first, sorted(map(tuple, frame.select("k", "subscription").collect()))

    stream = source(spark, tmp_path)
    for number, (frame, function) in enumerate(
        [(stream, inside), (match_events(stream, tmp_path / "index", follow=True), outside)]
    ):
        found.clear()
        check = tmp_path / f"check{number}"
        query = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(check)).start()
        for step in range(2):
            arrive(tmp_path / "in", 1000 * number + 100 * step, 100)
            query.processAllAvailable()
        query.stop()
        assert query.exception() is None
        for batch, (first, second) in found.items():
            assert first == second
            version = pinned_versions(tmp_path / "index", query.id)[batch]
            assert {name for _, name in first} == set(gm.load(tmp_path / "index", version=version))


def test_bad_versions_in_foreach_batch(spark: Any, tmp_path: Path) -> None:
    """The driver looks at the index for each batch, and does not stop the query either."""
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 50"})
    index, found, fails = tmp_path / "index", {}, [False]

    def inside(frame: Any, batch: int) -> None:
        pairs = match_events(frame, index, columns=["k"], follow=True)
        found[batch] = pairs.dtypes, sorted(row.k for row in pairs.collect())
        assert not fails[0], "as asked"

    def begin() -> Any:
        writer = source(spark, tmp_path).writeStream.foreachBatch(inside)
        return writer.option("checkpointLocation", str(tmp_path / "check")).start()

    def high(batch: int) -> tuple[Any, list[int]]:
        numbers = events(100 * batch, 100)["x"].to_pylist()
        return [("k", "bigint"), ("subscription", "string")], [100 * batch + k for k, x in enumerate(numbers) if x > 50]

    query = begin()
    bad = gm.Matcher({"x": "int64", "y": "int64"})
    bad.add({7: "x < 50"})
    rules = spark.sql("SELECT concat('r', id) AS id, concat('x > ', id) AS expr FROM range(30)")
    spoilt: list[Callable[[], Any]] = [
        lambda: None,
        lambda: bad.save(index),
        lambda: (index / "manifest.json").write_text("{}"),
        lambda: build_index(rules, index, schema=SCHEMA, shards=2),
    ]
    for batch, spoil in enumerate(spoilt):
        spoil()
        arrive(tmp_path / "in", 100 * batch, 100)
        query.processAllAvailable()
        assert found[batch] == high(batch)
    fails[0] = True
    arrive(tmp_path / "in", 400, 100)
    with pytest.raises(Exception, match="as asked"):
        query.processAllAvailable()
    with pytest.warns(gm.GpumatchWarning, match="had shards"):
        bad.save(index)
    fails[0] = False
    found.clear()
    query = begin()
    arrive(tmp_path / "in", 500, 100)
    query.processAllAvailable()
    query.stop()
    assert found[4] == high(4)  # the batch that is repeated has its version
    assert found[5][0] == [("k", "bigint"), ("subscription", "bigint")]  # a query that starts takes what is there
    assert len(set(pinned_versions(index, query.id).values())) == 2


def test_what_cannot_be_followed(spark: Any, tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 50"})
    stream = source(spark, tmp_path)
    with pytest.raises(ValueError, match=r"follow=True needs the folder of an index, and a Matcher is shipped"):
        match_events(stream, matcher, follow=True)
    with pytest.raises(gm.StorageError, match=r"follow=True needs a folder, .* found 's3://bucket/i'"):
        match_events(stream, "s3://user:secret@bucket/i", follow=True)
    with pytest.raises(ValueError, match="leave id_type= out"):
        match_events(stream, tmp_path / "index", follow=True, id_type="string")
    with pytest.raises(ValueError, match="follow=True needs a stream"):
        match_events(spark.sql("SELECT 1 AS x"), tmp_path / "index", follow=True)
    rules = spark.sql("SELECT concat('r', id) AS id, concat('x > ', id) AS expr FROM range(30)")
    build_index(rules, tmp_path / "shards", schema=SCHEMA, shards=2)
    with pytest.raises(gm.StorageError, match="follow=True needs an index without shards"):
        match_events(stream, tmp_path / "shards", follow=True)


def test_shards_in_mid_stream_are_refused(spark: Any, tmp_path: Path) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 50"})
    query = started(spark, tmp_path)
    arrive(tmp_path / "in", 0, 100)
    query.processAllAvailable()
    rules = spark.sql("SELECT concat('r', id) AS id, concat('x > ', id) AS expr FROM range(30)")
    build_index(rules, tmp_path / "index", schema=SCHEMA, shards=2)
    arrive(tmp_path / "in", 100, 100)
    query.processAllAvailable()
    query.stop()
    versions = check(tmp_path / "index", query.id, tmp_path / "check", tmp_path / "out")
    assert len(set(versions.values())) == 1
    assert {name for _, name in written_by_batch(tmp_path / "out")[1]} == {"a"}


def test_a_stream_that_does_not_follow(spark: Any, tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 50"})
    query = started(spark, tmp_path, follow=False)
    arrive(tmp_path / "in", 0, 100)
    query.processAllAvailable()
    query.stop()
    assert not (tmp_path / "index" / "pins").exists()
    assert len(all_written(tmp_path)) == int(matcher.count(events(0, 100)).sum())
