"""Match-Ladder's Table 1: time of the worst order of predicates over that of the best, on the paper's stock workload.

    python bench/ladder.py [--events 10000] [--subscriptions 1000,2000,...]

Every subscription and every event has each attribute with the paper's frequency, independently. Answers of all orders
are compared before any is timed; tests are predicates tested per event, which do not depend on the machine.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import gpumatch as gm
from gpumatch.index.ladder import ORDERS
from gpumatch.workloads.stocks import FREQUENCY, PRICES, SCHEMA

SYMBOLS = 500
DAYS = (np.datetime64("1998-01-02"), np.datetime64("2013-12-31"))
HIGHEST = {**dict.fromkeys(PRICES, 500.0), "volume": 310_000_000}


def stock(subscriptions: int, events: int, seed: int = 0) -> tuple[list[str], list[dict[str, Any]]]:
    """Subscriptions as text, attributes in the schema's order, and events, drawn from the paper's domains.

    A symbol is compared for equality, a date lies in a window of up to a year; prices and volumes are above a bound,
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


def measure(subscriptions: int, events: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Microseconds of one core and predicates tested, per event, for each order."""
    texts, rows = stock(subscriptions, events)
    sample = stock(1, 4000, seed=1)[1]
    batch = gm.EventBatch.of(rows, gm.Schema.of(SCHEMA))
    found, matchers = {}, {}
    for order in ORDERS:
        matcher = matchers[order] = gm.Matcher(SCHEMA, index=gm.Ladder(order=order))
        matcher.observe(sample)
        matcher.add(dict(enumerate(texts)))
        found[order] = matcher.match(batch)
        if not np.array_equal(found[order].rows, found["best"].rows):
            raise SystemExit(f"order {order!r} finds other matches than 'best'")
    times: dict[str, list[float]] = {order: [] for order in ORDERS}
    for _ in range(repeats):
        for order, matcher in matchers.items():  # in turns, so that a busy machine disturbs all alike
            start = time.process_time()
            matcher.match(batch)
            times[order].append((time.process_time() - start) / events * 1e6)
    calls = (repeats + 1) * events
    return {
        order: (min(times[order]), matchers[order].stats()["segments"][0]["parts"][0]["tests"] / calls)
        for order in ORDERS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--subscriptions", default="1000,2000,5000,10000,100000")
    given = parser.parse_args()
    gm.set_num_threads(1)
    print(
        "subscriptions "
        + "".join(f"{order + ' us':>12}{'tests':>10}" for order in ORDERS)
        + "  worst/best: time  tests"
    )
    for count in map(int, given.subscriptions.split(",")):
        result = measure(count, given.events, given.repeats)
        line = "".join(f"{us:12.2f}{tests:10.1f}" for us, tests in result.values())
        (best, fewest), (worst, most) = result["best"], result["worst"]
        print(f"{count:<14}{line}{worst / best:18.0%}{most / fewest:7.0%}", flush=True)


if __name__ == "__main__":
    main()
