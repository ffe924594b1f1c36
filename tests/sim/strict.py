"""A stricter device than numba simulates: what a real one forgives now and then is an error here, every time.

The threads of a block run one at a time, from barrier to barrier, in the order of their numbers and then against it.
An error is

- a place in memory that two threads touch, one of them to write, with no barrier between them (or that threads of two
  blocks touch, since nothing orders blocks), unless all of them do so atomically;
- a barrier that some threads of a block reach and others do not, or at another place of the source;
- an index below zero or behind the end;
- a kernel that reads and writes for ever.

It is also faster than the simulator's own threads, which wait for each other by asking again and again.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.kernelapi import Dim3

from gpumatch.kernels.cuda import target

STEPS = 20_000_000  # accesses to memory in one launch, beyond which it is taken to go on for ever
_MANY = -1  # in the place of a thread: several
_ATOMIC = -2  # in the place of a thread: any, atomically
_NONSENSE = 0x5B


class Race(Exception):  # noqa: N818
    """Two threads touch one place, and nothing says which is first."""


class Diverged(Exception):  # noqa: N818
    """Threads of a block wait at different barriers, or some at none."""


class Endless(Exception):  # noqa: N818
    """A kernel does not end."""


class _Stopped(Exception):  # noqa: N818
    """Another thread of the block has failed."""


class Log:
    """Who touched which places of memory last."""

    def __init__(self) -> None:
        self._writes: dict[int, tuple[int, Any]] = {}
        self._reads: dict[int, tuple[int, Any]] = {}

    def read(self, place: int, thread: int, now: tuple[int, int]) -> None:
        written = self._writes.get(place)
        if written is not None:
            _compare(thread, now, written, "written")
        before = self._reads.get(place)
        if before is None or before[1] is now:
            self._reads[place] = (thread if before is None or before[0] == thread else _MANY, now)
        elif before[1] is None or before[1][0] != now[0]:
            self._reads[place] = (_MANY, None)  # by several blocks
        else:
            self._reads[place] = (thread, now)

    def write(self, place: int, thread: int, now: tuple[int, int]) -> None:
        written, seen = self._writes.get(place), self._reads.get(place)
        if written is not None:
            _compare(thread, now, written, "written")
        if seen is not None:
            _compare(thread, now, seen, "read")
        self._writes[place] = (thread, now)


def _compare(thread: int, now: tuple[int, int], other: tuple[int, Any], done: str) -> None:
    """``now`` is the block and how many barriers it has passed."""
    by, then = other
    apart = then is None or then[0] != now[0]  # in different blocks
    if by == thread and (by == _ATOMIC or not apart):
        return
    if apart or then[1] == now[1]:
        raise Race(f"a place that thread {thread} of block {now[0]} touches was {done} by {by}, and no barrier between")


class Watched(target.Checked):
    """An array whose places are logged; a part of it logs as it does."""

    log: Log | None = None  # of shared memory; what is in the device's memory has that of the launch

    def __array_finalize__(self, parent: Any) -> None:
        self.first = self.__array_interface__["data"][0]
        if parent is not None:
            self.log = getattr(parent, "log", None)

    def __getitem__(self, at: Any) -> Any:
        if type(at) is not slice and (self.ndim == 1 or type(at) is tuple):
            _note(self, at, Log.read)
        return super().__getitem__(at)

    def __setitem__(self, at: Any, value: Any) -> None:
        _note(self, at, Log.write)
        super().__setitem__(at, value)


def _note(array: Watched, at: Any, touch: Any, thread: int | None = None) -> None:
    worker: Any = threading.current_thread()
    block = getattr(worker, "_manager", None)
    if block is None:  # not in a kernel
        return
    launch = block.launch
    launch.steps += 1
    if launch.steps > STEPS:
        raise Endless(f"{STEPS} accesses to memory, and no end")
    if type(at) is tuple:
        place = array.first + sum(int(index) * stride for index, stride in zip(at, array.strides, strict=True))
    else:
        place = array.first + int(at) * array.itemsize
    touch(array.log or launch.log, place, worker.number if thread is None else thread, block.now)


class Launch:
    """What the blocks of one launch have in common."""

    def __init__(self) -> None:
        self.log = Log()
        self.steps = 0


class Worker(threading.Thread):
    """One thread of the device after another; the simulator asks the current thread for these names."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.threadIdx = Dim3(number, 0, 0)
        self.blockIdx: Any = None
        self.thread_id = number
        self._manager: Any = None
        self.turn = threading.Lock()
        self.turn.acquire()

    def run(self) -> None:
        np.seterr(over="ignore", invalid="ignore")  # integers wrap around on a device, and infinities are numbers
        while True:
            self.turn.acquire()
            self._manager.execute(self)


_workers: list[Worker] = []


def _workers_for(count: int) -> list[Worker]:
    while len(_workers) < count:
        _workers.append(Worker(len(_workers)))
        _workers[-1].start()
    return _workers[:count]


