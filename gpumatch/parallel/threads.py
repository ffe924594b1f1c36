"""How many threads match, and the pool that runs them.

Compiled code releases the GIL, so plain Python threads are enough: they are safe with fork and with callers on several
threads, which numba's own threading layers are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from gpumatch.errors import GpumatchError

_SHARE = 1 << 16  # things that are worth a thread

T = TypeVar("T")
R = TypeVar("R")

_count: int | None = None
_pool: tuple[int, int, ThreadPoolExecutor] | None = None  # process, threads, pool: a forked child makes its own


def set_num_threads(count: int) -> None:
    """Use at most ``count`` threads from now on, in this process."""
    global _count
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of threads must be a whole number of at least 1, found {count!r}")
    _count = count


def get_num_threads() -> int:
    """Threads in use: as set, else GPUMATCH_NUM_THREADS of the environment, else the cores of this process."""
    if _count is not None:
        return _count
    given = os.environ.get("GPUMATCH_NUM_THREADS", "")
    if given:
        if not given.isdigit() or int(given) < 1:
            raise GpumatchError(f"GPUMATCH_NUM_THREADS must be a whole number of at least 1, found {given!r}")
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The function's results for all items, in order; on the caller's thread if one thread is enough."""
    items = list(items)
    threads = get_num_threads()
    if threads == 1 or len(items) <= 1:
        return [function(item) for item in items]
    executor, started = _executor(threads), list[Future[R]]()
    try:
        try:
            for item in items:
                started.append(executor.submit(function, item))
        except RuntimeError as error:  # at exit no more threads are started, and the caller's does the rest
            if "after interpreter shutdown" not in str(error):
                raise
        return [one.result() for one in started] + [function(item) for item in items[len(started) :]]
    finally:
        for one in started:  # after an error, or Ctrl-C
            one.cancel()


def shares(count: int) -> list[tuple[int, int]]:
    """An equal share of ``count`` things for each thread, as first and past the last; one share if there are few."""
    number = max(1, min(get_num_threads(), count // _SHARE))
    ends = [count * at // number for at in range(number + 1)]
    return list(pairwise(ends))


def _executor(threads: int) -> ThreadPoolExecutor:
    global _pool
    pool = _pool
    if pool is None or pool[:2] != (os.getpid(), threads):
        pool = _pool = (os.getpid(), threads, ThreadPoolExecutor(threads, "gpumatch"))
    return pool[2]
