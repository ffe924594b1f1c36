"""One CUDA device, or numba's simulation of one: memory, launches, and several pieces of work in flight."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gpumatch.arrays import library, simulated
from gpumatch.errors import DeviceError
from gpumatch.kernels.cuda import target
from gpumatch.predicates import Array

T = TypeVar("T")
# Work on the device that wants to know a number before it goes on: it yields an array of one, and gets the number.
Job: TypeAlias = Generator[Any, int, T]

_BLOCKS_PER_UNIT = 32  # of a grid, for each multiprocessor: enough to fill it, few enough to reuse what a block holds
_IN_FLIGHT = 2  # pieces of work: while one waits for a number or is copied, the other computes
_SIMULATED_THREADS = 8  # per block, and blocks per grid: small, since each thread is one of Python's
_SIMULATED_BLOCKS = 3
_SIMULATED_MEMORY = 1 << 26
_SHARE_OF_MEMORY = 32
_MOST_BYTES = 1 << 29
_one_kernel = threading.Lock()  # is all that numba simulates at a time


class Card:
    """A device by its number. All arrays that it makes are in its memory."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.xp = library()
        self._local = threading.local()  # what the job that a thread is running has under way
        if simulated():
            self.threads, self.blocks, memory = _SIMULATED_THREADS, _SIMULATED_BLOCKS, _SIMULATED_MEMORY
        else:
            properties = self.xp.cuda.runtime.getDeviceProperties(number)
            self.threads, self.blocks = target.THREADS, _BLOCKS_PER_UNIT * int(properties["multiProcessorCount"])
            memory = int(properties["totalGlobalMem"])
        # Bytes that each buffer of a piece of work should stay below.
        self.budget = min(memory // _SHARE_OF_MEMORY, _MOST_BYTES)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Make this the current device, and RMM's pool the source of its memory where RMM is installed."""
        with ExitStack() as stack:
            if not simulated():
                from numba import cuda

                stack.enter_context(self.xp.cuda.Device(self.number))
                stack.enter_context(cuda.gpus[self.number])
                allocate = _rmm_allocator()
                if allocate is not None:
                    stack.enter_context(self.xp.cuda.using_allocator(allocate))
            yield

    def upload(self, array: Array) -> Any:
        """A copy of a host array on the device, under way on the current stream."""
        if simulated() or array.size == 0:
            return self.xp.asarray(array.copy())
        import cupyx

        pinned = cupyx.empty_pinned(array.shape, array.dtype)
        pinned[...] = array
        self._local.pinned.append(pinned)
        copy = self.xp.empty(array.shape, array.dtype)
        copy.set(pinned, stream=self.xp.cuda.get_current_stream())
        return copy

    def own(self, array: Any) -> Any:
        """An array that is on a device already, if it is this one."""
        if not simulated() and array.device.id != self.number:
            raise DeviceError(
                f"events lie on 'cuda:{array.device.id}', subscriptions on 'cuda:{self.number}'; copy them there, or "
                "move the matcher with to()"
            )
        return array

    def hold(self, array: Array) -> Any:
        """A copy on the device for good, in the form that kernels take fastest, and ready on all streams."""
        held = self.xp.asarray(array)
        self.synchronize()
        return _argument(held)

    def synchronize(self) -> None:
        """Wait for all that is under way on the current stream."""
        if not simulated():
            self.xp.cuda.get_current_stream().synchronize()

    def download(self, array: Any) -> Array:
        """A copy of an array of the device on the host."""
        found: Array = np.array(array) if simulated() else array.get()
        return found

    def launch(self, kernel: target.Kernel, items: int, *args: Any, blocks: int | None = None) -> None:
        """Run a kernel on the current stream, with about a thread for each item; loops in the kernel do the rest."""
        if items == 0:
            return
        threads = min(kernel.threads, self.threads)
        grid = min(-(-items // threads), self.blocks if blocks is None else blocks)
        if simulated():
            with _one_kernel, np.errstate(over="ignore"):  # integers wrap around on a device
                given = tuple(map(_argument, args))
                kernel.check(given)
                kernel.launcher[grid, threads](given)
            return
        from numba import cuda

        stream = cuda.external_stream(self.xp.cuda.get_current_stream().ptr)
        kernel.launcher[grid, threads, stream](*map(_argument, args))

    def tiles(self, items: int) -> int:
        """How many blocks it takes to give each item a thread."""
        return -(-items // self.threads)

    def run(self, count: int, most: int, job: Callable[[int, int], Job[T]]) -> list[T]:
        """Results of a job for consecutive ranges of ``count`` things, at most so many at a time.

        Two run side by side, each on a stream. Where memory does not suffice, one runs alone, then with half as much.
        """
        ranges = deque((start, min(start + most, count)) for start in range(0, count, most))
        idle = [self._stream() for _ in range(_IN_FLIGHT)]
        active: deque[_Running] = deque()
        done: dict[int, T] = {}
        side_by_side = _IN_FLIGHT
        while ranges or active:
            if ranges and len(active) < side_by_side:
                start, stop = ranges.popleft()
                active.append(_Running(start, stop, job(start, stop), idle.pop()))
            running = active.popleft()
            short = ""
            try:
                finished = running.advance(self)
            except MemoryError as error:  # which holds on to the arrays of the job while it is looked at
                short = str(error) or "out of memory"
            if short:
                running.job.close()
                self._forget()
                side_by_side = 1
                ranges.extendleft(reversed(_smaller(running, not active, short)))
            elif finished:
                done[running.start] = running.result
            if short or finished:
                idle.append(running.stream)
            else:
                active.append(running)
        return [done[start] for start in sorted(done)]

    def pin_into(self, held: list[Any]) -> None:
        """Keep the host memory of this thread's uploads in a list from now on, until they are known to be done."""
        self._local.pinned = held

    def _stream(self) -> Any:
        return None if simulated() else self.xp.cuda.Stream(non_blocking=True)

    def _forget(self) -> None:
        """Give unused memory back, so that smaller pieces find room."""
        self.synchronize()
        if not simulated():
            self.xp.get_default_memory_pool().free_all_blocks()


class _Running:
    """A job in flight: its stream, and the number it waits for."""

    def __init__(self, start: int, stop: int, job: Any, stream: Any) -> None:
        self.start, self.stop, self.job, self.stream = start, stop, job, stream
        self.result: Any = None
        self._wanted: Any = None
        self._pinned: list[Any] = []  # host memory that copies under way still read

    def advance(self, card: Card) -> bool:
        """Go on to the next number that it wants; True if it is done, and its result may be used on any stream."""
        with ExitStack() as stack:
            if self.stream is not None:
                stack.enter_context(self.stream)
            number = None
            if self._wanted is not None:
                number = int(card.download(self._wanted)[0])
                self._pinned.clear()  # the stream is in order: copies before this one are done
            try:
                card.pin_into(self._pinned)
                self._wanted = self.job.send(number)
            except StopIteration as end:
                self.result = end.value
                if self.stream is not None:
                    self.stream.synchronize()
                return True
        return False


def _smaller(running: _Running, alone: bool, short: str) -> Sequence[tuple[int, int]]:
    """What to do instead of a piece of work for which there was not enough memory."""
    start, stop = running.start, running.stop
    if not alone:
        return [(start, stop)]
    if stop - start == 1:
        raise DeviceError(
            f"the device has not enough free memory to match a single event ({short}); free some, use an index with "
            "fewer candidates, or device='cpu'"
        )
    middle = (start + stop) // 2
    return [(start, middle), (middle, stop)]


def _argument(array: Any) -> Any:
    """An array as kernels take it: without asking for its stream, since all work of a job is on one."""
    if simulated():
        return array.view(target.Checked) if isinstance(array, np.ndarray) else array
    if not hasattr(array, "__cuda_array_interface__") or type(array).__module__.startswith("numba"):
        return array
    from numba import cuda

    return cuda.as_cuda_array(array, sync=False)


def _rmm_allocator() -> Any:
    try:
        from rmm.allocators.cupy import rmm_cupy_allocator
    except ImportError:
        return None
    return rmm_cupy_allocator