class Block:
    """Runs the threads of a block; in the place of the simulator's BlockManager."""

    _launch: Launch | None = None

    def __init__(self, function: Any, grid_dim: Any, block_dim: Any, debug: bool) -> None:
        self._function, self._size = function, block_dim[0]
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._site: Any = None  # the barrier that threads wait at
        self._at = 0  # in the order
        self.votes = [0, 0]  # by rounds, even and odd
        self.shared: dict[int, Watched] = {}

    def run(self, point: tuple[int, ...], *args: Any) -> None:
        if point[0] == 0 or Block._launch is None:
            Block._launch = Launch()
        self.launch, self._args = Block._launch, args
        self.now = (point[0], 0)
        self._order = _workers_for(self._size)
        self._left = list(self._order)
        for worker in self._order:
            worker._manager, worker.blockIdx = self, Dim3(*point)
        self._order[0].turn.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error

    def execute(self, worker: Worker) -> None:
        """All of a thread, in its turns."""
        try:
            if self._error is None:
                self._function(*self._args)
                self._reach(None)
        except _Stopped:
            pass
        except BaseException as error:
            self._error = error
        self._left.remove(worker)
        self._next()

    def wait(self, worker: Worker, frame: Any) -> None:
        """Until all threads are here."""
        self._reach((frame.f_code.co_name, frame.f_lineno))
        self._next()
        worker.turn.acquire()
        if self._error is not None:
            raise _Stopped

    def _reach(self, site: Any) -> None:
        """All threads end a round at the same place."""
        if self._at == 0:
            self._site = site
        elif site != self._site:
            raise Diverged(f"some threads of block {self.now[0]} reach {self._site}, others {site}, None being the end")

    def _next(self) -> None:
        """Give the turn to the next thread; behind the last one a round in the other direction begins."""
        self._at += 1
        if not self._left:
            self._done.release()
            return
        if self._error is not None:
            self._left[-1].turn.release()  # which stops, and passes it on
            return
        if self._at == len(self._order):
            self._order = self._order[::-1]
            self._at = 0
            self.now = (self.now[0], self.now[1] + 1)
            self.votes[self.now[1] & 1] = 0
        self._order[self._at].turn.release()


class _Shared:
    """Shared memory of the block, full of nonsense before a kernel writes to it."""

    def array(self, shape: int, dtype: Any) -> Watched:
        held, line = threading.current_thread()._manager.shared, sys._getframe(1).f_lineno  # type: ignore[attr-defined]
        if line not in held:
            memory = np.full(shape * np.dtype(str(dtype)).itemsize, _NONSENSE, np.uint8)
            held[line] = memory.view(str(dtype)).view(Watched)
            held[line].log = Log()
        return held[line]


class _Atomic:
    """What of atomic operations kernels use. Between threads they need no barrier."""

    def add(self, array: Watched, index: int, value: Any) -> Any:
        _note(array, index, Log.write, _ATOMIC)
        plain = array.view(np.ndarray)
        before = plain[index]
        plain[index] += value
        return before

    def or_(self, array: Watched, index: int, value: Any) -> Any:
        _note(array, index, Log.write, _ATOMIC)
        plain = array.view(np.ndarray)
        before = plain[index]
        plain[index] |= value
        return before

    def cas(self, array: Watched, index: int, old: Any, value: Any) -> Any:
        _note(array, index, Log.write, _ATOMIC)
        plain = array.view(np.ndarray)
        before = plain[index]
        if before == old:
            plain[index] = value
        return before


class Device(type(target.cuda)):  # type: ignore[misc]
    """What kernels know as ``cuda``; all that is not here is the simulator's."""

    shared = _Shared()
    atomic = _Atomic()

    @property
    def threadIdx(self) -> Dim3:  # noqa: N802
        return threading.current_thread().threadIdx  # type: ignore[attr-defined]

    def syncthreads(self) -> None:
        worker: Any = threading.current_thread()
        worker._manager.wait(worker, sys._getframe(1))

    def syncthreads_count(self, value: Any) -> int:
        worker: Any = threading.current_thread()
        block = worker._manager
        turn = block.now[1] & 1
        block.votes[turn] += bool(value)
        block.wait(worker, sys._getframe(1))
        return block.votes[turn]

    def syncthreads_or(self, value: Any) -> int:
        return int(self.syncthreads_count(value) > 0)


def on_one_processor() -> None:
    """Threads that take turns do so sooner if they need not wake another processor."""
    if hasattr(os, "sched_setaffinity"):
        there = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {there[os.getpid() % len(there)]})


_PLAIN = (simulator.BlockManager, target.Checked, type(target.cuda))
_STRICT = (Block, Watched, Device)


@contextmanager
def running(how: tuple[Any, Any, Any]) -> Iterator[None]:
    before = (simulator.BlockManager, target.Checked, type(target.cuda))
    simulator.BlockManager, target.Checked, target.cuda.__class__ = how
    try:
        yield
    finally:
        simulator.BlockManager, target.Checked, target.cuda.__class__ = before


def strictly() -> Any:
    """Kernels run as is said above."""
    return running(_STRICT)


def plainly() -> Any:
    """Kernels run as numba simulates them."""
    return running(_PLAIN)
