"""``match_events`` against the same matcher in this process."""

from __future__ import annotations

import datetime as dt
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.spark import count_subscriptions, match_events, worker
from gpumatch.spark.frames import map_in_arrow
from gpumatch.spark.ship import ship

pytestmark = pytest.mark.spark

SCHEMA = {
    "sym": "string",
    "px": "float64",
    "qty": "int64",
    "ok": "bool",
    "tags": "list<string>",
    "day": "date",
    "at": "timestamp[us, tz=UTC]",
    "clock": "timestamp[us]",
}
SUBSCRIPTIONS = {
    "a-only": "sym = 'A'",
    "cheap": "px < 25",
    "band": "sym IN ('A', 'C') AND px BETWEEN 20 AND 60",
    "odd": "NOT (qty < 40) AND px IS NOT NULL",
    "missing": "sym IS NULL OR qty IS NULL",
    "tagged": "tags = 'x'",
    "untagged": "tags <> 'x'",
    "flag": "ok = TRUE AND qty > 10",
    "spring": "day BETWEEN DATE '2024-03-01' AND DATE '2024-05-31'",
    "noon": "at >= TIMESTAMP '2024-03-10 12:00:00Z' AND at < TIMESTAMP '2024-05-10 12:00:00Z'",
    "clock": "clock > TIMESTAMP '2024-06-01 08:30:00'",
    "never": "px < 0 AND px > 1",
}


def events(n: int = 400) -> pa.Table:
    rng = np.random.default_rng(3)

    def gaps(values: list[Any]) -> list[Any]:
        return [None if gap else value for gap, value in zip(rng.random(n) < 0.15, values, strict=True)]

    hours = rng.integers(0, 24 * 366, n).tolist()
    start = dt.datetime(2024, 1, 1)
    words = [list(rng.choice(["x", "y", "z"], size)) for size in rng.integers(0, 3, n)]
    return pa.table(
        {
            "k": range(n),
            "sym": gaps(rng.choice(["A", "B", "C"], n).tolist()),
            "px": gaps(rng.uniform(0, 100, n).round(1).tolist()),
            "qty": pa.array(gaps(rng.integers(0, 100, n).tolist()), pa.int32()),
            "ok": gaps((rng.random(n) < 0.5).tolist()),
            "tags": pa.array(gaps(words), pa.list_(pa.string())),
            "day": pa.array(gaps([start + dt.timedelta(hours=h) for h in hours]), pa.timestamp("s")).cast(pa.date32()),
            "at": pa.array(gaps([start + dt.timedelta(hours=h) for h in hours]), pa.timestamp("us", "UTC")),
            "clock": pa.array(gaps([start + dt.timedelta(hours=h) for h in hours]), pa.timestamp("us")),
        }
    )


@pytest.fixture(scope="module")
def matcher() -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA)
    matcher.add(SUBSCRIPTIONS)
    return matcher


