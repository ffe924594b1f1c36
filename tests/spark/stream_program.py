"""The query that ``test_killed`` kills. It ends when there is a file ``stop``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from gpumatch.spark import match_events
from tests.spark.streams import COLUMNS

FILES = 3  # of a batch


def main(folder: Path, master: str) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.ui.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10000",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.task.maxFailures": "100",  # a task may fail often, as when its worker is killed
    }
    builder = SparkSession.builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", FILES).parquet(str(folder / "in"))
    pairs = match_events(stream.repartition(2), folder / "index", columns=["k"], follow=True)
    writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(folder / "check"))
    query = writer.trigger(processingTime="200 milliseconds").start(str(folder / "out"))
    (folder / "query").write_text(query.id)
    while not (folder / "stop").exists():
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
        time.sleep(0.1)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
