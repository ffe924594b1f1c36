"""Match-Ladder's Table 1: time of the worst order of predicates relative to the best, on the paper's stock workload.

    python bench/ladder.py [--events 10000] [--subscriptions 1000,2000,...]

Every subscription and every event has each attribute with the paper's frequency, independently. Answers of all orders
are compared before timing. ``tests`` are predicates tested per event, which do not depend on the machine.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

import gpumatch as gm
from generators.stocks import stock
from gpumatch.index.ladder import ORDERS
from gpumatch.workloads.stocks import SCHEMA
from measuring.clock import cpu_seconds, in_turns


def measure(subscriptions: int, events: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Microseconds on one core and predicates tested, per event, for each order."""
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
    calls = {order: partial(cpu_seconds, partial(matcher.match, batch)) for order, matcher in matchers.items()}
    times, called = in_turns(calls, repeats), (repeats + 1) * events
    tests = {order: matcher.stats()["segments"][0]["parts"][0]["tests"] for order, matcher in matchers.items()}
    return {order: (times[order] / events * 1e6, tests[order] / called) for order in ORDERS}


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