@pytest.fixture(scope="module")
def path(matcher: gm.Matcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "index"
    matcher.save(folder)
    return folder


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    types = "k long, sym string, px double, qty int, ok boolean, tags array<string>, day date"
    return spark.createDataFrame(events(), f"{types}, at timestamp, clock timestamp_ntz").coalesce(1).cache()


def in_process(matcher: gm.Matcher, table: pa.Table) -> list[tuple[int, int | str]]:
    """Sorted pairs of the event's ``k`` and the subscription."""
    pairs = matcher.match(table).to_arrow()
    return sorted(zip(table["k"].take(pairs["event"]).to_pylist(), pairs["subscription"].to_pylist(), strict=True))


def on_spark(pairs: Any) -> list[tuple[int, int | str]]:
    table = pairs.select("k", "subscription").toArrow()
    return sorted(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_equals_the_matcher_under_any_partitioning(
    frame: Any, matcher: gm.Matcher, path: Path, partitions: int
) -> None:
    expected = in_process(matcher, events())
    assert {name for _, name in expected} == set(SUBSCRIPTIONS) - {"never"}
    pairs = match_events(frame.repartition(partitions), path)
    assert pairs.columns == [*events().column_names, "subscription"]
    assert on_spark(pairs) == expected


def test_every_column_comes_back_as_it_was(frame: Any, path: Path) -> None:
    table = match_events(frame, str(path)).toArrow()
    kept = events().take(table["k"].cast(pa.int64()))
    assert table.num_rows > 400
    for name in kept.column_names:
        assert table[name].to_pylist() == kept[name].to_pylist()


def test_arrays_and_counts_have_a_row_for_every_event(frame: Any, matcher: gm.Matcher, path: Path) -> None:
    wanted = list(matcher.match(events()))
    assert [] in wanted
    for partitions in (1, 3):
        many = frame.repartition(partitions)
        arrays = match_events(many, path, output="array", columns=["k"])
        assert arrays.schema["subscriptions"].dataType.simpleString() == "array<string>"
        assert [row.subscriptions for row in sorted(arrays.collect())] == wanted
        counts = match_events(many, path, output="count", columns=["k"])
        assert [row.matches for row in sorted(counts.collect())] == [len(ids) for ids in wanted]


def test_totals_per_subscription(frame: Any, matcher: gm.Matcher, path: Path) -> None:
    names = [name for _, name in in_process(matcher, events())]
    totals = count_subscriptions(frame.repartition(3), path)
    assert totals.columns == ["subscription", "count"]
    assert {tuple(row) for row in totals.collect()} == {(name, names.count(name)) for name in names}
    assert count_subscriptions(frame.where("k < 0"), matcher).collect() == []


def test_the_heaviest(frame: Any) -> None:
    weighted = gm.Matcher(SCHEMA)
    weighted.add(SUBSCRIPTIONS, weight=[None if at % 4 == 0 else -at for at in range(len(SUBSCRIPTIONS))])
    wanted = list(weighted.top(events(), 2))
    arrays = match_events(frame, weighted, output="array", top=2, columns=["k"])
    assert [row.subscriptions for row in sorted(arrays.collect())] == wanted
    pairs = on_spark(match_events(frame, weighted, top=2, columns=["k"]))
    assert pairs == sorted((k, name) for k, names in enumerate(wanted) for name in names)
    with pytest.raises(ValueError, match="a whole number of at least 1; found top=0"):
        match_events(frame, weighted, top=0)
    with pytest.raises(ValueError, match="output='count'"):
        match_events(frame, weighted, top=2, output="count")


def test_events_without_any_attribute(frame: Any, matcher: gm.Matcher) -> None:
    bare = frame.select("k").limit(3)
    assert [row.subscription for row in match_events(bare, matcher, columns=[]).collect()] == ["missing"] * 3
    assert [tuple(row) for row in count_subscriptions(bare, matcher).collect()] == [("missing", 3)]


def test_destinations(frame: Any) -> None:
    numbered = gm.Matcher(SCHEMA)
    numbered.add(SUBSCRIPTIONS, destination=[at % 3 for at in range(len(SUBSCRIPTIONS))])
    sent = match_events(frame, numbered, output="destinations", columns=["k"])
    assert sent.schema["destinations"].dataType.simpleString() == "array<bigint>"
    assert [row.destinations for row in sorted(sent.collect())] == list(numbered.destinations(events()))


def test_empty_partitions_and_empty_frames(frame: Any, matcher: gm.Matcher, path: Path) -> None:
    few = frame.where("k < 2").repartition(5)
    assert on_spark(match_events(few, path)) == in_process(matcher, events().slice(0, 2))
    assert match_events(frame.where("k < 0"), path).toArrow().num_rows == 0


def test_chosen_columns_in_their_order_and_another_name(frame: Any, matcher: gm.Matcher, path: Path) -> None:
    pairs = match_events(frame, path, columns=["px", "k"], subscription="who")
    assert [(field.name, field.dataType.simpleString(), field.nullable) for field in pairs.schema] == [
        ("px", "double", True),
        ("k", "bigint", True),
        ("who", "string", True),
    ]
    assert on_spark(pairs.withColumnRenamed("who", "subscription")) == in_process(matcher, events())
    assert match_events(frame, path, columns=[]).columns == ["subscription"]


def test_only_needed_columns_go_to_python(spark: Any, matcher: gm.Matcher) -> None:
    frame = spark.sql("SELECT id AS k, 'A' AS sym, raise_error('not needed') AS other FROM range(2)")
    assert on_spark(match_events(frame, matcher, columns=["k"])) == [
        (0, "a-only"), (0, "missing"), (1, "a-only"), (1, "missing"),
    ]  # fmt: skip


def test_nothing_runs_before_an_action(spark: Any, path: Path) -> None:
    from pyspark.errors import PySparkException

    pairs = match_events(spark.sql("SELECT raise_error('ran') AS sym, 1 AS k"), path)
    with pytest.raises(PySparkException, match="ran"):
        pairs.toArrow()


def test_further_steps_and_sql(spark: Any, frame: Any, matcher: gm.Matcher, path: Path) -> None:
    match_events(frame, path).createOrReplaceTempView("pairs")
    counted = spark.sql("SELECT subscription, count(*) AS n FROM pairs WHERE px > 30 GROUP BY subscription").toArrow()
    expensive = events().filter(pa.compute.field("px") > 30)
    names = [name for _, name in in_process(matcher, expensive)]
    assert dict(zip(*counted.to_pydict().values(), strict=True)) == {name: names.count(name) for name in set(names)}


def test_columns_of_any_type_pass(spark: Any, path: Path) -> None:
    columns = {
        "decimal": "CAST(1.25 AS DECIMAL(10, 2))",
        "bytes": "CAST('ab' AS BINARY)",
        "map": "map('a', 1, 'b', CAST(NULL AS INT))",
        "struct": "named_struct('x', 1, 'y', array('p', NULL))",
        "structs": "array(named_struct('x', 1))",
        "interval": "INTERVAL '2' DAY",
        "null": "NULL",
        "dotted.name": "'dot'",
    }
    frame = spark.sql("SELECT 'A' AS sym, " + ", ".join(f"{sql} AS `{name}`" for name, sql in columns.items()))
    pairs = match_events(frame, path)
    assert pairs.schema.simpleString().startswith(frame.schema.simpleString()[:-1])
    rows = pairs.where("subscription = 'a-only'").collect()
    assert [tuple(row)[:-1] for row in rows] == [tuple(row) for row in frame.collect()]


def test_no_matches(frame: Any, tmp_path: Path) -> None:
    nothing = gm.Matcher(SCHEMA)
    assert match_events(frame, nothing).toArrow().num_rows == 0
    nothing.add({"never": "px > 1000"})
    nothing.save(tmp_path / "index")
    assert match_events(frame, tmp_path / "index").toArrow().num_rows == 0


def test_integer_ids(frame: Any) -> None:
    numbered = gm.Matcher(SCHEMA)
    numbered.add({2**40 + i: text for i, text in enumerate(SUBSCRIPTIONS.values())})
    pairs = match_events(frame, numbered)
    assert pairs.schema["subscription"].dataType.simpleString() == "bigint"
    assert on_spark(pairs) == in_process(numbered, events())


def test_a_matcher_ships_as_it_is_now(spark: Any, frame: Any) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"one": "px < 50"})
    first = match_events(frame, matcher, columns=["k"])
    assert ship(spark, matcher) == ship(spark, matcher)
    matcher.add({"two": "px >= 50"})
    second = match_events(frame, matcher, columns=["k"])
    archives = [uri.partition("#")[0].rpartition("/")[2] for uri in spark.sparkContext.listArchives]
    assert len(set(archives)) == len(archives) >= 2  # a cluster refuses the same file name under two paths
    assert {name for _, name in on_spark(first)} == {"one"}
    assert on_spark(second) == in_process(matcher, events())


