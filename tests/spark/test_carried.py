"""Columns that pass through Python in other types under RAPIDS come back as they were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import carried, match, match_events

pytestmark = pytest.mark.spark

COLUMNS = {
    "small": "CAST(if(x = 2, NULL, x - 1.5) AS DECIMAL(9, 2))",
    "large": "CAST(x AS DECIMAL(38, 10)) / 10000000000",
    "bytes": "if(x = 1, NULL, concat(X'00FF80', CAST(string(x) AS BINARY)))",
    "map": "if(x = 0, NULL, map('b', x, 'a', NULL))",
    "bytes by decimals": "map(CAST(x AS DECIMAL(9, 2)), X'FE')",
    "struct": "if(x = 1, NULL, named_struct('p', x, 'dotted.q', named_struct('r', CAST(x AS DECIMAL(9, 2)))))",
    "half": "named_struct('p', NULL, 'm', map(1, X'01'), 'i', if(x = 1, NULL, named_struct('v', 'w')))",
    "decimals": "array(CAST(x AS DECIMAL(9, 2)), NULL)",
    "binaries": "array(array(X'FF'))",
    "null": "NULL",
    "dotted.name": "CAST(x AS DECIMAL(3, 1))",
    "structs": "array(named_struct('v', CAST(x AS DECIMAL(9, 2))))",
    "maps": "array(map('a', x))",
    "clock": "TIMESTAMP_NTZ '2024-01-31 12:00:00'",
    "plain": "string(x)",
}
AS_THEY_ARE = ("structs", "maps", "clock")  # RAPIDS has no way for them


@pytest.fixture
def events(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(carried, "is_active", lambda session: True)
    return spark.sql(
        "SELECT id AS x, "
        + ", ".join(f"{sql} AS `{name}`" for name, sql in COLUMNS.items())
        + """
        FROM (SELECT id, int(id) AS x FROM range(4))"""
    )


@pytest.fixture
def matcher() -> gm.Matcher:
    matcher = gm.Matcher({"x": "int64", "long_name_of_an_attribute_": "int64"})
    matcher.add({"low": "x < 3", "some": "x >= 0"}, destination=["d", "e"])
    return matcher


@pytest.mark.parametrize("output", ["pairs", "array", "count", "destinations"])
def test_values_and_types(events: Any, matcher: gm.Matcher, output: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = match_events(events, matcher, output=output)
    monkeypatch.setattr(carried, "is_active", lambda session: False)
    wanted = match_events(events, matcher, output=output)
    assert found.schema.simpleString() == wanted.schema.simpleString()
    rows, right = (sorted(map(str, frame.collect())) for frame in (found, wanted))
    assert rows == right
    assert len(rows) == (7 if output == "pairs" else 4)


def test_what_python_gets(events: Any, matcher: gm.Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(match, "map_in_arrow", lambda frame, *_: sent.append(frame.schema.simpleString()) or events)
    names = [name for name in COLUMNS if name not in AS_THEY_ARE]
    with pytest.raises(Exception, match="cannot be resolved"):  # the answer that was patched away
        match_events(events, matcher, columns=names)
    assert sent[0].count(":") > len(names)
    for kind in ("decimal", "binary", "map", ":struct", "void"):
        assert kind not in sent[0]


def test_nulls_alone_keep_their_rows(spark: Any, events: Any, matcher: gm.Matcher) -> None:
    nothing = spark.sql("SELECT NULL AS other FROM range(3)")
    matcher.add({"none": "x IS NULL"}, destination=["f"])
    assert match_events(nothing, matcher, columns=["other"]).count() == 3


def test_whether_rapids_is_there() -> None:
    def session(**settings: str) -> Any:
        return SimpleNamespace(conf=SimpleNamespace(get=lambda key, default: settings.get(key, default)))

    on = {"spark.plugins": "org.Other,com.nvidia.spark.SQLPlugin"}
    assert carried.is_active(session(**on))
    assert not carried.is_active(session(**on, **{"spark.rapids.sql.enabled": "false"}))
    assert not carried.is_active(session())
