"""The demo's data, and the demo itself where there is no Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch.cli import demo
from gpumatch.workloads import stocks


@pytest.fixture(scope="module")
def drawn() -> tuple[stocks.Bars, pa.Table, pa.Table]:
    rng = np.random.default_rng(1)
    bars = stocks.draw_bars(20_000, rng)
    return bars, stocks.to_events(bars, 20_000), stocks.draw_alerts(5_000, bars, rng)


def holds(row: dict[str, Any], alert: dict[str, Any]) -> bool:
    """Whether a bar is within the bounds that an alert's table keeps."""
    if alert["symbol"] not in (None, row["symbol"]):
        return False
    return all(
        (alert[f"{name}_lo"] is None or row[name] >= alert[f"{name}_lo"])
        and (alert[f"{name}_hi"] is None or row[name] <= alert[f"{name}_hi"])
        for name in stocks.RANGED
    )


def test_bars_are_consistent(drawn: tuple[stocks.Bars, pa.Table, pa.Table]) -> None:
    bars, events, _ = drawn
    values = bars.values
    assert len(set(bars.symbols)) == 500
    assert (values["low"] <= np.minimum(values["open"], values["close"])).all()
    assert (values["high"] >= np.maximum(values["open"], values["close"])).all()
    assert (values["low"] > 0).all()
    assert (values["volume"] > 0).all()
    returns = np.diff(np.log(values["close"]), axis=1)
    assert 0.008 < returns.std() < 0.04
    assert np.is_busday(bars.days).all()
    assert events.num_rows == 20_000
    assert events.schema.field("date").type == pa.date32()
    again = events.filter(pc.field("symbol") == str(bars.symbols[3]))["close"].to_numpy()
    np.testing.assert_array_equal(again, values["close"][3])


def test_alerts_use_attributes_by_frequency(drawn: tuple[stocks.Bars, pa.Table, pa.Table]) -> None:
    alerts = drawn[2]
    used = {"symbol": alerts["symbol"].is_valid().to_numpy()}
    for name in stocks.RANGED:
        used[name] = pc.or_(alerts[f"{name}_lo"].is_valid(), alerts[f"{name}_hi"].is_valid()).to_numpy()
    for name, share in stocks.FREQUENCY.items():
        assert abs(used[name].mean() - share) < 0.03, name
    count = np.sum(list(used.values()), axis=0)
    assert (count.min(), count.max()) == (2, 6)


def test_text_and_bounds_say_the_same(drawn: tuple[stocks.Bars, pa.Table, pa.Table]) -> None:
    _, events, alerts = drawn
    matcher = gm.Matcher(stocks.SCHEMA)
    matcher.add_table(alerts, id="id", where="expr")
    some = events.take(np.random.default_rng(2).choice(len(events), 40, replace=False))
    rules = alerts.to_pylist()
    expected = [[rule["id"] for rule in rules if holds(row, rule)] for row in some.to_pylist()]
    assert list(matcher.match(some)) == expected
    assert sum(map(len, expected)) > 0


def test_same_seed_same_data() -> None:
    tables = [stocks.draw_alerts(50, stocks.draw_bars(100, rng), rng) for rng in map(np.random.default_rng, (4, 4, 5))]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]
    assert "symbol = " in tables[0]["expr"][0].as_py()


def test_literals() -> None:
    assert stocks._predicate("date", dt.date(2024, 3, 1), None, True) == ["date > DATE '2024-02-29'"]
    assert stocks._predicate("high", 103.5, None, True) == ["high > 103.49"]
    assert stocks._predicate("low", None, 99.0, False) == ["low <= 99.00"]
    assert stocks._predicate("volume", 1000, 2000, True) == ["volume BETWEEN 1000 AND 2000"]
    assert stocks._predicate("open", None, None, True) == []


def test_runs_in_process_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(demo, "_has_matplotlib", lambda: False)
    (tmp_path / "out" / "matches.parquet").mkdir(parents=True)  # as an earlier run on Spark leaves it
    demo.run(subscriptions=2_000, events=3_000, out=tmp_path / "out", seed=3)
    said = capsys.readouterr().out
    assert "matching in this process" in said
    assert "no picture" in said
    assert not (tmp_path / "out" / "demo.png").exists()
    pairs = pq.read_table(tmp_path / "out" / "matches.parquet")
    matcher = gm.Matcher(stocks.SCHEMA)
    matcher.add_table(pq.read_table(tmp_path / "out" / "alerts.parquet"), id="id", where="expr")
    expected = matcher.match(pq.read_table(tmp_path / "out" / "bars.parquet")).to_arrow()
    assert pairs["event"].to_pylist() == expected["event"].to_pylist()
    assert pairs["subscription"].to_pylist() == expected["subscription"].to_pylist()
    assert f"{len(pairs):,}" in said


def test_picture(drawn: tuple[stocks.Bars, pa.Table, pa.Table], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'gpumatch[bench]'")
    _, events, alerts = drawn
    matcher = gm.Matcher(stocks.SCHEMA)
    matcher.add_table(alerts, id="id", where="expr")
    found = matcher.match(events).to_arrow()
    pq.write_table(found.append_column("symbol", events["symbol"].take(found["event"])), tmp_path / "matches.parquet")
    pairs = ds.dataset(tmp_path / "matches.parquet")
    symbol = events["symbol"][0].as_py()
    demo.draw(tmp_path / "two.png", symbol, events, alerts, pairs, {"a": 2.0, "b": 1.0})
    demo.draw(tmp_path / "one.png", symbol, events, alerts, pairs, {"a": 2.0})
    two, one = ((tmp_path / name).read_bytes() for name in ("two.png", "one.png"))
    assert two[:8] == one[:8] == b"\x89PNG\r\n\x1a\n"
    assert two != one


def test_no_match_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = stocks.draw_alerts
    silent = pa.array(["symbol = 'none'"])
    monkeypatch.setattr(stocks, "draw_alerts", lambda *given: drawn(*given).set_column(1, "expr", silent))
    monkeypatch.setattr(demo, "_missing_for_spark", lambda: "No Spark")
    demo.run(subscriptions=1, events=1, out=tmp_path, seed=0)
    assert "0 matches, 0.0 per bar, of 1 alerts" in capsys.readouterr().out
