"""``update_index``: an index follows a table of subscriptions, by changes, by comparison, and as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.routing.shards.plan import save_shards
from gpumatch.spark import build_index, compare_tables, match_events, update_index, worker
from gpumatch.spark.update import Net

pytestmark = pytest.mark.spark

SCHEMA = {"px": "float64", "sym": "string"}


def rows(spark: Any, *given: tuple[Any, ...], columns: str = "id string, expr string, _change_type string") -> Any:
    """A DataFrame of rows. No Python on the workers."""
    fields = [tuple(field.split()) for field in columns.split(", ")]
    text = ", ".join("(" + ", ".join("NULL" if one is None else repr(one) for one in row) + ")" for row in given)
    names = [name for name, _ in fields]
    cast = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in fields)
    table = (
        f"VALUES {text} AS t({', '.join(names)})"
        if given
        else f"(SELECT {', '.join(f'NULL {n}' for n in names)}) WHERE 1 = 0"
    )
    return spark.sql(f"SELECT {cast} FROM {table}")


def contents(folder: Path) -> dict[Any, str]:
    matcher = gm.load(folder)
    return {name: str(matcher[name]) for name in matcher}


def test_changes_become_one_version(spark: Any, tmp_path: Path) -> None:
    table = rows(spark, ("a", "px > 1"), ("b", "px > 2"), ("c", "px > 3"), columns="id string, expr string")
    build_index(table, tmp_path / "idx", schema=SCHEMA)
    changes = rows(
        spark,
        ("a", "px > 1", "update_preimage"),
        ("a", "px > 10", "update_postimage"),
        ("b", "px > 2", "delete"),
        ("d", "px > 4", "INSERT"),
        ("none", None, "delete"),
    )
    done = update_index(changes, tmp_path / "idx")
    assert (done.put, done.removed, done.rejected) == (2, 1, [])
    assert done.version.startswith("1-")
    assert contents(tmp_path / "idx") == {"c": "px > 3", "a": "px > 10", "d": "px > 4"}
    again = update_index(changes, tmp_path / "idx")
    assert (again.put, again.removed, again.version) == (0, 0, done.version)
    assert str(done) == f"version {done.version}: 2 put, 1 removed"
    update_index(rows(spark), tmp_path / "idx")
    pairs = match_events(spark.sql("SELECT 11D AS px"), tmp_path / "idx", columns=[])
    assert sorted(row.subscription for row in pairs.collect()) == ["a", "c", "d"]


def test_the_last_change_of_an_id_counts(spark: Any, tmp_path: Path) -> None:
    columns = "id bigint, expr string, _change_type string, _commit_version bigint"
    changes = rows(
        spark,
        (1, "px > 5", "update_postimage", 5),
        (1, "px > 1", "insert", 1),
        (2, "px > 9", "delete", 4),
        (2, "px > 9", "insert", 3),
        (3, "px > 3", "insert", 6),  # an overwritten table: all rows are deleted and written anew
        (3, "px > 3", "delete", 6),
        (4, "px > 4", "insert", 2),
        (4, "px > 4", "delete", 7),
        (4, "px > 44", "insert", 7),
        columns=columns,
    )
    done = update_index(changes.repartition(3), tmp_path / "idx", schema=SCHEMA)
    assert (done.put, done.removed) == (3, 0)
    assert contents(tmp_path / "idx") == {1: "px > 5", 3: "px > 3", 4: "px > 44"}
    renamed = rows(spark, (3, "px > 3", "delete", 1), (3, "px > 33", "upsert", 2), columns=columns).toDF(
        "id", "expr", "op", "at"
    )
    update_index(renamed, tmp_path / "idx", change="op", order=["at"])
    assert contents(tmp_path / "idx")[3] == "px > 33"


def test_an_update_may_change_the_id() -> None:
    """The former id is in the row of what was, and nowhere else."""

    def net(*changes: tuple[str, str, str, int]) -> tuple[dict[Any, Any], list[Any]]:
        columns = zip(*changes, strict=True)
        found = Net.of(pa.table(dict(zip(("id", "expr", "kind", "order0"), map(list, columns), strict=True))))
        assert not found.twice
        return dict(zip(found.ids, found.column("expr"), strict=True)), sorted(found.removed)

    moved = (
        ("b", "px > 9", "UPDATE_AFTER", 3),
        ("a", "px > 1", "UPDATE_BEFORE", 1),
        ("c", "px > 1", "UPDATE_AFTER", 1),
        ("b", "px > 2", "UPDATE_BEFORE", 2),
        ("d", "px > 2", "UPDATE_AFTER", 2),
        ("c", "px > 1", "UPDATE_BEFORE", 3),
    )
    assert net(*moved) == ({"b": "px > 9", "d": "px > 2"}, ["a", "c"])
    swapped = (
        ("b", "px > 9", "update_preimage", 4),
        ("d", "px > 9", "update_postimage", 4),
        ("d", "px > 2", "update_preimage", 4),
        ("b", "px > 2", "update_postimage", 4),
    )
    assert net(*swapped) == ({"b": "px > 2", "d": "px > 9"}, [])


def test_destinations_and_weights(spark: Any, tmp_path: Path) -> None:
    columns = "id bigint, rule string, bid decimal(9,2), to string, _change_type string"
    names = {"where": "rule", "weight": "bid", "destination": "to"}
    first = rows(spark, (1, "px > 1", 5, "x", "insert"), (2, "px > 1", None, "y", "insert"), columns=columns)
    update_index(first, tmp_path, schema=SCHEMA, **names)
    version = update_index(first, tmp_path, **names).version
    moved = rows(spark, (1, "px > 1", 5, "z", "update"), (2, "px > 1", 7, None, "update"), columns=columns)
    done = update_index(moved, tmp_path, **names)
    assert (done.put, done.version != version) == (2, True)
    matcher = gm.load(tmp_path)
    assert matcher.destinations([{"px": 2.0}]).ids(0) == ["z"]
    assert matcher.top([{"px": 2.0}], 2).ids(0) == [2, 1]
    update_index(moved.drop("bid", "to"), tmp_path, where="rule")
    assert gm.load(tmp_path).destinations([{"px": 2.0}]).ids(0) == ["z"]


@pytest.mark.long
def test_rejected_expressions(spark: Any, tmp_path: Path) -> None:
    idx, bad = tmp_path / "idx", str(tmp_path / "bad")
    update_index(rows(spark, ("a", "px > 1", "insert"), ("b", "px > 2", "insert")), idx, schema=SCHEMA)
    changes = rows(
        spark,
        ("a", "px > > 1", "update"),
        ("b", "q > 1", "update"),
        ("c", "px > 3", "insert"),
        ("d", "px > 4", "insert"),
        ("d", "px > 44", "insert"),
        (None, "px > 5", "insert"),
    )
    before = contents(idx)
    with pytest.raises(gm.IdError, match="the id 'd' occurs twice with different expressions"):
        update_index(changes, idx)
    with pytest.raises(gm.ParseError, match="subscription 'a'"):
        update_index(changes.where("id <> 'd'"), idx)
    assert contents(idx) == before
    done = update_index(changes, idx, rejected=bad)
    assert contents(idx) == {"c": "px > 3"}  # as if it had been built of the table
    assert {one.id for one in done.rejected} == {"a", "b", "d", None}
    again = update_index(changes, idx, rejected=bad)
    assert (again.version, again.rejected) == (done.version, done.rejected)
    found = {row.id: row for row in spark.read.parquet(bad).collect()}
    assert spark.read.parquet(bad).count() == 4
    assert (found["a"].expr, found["a"].position) == ("px > > 1", 5)
    assert found["b"].message.startswith("unknown attribute")
    update_index(rows(spark, ("a", "px > 9", "update")), idx, rejected=bad)
    assert contents(idx) == {"c": "px > 3", "a": "px > 9"}
    assert len(update_index(changes, idx, on_error="collect").rejected) == 4


@pytest.mark.long
@pytest.mark.parametrize("ids", ["string", "bigint"])
def test_a_whole_table_is_compared(spark: Any, tmp_path: Path, ids: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PASS_ROWS", 25)  # three tasks read the index

    def table(sql: str) -> Any:
        return spark.sql(sql).selectExpr(f"CAST(id AS {ids}) AS id", "expr", "bid", "to")

    first = table("SELECT id, concat('px > ', id) AS expr, IF(id = 5, NULL, id) AS bid, id % 3 AS to FROM range(60)")
    names: dict[str, Any] = {"weight": "bid", "destination": "to"}
    done = update_index(first, tmp_path, schema=SCHEMA, mode="snapshot", **names)
    assert (done.put, done.removed) == (60, 0)
    assert update_index(first, tmp_path, mode="snapshot", **names).version == done.version
    second = table(
        "SELECT id, concat('px > ', id + int(id % 20 = 0)) AS expr, IF(id = 7, 99, IF(id = 5, NULL, id)) AS bid, "
        "IF(id = 8, NULL, id % 3) AS to FROM range(3, 63)"
    )
    done = update_index(second, tmp_path, mode="snapshot", **names)
    assert (done.put, done.removed) == (7, 3)  # 20, 40, 60, 61, 62, 7 and 8
    built = build_index(second, tmp_path / "built", schema=SCHEMA, **names)
    held, events = gm.load(tmp_path), [{"px": 7.5}, {"px": 100.0}]
    assert {name: str(held[name]) for name in held} == {name: str(built[name]) for name in built}
    assert list(held.top(events, 3)) == list(built.top(events, 3))
    assert [sorted(one) for one in held.destinations(events)] == [sorted(one) for one in built.destinations(events)]
    update_index(second.limit(0), tmp_path, mode="snapshot")
    assert len(gm.load(tmp_path)) == 0


@pytest.mark.long
def test_a_table_with_an_id_twice(spark: Any, tmp_path: Path) -> None:
    columns = "id string, expr string"
    same = rows(spark, ("a", "px > 1"), ("b", "px > 2"), ("b", "px > 2"), columns=columns)
    done = update_index(same, tmp_path, schema=SCHEMA, mode="snapshot")
    assert (done.put, contents(tmp_path)) == (2, {"a": "px > 1", "b": "px > 2"})
    assert update_index(same, tmp_path, mode="snapshot").version == done.version
    other = rows(spark, ("a", "px > 1"), ("b", "px > 2"), ("b", "px > 3"), columns=columns)
    with pytest.raises(gm.IdError, match="the id 'b' occurs twice"):
        update_index(other, tmp_path, mode="snapshot")
    done = update_index(other, tmp_path, mode="snapshot", on_error="collect")
    assert ([one.id for one in done.rejected], contents(tmp_path)) == (["b"], {"a": "px > 1"})


def test_two_tables_are_compared(spark: Any) -> None:
    columns = "key bigint, rule string"
    old = rows(spark, (1, "px > 1"), (2, "px > 2"), (3, "px > 3"), columns=columns)
    new = rows(spark, (1, "px > 1"), (2, "px > 22"), (4, None), columns=columns)
    found = compare_tables(old, new, id="key", where="rule")
    assert found.columns == ["key", "rule", "_change_type"]
    assert sorted(map(tuple, found.collect())) == [
        (2, "px > 22", "update"),
        (3, "px > 3", "delete"),
        (4, None, "insert"),
    ]
    assert compare_tables(new, new, id="key", where="rule").count() == 0
    with pytest.raises(gm.IdError, match="id= is bigint in the old table and string in the new one"):
        compare_tables(old, new.selectExpr("string(key) AS key", "rule"), id="key", where="rule")


def test_a_matcher_that_stays_open(spark: Any, tmp_path: Path) -> None:
    with gm.open(tmp_path, "a", schema=SCHEMA) as matcher:
        assert update_index(rows(spark, ("a", "px > 1", "insert")), matcher).version == matcher.version
        with pytest.raises(gm.StorageError, match="is open for writing in process"):
            update_index(rows(spark, ("b", "px > 1", "insert")), tmp_path)
        table = rows(spark, ("b", "px > 2"), columns="id string, expr string")
        done = update_index(table, matcher, mode="snapshot")
        assert (done.put, done.removed, list(matcher)) == (1, 1, ["b"])
    plain = gm.Matcher(SCHEMA)
    assert update_index(rows(spark, ("a", "px > 1", "insert")), plain).version is None
    assert list(plain) == ["a"]


def test_what_update_refuses(spark: Any, tmp_path: Path) -> None:
    change = rows(spark, ("a", "px > 1", "insert"))
    with pytest.raises(gm.StorageError, match="give a schema= to make one"):
        update_index(change, tmp_path / "none")
    with pytest.raises(gm.SchemaError, match="have no column '_change_type'"):
        update_index(change.drop("_change_type"), tmp_path, schema=SCHEMA)
    with pytest.raises(gm.SchemaError, match=r"a change must be one of insert, .*, found 'merge'"):
        update_index(rows(spark, ("a", "px > 1", "merge")), tmp_path / "idx", schema=SCHEMA)
    with pytest.raises(gm.SchemaError, match="found None"):
        update_index(rows(spark, ("a", "px > 1", None)), tmp_path / "idx", schema=SCHEMA)
    with pytest.raises(gm.SchemaError, match="order= names must not be null"):
        update_index(change.selectExpr("*", "CAST(NULL AS INT) AS at"), tmp_path / "idx", schema=SCHEMA, order="at")
    update_index(change, tmp_path / "idx", schema=SCHEMA)
    with pytest.raises(gm.IdError, match="ids are all strings or all integers"):
        update_index(change.selectExpr("1 AS id", "expr", "_change_type"), tmp_path / "idx")
    with pytest.raises(ValueError, match="mode must be"):
        update_index(change, tmp_path / "idx", mode="all")  # type: ignore[arg-type]
    with pytest.raises(gm.SchemaError, match="on_error must be"):
        update_index(change, tmp_path / "idx", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(gm.SchemaError, match=r"expected {'px': 'int64'}"):
        update_index(change, tmp_path / "idx", schema={"px": "int64"})
    with pytest.raises(gm.SchemaError, match=r"the matcher has the schema {'x': 'int64'}, expected {'px'"):
        update_index(change, gm.Matcher({"x": "int64"}), schema=SCHEMA)
    for given in ({"order": "expr"}, {"change": "expr"}):
        with pytest.raises(ValueError, match="change= and order= are for changes"):
            update_index(change, tmp_path / "idx", mode="snapshot", **given)  # type: ignore[arg-type]
    save_shards(gm.load(tmp_path / "idx"), tmp_path / "shards", 2)
    with pytest.raises(gm.StorageError, match=r"has shards, .*: build it again with build_index\(\)"):
        update_index(change, tmp_path / "shards")
    stream = spark.readStream.schema("id string, expr string, _change_type string").parquet(str(tmp_path))
    with pytest.raises(ValueError, match="mode='snapshot' takes a whole table, not a stream"):
        update_index(stream, tmp_path / "idx", mode="snapshot")


# Streams


def drop(folder: Path, changes: Any) -> None:
    """A file of changes arrives."""
    changes.coalesce(1).write.mode("append").parquet(str(folder))


def changes_of(spark: Any, folder: Path) -> Any:
    columns = "id string, expr string, _change_type string"
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(writer: Any, checkpoint: Path) -> None:
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def test_a_stream_of_changes(spark: Any, tmp_path: Path) -> None:
    feed, idx, bad, checkpoint = (tmp_path / name for name in ("feed", "idx", "bad", "checkpoint"))
    drop(feed, rows(spark, ("a", "px > 1", "insert"), ("b", "px > 2", "insert")))
    drop(feed, rows(spark, ("a", "px > 11", "update")))
    drop(feed, rows(spark, ("b", None, "delete"), ("c", "px >", "insert"), ("d", "px > 4", "insert")))
    run(update_index(changes_of(spark, feed), idx, schema=SCHEMA, rejected=bad), checkpoint)
    version = gm.open(idx).version
    assert version is not None
    assert version.startswith("3-")
    assert contents(idx) == {"a": "px > 11", "d": "px > 4"}
    for name in ("2", ".2.crc"):  # as if the driver had died before it could note that this batch is done
        (checkpoint / "commits" / name).unlink()
    run(update_index(changes_of(spark, feed), idx, rejected=bad), checkpoint)
    assert gm.open(idx).version == version
    assert [(row.id, row.expr) for row in spark.read.parquet(str(bad)).collect()] == [("c", "px >")]
    drop(feed, rows(spark, ("e", "px > 5", "insert")))
    with gm.open(idx, "a") as matcher:
        run(update_index(changes_of(spark, feed), matcher), checkpoint)
    assert contents(idx) == {"a": "px > 11", "d": "px > 4", "e": "px > 5"}


def test_a_stream_stops_at_a_bad_expression(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from pyspark.errors import StreamingQueryException

    feed, idx = tmp_path / "feed", tmp_path / "idx"
    drop(feed, rows(spark, ("a", "px > 1", "insert"), ("b", "px >", "insert")))
    with pytest.raises(StreamingQueryException, match="subscription 'b'"):
        run(update_index(changes_of(spark, feed), idx, schema=SCHEMA), tmp_path / "raising")
    assert len(gm.load(idx)) == 0
    run(update_index(changes_of(spark, feed), idx, on_error="collect"), tmp_path / "collecting")
    assert contents(idx) == {"a": "px > 1"}
    assert "1 rejected; pass rejected= to keep them; 'b': expected a constant" in caplog.text


@pytest.mark.long
def test_one_stream_changes_the_index_and_another_matches(spark: Any, tmp_path: Path) -> None:
    feed, idx, events, found = (tmp_path / name for name in ("feed", "idx", "events", "found"))
    drop(feed, rows(spark, ("s0", "px > 0", "insert")))
    drop(events, spark.sql("SELECT 0 AS round, 0.5D AS px"))
    changes = changes_of(spark, feed)
    run(update_index(changes, idx, schema=SCHEMA), tmp_path / "c1")
    updating = update_index(changes, idx).option("checkpointLocation", str(tmp_path / "c1")).start()
    stream = spark.readStream.schema("round int, px double").parquet(str(events))
    pairs = match_events(stream, idx)
    matching = pairs.writeStream.option("checkpointLocation", str(tmp_path / "c2")).format("parquet")
    matching = matching.option("path", str(found)).start()
    try:
        for step in range(1, 4):
            matching.processAllAvailable()
            drop(feed, rows(spark, (f"s{step}", "px > 0", "insert"), (f"s{step - 1}", None, "delete")))
            updating.processAllAvailable()
            drop(events, spark.sql(f"SELECT {step} AS round, 0.5D AS px"))
        matching.processAllAvailable()
    finally:
        updating.stop()
        matching.stop()
    shown = spark.read.parquet(str(found)).collect()
    assert sorted((row["round"], row.subscription) for row in shown) == [(step, f"s{step}") for step in range(4)]
