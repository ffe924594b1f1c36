"""``build_index`` from DataFrames of subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import build_index, match_events

pytestmark = pytest.mark.spark

SCHEMA = {"px": "float64", "sym": "string"}


def test_build_then_match(spark: Any, tmp_path: Path) -> None:
    subscriptions = spark.sql(
        """SELECT id, concat('px > ', id, " AND sym = 'A'") AS rule, 'ignored' AS note FROM range(0, 30, 1, 3)"""
    )
    built = build_index(subscriptions, tmp_path / "index", schema=SCHEMA, where="rule", index="scan")
    assert sorted(built.ids) == list(range(30))
    assert list(gm.load(tmp_path / "index").ids) == list(built.ids)
    events = spark.sql("SELECT 2.5D AS px, 'A' AS sym UNION ALL SELECT 1000D, 'B'")
    pairs = match_events(events, tmp_path / "index", columns=["px"]).toArrow().to_pylist()
    assert sorted(row["subscription"] for row in pairs) == [0, 1, 2]


def test_weights_and_destinations(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT id, 'px > 1' AS expr, CAST(if(id = 1, NULL, -id) AS DECIMAL(9, 2)) AS bid, concat('d', id % 2) AS to "
        "FROM range(4)"
    )
    build_index(frame, tmp_path / "index", schema=SCHEMA, weight="bid", destination="to")
    event = spark.sql("SELECT 2D AS px")
    [best] = match_events(event, tmp_path / "index", output="array", top=3).collect()
    assert best.subscriptions == [0, 2, 3]
    [sent] = match_events(event, tmp_path / "index", output="destinations").collect()
    assert sorted(sent.destinations) == ["d0", "d1"]


def test_bad_subscriptions(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 'good' AS id, 'px < 5' AS expr UNION ALL SELECT 'bad', 'px <'")
    with pytest.raises(gm.ParseError):
        build_index(frame, tmp_path / "index", schema=SCHEMA)
    assert not (tmp_path / "index").exists()
    with pytest.warns(UserWarning, match="1 of 2 subscriptions were left out: 'bad': "):
        built = build_index(frame, tmp_path / "index", schema=SCHEMA, on_error="collect")
    assert list(built.ids) == list(gm.load(tmp_path / "index").ids) == ["good"]


def test_missing_columns(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(gm.SchemaError, match="the subscriptions have no column 'expr'; did you mean 'exp'"):
        build_index(spark.sql("SELECT 1 AS id, 'px < 5' AS exp"), tmp_path / "index", schema=SCHEMA)
    with pytest.raises(TypeError, match="subscriptions must be a PySpark DataFrame, found dict"):
        build_index({}, tmp_path / "index", schema=SCHEMA)
