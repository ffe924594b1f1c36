"""Indexes whose shards are built on the executors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import build_index, count_subscriptions, match_events
from gpumatch.spark.frames import salts_of
from gpumatch.store.folder import manifests

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


@pytest.fixture(scope="module", params=["hash", "similar"])
def both(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same subscriptions as one index and as shards."""
    folder = tmp_path_factory.mktemp("both")
    build(spark, folder / "whole")
    build(spark, folder / "shards", shards=5, place=request.param)
    return folder


@pytest.mark.parametrize("strategy", ["replicated", "routed", "passes"])
def test_the_same_rows_as_from_one_index(spark: Any, both: Path, strategy: str) -> None:
    whole, sharded = gm.load(both / "whole"), gm.load(both / "shards")
    assert 1 < len(folders(both / "shards")) <= 5
    assert sorted(sharded.ids) == sorted(whole.ids)
    events = spark.sql(EVENTS).repartition(3)
    ways = {"whole": "replicated", "shards": strategy}
    asked: list[dict[str, Any]] = [
        {"output": "pairs"}, {"output": "count"}, {"output": "array"}, {"output": "array", "top": 3},
        {"output": "destinations"}, {"output": "pairs", "top": 2},
    ]  # fmt: skip
    for more in asked:
        one, many = (
            sorted(map(tuple, match_events(events, both / name, columns=["k"], strategy=ways[name], **more).collect()))
            for name in ("whole", "shards")
        )
        if more["output"] in ("array", "destinations") and "top" not in more:  # in the order of the shards
            one, many = ([(k, sorted(ids)) for k, ids in found] for found in (one, many))
        assert many == one
        assert len(one) >= 300
    totals = [
        sorted(map(tuple, count_subscriptions(events, both / name, strategy=ways[name]).collect())) for name in ways
    ]
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
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len({entry["folder"] for entry in manifest["shards"]} & first.keys()) == 3
    assert len(folders(tmp_path)) == 5  # the replaced one stays for those who were led there
    build_index(rules.where("name <> 'r8'"), tmp_path, schema=SCHEMA, id="name", where="rule", shards=4)
    assert len(folders(tmp_path)) == 4  # after another build it is gone
    with pytest.warns(gm.GpumatchWarning, match="had shards, and is one index now"):
        whole = build_index(rules, tmp_path, schema=SCHEMA, id="name", where="rule")
    assert len(whole) == 600
    assert folders(tmp_path) == {}


