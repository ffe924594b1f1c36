"""Stock alerts drawn from a seed: daily bars that move like prices, and alerts as people write them.

The attributes, and how often alerts use each, are those of Match-Ladder's stock schema.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PRICES = ("open", "high", "low", "close")
SCHEMA = {"date": "date", "symbol": "string", **dict.fromkeys(PRICES, "float64"), "volume": "int64"}
FREQUENCY = {"date": 0.10, "symbol": 0.96, "open": 0.49, "high": 0.80, "low": 0.78, "close": 0.44, "volume": 0.28}
STEP = {"date": dt.timedelta(days=1), "volume": 1}  # prices move by cents
RANGED = ("date", *PRICES, "volume")  # attributes with bounds in alerts; the symbol is compared for equality

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bounds = tuple[NDArray[Any], NDArray[Any]]  # low, high, both inclusive; NaN or NaT if there is none


class Bars(NamedTuple):
    """Daily bars: one row per symbol and one column per day."""

    symbols: NDArray[np.str_]
    days: NDArray[np.datetime64]
    values: dict[str, NDArray[Any]]  # open, high, low, close in whole cents, volume


def draw_bars(events: int, rng: np.random.Generator) -> Bars:
    """Geometric random walks: a gap overnight, a move during the day, high and low around both."""
    symbols = _symbols(min(500, events), rng)
    n, days = len(symbols), -(-events // len(symbols))
    sigma = rng.uniform(0.008, 0.03, (n, 1))
    gap, move = 0.4 * sigma * rng.standard_normal((n, days)), sigma * rng.standard_normal((n, days))
    close = rng.normal(3.8, 0.8, (n, 1)) + np.cumsum(gap + move + 0.0002, axis=1)  # logarithms, up to the prices
    start = close - move
    above, below = 0.5 * sigma * np.abs(rng.standard_normal((2, n, days)))
    logs = (start, np.maximum(start, close) + above, np.minimum(start, close) - below, close)
    values: dict[str, NDArray[Any]] = {name: np.round(np.exp(log), 2) for name, log in zip(PRICES, logs, strict=True)}
    noise = 0.4 * rng.standard_normal((n, days)) + 0.3 * np.abs(move) / sigma  # large moves come with many trades
    values["volume"] = np.exp(rng.normal(13.5, 1.0, (n, 1)) + noise).astype(np.int64)
    return Bars(symbols, np.busday_offset("2021-01-04", np.arange(days), roll="forward"), values)


def to_events(bars: Bars, events: int) -> pa.Table:
    """The first ``events`` bars in time order, numbered in the column ``event``."""
    n = len(bars.symbols)
    columns = {"event": np.arange(events), "date": np.repeat(bars.days, n)[:events].astype("datetime64[D]")}
    columns["symbol"] = np.tile(bars.symbols, len(bars.days))[:events]
    columns |= {name: values.T.ravel()[:events] for name, values in bars.values.items()}
    return pa.table(columns)


def draw_alerts(n: int, bars: Bars, rng: np.random.Generator) -> pa.Table:
    """Break-outs, break-downs and bands around a day of the symbol's past, of two to six predicates.

    Each as text (``id``, ``expr``), and as a database would store it: ``symbol``, and inclusive bounds ``<name>_lo``
    and ``<name>_hi`` of every other attribute, null if there are none.
    """
    used = _attributes(n, rng)
    with_symbol = used["symbol"]
    stock, day = rng.integers(0, len(bars.symbols), n), rng.integers(0, len(bars.days), n)
    direction = np.where(with_symbol, rng.choice([-1, 0, 1], n, p=[0.3, 0.35, 0.35]), 0)
    # an alert on the whole market has to be much narrower than one on a symbol, or it rings all day
    width = np.where(with_symbol, rng.uniform(0.005, 0.03, n), rng.uniform(0.002, 0.01, n))
    bounds: dict[str, Bounds] = {"date": _dates(bars.days, day, rng)}
    for name in PRICES:
        bounds[name] = _prices(bars.values[name], stock, day, direction, width, rng)
    bounds["volume"] = _volumes(bars.values["volume"], stock, with_symbol, rng)
    symbols = pa.array(bars.symbols[stock], mask=~with_symbol)
    ranges = _table(symbols, {name: (bounds[name], used[name]) for name in RANGED})
    texts = pa.array(_texts(ranges, rng.random(n) < 0.5), pa.string())
    ids = pa.array([f"alert-{i:06d}" for i in range(n)], pa.string())
    return ranges.add_column(0, "expr", texts).add_column(0, "id", ids)


def _symbols(n: int, rng: np.random.Generator) -> NDArray[np.str_]:
    codes = np.sort(rng.choice(26**3, n, replace=False))
    return np.array(["".join(chr(65 + code // base % 26) for base in (676, 26, 1)) for code in codes.tolist()])


def _attributes(n: int, rng: np.random.Generator) -> dict[str, Bools]:
    """Which attributes each alert uses, independently by frequency, redrawn until there are two to six."""
    chance = np.array(list(FREQUENCY.values()))
    used = rng.random((n, len(chance))) < chance
    while len(again := np.flatnonzero((used.sum(axis=1) < 2) | (used.sum(axis=1) > 6))):
        used[again] = rng.random((len(again), len(chance))) < chance
    return {name: used[:, j] for j, name in enumerate(FREQUENCY)}


def _prices(values: Floats, stock: Ints, day: Ints, direction: Ints, width: Floats, rng: np.random.Generator) -> Bounds:
    """Above one of the symbol's highest 6 % (direction 1), below one of its lowest (-1), or near that day's (0)."""
    days = values.shape[1]
    rank = (rng.random(len(stock)) * 0.06 * days).astype(np.int64)
    extreme = np.sort(values, axis=1)[stock, np.where(direction > 0, days - 1 - rank, rank)]
    centre = values[stock, day]
    low = np.where(direction == 0, np.round(centre * (1 - width), 2), extreme)
    high = np.where(direction == 0, np.round(centre * (1 + width), 2), extreme)
    return np.where(direction < 0, np.nan, low), np.where(direction > 0, np.nan, high)


def _volumes(values: Ints, stock: Ints, with_symbol: Bools, rng: np.random.Generator) -> Bounds:
    """At least a usual to high volume of the symbol, or a rare one in the whole market."""
    of_symbol = np.sort(values, axis=1)[stock, (rng.uniform(0.3, 0.95, len(stock)) * values.shape[1]).astype(np.int64)]
    of_market = np.sort(values, axis=None)[(rng.uniform(0.999, 1, len(stock)) * values.size).astype(np.int64)]
    return np.where(with_symbol, of_symbol, of_market).astype(np.float64), np.full(len(stock), np.nan)


def _dates(days: NDArray[np.datetime64], day: Ints, rng: np.random.Generator) -> Bounds:
    """From some weeks before that day on, half of them for some months only."""
    low = days[day] - rng.integers(0, 60, len(day))
    high = days[day] + rng.integers(1, 120, len(day))
    return low, np.where(rng.random(len(day)) < 0.5, high, np.datetime64("NaT"))


def _table(symbols: pa.Array, bounds: dict[str, tuple[Bounds, Bools]]) -> pa.Table:
    columns = {"symbol": symbols}
    types = {"date": pa.date32(), "volume": pa.int64()}
    for name, (sides, used) in bounds.items():
        for suffix, side in zip(("lo", "hi"), sides, strict=True):
            values = pa.array(side, mask=~used | np.isnan(side))
            columns[f"{name}_{suffix}"] = values.cast(types.get(name, pa.float64()))
    return pa.table(columns)


def _texts(ranges: pa.Table, strict: Bools) -> Iterator[str]:
    """The text that a person would write for each row of bounds."""
    columns = {name: ranges[name].to_pylist() for name in ranges.column_names}
    for i, is_strict in enumerate(strict.tolist()):
        symbol = columns["symbol"][i]
        predicates = [f"symbol = '{symbol}'"] if symbol else []
        for name in RANGED:
            predicates += _predicate(name, columns[f"{name}_lo"][i], columns[f"{name}_hi"][i], is_strict)
        yield " AND ".join(predicates)


def _predicate(name: str, low: Any, high: Any, strict: bool) -> list[str]:
    """Values come in steps, so that a strict comparison with the value next to a bound means the same."""
    if low is not None and high is not None:
        return [f"{name} BETWEEN {_literal(low)} AND {_literal(high)}"]
    step = STEP.get(name, 0.01)
    if low is not None:
        return [f"{name} > {_literal(low - step)}" if strict else f"{name} >= {_literal(low)}"]
    if high is not None:
        return [f"{name} < {_literal(high + step)}" if strict else f"{name} <= {_literal(high)}"]
    return []


def _literal(value: Any) -> str:
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