def test_the_index_is_not_in_the_closure(frame: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import cloudpickle

    sent: list[Any] = []
    monkeypatch.setattr(type(frame), "mapInArrow", lambda self, function, schema: sent.append(function))
    match_events(frame, path, columns=["k"])
    assert len(cloudpickle.dumps(sent[0])) < 4000  # the code alone takes half of it


def test_tasks_use_the_threads_that_spark_gives_them(frame: Any, path: Path) -> None:
    def used(batches: Any) -> Any:
        from gpumatch.parallel.threads import get_num_threads

        for batch in batches:
            query = worker.Query(batch.schema.names, ["subscription"], "pairs", None, False, "cpu", True)
            rows = sum(
                piece.num_rows for piece in worker.match_batches([batch], worker.Location(str(path), False), query)
            )
            yield pa.RecordBatch.from_pydict({"rows": [rows], "threads": [get_num_threads()]})

    [(rows, threads)] = map_in_arrow(frame, used, "rows long, threads long").collect()
    assert rows > 400
    assert threads == 1


def test_folder_that_only_executors_read(frame: Any, matcher: gm.Matcher, path: Path) -> None:
    from pyspark.errors import PythonException

    assert on_spark(match_events(frame, path, id_type="string")) == in_process(matcher, events())
    with pytest.raises(PythonException, match=r"index at .* are not of type bigint"):
        match_events(frame, path, id_type="bigint").toArrow()
    with pytest.raises(PythonException, match="StorageError"):
        match_events(frame, path.parent / "none", id_type="string").toArrow()


def test_bad_arguments_fail_at_once(spark: Any, frame: Any, matcher: gm.Matcher, path: Path) -> None:
    with pytest.raises(ValueError, match="output must be one of pairs, array, count, destinations, found 'rows'"):
        match_events(frame, matcher, output="rows")  # type: ignore[arg-type]
    with pytest.raises(gm.SchemaError, match="no subscription has a destination"):
        match_events(frame, matcher, output="destinations")
    with pytest.raises(gm.StorageError, match="nowhere"):
        match_events(frame, path.parent / "nowhere")
    with pytest.raises(gm.StorageError, match=r"cannot open 'ftp://host/index': .*use s3://"):
        match_events(frame, "ftp://host/index")
    with pytest.raises(gm.SchemaError, match="'px' is float64, but its column is string"):
        match_events(frame.withColumn("px", frame["sym"]), matcher)
    with pytest.raises(gm.SchemaError, match=r"'tags' is list<string>, but its column is .*int32"):
        match_events(spark.sql("SELECT array(1) AS tags"), matcher)
    with pytest.raises(gm.SchemaError, match="'at' is timestamp"):
        match_events(frame.withColumn("at", frame["clock"]), matcher)
    with pytest.raises(gm.SchemaError, match="a column named 'subscription'"):
        match_events(frame.withColumn("Subscription", frame["sym"]), matcher)
    with pytest.raises(gm.SchemaError, match="no column 'syn'; did you mean 'sym'"):
        match_events(frame, matcher, columns=["syn"])
    with pytest.raises(gm.SchemaError, match="2 columns named 'sym'"):
        match_events(frame.select("sym", "sym"), matcher)
    with pytest.raises(gm.SchemaError, match=r"'months' is interval .*leave it out with columns="):
        match_events(spark.sql("SELECT INTERVAL '1' MONTH AS months"), matcher)
    with pytest.raises(TypeError, match="events must be a PySpark DataFrame, found list"):
        match_events([{"px": 1.0}], matcher)
    with pytest.raises(ValueError, match="id_type must be 'string' or 'bigint', found 'int'"):
        match_events(frame, path, id_type="int")


def test_a_column_spelt_nearly_like_an_attribute(spark: Any, matcher: gm.Matcher) -> None:
    with pytest.warns(gm.GpumatchWarning, match=r"the column 'PX', which is no attribute .*did you mean 'px'\?$"):
        match_events(spark.sql("SELECT 1.0D AS PX, 'A' AS sym"), matcher)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        match_events(spark.sql("SELECT 1.0D AS px, 'A' AS sym, 3 AS P_X"), matcher)
