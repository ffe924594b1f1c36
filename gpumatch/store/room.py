"""How many matches a call may return: as many as fit in memory, so that the system does not kill the process."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from gpumatch.errors import LimitError

_BYTES = 24  # per match while a result is assembled
_SURE = 1 << 28  # bytes taken for granted: asking takes longer than matching one event
_GROUP = Path("/sys/fs/cgroup")


class Room:
    """Room for the matches of some events with some subscriptions. Threads may share it."""

    def __init__(self, events: int, rows: int) -> None:
        bytes_at_most = _BYTES * events * rows
        self.most = sys.maxsize if bytes_at_most <= _SURE else max(available(), _SURE) // _BYTES
        self._events, self._taken, self._taking = events, 0, threading.Lock()

    def at_once(self, rows: int, threads: int) -> int:
        """How many events may be matched together, however many of these rows they satisfy."""
        return max(1, self.most // max(rows * threads, 1))

    def take(self, matches: int) -> None:
        """Raise if there is no room for these too."""
        with self._taking:
            self._taken += matches
            taken = self._taken
        if taken > self.most:
            raise LimitError(
                f"{self._events:,} events have more than {self.most:,} matches, for which there is no room in memory: "
                "take them in slices with match_iter(), or use count(), any(), top() or destinations()"
            )


def available() -> int:
    """Bytes of memory available without swapping."""
    found = [sys.maxsize]
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    if len(found) == 1:
        with suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError, KeyError):  # of a container; "max" is not a number
        held = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        limit, used = (int((_GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(max(0, limit - used + int(held["inactive_file"])))
    return min(found)
