"""Indexes in an object store, built and matched by Spark: an S3 API on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import build_index, count_subscriptions, match_events, opened, register, worker
from gpumatch.store.folder import copies
from tests.s3 import ACCOUNT, BUCKET, S3, running

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCHEMA = {"px": "float64", "sym": "string"}
RULES = """
    SELECT concat('r', id) AS id,
        if(id % 2 = 0, concat('px > ', id), concat("sym = 's", id % 7, "' AND px < ", id)) AS expr
    FROM range(0, 200, 1, 3)
"""
EVENTS = "SELECT id AS k, double(id % 97) AS px, concat('s', id % 11) AS sym FROM range(0, 90, 1, 3)"
USER = "someone:s3cr3t@"


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture
def s3(spark: Any, server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3:
    """An empty bucket, and no copies on this machine: neither the driver's nor the workers'."""
    for name, value in {**ACCOUNT, copies.FOLDER: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    server.refuse = False
    server.store.create_dir(BUCKET)
    server.store.delete_dir_contents(BUCKET)
    server.requests.clear()
    return server


def here(spark: Any) -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_table(spark.sql(RULES).toArrow())
    return matcher


def rows(frame: Any) -> list[Any]:
    return sorted(map(tuple, frame.collect()))


@pytest.mark.parametrize("shards", [None, 3])
def test_the_same_rows_as_in_process(spark: Any, s3: S3, tmp_path: Path, shards: int | None) -> None:
    uri, whole = s3.uri("deep/i", user=USER), here(spark)
    built = build_index(spark.sql(RULES), uri, schema=SCHEMA, shards=shards)
    assert sorted(built.ids) == sorted(whole.ids)
    events = spark.sql(EVENTS)
    table = events.toArrow()
    found = whole.match(table)
    right = sorted((k, name) for k, names in zip(table["k"].to_pylist(), found, strict=True) for name in names)
    for strategy in ("replicated", "routed", "passes") if shards else ("auto",):
        assert rows(match_events(events, uri, columns=["k"], strategy=strategy)) == right
    totals = {name: sum(1 for _, other in right if other == name) for _, name in right}
    assert rows(count_subscriptions(events, uri)) == sorted(totals.items())
    fetched = [path for method, path in s3.requests if method == "GET" and path.endswith(".npy")]
    assert len(fetched) == len(set(fetched))  # the driver and all workers of this machine share them
    assert set(s3.files("GET")) == {path.name for path in tmp_path.glob("gpumatch-store-*/**/*.npy")}


def test_sql(spark: Any, s3: S3) -> None:
    pyspark = pytest.importorskip("pyspark")
    if pyspark.__version__ < "4.1":
        pytest.skip("SQL functions want PySpark 4.1")
    uri = s3.uri("i", user=USER)
    build_index(spark.sql(RULES), uri, schema=SCHEMA, shards=2)
    register(spark, columns="k bigint")
    spark.sql(EVENTS).createOrReplaceTempView("events")
    right = rows(match_events(spark.table("events"), uri, columns=["k"]))
    s3.requests.clear()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    try:
        arrays = spark.sql(f"SELECT k, match_ids('{uri}', 'px, sym', px, sym) AS ids FROM events").collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted((row.k, name) for row in arrays for name in row.ids) == right
    assert rows(spark.sql(f"SELECT * FROM match_events(TABLE(events), '{uri}')")) == right
    asked = [path for method, path in s3.requests if method == "GET" and path.endswith("/i/manifest.json")]
    assert len(asked) <= 2 * (3 + 3)  # tasks, which may have to open it too; there are six batches in each


def test_a_second_run_builds_what_is_missing(spark: Any, s3: S3) -> None:
    uri = s3.uri("i")
    build_index(spark.sql(RULES), uri, schema=SCHEMA, shards=3)
    lost, halfway, kept = sorted({path.split("/")[3] for method, path in s3.requests if "/shard-" in path})
    s3.store.delete_file(f"{BUCKET}/i/manifest.json")  # as if all had been killed
    s3.store.delete_dir(f"{BUCKET}/i/{lost}")
    s3.store.delete_file(f"{BUCKET}/i/{halfway}/manifest.json")
    with pytest.raises(gm.StorageError, match="s3://indexes/i' is not a saved index"):
        match_events(spark.sql(EVENTS), uri)
    s3.requests.clear()
    assert len(build_index(spark.sql(RULES), uri, schema=SCHEMA, shards=3)) == 200
    saved = {path.split("/")[3] for method, path in s3.requests if method == "PUT" and path.endswith(".npy")}
    assert saved == {lost}
    assert not any(method == "PUT" and kept in path for method, path in s3.requests)


def test_a_newer_version_is_opened(spark: Any, s3: S3) -> None:
    uri, events = s3.uri("i"), spark.sql(EVENTS)
    build_index(spark.sql(RULES), uri, schema=SCHEMA, shards=2)
    counted = match_events(events, uri, output="count", columns=["k"])
    before = rows(counted)
    build_index(spark.sql(RULES).where("id <> 'r0'"), uri, schema=SCHEMA, shards=2)
    after = rows(counted)
    assert sum(n for _, n in before) - sum(n for _, n in after) == 89  # all but the event whose px is 0


def test_a_store_that_refuses(spark: Any, s3: S3) -> None:
    s3.refuse = True
    uri = s3.uri("i", user=USER)
    for action in (
        lambda: build_index(spark.sql(RULES), uri, schema=SCHEMA, shards=2),
        lambda: build_index(spark.sql(RULES), uri, schema=SCHEMA),
        lambda: match_events(spark.sql(EVENTS), uri),
    ):
        with pytest.raises(gm.StorageError, match=r"'s3://indexes/i\S*': .*check the credentials") as caught:
            action()
        assert "s3cr3t" not in str(caught.value)
    from pyspark.errors import PythonException

    with pytest.raises(PythonException, match=r"StorageError: cannot read 's3://indexes/i/manifest.json'") as failed:
        match_events(spark.sql(EVENTS), uri, id_type="string").collect()
    assert "s3cr3t" not in str(failed.value)


def test_a_task_asks_once(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = gm.Matcher({"x": "int64"})
    matcher.add({"a": "x > 1"})
    matcher.save(s3.uri("i"))
    monkeypatch.setattr(opened, "_open", type(opened._open)())
    tasks = iter([1, 1, 1, 2, None])
    monkeypatch.setattr(opened, "_task", lambda: next(tasks))
    found = []
    for _ in range(5):
        s3.requests.clear()
        assert worker.open_index(s3.uri("i"), "cpu").match_one({"x": 2}) == ["a"]
        found.append(sum(method == "GET" for method, _ in s3.requests) > 0)
    assert found == [True, False, False, True, True]
