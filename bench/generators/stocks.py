"""Subscriptions on stocks: those of Match-Ladder's paper as text, and the demo's alerts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from generators.alerts import TextWorkload
from gpumatch.workloads.stocks import FREQUENCY, PRICES, SCHEMA, draw_alerts, draw_bars, to_events

SYMBOLS = 500
BARS = 500_000  # in the demo
DAYS = (np.datetime64("1998-01-02"), np.datetime64("2013-12-31"))
HIGHEST = {**dict.fromkeys(PRICES, 500.0), "volume": 310_000_000}


def stock(subscriptions: int, events: int, seed: int = 0) -> tuple[list[str], list[dict[str, Any]]]:
    """Subscriptions as text, attributes in the schema's order, and events, drawn from the paper's domains.

    A symbol is compared for equality; a date is in a window of up to a year; prices and volumes are above a bound,
    below one, or between two.
    """
    rng = np.random.default_rng(seed)
    span = int((DAYS[1] - DAYS[0]).astype(int))

    def used() -> list[str]:
        return [name for name in SCHEMA if rng.random() < FREQUENCY[name]]

    def value(name: str) -> Any:
        if name == "date":
            return (DAYS[0] + rng.integers(0, span)).item()
        if name == "symbol":
            return f"s{rng.integers(0, SYMBOLS):03d}"
        drawn = rng.random() * HIGHEST[name]
        return int(drawn) if name == "volume" else round(drawn, 2)

    def predicate(name: str) -> str:
        if name == "symbol":
            return f"symbol = '{value(name)}'"
        if name == "date":
            first = np.datetime64(value(name))
            return f"date BETWEEN DATE '{first}' AND DATE '{first + rng.integers(1, 365)}'"
        low, high = sorted((value(name), value(name)))
        return [f"{name} > {low}", f"{name} < {high}", f"{name} BETWEEN {low} AND {high}"][rng.integers(0, 3)]

    texts = [" AND ".join(map(predicate, used() or ["symbol"])) for _ in range(subscriptions)]
    return texts, [{name: value(name) for name in used()} for _ in range(events)]


def demo(alerts: int, bars: int = BARS) -> tuple[pa.Table, pa.Table]:
    """Alerts as in the demo, and bars as events."""
    rng = np.random.default_rng(7)
    walk = draw_bars(bars, rng)
    return draw_alerts(alerts, walk, rng), to_events(walk, bars)


def stock_alerts(n: int) -> TextWorkload:
    """The demo's alerts as a workload."""
    alerts, bars = demo(n)
    table = bars.drop(["event"])

    def events(count: int, seed: int) -> pa.Table:
        return table.slice(seed * BARS // 2, count)

    return TextWorkload("stocks", dict(SCHEMA), np.arange(n), alerts["expr"].to_pylist(), events)
