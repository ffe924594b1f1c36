"""What ``test_kafka`` runs: ``python kafka_program.py FOLDER JARS SERVERS STEP``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gpumatch.spark import deliver, match_events

COLUMNS = "k bigint, x bigint, s string"


def main(folder: Path, jars: str, servers: str, step: int) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for key, value in {"spark.driver.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF",
                       "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}.items():  # fmt: skip
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    kafka = {"kafka.bootstrap.servers": servers}
    numbers = spark.range(100 * step, 100 * step + 100, 1, 2)
    made = numbers.selectExpr("to_json(struct(id AS k, id * 7 % 100 AS x, substr('abc', 1 + id % 3, 1) AS s)) AS value")
    made.write.format("kafka").options(**kafka, topic="trades").save()

    stream = spark.readStream.format("kafka").options(**kafka, subscribe="trades", startingOffsets="earliest").load()
    trades = stream.select(f.from_json(f.col("value").cast("string"), COLUMNS).alias("t")).select("t.*")
    rung = match_events(trades, folder / "index", follow=True)
    sent = rung.select(f.col("subscription").alias("key"), f.to_json(f.struct("*")).alias("value"))
    query = finished(sent.writeStream.options(**kafka, topic="rung"), folder / "check")
    delivered = deliver(trades, folder / "index", stages=2, groups=2, follow=True)
    sent = delivered.selectExpr("concat('alerts-', destination) AS topic", "to_json(struct(*)) AS value")
    finished(sent.writeStream.options(**kafka), folder / "check-delivery")

    found = spark.read.format("kafka").options(**kafka, subscribe="rung").load()
    rows = found.select(f.col("key").cast("string"), f.get_json_object(f.col("value").cast("string"), "$.k")).collect()
    pairs = sorted((int(k), name) for name, k in rows)
    found = spark.read.format("kafka").options(**kafka, subscribePattern="alerts-.*").load()
    rows = found.select("topic", f.get_json_object(f.col("value").cast("string"), "$.k")).collect()
    topics = sorted((int(k), topic) for topic, k in rows)
    (folder / f"pairs{step}.json").write_text(json.dumps({"query": query.id, "pairs": pairs, "topics": topics}))
    spark.stop()


def finished(writer: Any, checkpoint: Path) -> Any:
    """The query that writes to Kafka all that there is."""
    writer = writer.format("kafka").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None, query.exception()
    return query


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
