"""How functions here are compiled for the CPU; compilations are counted, and announced if they take long."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numba

from gpumatch.kernels.cache import LOG, KernelCache
from gpumatch.kernels.interrupts import shielded
from gpumatch.kernels.pipeline import Whole

Kernel: TypeAlias = Callable[..., Any]

LONG = 1.0  # seconds of compiling before it is announced

_finished = 0
_spent = 0.0
_announced = False
_counting = threading.Lock()


def scalar(function: Kernel) -> Kernel:
    """A small body that drivers call; compiled into them, never cached or called alone.

    It borrows the arrays that it is given, and neither makes nor returns any: counting references to them, with atomic
    operations in inner loops, would take most of the time.
    """
    return _inner(function, forceinline=True, counts=False)


def routine(function: Kernel) -> Kernel:
    """A body that drivers may call, in one copy: inlined at every call, it would take long to compile."""
    return _inner(function, forceinline=False, counts=False)


def maker(function: Kernel) -> Kernel:
    """A scalar that makes or returns arrays, and therefore counts references."""
    return _inner(function, forceinline=True, counts=True)


def _inner(function: Kernel, forceinline: bool, counts: bool) -> Kernel:
    options = {"forceinline": forceinline, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": counts}
    kernel = numba.njit(nogil=True, **options)(function)
    called = kernel.get_call_template

    def call_template(args: Any, kws: Any) -> Any:
        # Constants are arguments like any others: a copy for each value would take time to compile and be no faster.
        found = called(tuple(map(numba.types.unliteral, args)), kws)
        if not counts and any(_has_arrays(made.return_type) for made in kernel.nopython_signatures):
            raise TypeError(f"{function.__module__}.{function.__name__} returns an array: make it a maker")
        return found

    kernel.get_call_template = call_template
    one: Kernel = kernel
    return one


def _has_arrays(kind: Any) -> bool:
    return any(isinstance(one, numba.types.Array) or (one is not kind and _has_arrays(one)) for one in _members(kind))


def _members(kind: Any) -> list[Any]:
    return list(kind) if isinstance(kind, numba.types.BaseTuple) else [kind]


def driver(function: Kernel) -> Kernel:
    """An entry point called from Python: releases the GIL and keeps its machine code on disk."""
    kernel = numba.njit(nogil=True, no_cfunc_wrapper=True, pipeline_class=Whole)(function)
    if function.__module__.startswith(f"{__package__}."):  # covered by the hash that names the folder
        kernel._cache = KernelCache(function)
    counted = partial(_counted, kernel, kernel._compile_for_args)
    kernel._compile_for_args = partial(shielded, counted)  # numba calls this for new types
    one: Kernel = kernel
    return one


def compiled(*drivers: Any) -> bool:
    """Whether these drivers can run without compiling: each has machine code, here or in the cache folder."""
    return all(one.overloads or one._cache.holds(one.targetctx) for one in drivers)


def compilations() -> int:
    """Grows whenever a compilation ends: a call that compiled nothing and waited for none leaves it unchanged."""
    return _finished


def _counted(one: Any, compile_for_args: Kernel, *args: Any) -> Any:
    """Called for argument types that are new in this process; only code not in the cache folder is a miss."""
    global _finished, _spent
    before, start = one._cache_misses.total(), time.monotonic()
    announce = threading.Timer(max(LONG - _spent, 0.05), _announce, (one, before))
    announce.daemon = True
    announce.start()
    collecting = gc.isenabled()
    gc.disable()  # numba makes millions of objects and drops few in cycles: collecting takes an eighth of the time
    try:
        return compile_for_args(*args)
    finally:
        if collecting:
            gc.enable()
        announce.cancel()
        missed = one._cache_misses.total() - before
        with _counting:
            _finished += missed
            _spent += time.monotonic() - start if missed else 0.0


def _announce(one: Any, before: int) -> None:
    """Announce it once, and not for a driver that merely loads."""
    global _announced
    if _announced or one._cache_misses.total() == before:
        return
    _announced = True
    LOG.warning(
        "gpumatch compiles its kernels for this machine, once: ten seconds or more for each index. "
        "`gpumatch warm-up` does it ahead of time"
    )
