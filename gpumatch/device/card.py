"""One CUDA device, or numba's simulation of one: memory, launches, and several pieces of work in flight."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gpumatch.arrays import Array
from gpumatch.device_memory import finish, is_device_array, library, simulated, to_host
from gpumatch.errors import DeviceError
from gpumatch.kernels.cuda import target

T = TypeVar("T")
# Work on the device. Where it needs a number to go on, it yields an array with just that number, and is sent it.
Job: TypeAlias = Generator[Any, int, T]

_BLOCKS_PER_UNIT = 32  # of a grid, per multiprocessor: enough to fill it, few enough to reuse what a block has loaded
_IN_FLIGHT = 2  # pieces of work: while one waits for a number or is copied, the other computes
_SIMULATED_THREADS = 8  # per block, and blocks per grid: small, since each thread is a Python thread
_SIMULATED_BLOCKS = 3
_SIMULATED_MEMORY = 1 << 26
_SHARE_OF_MEMORY = 32
_MOST_BYTES = 1 << 29
_one_kernel = threading.Lock()  # numba simulates one kernel at a time


class Card:
    """A device by its number. All arrays that it makes are in its memory."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.xp = library()
        self._local = threading.local()  # state of the job that a thread is running
        self._streams: list[Any] = []  # not used by any job
        self._allocator = None if simulated() else _rmm_allocator(number)
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
        """Make this the current device, and RMM the source of its memory if it has a pool."""
        with ExitStack() as stack:
            if not simulated():
                from numba import cuda

                stack.enter_context(self.xp.cuda.Device(self.number))
                stack.enter_context(cuda.gpus[self.number])
                if self._allocator is not None:
                    stack.enter_context(self.xp.cuda.using_allocator(self._allocator))
            yield

    def upload(self, array: Array) -> Any:
        """A copy of a host array on the device, under way on the current stream."""
        if simulated() or array.size == 0:
            return self.xp.asarray(array.copy())
        import cupyx

        copy = self.xp.empty(array.shape, array.dtype)
        try:
            pinned = cupyx.empty_pinned(array.shape, array.dtype)
        except RuntimeError:  # no pinned memory left on the host: a slower copy
            copy.set(array)
            return copy
        pinned[...] = array
        self._local.pinned.append(pinned)
        copy.set(pinned)
        return copy

    def own(self, array: Any) -> Any:
        """An array that is already on a device, which must be this one."""
        if not simulated() and array.device.id != self.number:
            raise DeviceError(
                f"events are on 'cuda:{array.device.id}', subscriptions on 'cuda:{self.number}'; copy them there, or "
                "move the matcher with to()"
            )
        return array

    def hold(self, array: Array) -> Any:
        """A permanent copy on the device, in the form that is fastest for kernels, and ready on all streams."""
        if simulated():
            return _argument(self.xp.asarray(array))
        copy = self.xp.empty(array.shape, array.dtype)
        copy.set(array)  # not asarray, which would keep as much pinned memory on the host for good
        finish()
        return _argument(copy)

    def download(self, array: Any) -> Array:
        """A copy of a device array on the host."""
        found: Array = to_host(array)
        return found

    def launch(self, kernel: target.Kernel, items: int, *args: Any, blocks: int | None = None) -> None:
        """Run a kernel on the stream of the job, with about a thread for each item; loops in the kernel do the rest."""
        if items == 0:
            return
        threads = min(kernel.threads, self.threads)
        grid = min(-(-items // threads), self.blocks if blocks is None else blocks)
        if simulated():
            given = tuple(map(_argument, args))
            kernel.check(given)
            with _one_kernel:
                kernel.launcher[grid, threads](given)
            return
        kernel.launcher[grid, threads, self._local.stream.kernel](*map(_argument, args))

    def tiles(self, items: int) -> int:
        """How many blocks it takes to give each item a thread."""
        return -(-items // self.threads)

    def run(self, count: int, most: int, job: Callable[[int, int], Job[T]]) -> list[T]:
        """Results of a job for consecutive ranges of ``count`` items, at most ``most`` at a time.

        Two run side by side, each on a stream. If memory runs out, one runs alone, then on half as much.
        """
        ranges = deque(_cut(0, count, most))
        active: deque[_Running] = deque()
        done: dict[int, T] = {}
        side_by_side = _IN_FLIGHT
        try:
            while ranges or active:
                if ranges and len(active) < side_by_side:
                    start, stop = ranges.popleft()
                    active.append(_Running(start, stop, job(start, stop), self._lend()))
                running = active[0]
                if running.advance(self):
                    active.rotate(-1)
                    continue
                self._end(active.popleft())
                if not running.short:
                    done[running.start] = running.result
                    continue
                alone = running.over_budget or not active
                ranges = deque(_smaller(running, alone, ranges))
                if not running.over_budget:
                    side_by_side = 1
                    self._give_back()
        finally:
            for running in active:  # after an error: none of their memory may be freed while they run
                self._end(running)
        return [done[start] for start in sorted(done)]

    def _lend(self) -> Any:
        """A stream for a job. Streams are kept, since freed memory belongs to the stream it was used on."""
        try:
            return self._streams.pop()
        except IndexError:
            return None if simulated() else _Stream(self.xp)

    def _end(self, running: _Running) -> None:
        """End a job, finished or not; once its stream is done, its memory is freed."""
        if running.stream is not None:
            running.stream.array.synchronize()
        running.job.close()
        self._streams.append(running.stream)

    def _give_back(self) -> None:
        """Give unused memory back, so that smaller pieces find room."""
        if not simulated():
            self.xp.get_default_memory_pool().free_all_blocks()

    def work_on(self, stream: _Stream | None, pinned: list[Any]) -> None:
        """Launch this thread's kernels on a stream from now on, and keep the host memory of its uploads in a list."""
        self._local.stream, self._local.pinned = stream, pinned


class OverBudget(MemoryError):  # noqa: N818 - ends in a smaller piece, never in an error
    """Work that would take more memory than one piece should: it is cut into smaller pieces."""


class _Stream:
    """A stream, as CuPy and numba know it."""

    def __init__(self, xp: Any) -> None:
        from numba import cuda

        self.array = xp.cuda.Stream(non_blocking=True)
        self.kernel = cuda.external_stream(self.array.ptr)


class _Running:
    """A job in flight: its stream, and the number it waits for."""

    def __init__(self, start: int, stop: int, job: Any, stream: Any) -> None:
        self.start, self.stop, self.job, self.stream = start, stop, job, stream
        self.result: Any = None
        self.short = ""  # of memory: the message, if any
        self.over_budget = False
        self._wanted: Any = None
        self._pinned: list[Any] = []  # host memory that copies under way still read

    def advance(self, card: Card) -> bool:
        """Run up to the next number that it needs; False if there is none: it is done, or out of memory."""
        with ExitStack() as stack:
            if self.stream is not None:
                stack.enter_context(self.stream.array)
            try:
                number = None
                if self._wanted is not None:
                    number = int(card.download(self._wanted)[0])
                    self._pinned.clear()  # the stream is in order: copies before this one are done
                card.work_on(self.stream, self._pinned)
                self._wanted = self.job.send(number)
            except StopIteration as end:
                self.result = end.value
                return False
            except Exception as error:  # not kept: it would keep the job's arrays alive
                if not _is_short(error):
                    raise
                self.short, self.over_budget = str(error) or "out of memory", isinstance(error, OverBudget)
                return False
        return True


def _cut(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    return [(first, min(first + most, stop)) for first in range(start, stop, most)]


def _smaller(running: _Running, alone: bool, later: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges to try instead of the one for which memory ran out and those after it."""
    most = running.stop - running.start
    if alone and most == 1:
        raise DeviceError(
            f"the device does not have enough memory to match a single event ({running.short}); free some, use an "
            "index with fewer candidates, or device='cpu'"
        )
    if alone:
        most = -(-most // 2)
    for first, last in [(running.start, running.stop), *later]:
        yield from _cut(first, last, most)


def _is_short(error: Exception) -> bool:
    """Did memory run out? CuPy, RMM, the CUDA runtime and numba say so in different ways."""
    message = str(error)
    return isinstance(error, MemoryError) or "cudaErrorMemoryAllocation" in message or "OUT_OF_MEMORY" in message


def _argument(array: Any) -> Any:
    """An array in the form that kernels accept: without a stream to wait for, since all work of a job is on one."""
    if simulated():
        return array.view(target.Checked) if isinstance(array, np.ndarray) else array
    if not is_device_array(array):  # a number, or in that form already
        return array
    from numba import cuda

    return cuda.as_cuda_array(array, sync=False)


def _rmm_allocator(number: int) -> Any:
    """RMM's allocator, if RMM was given a pool: by default it asks the driver each time, which CuPy does not."""
    try:
        import rmm
        from rmm.allocators.cupy import rmm_cupy_allocator
    except ImportError:
        return None
    plain = isinstance(rmm.mr.get_per_device_resource(number), rmm.mr.CudaMemoryResource)
    return None if plain else rmm_cupy_allocator
