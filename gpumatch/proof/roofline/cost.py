"""The cost of a kernel for one event, and the least time that a GPU takes for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpumatch.proof.roofline.gpus import Gpu

SECTOR = 32  # bytes that memory delivers at a time
LIMITS = ("memory", "L2", "shared memory", "atomics", "instructions")


@dataclass(frozen=True, slots=True)
class Touched:
    """Sectors of an array that scattered reads touch, counted for ``events`` events, and how many are distinct.

    An array without a size grows with the events: each has its own slice of it.
    """

    array: str
    sectors: float  # for all counted events
    distinct: float
    events: int
    size: float = math.inf

    @property
    def own(self) -> bool:
        """Does every event have its own slice of the array?"""
        return math.isinf(self.size)

    def in_batch(self, batch: int) -> tuple[float, float]:
        """Sectors that a batch of events reads in an array that they share, and how many of these are distinct.

        Reads are assumed to be spread evenly, over so many sectors that the counted events' reads repeat as observed.
        """
        taken = self.sectors * batch / self.events
        even = _even(self.sectors, self.distinct, self.size)
        return taken, min(even * -math.expm1(-taken / even), taken) if even else 0.0


def _even(taken: float, distinct: float, size: float) -> float:
    """The number of sectors of which ``taken`` reads, spread evenly, would touch ``distinct``; at most ``size``."""
    low, high = distinct, size
    if distinct == 0 or size * -math.expm1(-taken / size) <= distinct:
        return size if distinct else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * -math.expm1(-taken / middle) < distinct else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Cost:
    """One kernel, per event: bytes in order, sectors out of order, and operations."""

    kernel: str
    read: float = 0.0  # bytes of arrays that are read from end to end
    written: float = 0.0
    pieces: float = 0.0  # bytes of sectors written or read in part, without those in ``read`` and ``written``
    touched: tuple[Touched, ...] = ()
    shared: float = 0.0  # bytes, or 128 for each access of all banks
    atomics: float = 0.0
    instructions: float = 0.0  # of threads: 32 for each instruction of a warp
    output: bool = False  # does it only deal with results?

    def l2_bytes(self) -> float:
        """All bytes that pass through L2."""
        scattered = sum(it.sectors / it.events for it in self.touched)
        return self.read + self.written + self.pieces + SECTOR * scattered

    def memory_bytes(self, l2: int, batch: int) -> float:
        """Bytes that must come from memory or go there, with this much L2.

        For arrays in order, what exceeds L2. For others, every sector once per batch and, if all of them exceed L2,
        again as often as L2 cannot have kept it; but an event's own slice is in use only for a short time.
        """
        streamed = max(self.read + self.written - l2 / batch, 0.0)
        own = sum(it.distinct / it.events for it in self.touched if it.own)
        reads = [it.in_batch(batch) for it in self.touched if not it.own]
        working = SECTOR * sum(distinct for _, distinct in reads)
        missed = max(1 - l2 / working, 0.0) if working else 0.0
        fetched = sum(distinct + (taken - distinct) * missed for taken, distinct in reads)
        return streamed + SECTOR * (own + fetched / batch)

    def seconds(self, gpu: Gpu, batch: int) -> dict[str, float]:
        """Seconds per event, by limit."""
        return {
            "memory": self.memory_bytes(gpu.l2, batch) / gpu.memory,
            "L2": self.l2_bytes() / gpu.l2_rate,
            "shared memory": self.shared / gpu.shared_rate,
            "atomics": self.atomics / gpu.atomic_rate,
            "instructions": self.instructions / gpu.issue_rate,
        }

    def to_dict(self) -> dict[str, Any]:
        """All figures that are not zero."""
        scattered = {it.array: SECTOR * it.sectors / it.events for it in self.touched if it.sectors}
        figures = {
            "kernel": self.kernel,
            "bytes in order": self.read + self.written,
            "bytes through L2": self.l2_bytes(),
            "scattered bytes by array": scattered,
            "shared memory bytes": self.shared,
            "atomics": self.atomics,
            "instructions": self.instructions,
            "output": self.output,
        }
        return {name: value for name, value in figures.items() if value}


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes per event between host and device."""

    to_device: float
    to_host: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Events per second that a GPU cannot exceed: by each limit alone, and by all, kernel after kernel."""

    gpu: str
    limits: dict[str, float]
    events: float
    binds: str  # the limit that takes most of the time
    kernel: str  # the kernel that takes the most
    shares: dict[str, float] = field(default_factory=dict)  # of the time, by limit

    def to_dict(self) -> dict[str, Any]:
        by_limit = {name: value if math.isfinite(value) else None for name, value in self.limits.items()}
        return {
            "gpu": self.gpu,
            "bound in events/s": self.events,
            "binds": self.binds,
            "slowest kernel": self.kernel,
            "share of time by limit": self.shares,
            "bound in events/s by limit": by_limit,
        }


def bound(costs: Sequence[Cost], transfer: Transfer, gpu: Gpu, batch: int) -> Bound:
    """The bound of kernels in sequence. Copies run alongside and are reported separately."""
    times = [cost.seconds(gpu, batch) for cost in costs]
    slowest = [max(time, key=time.__getitem__) for time in times]
    spent = [time[limit] for time, limit in zip(times, slowest, strict=True)]
    finding = [time for time, cost in zip(times, costs, strict=True) if not cost.output]
    limits = {limit: _rate(time[limit] for time in finding) for limit in LIMITS}
    limits["output"] = _rate(time for time, cost in zip(spent, costs, strict=True) if cost.output)
    limits["transfer"] = _rate([max(transfer.to_device, transfer.to_host) / gpu.transfer_rate])
    shares = dict.fromkeys((*LIMITS, "output"), 0.0)
    for cost, limit, time in zip(costs, slowest, spent, strict=True):
        shares["output" if cost.output else limit] += time
    total = sum(spent)
    binds = max(shares, key=shares.__getitem__)
    mine = [
        (time, cost.kernel)
        for cost, limit, time in zip(costs, slowest, spent, strict=True)
        if (binds == "output") == cost.output and binds in ("output", limit)
    ]
    shares = {name: time / total for name, time in shares.items()}
    return Bound(gpu.name, limits, 1 / total, binds, max(mine)[1], shares)


def _rate(seconds: Iterable[float]) -> float:
    total = sum(seconds)
    return 1 / total if total else math.inf
