"""Timing of a workload on one device, after a check of its results: what ``gpumatch bench`` runs.

Other engines and their comparison with ours are in the project's ``bench`` folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.device import resolve_device
from gpumatch.device_memory import library, simulated
from gpumatch.errors import DeviceError, GpumatchError
from gpumatch.events.batch import EventBatch
from gpumatch.index.planner import plainest
from gpumatch.matcher import Matcher
from gpumatch.workloads import DenseEvents, SparseEvents, make

_CHECKED = 64  # events whose matches are compared with those of a scan on the CPU


@dataclass(frozen=True)
class Timing:
    """The best of several passes over the events of a workload."""

    workload: str
    subscriptions: int
    device: str
    index: str
    events_from: str  # "host": events come from there and results go there; "device": neither leaves the device
    events: int
    batch: int
    matches: float  # per event
    build_s: float
    us: float  # per event

    @property
    def rate(self) -> float:
        """Events per second."""
        return 1e6 / self.us


def measure(
    workload: str, device: str, index: str, scale: float, events: int, batch: int, repeats: int
) -> Iterator[Timing]:
    """Build a workload, check its matches, and time them; on a CUDA device also with events that are there already."""
    if simulated() and resolve_device(device)[0] != "cpu":
        raise DeviceError("numba simulates CUDA in this process, which tells nothing of speed; use device='cpu'")
    made = make(workload, scale)
    start = time.perf_counter()
    matcher = Matcher(made.schema, index, device)
    made.add_to(matcher)
    matcher.compact()
    build_s = time.perf_counter() - start
    given = made.events(events)
    plain = Matcher(made.schema, plainest().choices[0], "cpu")
    made.add_to(plain)
    few = _slice(given, 0, _CHECKED)
    if matcher.match(few) != plain.match(few):
        raise GpumatchError(f"{matcher.device} and a scan on the CPU disagree on {_CHECKED} events; please report it")
    batches = [_slice(given, first, first + batch) for first in range(0, events, batch)]
    places = {"host": batches}
    if matcher.device != "cpu" and isinstance(given, dict):
        places["device"] = [{name: library().asarray(values) for name, values in part.items()} for part in batches]
    names = ", ".join(part.index.kind for part in matcher.plan().segments)
    for place, parts in places.items():
        finish: Callable[[Any], int] = _on_host if place == "host" else _on_device
        seconds, pairs = _best(matcher, parts, repeats, finish)
        facts = (workload, len(matcher), matcher.device, names, place, events, batch, pairs / events, build_s)
        yield Timing(*facts, 1e6 * seconds / events)


def _slice(events: DenseEvents | SparseEvents, start: int, stop: int) -> Any:
    """Some events, in the form that ``match`` takes."""
    if isinstance(events, dict):
        return {name: values[start:stop] for name, values in events.items()}
    offsets = events.offsets[start : stop + 1]
    entries = slice(offsets[0], offsets[-1])
    return EventBatch.from_csr(offsets - offsets[0], events.attribute[entries], events.value[entries], events.names)


def _best(matcher: Matcher, batches: list[Any], repeats: int, finish: Callable[[Any], int]) -> tuple[float, int]:
    """Seconds of the fastest pass, and the number of matches."""
    best, pairs = np.inf, 0
    for _ in range(repeats):
        start = time.perf_counter()
        pairs = sum(finish(matcher.match(part)) for part in batches)
        best = min(best, time.perf_counter() - start)
    return best, pairs


def _on_host(found: Any) -> int:
    return len(found.rows)


def _on_device(found: Any) -> int:
    return len(found.to_cupy()[1])
