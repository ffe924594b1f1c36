"""Matching in SQL: ``match_ids`` and ``match_events(TABLE(…), …)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import match_events, register

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCHEMA = {"px": "float64", "sym": "string", "tags": "list<string>"}
RULES = {"cheap": "px < 25", "a": "sym = 'A' AND px > 10", "tagged": "tags = 'x'", "none": "px IS NULL"}
EVENTS = """
    SELECT id AS k, if(id % 7 = 0, NULL, double(id)) AS price, if(id % 2 = 0, 'A', 'B') AS sym,
        if(id % 5 = 0, array('x', 'y'), array()) AS tags
    FROM range(0, 60, 1, 3)
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    for name, rules in (("names", RULES), ("numbers", dict(enumerate(RULES.values())))):
        matcher = gm.Matcher(SCHEMA)
        matcher.add(rules)  # type: ignore[arg-type]
        matcher.save(folder / name)
    return folder


@pytest.fixture
def events(spark: Any) -> Any:
    pyspark = pytest.importorskip("pyspark")
    if pyspark.__version__ < "4.1":
        pytest.skip("SQL functions want PySpark 4.1")
    frame = spark.sql(EVENTS)
    frame.createOrReplaceTempView("events")
    return frame.withColumnRenamed("price", "px")


@pytest.mark.parametrize(("name", "ids"), [("names", "string"), ("numbers", "bigint")])
def test_the_same_rows_as_from_dataframes(spark: Any, events: Any, index: Path, name: str, ids: Any) -> None:
    register(spark, columns="k bigint, sym string", ids=ids)
    right = match_events(events, index / name, output="array", columns=["k"])
    for given in ("'px, sym,tags', price, sym, tags", "struct(price AS px, sym, tags, k AS other)"):
        arrays = spark.sql(f"SELECT k, match_ids('{index / name}', {given}) AS ids FROM events")
        assert arrays.schema["ids"].dataType == right.schema["subscriptions"].dataType
        assert sorted(map(tuple, arrays.collect())) == sorted(map(tuple, right.collect()))
    named = "SELECT k, price AS px, sym, tags FROM events"
    pairs = spark.sql(f"SELECT * FROM match_events(TABLE({named}), '{index / name}')")
    wanted = match_events(events, index / name, columns=["k", "sym"])
    assert pairs.columns == ["k", "sym", "subscription"]
    assert sorted(map(tuple, pairs.collect())) == sorted(map(tuple, wanted.collect()))
    assert wanted.count() > 40


def test_further_steps(spark: Any, events: Any, index: Path) -> None:
    register(spark)
    call = f"match_ids('{index / 'names'}', 'px', price)"
    counted = spark.sql(f"SELECT id, count(*) FROM (SELECT explode({call}) AS id FROM events) GROUP BY id").collect()
    assert {tuple(row) for row in counted} == {("cheap", 21), ("none", 9)}
    assert spark.sql(f"SELECT {call} FROM events WHERE k < 0").collect() == []


def test_errors_say_what_is_wrong(spark: Any, events: Any, index: Path) -> None:
    from pyspark.errors import PythonException

    register(spark, columns="n bigint")
    for query, words in (
        (f"SELECT match_ids('{index / 'nowhere'}', 'px', price) FROM events", "does not exist"),
        (f"SELECT match_ids('{index / 'numbers'}', 'px', price) FROM events", "not of type string"),
        ("SELECT match_ids(sym, 'px', price) FROM events", "the same for all rows"),
        (f"SELECT match_ids('{index / 'names'}', 'px, sym', price) FROM events", "and 1 columns"),
        (f"SELECT match_ids('{index / 'names'}', price) FROM events", "and 0 columns"),
        (f"SELECT match_ids('{index / 'names'}') FROM events", "and 0 columns"),
        (
            f"SELECT match_ids('{index / 'names'}', 'PX', price) FROM events",
            "'PX', which is no attribute; did you mean 'px'",
        ),
        (f"SELECT * FROM match_events(TABLE(events), '{index / 'names'}')", "no column 'n'"),
    ):
        with pytest.raises(PythonException, match=words):
            spark.sql(query).collect()
    with pytest.raises(gm.SchemaError, match="columns= names 'subscription'"):
        register(spark, columns="n bigint, Subscription string")
    with pytest.raises(ValueError, match="ids must be 'string' or 'bigint'"):
        register(spark, ids="int")  # type: ignore[arg-type]
