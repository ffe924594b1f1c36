"""Timers in buckets: a hashed timing wheel, in which one tick ends every timer of a bucket (Sieve, IV-C)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.values import is_number, is_whole

K = TypeVar("K", bound=Hashable)


class TimerWheel(Generic[K]):
    """Timers by key, which end in buckets of ``resolution``. Time is what ``advance`` gets, in any unit.

    A key never expires before its deadline, and at the latest with the first ``advance`` to one resolution after it.
    Buckets lie on a wheel of ``slots``, those of later turns in the same slots: an ``advance`` visits the slots that it
    passes, at most one turn, and their timers. If a turn is no shorter than timeouts, each timer is visited once.
    """

    def __init__(self, resolution: float, *, start: float = 0, slots: int = 512) -> None:
        if not is_number(resolution) or resolution <= 0:
            raise RoutingError(f"resolution of timers: expected a time above 0, found {resolution!r}")
        if not is_whole(slots) or slots < 1:
            raise RoutingError(f"slots of a timer wheel: expected a number from 1, found {slots!r}")
        self.resolution = resolution
        self.now = _finite(start, "start")
        self._tick = self._tick_of(start)
        self._slots: list[dict[K, int]] = [{} for _ in range(slots)]  # tick by key
        self._ticks: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._ticks)

    def __contains__(self, key: object) -> bool:
        return key in self._ticks

    def add(self, key: K, deadline: float) -> None:
        """Start a timer, or move the key's existing one."""
        if _finite(deadline, "deadline") < self.now:
            raise RoutingError(f"deadline of {key!r}: expected {self.now} or later, which is now, found {deadline}")
        tick = self._tick_of(deadline)
        self.cancel(key)
        self._ticks[key] = tick
        self._slot(tick)[key] = tick

    def cancel(self, key: K) -> bool:
        """Stop a timer; returns whether there was one."""
        tick = self._ticks.pop(key, None)
        if tick is None:
            return False
        del self._slot(tick)[key]
        return True

    def advance(self, now: float) -> list[K]:
        """Keys that expire up to ``now``, bucket by bucket. Time does not go back.

        The bucket that ``now`` lies in is left for later: some of its deadlines are still to come.
        """
        if _finite(now, "now") < self.now:
            raise RoutingError(f"time goes forward: expected {self.now} or later, found {now}")
        first, self._tick, self.now = self._tick, self._tick_of(now), now
        due: list[tuple[int, K]] = []
        for passed in range(first, min(self._tick, first + len(self._slots))):
            due += [(tick, key) for key, tick in self._slot(passed).items() if tick < self._tick]
        due.sort(key=lambda timer: timer[0])
        for _, key in due:
            self.cancel(key)
        return [key for _, key in due]

    def _tick_of(self, time: float) -> int:
        tick = time // self.resolution  # exact for floats, too, so that it rises with the time
        if not math.isfinite(tick):
            raise RoutingError(f"time {time!r} is too many times the resolution of {self.resolution!r}")
        return int(tick)

    def _slot(self, tick: int) -> dict[K, int]:
        return self._slots[tick % len(self._slots)]


def _finite(time: float, name: str) -> float:
    if not is_number(time):
        raise RoutingError(f"{name}: expected a finite time, found {time!r}")
    return time
