"""Compiles Python functions to CUDA kernels, and runs them where numba simulates a device.

A kernel is a plain function. Its callees, including scalar bodies of the CPU, are compiled for the device by
rebinding its global names: a function to its device form, an instruction of the CPU to one of the device. In the
simulator (``NUMBA_ENABLE_CUDASIM=1``) they are all bound to plain Python instead.
"""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import cuda as numba_cuda
from numba.core import config, sigutils
from numba.core.types import Array as ArrayType
from numba.core.types import Integer
from numba.np.numpy_support import as_dtype
from numpy.typing import NDArray

from gpumatch.kernels import bits

# Small batches make small grids; users can do nothing about it.
warnings.filterwarnings("ignore", message=".*Grid size .* will likely result in GPU under-utilization")

SIMULATED = bool(config.ENABLE_CUDASIM)
THREADS = 256  # per block


class _Shared:
    """Shared memory of the current block in the simulator, filled with garbage before a kernel writes to it.

    The simulator's own is created twice if two threads ask for it at the same time, and outlives its block.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._block: Any = None
        self._held: dict[int, NDArray[Any]] = {}

    def array(self, shape: int, dtype: Any) -> NDArray[Any]:
        line = sys._getframe(1).f_lineno
        block = threading.current_thread()._manager  # type: ignore[attr-defined]
        with self._lock:
            if self._block is not block:
                self._block, self._held = block, {}
            if line not in self._held:
                size = shape * np.dtype(str(dtype)).itemsize
                self._held[line] = np.full(size, 0x5B, np.uint8).view(str(dtype)).view(Checked)
            return self._held[line]


class _Simulated:
    """The module ``cuda`` of kernels, taken from the simulator at the time of each call."""

    shared = _Shared()

    def __getattr__(self, name: str) -> Any:
        from numba.cuda.simulator.kernel import _get_kernel_context

        return getattr(_get_kernel_context(), name)


class Checked(np.ndarray[Any, np.dtype[Any]]):
    """An array in the simulator that refuses what a device would not notice: indexes before its start."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(_checked(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(_checked(at), value)


def _checked(at: Any) -> Any:
    if not isinstance(at, (slice, tuple)) and at < 0:
        raise IndexError(f"index {at} is below zero")
    return at


cuda: Any = _Simulated() if SIMULATED else numba_cuda


@dataclass(frozen=True)
class Kernel:
    """An entry point on the device; ``signature``: the types of its arguments, as numba writes them."""

    name: str
    function: Callable[..., None]
    signature: str
    threads: int

    @cached_property
    def bound(self) -> Callable[..., None]:
        """The plain function, with all its callees in the form that the device needs."""
        plain: Callable[..., None] = _bind(self.function, lambda function: function)
        return plain

    @cached_property
    def launcher(self) -> Any:
        """Started by ``[grid, block, stream](*args)``; in the simulator its only argument is the tuple of all."""
        if SIMULATED:
            return numba_cuda.jit(self._simulate)
        return numba_cuda.jit(self.signature)(self.bound)

    @cached_property
    def types(self) -> tuple[Any, ...]:
        """The numba types of the arguments."""
        found: tuple[Any, ...] = sigutils.normalize_signature(self.signature)[0]
        return found

    def _simulate(self, args: tuple[Any, ...]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # as on a device
            self.bound(*args)

    def check(self, args: tuple[Any, ...]) -> None:
        """Refuse arguments in the simulator that a device would not take: the simulator checks no types itself."""
        for at, (given, wanted) in enumerate(zip(args, self.types, strict=True)):
            if isinstance(given, np.ndarray) and isinstance(wanted, ArrayType):
                right = given.dtype == as_dtype(wanted.dtype) and given.ndim == wanted.ndim
                if right and given.flags.c_contiguous:
                    continue
            elif isinstance(given, int) and isinstance(wanted, Integer):
                continue
            raise TypeError(f"argument {at} of {self.name} is {wanted}, found {given!r}")


KERNELS: dict[str, Kernel] = {}


def kernel(signature: str) -> Callable[[Callable[..., None]], Kernel]:
    """Make a function a kernel with arguments of these types."""

    def decorate(function: Callable[..., None]) -> Kernel:
        module = function.__module__.rpartition(".")[2]
        made = Kernel(f"{module}.{function.__name__}", function, signature, THREADS)
        KERNELS[made.name] = made
        return made

    return decorate


def device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call and that works only on the device; it stays as it is."""
    function.__dict__["on_device"] = True
    return function


def _trailing_zeros(word):
    return np.uint64(cuda.popc((word & (~word + np.uint64(1))) - np.uint64(1)))


def _ones(word):
    return np.uint64(cuda.popc(word))


def _prefetch(array, index):
    """Nothing: a device hides latency by its many threads."""


_INSTRUCTIONS = {id(bits.trailing_zeros): _trailing_zeros, id(bits.ones): _ones, id(bits.prefetch): _prefetch}
_bound: dict[Any, Any] = {}


def _callee(value: Any) -> Any:
    """The plain function behind a global name of a kernel, or None if it names something else."""
    if id(value) in _INSTRUCTIONS:
        return _INSTRUCTIONS[id(value)]
    if isinstance(value, types.FunctionType):
        return value if value.__dict__.get("on_device") else None
    return getattr(value, "py_func", None)


def _bind(function: Any, decorate: Callable[[Any], Any]) -> Any:
    """The function, with the functions that it calls bound to their device forms."""
    if function in _bound:
        return _bound[function]
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        called = _callee(names.get(name))
        if called is not None:
            names[name] = _bind(called, _for_device)
    made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    _bound[function] = decorate(made)
    return _bound[function]


def _for_device(function: Any) -> Any:
    return function if SIMULATED else numba_cuda.jit(function, device=True, forceinline=True)
