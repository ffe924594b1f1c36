"""Spark Connect: no SparkContext on the client's side, so files travel as artifacts of the session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCRIPT = """
import sys
import gpumatch as gm
import pyspark
from gpumatch.spark import build_index, count_subscriptions, match_events, register, update_index
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__
rules = spark.sql("SELECT concat('r', id) AS id, concat('px > ', id) AS expr FROM range(3)")
matcher = build_index(rules, sys.argv[1], schema={"px": "float64"})
events = spark.sql("SELECT 1.5D AS px, map('a', 1) AS other")
for index in (sys.argv[1], matcher):
    print([tuple(row) for row in match_events(events, index).collect()])
print([row.subscriptions for row in match_events(events, matcher, output="array", columns=[]).collect()])
print(sorted(tuple(row) for row in count_subscriptions(events, matcher).collect()))
if pyspark.__version__ >= "4.1":  # has SQL functions
    register(spark)
    table = f"match_events(TABLE(SELECT 1.5D AS px), '{sys.argv[1]}')"
    print([row[0] for row in spark.sql(f"SELECT match_ids('{sys.argv[1]}', 'px', 1.5D)").collect()])
    print([row[0] for row in spark.sql(f"SELECT * FROM {table}").collect()])
build_index(rules, sys.argv[1] + "-shards", schema={"px": "float64"}, shards=2)
for strategy in ("replicated", "routed", "passes"):
    found = match_events(events, sys.argv[1] + "-shards", output="array", columns=[], strategy=strategy).collect()
    print([sorted(row.subscriptions) for row in found])
changes = spark.sql("SELECT 'r1' AS id, '' AS expr, 'delete' AS _change_type UNION ALL SELECT 'r9', 'px >', 'insert'")
print(update_index(changes, sys.argv[1], rejected=sys.argv[1] + "-bad"))
print(update_index(rules, sys.argv[1], mode="snapshot"))
changes.write.parquet(sys.argv[1] + "-feed")
feed = spark.readStream.schema(changes.schema).parquet(sys.argv[1] + "-feed")
stream = update_index(feed, sys.argv[1], on_error="collect")
stream.option("checkpointLocation", sys.argv[1] + "-cp").trigger(availableNow=True).start().awaitTermination()
print(sorted(gm.load(sys.argv[1])))
try:
    match_events(spark.sql("SELECT 'x' AS px"), matcher)
except gm.SchemaError as error:
    print(error)
"""


def test_connect(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    for module in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install 'pyspark[connect]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed: Spark needs a JDK 17 or 21")
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1"}  # 1: any free port
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "index")]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    row = "(1.5, {'a': 1}, 'r0'), (1.5, {'a': 1}, 'r1')"
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"[{row}]", f"[{row}]"]
    assert lines[2] == "[['r0', 'r1']]"
    assert lines[3] == "[('r0', 1), ('r1', 1)]"
    assert [line.partition(": ")[2] for line in lines[-4:-2]] == ["0 put, 1 removed, 1 rejected", "1 put, 0 removed"]
    assert lines[-2] == "['r0', 'r2']"
    assert lines[-7:-4] == ["[['r0', 'r1']]"] * 3
    assert lines[4:-7] == (["[['r0', 'r1']]", "['r0', 'r1']"] if pyspark.__version__ >= "4.1" else [])
    assert "'px' is float64, but its column is string" in lines[-1]
