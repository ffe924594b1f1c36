"""Indexes whose shards are built on the executors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import build_index, count_subscriptions, match_events
from gpumatch.spark.shards import salts_of
from gpumatch.store import directory

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCHEMA = {"px": "float64", "sym": "string", "tags": "list<string>"}
RULES = """
    SELECT concat('r', id) AS name, CASE id % 4
        WHEN 0 THEN concat('px > ', id) WHEN 1 THEN concat("sym = 's", id % 7, "' AND px < ", id)
        WHEN 2 THEN concat("sym LIKE '%", id % 5, "' OR px < ", id % 50)
        ELSE concat("tags = 't", id % 9, "'") END AS rule,
        if(id % 6 = 0, NULL, (id * 37) % 101) AS bid, id % 3 AS dest
    FROM range(0, 600, 1, 3)
"""
EVENTS = """
    SELECT id AS k, double(id % 97) AS px, concat('s', id % 11) AS sym, array(concat('t', id % 9)) AS tags
    FROM range(300)
"""


def build(spark: Any, path: Path, **more: Any) -> gm.Matcher:
    columns = {"id": "name", "where": "rule", "weight": "bid", "destination": "dest"}
    return build_index(spark.sql(RULES), path, schema=SCHEMA, **columns, **more)


def folders(path: Path) -> dict[str, int]:
    """Shards, and when they were written."""
    return {folder.name: (folder / "manifest.json").stat().st_mtime_ns for folder in path.glob("shard-*")}


@pytest.mark.parametrize("count", [1, 5])
def test_the_same_rows_as_from_one_index(spark: Any, tmp_path: Path, count: int) -> None:
    whole = build(spark, tmp_path / "whole")
    sharded = build(spark, tmp_path / "shards", shards=count)
    assert len(folders(tmp_path / "shards")) == count
    assert sorted(sharded.ids) == sorted(whole.ids)
    events = spark.sql(EVENTS).repartition(3)
    asked: list[dict[str, Any]] = [
        {"output": "pairs"}, {"output": "count"}, {"output": "array"}, {"output": "array", "top": 3},
        {"output": "destinations"},
    ]  # fmt: skip
    for more in asked:
        one, many = (
            sorted(map(tuple, match_events(events, tmp_path / name, columns=["k"], **more).collect()))
            for name in ("whole", "shards")
        )
        if more["output"] in ("array", "destinations") and "top" not in more:  # in the order of the shards
            one, many = ([(k, sorted(ids)) for k, ids in found] for found in (one, many))
        assert many == one
        assert len(one) >= 300
    totals = [sorted(map(tuple, count_subscriptions(events, tmp_path / n).collect())) for n in ("whole", "shards")]
    assert totals[0] == totals[1]


def test_a_second_run_builds_what_is_missing(spark: Any, tmp_path: Path) -> None:
    build(spark, tmp_path, shards=4)
    first = folders(tmp_path)
    (tmp_path / "manifest.json").unlink()  # as if the driver had died
    lost, halfway = sorted(first)[:2]
    shutil.rmtree(tmp_path / lost)
    (tmp_path / halfway / "manifest.json").unlink()
    with pytest.raises(gm.StorageError, match="no manifest"):
        gm.load(tmp_path)
    matcher = build(spark, tmp_path, shards=4)
    second = folders(tmp_path)
    assert len(matcher) == 600
    assert {name for name in first if first[name] != second[name]} == {lost, halfway}


def test_other_subscriptions_replace_their_shards_only(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql(RULES)
    build_index(rules, tmp_path, schema=SCHEMA, id="name", where="rule", shards=4)
    first = folders(tmp_path)
    changed = build_index(rules.where("name <> 'r8'"), tmp_path, schema=SCHEMA, id="name", where="rule", shards=4)
    assert "r8" not in changed
    assert len(folders(tmp_path).keys() & first.keys()) == 3
    assert len(folders(tmp_path)) == 4  # what is not needed any more is gone
    whole = build_index(rules, tmp_path, schema=SCHEMA, id="name", where="rule")
    assert len(whole) == 600
    assert folders(tmp_path) == {}


def test_bad_subscriptions(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql(
        "SELECT id, if(id IN (3, 5), 'px <', 'px < 5') AS expr FROM range(20) UNION ALL SELECT 7, 'px > 1'"
    )
    with pytest.raises(gm.SchemaError, match=r"3 of 21 subscriptions are wrong, and no index is written: "):
        build_index(rules, tmp_path, schema=SCHEMA, shards=3)
    assert not (tmp_path / "manifest.json").exists()
    for _ in range(2):  # a second run finds the shards, and still knows how many were rejected
        with pytest.warns(UserWarning, match="3 of 21 subscriptions were left out"):
            built = build_index(rules, tmp_path, schema=SCHEMA, shards=3, on_error="collect")
    assert sorted(built.ids) == [n for n in range(20) if n not in (3, 5)]


def test_shards_by_size(spark: Any, tmp_path: Path) -> None:
    build(spark, tmp_path / "few", max_bytes_per_shard=1 << 30)
    assert len(folders(tmp_path / "few")) == 1
    many = build(spark, tmp_path / "many", max_bytes_per_shard=20_000)
    assert len(folders(tmp_path / "many")) > 3
    assert max(segment["bytes"] for segment in many.stats()["segments"]) < 40_000  # small codebooks do not shrink


def test_no_subscriptions_and_more_shards_than_subscriptions(spark: Any, tmp_path: Path) -> None:
    none = spark.sql("SELECT 'a' AS id, 'px > 1' AS expr FROM range(0)")
    assert len(build_index(none, tmp_path / "none", schema=SCHEMA, shards=3)) == 0
    two = spark.sql("SELECT id, 'px > 1' AS expr FROM range(2)")
    assert sorted(build_index(two, tmp_path / "two", schema=SCHEMA, shards=30).ids) == [0, 1]


@pytest.mark.parametrize("more", [{"shards": 0}, {"shards": True}, {"max_bytes_per_shard": 1.5}])
def test_bad_numbers(spark: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        build(spark, tmp_path / "i", **more)
    with pytest.raises(ValueError, match="not both"):
        build(spark, tmp_path / "i", shards=1, max_bytes_per_shard=1)


def test_salts_fill_every_partition(spark: Any) -> None:
    from pyspark.sql import functions as f

    for count in (1, 3, 8):
        salts = salts_of(spark, count)
        frame = spark.createDataFrame([(salt,) for salt in salts], "salt int").repartition(count, "salt")
        placed = frame.select("salt", f.spark_partition_id().alias("at")).collect()
        assert {row.salt: row.at for row in placed} == {salt: at for at, salt in enumerate(salts)}


def test_damaged_shards_are_named(spark: Any, tmp_path: Path) -> None:
    build(spark, tmp_path, shards=2)
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    first, second = (entry["folder"] for entry in manifest["shards"])
    moved = tmp_path / "aside"
    (tmp_path / first).rename(moved)
    with pytest.raises(gm.StorageError, match=f"{first}' is missing"):
        gm.load(tmp_path)
    shutil.copytree(tmp_path / second, tmp_path / first)
    with pytest.raises(gm.StorageError, match="is another version than its manifest says"):
        gm.load(tmp_path)
    del manifest["checksum"]
    manifest["shards"][0]["folder"] = "../elsewhere"
    manifest["checksum"] = directory._digest(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(gm.StorageError, match="which is no shard of an index"):
        gm.load(tmp_path)
