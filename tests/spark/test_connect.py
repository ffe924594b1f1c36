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
from tests.spark.streams import started

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
started(stream.option("checkpointLocation", sys.argv[1] + "-cp").trigger(availableNow=True)).awaitTermination()
print(sorted(gm.load(sys.argv[1])))
try:
    match_events(spark.sql("SELECT 'x' AS px"), matcher)
except gm.SchemaError as error:
    print(error)
"""

STREAMS = """
import sys
import gpumatch as gm
from gpumatch.spark import match_events, pinned_versions
from pyspark.sql import SparkSession
from tests.spark.streams import COLUMNS, SCHEMA, arrive, check, started
from pathlib import Path

folder = Path(sys.argv[1])
spark = SparkSession.builder.remote("local[1]").getOrCreate()
matcher = gm.open(folder / "index", "a", schema=SCHEMA)
matcher.add({"a": "x > 50"})

def run(name, frame):
    writer = frame.writeStream.option("checkpointLocation", str(folder / name)).trigger(availableNow=True)
    if name == "each":
        query = started(writer.foreachBatch(lambda found, batch: found.count()))
    else:
        query = writer.format("parquet").start(str(folder / f"{name}-out"))
    try:
        query.awaitTermination(120)
        print(query.exception())
    except Exception as error:
        print("follow=True needs the tasks of a streaming query" in str(error), "'None'" in str(error))
    return query

for step in range(2):
    arrive(folder / "in", 100 * step, 100)
    stream = spark.readStream.schema(COLUMNS).parquet(str(folder / "in"))
    shipped = match_events(stream, matcher, columns=["k"])
    run("shipped", shipped)
    followed = run("followed", match_events(stream, folder / "index", columns=["k"], follow=True))
    matcher.add({f"n{step}": "x < 20"})
print(sorted(spark.read.parquet(str(folder / "shipped-out")).groupBy("subscription").count().collect()))
print(len(set(check(folder / "index", followed.id, folder / "followed", folder / "followed-out").values())))
run("each", match_events(stream, folder / "index", follow=True))
try:
    match_events(spark.range(3).withColumnRenamed("id", "x"), folder / "index", follow=True)
except ValueError as error:
    print(error)
"""


def test_connect(tmp_path: Path) -> None:
    lines = lines_of(SCRIPT, tmp_path / "index")
    row = "(1.5, {'a': 1}, 'r0'), (1.5, {'a': 1}, 'r1')"
    assert lines[:2] == [f"[{row}]", f"[{row}]"]
    assert lines[2] == "[['r0', 'r1']]"
    assert lines[3] == "[('r0', 1), ('r1', 1)]"
    assert [line.partition(": ")[2] for line in lines[-4:-2]] == ["0 put, 1 removed, 1 rejected", "1 put, 0 removed"]
    assert lines[-2] == "['r0', 'r2']"
    assert lines[-7:-4] == ["[['r0', 'r1']]"] * 3
    has_functions = pytest.importorskip("pyspark").__version__ >= "4.1"
    assert lines[4:-7] == (["[['r0', 'r1']]", "['r0', 'r1']"] if has_functions else [])
    assert "'px' is float64, but its column is string" in lines[-1]


def test_streams(tmp_path: Path) -> None:
    """Tasks find a shipped matcher, and know their batch; what foreachBatch runs through Connect does not."""
    lines = lines_of(STREAMS, tmp_path)
    assert lines[:4] == ["None"] * 4
    assert lines[4] == "[Row(subscription='a', count=98), Row(subscription='n0', count=20)]"
    assert lines[5] == "2"
    assert lines[6] == "True False"
    assert lines[7].startswith("follow=True needs a stream")


def lines_of(script: str, folder: Path) -> list[str]:
    """What a script prints that is run with a folder."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    for module in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install 'pyspark[connect]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed: Spark needs a JDK 17 or 21")
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1"}  # 1: any free port
    command = [sys.executable, "-c", script, str(folder)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=300, cwd=root)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
