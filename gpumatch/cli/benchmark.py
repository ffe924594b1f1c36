"""``gpumatch bench``: check a workload's results on one device, then time it.

The project's ``bench`` folder compares with other engines.
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

_CHECKED = 64  # events that are also matched by a scan on the CPU, for comparison


@dataclass(frozen=True)
class Timing:
    """The best of several passes over the events of a workload."""

    workload: str
    subscriptions: int
    device: str
    index: str
    events_from: str  # "host": events come from the host and results return to it; "device": both stay on the device
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
    """Build a workload, check its matches and time them; on a CUDA device also with events that are already there."""
    if simulated() and resolve_device(device)[0] != "cpu":
        raise DeviceError("CUDA is simulated in this process, so times would be meaningless; use device='cpu'")
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
    sources = {"host": batches}
    if matcher.device != "cpu" and isinstance(given, dict):
        sources["device"] = [{name: library().asarray(values) for name, values in each.items()} for each in batches]
    names = ", ".join(part.index.kind for part in matcher.plan().segments)
    for source, given_there in sources.items():
        finish: Callable[[Any], int] = _on_host if source == "host" else _on_device
        seconds, pairs = _best(matcher, given_there, repeats, finish)
        facts = (workload, len(matcher), matcher.device, names, source, events, batch, pairs / events, build_s)
        yield Timing(*facts, 1e6 * seconds / events)


def _slice(events: DenseEvents | SparseEvents, start: int, stop: int) -> Any:
    """Events ``start`` to ``stop``, as ``match`` accepts them."""
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
        pairs = sum(finish(matcher.match(each)) for each in batches)
        best = min(best, time.perf_counter() - start)
    return best, pairs


def _on_host(found: Any) -> int:
    return len(found.rows)


def _on_device(found: Any) -> int:
    return len(found.to_cupy()[1])
