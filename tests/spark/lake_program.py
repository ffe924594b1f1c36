"""What ``test_lakes`` runs: ``python lake_program.py FOLDER JARS delta|iceberg``. The recipes of docs/streaming.md."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gpumatch as gm
from gpumatch.spark import match_events, pinned_versions, update_index
from tests.spark.streams import COLUMNS, SCHEMA, arrive

RULES = {"age": "int64", "city": "string"}


def session(folder: Path, jars: str, lake: str) -> Any:
    from pyspark.sql import SparkSession

    own = {
        "delta": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
        "iceberg": {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
            "spark.sql.catalog.lake.cache-enabled": "false",  # a stream's batches have a catalog of their own
            "spark.sql.defaultCatalog": "lake",
        },
    }[lake]
    builder = SparkSession.builder.master("local[2]")
    for key, value in {
        "spark.jars": jars,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        **own,
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run(writer: Any, checkpoint: Path) -> Any:
    """All that there is; returns the query, and why it has failed."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(300)
    except Exception as error:
        return query, str(error)
    return query, ""


# Alerts, by event and subscription


def merge(pairs: Any, batch: int, dies: bool) -> None:
    pairs.createOrReplaceTempView("pairs")
    pairs.sparkSession.sql("""
        MERGE INTO rung USING (SELECT DISTINCT k, subscription FROM pairs) AS new
        ON rung.k = new.k AND rung.subscription = new.subscription
        WHEN NOT MATCHED THEN INSERT (k, subscription) VALUES (new.k, new.subscription)
    """)
    if dies:
        raise RuntimeError("after it has written")


def alerts(spark: Any, folder: Path, lake: str) -> dict[str, Any]:
    """A batch that runs again after it was written, while the index has changed."""
    spark.sql(f"CREATE TABLE rung (k BIGINT, subscription STRING) USING {lake}")
    with gm.open(folder / "alerts", "a", schema=SCHEMA) as matcher:
        matcher.add({"a": "x > 50"})
        for step, dies in enumerate((True, False)):
            arrive(folder / "in", 100 * step, 100)
            stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
            pairs = match_events(stream, folder / "alerts", columns=["k"], follow=True)
            query, why = run(pairs.writeStream.foreachBatch(partial(merge, dies=dies)), folder / "check")
            assert ("after it has written" in why) == dies, why
            matcher.upsert({"a": "x < 20", "b": "x = 3"})
    pairs = sorted((row.k, row.subscription) for row in spark.table("rung").collect())
    return {"pairs": pairs, "versions": pinned_versions(folder / "alerts", query.id)}


# Segments of an audience


def place(changes: Any, batch: int, folder: Path) -> None:
    session = changes.sparkSession
    changes.selectExpr("*", "_change_type IN ('insert', 'update_postimage') AS here").createOrReplaceTempView("changes")
    last = session.sql("""
        SELECT last.* FROM (
            SELECT max_by(struct(*), struct(_commit_version, here)) AS last FROM changes GROUP BY user_id
        )
    """)
    found = match_events(last, folder / "segments", columns=["user_id", "here"], output="array", follow=True)
    found.createOrReplaceTempView("found")
    session.sql("""
        MERGE INTO membership AS old USING found AS new ON old.user_id = new.user_id
        WHEN MATCHED AND new.here THEN UPDATE SET segments = new.subscriptions
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED AND new.here THEN INSERT (user_id, segments) VALUES (new.user_id, new.subscriptions)
    """)


def segments(spark: Any, folder: Path) -> list[Any]:
    """Profiles and rules in tables of Delta, whose change feeds keep members and index up to date."""
    feed = "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE rules (id STRING, expr STRING) {feed}")
    spark.sql(f"CREATE TABLE profiles (user_id BIGINT, age BIGINT, city STRING) {feed}")
    spark.sql("CREATE TABLE membership (user_id BIGINT, segments ARRAY<STRING>) USING delta")
    spark.sql("INSERT INTO rules VALUES ('young', 'age < 30'), ('rome', 'city = ''Rome''')")
    spark.sql("INSERT INTO profiles SELECT id, 20 + id, IF(id % 2 = 0, 'Rome', 'Oslo') FROM range(20)")

    def caught_up() -> None:
        for table in ("rules", "profiles"):
            reader = spark.readStream.option("readChangeFeed", "true").option("startingVersion", 0).table(table)
            if table == "rules":
                writer = update_index(reader, folder / "segments", schema=RULES)
            else:
                writer = reader.writeStream.foreachBatch(partial(place, folder=folder))
            assert run(writer, folder / f"check-{table}")[1] == ""

    changes = (
        "UPDATE rules SET id = 'north', expr = 'city = ''Oslo''' WHERE id = 'rome'",
        "UPDATE profiles SET age = age - 15, city = 'Oslo' WHERE user_id IN (3, 4, 15)",
        "UPDATE profiles SET user_id = 90 WHERE user_id = 6",
        "DELETE FROM profiles WHERE user_id = 5",
    )
    found = []
    for change in ((), changes):
        for text in change:
            spark.sql(text)
        caught_up()
        rows = spark.table("membership").collect()
        found.append(sorted((row.user_id, sorted(row.segments)) for row in rows))
    return found


# A table of subscriptions


def changelog(spark: Any, folder: Path) -> list[Any]:
    """Iceberg's changelog view, and a snapshot of the table, keep an index up to date."""
    spark.sql("CREATE TABLE rules (id STRING, expr STRING) USING iceberg")
    before, found = None, []
    for change in (
        "INSERT INTO rules SELECT concat('r', id), concat('age > ', id) FROM range(5)",
        "UPDATE rules SET expr = 'age < 3' WHERE id = 'r1'",
        "MERGE INTO rules USING (SELECT 'r2' AS id UNION ALL SELECT 'new') AS new ON rules.id = new.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, expr) VALUES (new.id, 'city = ''Rome''')",
        "UPDATE rules SET id = 'moved' WHERE id = 'r3'",
    ):
        spark.sql(change)
        options = "map()" if before is None else f"map('start-snapshot-id', '{before}')"
        spark.sql(
            f"CALL lake.system.create_changelog_view(table => 'rules', changelog_view => 'changes', "
            f"options => {options}, identifier_columns => array('id'))"
        )
        done = update_index(spark.table("changes"), folder / "rules", schema=RULES)
        [[before]] = spark.sql("SELECT snapshot_id FROM rules.snapshots ORDER BY committed_at DESC LIMIT 1").collect()
        matcher = gm.load(folder / "rules")
        right = {row.id: row.expr for row in spark.table("rules").collect()}
        assert {name: str(matcher[name]) for name in matcher} == right, (change, right, list(matcher))
        found.append([done.put, done.removed])
    done = update_index(spark.table("rules"), folder / "rules", mode="snapshot")
    return [*found, [done.put, done.removed]]


def main(folder: Path, jars: str, lake: str) -> None:
    spark = session(folder, jars, lake)
    found: dict[str, Any] = {"alerts": alerts(spark, folder, lake)}
    if lake == "delta":
        found["segments"] = segments(spark, folder)
    else:
        found["changes"] = changelog(spark, folder)
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
