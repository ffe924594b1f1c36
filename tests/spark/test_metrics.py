"""What tasks report, added up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import Metrics, build_index, count_subscriptions, match_events
from gpumatch.spark.metrics import Sums

pytestmark = [pytest.mark.spark]

EVENTS = "SELECT id AS k, double(id % 40) AS px, concat('s', id % 10) AS sym FROM range(0, 200, 1, 2)"
SCHEMA = {"px": "float64", "sym": "string"}


def test_what_a_job_did(spark: Any) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({f"r{n}": f"px < {n} AND sym = 's{n % 10}'" for n in range(50)})
    events = spark.sql(EVENTS)
    right = match_events(events, matcher).count()
    for more in ({}, {"output": "array"}, {"output": "count"}, {"output": "pairs", "top": 1000}):
        metrics = Metrics(spark)
        match_events(events, matcher, metrics=metrics, **more).collect()
        assert (metrics.events, metrics.matches, metrics.copies) == (200, right, 0)
        assert metrics.opened + metrics.reused == 2  # one for each task
        assert metrics.devices == ["cpu"]
        assert metrics.seconds > 0
    assert str(metrics).startswith(f"200 events, {right:,} matches; ")
    assert " µs per event on cpu; index opened " in str(metrics)
    metrics = Metrics(spark)
    count_subscriptions(events, matcher, metrics=metrics).collect()
    assert (metrics.events, metrics.matches) == (200, right)


@pytest.mark.long
def test_copies_that_were_sent(spark: Any, tmp_path: Path) -> None:
    rules = spark.sql('SELECT id, concat("sym = \'s", id % 10, "\' AND px < ", id) AS expr FROM range(80)')
    build_index(rules, tmp_path, schema=SCHEMA, shards=3, place="similar")
    events = spark.sql(EVENTS)
    right = match_events(events, tmp_path).count()
    for more in ({}, {"output": "array"}, {"output": "count"}):
        metrics = Metrics(spark)
        match_events(events, tmp_path, strategy="routed", metrics=metrics, **more).collect()
        assert (metrics.events, metrics.matches) == (200, right)
        assert 0 < metrics.copies < 3 * 200
        assert " copies of an event; " in str(metrics)


def test_nothing_has_run(spark: Any) -> None:
    assert str(Metrics(spark)) == (
        "0 events, 0 matches; 0.0 µs per event on none; index opened 0 times, found open 0 times"
    )


def test_connect_has_no_accumulators() -> None:
    class Session:
        pass

    with pytest.raises(TypeError, match="needs classic PySpark"):
        Metrics(Session())  # type: ignore[arg-type]


def test_numbers_are_added_by_name() -> None:
    assert Sums().addInPlace({"a": 1, "b": 2}, {"b": 3, "c": 4}) == {"a": 1, "b": 5, "c": 4}
