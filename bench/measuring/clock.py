"""CPU time, which other processes disturb least."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Of all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


def best(call: Callable[[], Any], times: int) -> float:
    return min(cpu_seconds(call) for _ in range(times))


def in_turns(calls: Mapping[str, Callable[[], float]], rounds: int, enough: float = math.inf) -> dict[str, float]:
    """The least of the seconds that each call tells. In a round all of them have their turn, so that what else the
    machine does meanwhile meets them alike; those that took enough seconds have none any more."""
    told: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if sum(told[name]) < enough:
                told[name].append(call())
    return {name: min(seconds) for name, seconds in told.items()}
