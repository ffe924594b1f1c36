"""``deliver``: every destination gets its events, in one partition, and no more is shuffled than was planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.routing.shards.plan import save_shards
from gpumatch.spark import Metrics, Shuffled, deliver, plan_delivery

pytestmark = pytest.mark.spark

COUNT = 40  # destinations


def matcher_of(names: bool) -> gm.Matcher:
    """An event with x goes to the first x destinations."""
    matcher = gm.Matcher({"x": "int64"})
    ids = list(range(COUNT))
    wanted = [f"d{at}" for at in ids] if names else ids
    matcher.add({at: f"x > {at}" for at in ids}, destination=wanted)
    matcher.add({COUNT: "x > 0", COUNT + 1: "x > 1"}, destination=[wanted[0], None])
    return matcher


@pytest.fixture(scope="module")
def matcher() -> gm.Matcher:
    return matcher_of(names=True)


def events_of(spark: Any, most: int, width: int = 0) -> Any:
    """Ten for each number of destinations up to ``most``, with a text that does not compress."""
    text = ", ".join(f"sha2(concat(id, '-{at}'), 512)" for at in range(width // 128))
    return spark.range(10 * (most + 1)).selectExpr(
        "id AS n", f"id % {most + 1} AS x", f"concat('', {text or 'id'}) AS s"
    )


def delivered(frame: Any) -> list[tuple[int, Any]]:
    return sorted((row.n, row.destination) for row in frame.collect())


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("names", [True, False])
def test_every_destination_gets_its_events(spark: Any, tmp_path: Path, stages: Any, names: bool) -> None:
    matcher_of(names).save(tmp_path)
    events = events_of(spark, COUNT)
    frame = deliver(events, tmp_path, stages=stages, groups=7)
    assert frame.columns == ["n", "x", "s", "destination"]
    expected = [(row.n, f"d{at}" if names else at) for row in events.collect() for at in range(row.x)]
    assert delivered(frame) == sorted(expected)
    frame.createOrReplaceTempView("delivered")
    places = spark.sql("SELECT DISTINCT destination, spark_partition_id() AS at FROM delivered").collect()
    assert len(places) == COUNT  # one partition each
    assert frame.rdd.getNumPartitions() == 7


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["routed", "passes"])
def test_an_index_with_shards(spark: Any, tmp_path: Path, matcher: gm.Matcher, strategy: Any) -> None:
    save_shards(matcher, tmp_path, 3)
    events = events_of(spark, 9)
    whole, metrics = delivered(deliver(events, matcher, stages=1, columns=["n"])), Metrics(spark)
    assert delivered(deliver(events, tmp_path, stages=2, strategy=strategy, columns=["n"], metrics=metrics)) == whole
    assert metrics.matches == len(whole)


@pytest.mark.long
@pytest.mark.parametrize(
    ("most", "width", "groups", "best"),
    [(1, 0, 8, 1), (2, 1024, 40, 1), (COUNT, 0, 4, 2), (COUNT, 1024, 4, 2), (COUNT, 1024, 400, 1)],
)
def test_what_is_shuffled(spark: Any, matcher: gm.Matcher, most: int, width: int, groups: int, best: int) -> None:
    events = events_of(spark, most, width).coalesce(1)
    plan = plan_delivery(events, matcher, groups=groups)
    counted = {}
    for stages in (1, 2):
        frame = deliver(events, matcher, stages=stages, groups=groups)  # type: ignore[arg-type]
        with Shuffled(spark) as shuffled:
            frame.write.format("noop").mode("overwrite").save()
        counted[stages] = shuffled
        assert shuffled.rows == round(plan.rows(stages) * plan.events)
    assert counted[1].rows == sum(row.x for row in events.collect())
    assert plan.stages == best
    if best == 2:
        assert counted[2].rows < counted[1].rows / 2
        assert counted[2].bytes < counted[1].bytes
    chosen = deliver(events, matcher, groups=groups)
    with Shuffled(spark) as shuffled:
        chosen.write.format("noop").mode("overwrite").save()
    assert shuffled.rows == counted[best].rows


def test_the_bytes_of_a_plan(spark: Any, matcher: gm.Matcher) -> None:
    events = spark.sql("SELECT 40L AS x, repeat('a', 1000) AS s")
    plan = plan_delivery(events, matcher, groups=1)
    assert (plan.rows(1), plan.rows(2), plan.events) == (40, 1, 1)
    assert plan.bytes(1) == 40 * (16 + 8 + 8 + 1000 + 8) + sum(len(f"d{at}") for at in range(40))
    assert plan.bytes(2) == 16 + 8 + 8 + 1000 + 8 + 16 + 40 * 8 + sum(len(f"d{at}") for at in range(40))
    assert str(plan) == (
        "two stages: an event shuffles 40.00 rows and 41,710 bytes in one stage, 1.00 rows and 1,486 bytes in two, "
        "with 1 groups"
    )
    none = plan_delivery(spark.sql("SELECT 0L AS x").limit(0), matcher)
    assert (none.stages, none.rows(1), none.bytes(2)) == (1, 0, 0)


def test_a_folder_for_each_destination(spark: Any, tmp_path: Path, matcher: gm.Matcher) -> None:
    matcher.save(tmp_path / "idx")
    source, sink, checkpoint = (str(tmp_path / name) for name in ("events", "sink", "checkpoint"))

    def write(batch: Any, number: int) -> None:
        sent = deliver(batch, tmp_path / "idx", stages=2, follow=True).selectExpr("*", f"{number} AS batch")
        writer = sent.write.partitionBy("destination", "batch").option("partitionOverwriteMode", "dynamic")
        writer.mode("overwrite").parquet(sink)

    def run() -> None:
        stream = spark.readStream.schema("n bigint, x bigint, s string").parquet(source)
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    expected = []
    for at in range(2):
        events = events_of(spark, 3 * at + 1)
        events.write.mode("append").parquet(source)
        expected += [(row.n, f"d{to}") for row in events.collect() for to in range(row.x)]
        run()
    (tmp_path / "checkpoint/commits/1").unlink()  # as if the driver had died before it could note the batch
    (tmp_path / "checkpoint/commits/.1.crc").unlink()
    other = gm.Matcher({"x": "int64"})
    other.add({0: "x >= 0"}, destination="other")
    other.save(tmp_path / "idx")
    run()  # with the version that the batch had
    assert delivered(spark.read.parquet(sink)) == sorted(expected)
    assert {path.name for path in Path(sink).glob("destination=*")} == {f"destination=d{at}" for at in range(4)}


def test_a_stream_of_deliveries(spark: Any, tmp_path: Path, matcher: gm.Matcher) -> None:
    events_of(spark, 3).write.parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema("n bigint, x bigint, s string").parquet(str(tmp_path / "events"))
    with pytest.raises(gm.SchemaError, match=r"a stream cannot be sampled .*: pass stages=1 or 2"):
        deliver(stream, matcher)
    writer = deliver(stream, matcher, stages=2).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("path", str(tmp_path / "sink"))
    writer.start().awaitTermination()
    expected = delivered(deliver(spark.read.parquet(str(tmp_path / "events")), matcher, stages=1))
    assert delivered(spark.read.parquet(str(tmp_path / "sink"))) == expected
    assert len(expected) == 60


def test_what_deliver_refuses(spark: Any, matcher: gm.Matcher) -> None:
    events = events_of(spark, 3)
    for stages in (0, 3, True, "2"):
        with pytest.raises(ValueError, match="stages must be 1, 2 or 'auto'"):
            deliver(events, matcher, stages=stages)  # type: ignore[arg-type]
    for groups in (0, 2.0, True):
        with pytest.raises(ValueError, match="groups must be a whole number of at least 1"):
            deliver(events, matcher, groups=groups)  # type: ignore[arg-type]
    with pytest.raises(gm.SchemaError, match="the events have a column 'N': pass another name as destination="):
        deliver(events, matcher, destination="N")
    with pytest.raises(TypeError, match="events must be a PySpark DataFrame"):
        plan_delivery([{"x": 1}], matcher)  # type: ignore[arg-type]
    bare = gm.Matcher({"x": "int64"})
    bare.add({1: "x > 1"})
    with pytest.raises(gm.SchemaError, match="no subscription has a destination"):
        deliver(events, bare)
