"""Wrong arguments are named before Spark runs anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import Metrics, build_index, count_subscriptions, match_events, plan_match, register

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arguments") / "index"
    matcher = gm.Matcher({"id": "int64"})
    matcher.add({"low": "id < 3"})
    matcher.save(path)
    return path


def test_of_matching(spark: Any, path: Path) -> None:
    events = spark.range(5)
    for index in (None, 5):
        with pytest.raises(TypeError, match="the index must be a Matcher, or a saved one's folder or URI, found"):
            match_events(events, index)  # type: ignore[arg-type]
    for more in ({"columns": [events.id]}, {"subscription": 5}, {"subscription": ""}):
        with pytest.raises(TypeError, match="columns= and subscription= take column names, found"):
            match_events(events, path, **more)
    with pytest.raises(gm.SchemaError, match="columns= names a column twice: id, id"):
        match_events(events, path, columns=["id", "id"])
    for metrics in (True, Metrics):
        with pytest.raises(TypeError, match=r"metrics= takes a Metrics\(spark\), found"):
            count_subscriptions(events, path, metrics=metrics)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the first argument must be a SparkSession, found PosixPath"):
        plan_match(path, spark)  # type: ignore[arg-type]


def test_of_functions(spark: Any) -> None:
    with pytest.raises(TypeError, match="the first argument must be a SparkSession, found NoneType"):
        register(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="columns= is text such as 'trade_id bigint, symbol string', found list"):
        register(spark, columns=["trade_id"])  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [{}, {"shards": 2}])
def test_of_building(spark: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    table = spark.sql("SELECT 'a' AS id, 'x > 1' AS expr, 'heavy' AS w, 1.5D AS to, 2 AS n")
    for role, name, wanted in (
        ("weight", "w", "numbers"), ("destination", "to", "strings or integers"), ("id", "to", "strings or integers"),
    ):  # fmt: skip
        with pytest.raises(gm.SchemaError, match=f"the column '{name}' is .*; {role}= takes {wanted}: cast it"):
            build_index(table, tmp_path / "i", schema={"x": "int64"}, **{role: name}, **more)
    assert not (tmp_path / "i").exists()


def test_the_schema_of_a_frame(spark: Any, tmp_path: Path) -> None:
    events = spark.sql("SELECT 5L AS x, timestamp'2024-01-01 00:00:00Z' AS at, array('u') AS tags")
    matcher = build_index(spark.sql("SELECT 1 AS id, 'x > 1' AS expr"), tmp_path / "i", schema=events.schema)
    assert [str(kind) for kind in matcher.schema.types] == ["int64", "timestamp[us, tz=UTC]", "list<string>"]
    assert [row.subscription for row in match_events(events, tmp_path / "i").collect()] == [1]


def test_a_stream_is_not_sorted(spark: Any, tmp_path: Path) -> None:
    build_index(spark.sql("SELECT id, 'id >= 0' AS expr FROM range(9)"), tmp_path, schema={"id": "int64"}, shards=2)
    stream = spark.readStream.format("rate").load().selectExpr("value AS id")
    assert match_events(stream, tmp_path, strategy="routed").isStreaming
    with pytest.raises(gm.SchemaError, match="a stream can be routed only for pairs"):
        match_events(stream, tmp_path, output="count", strategy="routed")


def test_one_index_in_the_place_of_shards(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql("SELECT id, concat('id > ', id) AS expr FROM range(9)")
    matcher = build_index(rules, tmp_path, schema={"id": "int64"}, shards=2)
    with pytest.warns(gm.GpumatchWarning, match="had shards, and is one index now"):
        matcher.save(tmp_path)
    assert len(gm.load(tmp_path)) == 9
