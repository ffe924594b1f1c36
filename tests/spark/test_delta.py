"""The change feed of a real Delta table keeps an index up to date. Maven fetches Delta's jars, 10 MB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.jars import DELTA, fetched

pytestmark = [pytest.mark.spark, pytest.mark.delta, pytest.mark.long]

SCRIPT = """
import sys
import gpumatch as gm
from gpumatch.spark import update_index
from pyspark.sql import SparkSession

jars, home = sys.argv[1:]
settings = {
    "spark.jars": jars,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder.master("local[2]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
table, schema, bad = home + "/rules", {"px": "float64"}, home + "/bad"
rules = f"delta.`{table}`"
feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
spark.sql(f"CREATE TABLE {rules} (id BIGINT, expr STRING, bid DOUBLE) USING delta {feed}")
spark.sql(f"INSERT INTO {rules} SELECT id, concat('px > ', id), id FROM range(20)")


def caught_up():
    stream = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(table)
    writer = update_index(stream, home + "/idx", schema=schema, weight="bid", rejected=bad)
    writer.option("checkpointLocation", home + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
    return gm.open(home + "/idx")


def check(matcher):
    good = spark.read.format("delta").load(table).where("expr <> 'bad'").collect()
    assert {name: str(matcher[name]) for name in matcher} == {row.id: row.expr for row in good}
    ringing = sorted((-row.bid, row.id) for row in good if ">" in row.expr)
    assert matcher.top([{"px": 1e9}], 3).ids(0) == [name for _, name in ringing[:3]]
    print(matcher.version.partition("-")[0], len(matcher))


check(caught_up())
spark.sql(f"UPDATE {rules} SET expr = IF(id = 6, 'bad', 'px > 100') WHERE id < 3 OR id = 6")
spark.sql(
    f"MERGE INTO {rules} r USING (SELECT id, concat('px < ', id) AS expr FROM range(15, 25)) n ON r.id = n.id "
    "WHEN MATCHED AND n.id = 16 THEN DELETE WHEN MATCHED THEN UPDATE SET expr = n.expr "
    "WHEN NOT MATCHED THEN INSERT (id, expr, bid) VALUES (n.id, n.expr, 7)"
)
matcher = caught_up()
check(matcher)
assert caught_up().version == matcher.version
spark.sql(f"INSERT OVERWRITE {rules} SELECT id, IF(id = 6, 'px = 6', expr), bid FROM {rules} WHERE id <> 7")
check(caught_up())
print(update_index(spark.read.format("delta").load(table), home + "/idx", mode="snapshot", weight="bid").put)
print([(row.id, row.expr) for row in spark.read.parquet(bad).collect()])
"""


def test_a_change_feed(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    if not pyspark.__version__.startswith("4.1."):
        pytest.skip(f"{DELTA[1]} is for PySpark 4.1, found {pyspark.__version__}")
    jars = ",".join(map(str, fetched(*DELTA, alone=True)))
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", SCRIPT, jars, str(tmp_path)]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["1 20", "2 23", "3 23", "0", "[(6, 'bad')]"]
