"""CPU time, which other processes disturb least."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any


def cpu_seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of all threads during the call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def best(call: Callable[[], Any], times: int) -> float:
    return min(cpu_seconds(call) for _ in range(times))


def in_turns(calls: Mapping[str, Callable[[], float]], rounds: int, enough: float = math.inf) -> dict[str, float]:
    """The lowest time that each call returns. All calls take turns in each round, so that other load on the machine
    affects them equally. A call that has used ``enough`` seconds is not repeated."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if sum(times[name]) < enough:
                times[name].append(call())
    return {name: min(seconds) for name, seconds in times.items()}