def test_bad_subscriptions(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql(
        "SELECT id, if(id IN (3, 5), 'px <', 'px < 5') AS expr FROM range(20) UNION ALL SELECT 7, 'px > 1'"
    )
    with pytest.raises(gm.SchemaError, match=r"3 of 21 subscriptions are wrong, so no index was written: "):
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
    for strategy in ("auto", "replicated", "routed", "passes"):
        assert match_events(spark.sql(EVENTS), tmp_path / "none", strategy=strategy).count() == 0  # type: ignore[arg-type]
        counted = match_events(spark.sql(EVENTS), tmp_path / "none", output="count", strategy=strategy)  # type: ignore[arg-type]
        assert {row.matches for row in counted.collect()} == {0}
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
        salts = salts_of(count)
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
    manifest["checksum"] = manifests.digest_of(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(gm.StorageError, match="which is no shard of an index"):
        gm.load(tmp_path)


def test_the_strategy_follows_from_size_and_copies(spark: Any, both: Path) -> None:
    from gpumatch.spark import plan_match

    chosen = plan_match(spark, both / "shards")
    assert chosen.name == "replicated"
    assert "MB are there (half of the memory of this machine)" in str(chosen)
    assert "5 shards, " in str(chosen)
    small = plan_match(spark, both / "shards", memory=1)
    assert small.report is not None
    assert small.name == ("routed" if small.report.copies <= 2.5 else "passes")
    assert "(memory=)" in small.reason
    assert plan_match(spark, both / "shards", strategy="routed").reason == "as asked"
    with pytest.raises(gm.SchemaError, match=r"needs an index with shards, but the index at .* has no shards"):
        plan_match(spark, both / "whole", strategy="passes")
    with pytest.raises(gm.SchemaError, match="but a matcher is shipped as a whole"):
        match_events(spark.sql(EVENTS), gm.load(both / "whole"), strategy="routed")
    with pytest.raises(ValueError, match="strategy must be one of auto, replicated, routed, passes, found 'best'"):
        plan_match(spark, both / "whole", strategy="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="memory must be a number of bytes, found '1g'"):
        plan_match(spark, both / "whole", memory="1g")  # type: ignore[arg-type]


def test_a_busy_shard_is_matched_by_several_tasks(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql('SELECT id, concat("sym = \'s", id % 50, "\' AND px > ", id) AS expr FROM range(1000)')
    busy = spark.sql(
        "SELECT id AS k, if(id % 10 = 0, concat('s', id % 50), 's7') AS sym, double(id) AS px FROM range(500)"
    )
    build_index(rules, tmp_path, schema=SCHEMA, shards=4, events=busy, place="similar")
    from gpumatch.spark import plan_match

    chosen = plan_match(spark, tmp_path, strategy="routed")
    assert chosen.report is not None
    assert max(chosen.report.parts) > 1
    assert "of them in several parts" in str(chosen)
    for output in ("pairs", "array", "count"):
        ways = [
            match_events(busy, tmp_path, output=output, columns=["k"], strategy=strategy)  # type: ignore[arg-type]
            for strategy in ("routed", "replicated")
        ]
        routed, whole = (
            sorted((row[0], str(sorted(row[1]) if output == "array" else row[1])) for row in way.collect())
            for way in ways
        )
        assert routed == whole
        assert len(routed) >= 500


def test_similar_subscriptions_stay_together_and_equal_ids_are_found(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql('SELECT id, concat("sym = \'s", id % 50, "\' AND px > ", id) AS expr FROM range(1000)')
    sample = spark.sql("SELECT concat('s', id % 50) AS sym, double(id) AS px FROM range(500)")
    build_index(rules, tmp_path, schema=SCHEMA, shards=4, events=sample)
    from gpumatch.spark import plan_match

    chosen = plan_match(spark, tmp_path, memory=1)
    assert chosen.name == "routed"
    assert chosen.report is not None
    assert chosen.report.copies < 1.5
    first = folders(tmp_path)
    build_index(rules, tmp_path, schema=SCHEMA, shards=4)  # placed as before, without a sample of events
    assert folders(tmp_path) == first
    twice = rules.union(spark.sql("SELECT 7L, 'px > 1'"))
    with pytest.raises(gm.SchemaError, match="1 of 1001 subscriptions are wrong"):
        build_index(twice, tmp_path / "twice", schema=SCHEMA, shards=4, place="similar")
    with pytest.warns(UserWarning, match="1 of 1001 subscriptions were left out"):
        built = build_index(twice, tmp_path / "t", schema=SCHEMA, shards=4, place="similar", on_error="collect")
    assert len(built) == 1000


def test_damaged_shards_are_built_again(spark: Any, tmp_path: Path) -> None:
    build(spark, tmp_path, shards=3)
    before, pairs = folders(tmp_path), gm.load(tmp_path).match([{"px": 5.0}]).n_pairs
    shard = sorted(tmp_path.glob("shard-*"))[1]
    next(shard.glob("*.npy")).unlink()
    build(spark, tmp_path, shards=3)
    after = folders(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {shard.name}
    assert gm.load(tmp_path).match([{"px": 5.0}]).n_pairs == pairs


def test_equal_ids_are_found_by_a_second_run(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql("SELECT id, concat('px = ', id) AS expr FROM range(200)")
    build_index(rules, tmp_path, schema=SCHEMA, shards=4, place="similar")
    with pytest.raises(gm.SchemaError, match="the id 0 occurs twice"):
        build_index(rules.union(spark.sql("SELECT 0L, 'px = 199'")), tmp_path, schema=SCHEMA, shards=4)


def test_some_shards_stay_empty(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql("SELECT id, concat('px = ', id) AS expr FROM range(5)")
    for shards in (8, 8, 5):
        build_index(rules, tmp_path, schema=SCHEMA, shards=shards, place="similar" if shards == 8 else "auto")
        assert len(gm.load(tmp_path)) == 5


def test_a_shard_of_which_everything_is_wrong(spark: Any, tmp_path: Path) -> None:
    rule = "if(pmod(xxhash64(id), 4) = 0, 'wrong (', concat('px > ', id))"
    with pytest.warns(UserWarning, match="subscriptions were left out"):
        matcher = build_index(
            spark.sql(f"SELECT id, {rule} AS expr FROM range(40)"),
            tmp_path,
            schema=SCHEMA,
            shards=4,
            on_error="collect",
        )
    found = match_events(spark.sql("SELECT 100.0D AS px"), tmp_path, columns=[])
    assert sorted(row.subscription for row in found.collect()) == sorted(matcher.ids)
    assert found.schema["subscription"].dataType.simpleString() == "bigint"


def test_a_folder_with_other_things_is_refused(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "another program"}')
    with pytest.raises(gm.StorageError, match="it holds other files"):
        build(spark, tmp_path, shards=2)
    assert "another program" in (tmp_path / "manifest.json").read_text()
    with pytest.raises(gm.StorageError, match="it is a file, expected a directory"):
        build(spark, tmp_path / "manifest.json", shards=2)


def test_empty_lists_inside_of_lists(spark: Any, both: Path) -> None:
    empty = "array(cast(array() AS array<string>)) AS one, cast(array() AS array<array<string>>) AS two"
    deep = f"{empty}, map('a', array(1)) AS m, cast(map() AS map<string, array<string>>) AS n"
    events = spark.sql(
        f"SELECT id AS k, double(id) AS px, cast(array() AS array<string>) AS tags, {deep} FROM range(50)"
    )
    for output in ("pairs", "array", "count"):
        counts = [
            match_events(events, both / "shards", output=output, strategy=strategy).count()  # type: ignore[arg-type]
            for strategy in ("replicated", "routed", "passes")
        ]
        assert counts[0] == counts[1] == counts[2] >= 50


def test_arguments_about_shards(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql("SELECT id, 'px > 1' AS expr FROM range(3)")
    with pytest.raises(ValueError, match="place= and events= are for shards only"):
        build_index(rules, tmp_path, schema=SCHEMA, place="similar")
    with pytest.raises(ValueError, match="place must be one of auto, hash, similar, found 'near'"):
        build_index(rules, tmp_path, schema=SCHEMA, shards=2, place="near")  # type: ignore[arg-type]
