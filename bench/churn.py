"""Subscriptions that change while events are matched: ``python bench/churn.py``.

W2 with a million live subscriptions. First single calls: CPU microseconds per subscription added and removed, and the
time from an ``add`` to the end of the first match that finds it. Then a thread matches batches of 1,000 while another
adds and removes a share of all subscriptions each second, and a third, the matcher's own, merges them: CPU time of the
matching thread per event, and events per second with everything on one core.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gpumatch as gm
from engines.ours import batch_of
from gpumatch import workloads
from measuring.options import parser, positive
from measuring.report import headed, machine, terminal

SHARES = (0.0, 0.01, 0.1)  # of the live subscriptions, per second
CALL = 100  # subscriptions of a call
CALLS = 100


class Changing:
    """A matcher with subscriptions that come and go; the oldest go first."""

    def __init__(self, count: int) -> None:
        self.workload = workloads.dense(count)
        self.matcher = gm.Matcher(self.workload.schema, device="cpu")
        self.workload.add_to(self.matcher)
        self.batch = batch_of(self.workload.events(1000, seed=1))
        self.event = dict(zip(self.workload.schema, range(30), strict=False))
        self.count, self.next, self.gone = count, count, 0
        self._rng = np.random.default_rng(1)
        self._order = self._rng.permutation(count)
        self.matcher.match(self.batch)
        self.matcher.match_one(self.event)

    def ranges(self, count: int) -> dict[str, Any]:
        """As those of W2, but a call's are on the same attributes."""
        names = self._rng.choice(list(self.workload.schema), 5, replace=False).tolist()
        low = self._rng.integers(0, 100, (5, count))
        high = np.minimum(
            low + np.where(self._rng.random((5, count)) < 0.2, 0, self._rng.integers(1, 51, (5, count))), 99
        )
        return {name: (low[at], high[at]) for at, name in enumerate(names)}

    def texts(self, count: int) -> dict[int, str]:
        ranges = self.ranges(count)
        pieces = [
            [f"{name} BETWEEN {lo} AND {hi}" for lo, hi in zip(*ends, strict=True)] for name, ends in ranges.items()
        ]
        return dict(zip(self.new_ids(count).tolist(), map(" AND ".join, zip(*pieces, strict=True)), strict=True))

    def new_ids(self, count: int) -> Any:
        self.next += count
        return np.arange(self.next - count, self.next)

    def old_ids(self, count: int) -> Any:
        self.gone += count
        numbers = np.arange(self.gone - count, self.gone)
        return np.where(
            numbers < self.count, self._order[numbers % self.count], numbers
        )  # later, those that were added


def single_calls(held: Changing) -> dict[str, float]:
    """The best of many calls, in microseconds per subscription; and of a change and a match, in milliseconds."""
    matcher = held.matcher

    def found_at_once() -> None:
        matcher.add_ranges(held.new_ids(1), held.ranges(1))
        matcher.match_one(held.event)

    return {
        "add by ranges": _best(lambda r: matcher.add_ranges(held.new_ids(CALL), r), lambda: held.ranges(CALL)) / CALL,
        "add by text": _best(matcher.add, lambda: held.texts(CALL)) / CALL,
        "remove": _best(matcher.remove, lambda: held.old_ids(CALL)) / CALL,
        "add one, then match_one, ms": _best(lambda _: found_at_once(), lambda: None) / 1000,
    }


def _best(act: Callable[[Any], Any], prepare: Callable[[], Any]) -> float:
    """Microseconds of CPU time."""
    times = []
    for _ in range(CALLS):
        given = prepare()
        start = time.thread_time()
        act(given)
        times.append(time.thread_time() - start)
    return 1e6 * min(times)


def churn(held: Changing, share: float, seconds: float) -> dict[str, float]:
    """Matching while a share of the subscriptions changes each second."""
    stop, matcher, changed = threading.Event(), held.matcher, 0

    def change() -> None:
        nonlocal changed
        start = time.monotonic()
        while not stop.is_set():
            matcher.add_ranges(held.new_ids(CALL), held.ranges(CALL))
            matcher.remove(held.old_ids(CALL))
            changed += CALL
            stop.wait(max(0.0, start + changed / (share * held.count) - time.monotonic()))

    writer = threading.Thread(target=change)
    if share:
        writer.start()
    start, calls = time.monotonic(), []
    while time.monotonic() - start < seconds:
        before = time.thread_time()
        matcher.match(held.batch)
        calls.append(time.thread_time() - before)
    took = time.monotonic() - start
    stop.set()
    if share:
        writer.join()
    return {
        "us": 1e6 * float(np.mean(calls)) / len(held.batch),
        "events_per_second": len(calls) * len(held.batch) / took,
        "changed_per_second": changed / took,
        "segments": len(matcher.stats()["segments"]),
    }


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--seconds", type=positive, default=20, help="seconds of matching at each rate")
    given, console = options.parse_args(), terminal()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    gm.set_num_threads(1)
    held = Changing(int(1_000_000 * given.scale))
    rates = {share: churn(held, share, given.seconds) for share in SHARES}
    calls = single_calls(held)
    table = headed(
        "W2, one core", "changed per second", "µs per event", "times static", "events/s", "changes/s", "segments"
    )
    for share, found in rates.items():
        cells = (found["us"], found["us"] / rates[0.0]["us"], found["events_per_second"], found["changed_per_second"])
        table.add_row(f"{share:.0%}", *(f"{cell:,.1f}" for cell in cells), str(found["segments"]))
    console.print(table)
    for name, found in calls.items():
        console.print(f"{name}: {found:.2f}")
    report = {
        "machine": machine(),
        "subscriptions": held.count,
        "calls_us": calls,
        "churn": {str(k): v for k, v in rates.items()},
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "churn.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
