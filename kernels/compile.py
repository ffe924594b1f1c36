"""How functions here are compiled for the CPU, and where machine code is kept between processes.

numba's own cache key is the text of one function: it misses edits of what that function calls. The folder is therefore
named after a hash of all kernel sources, so that no stale code can ever be loaded.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numba
import numba.core.config

from gpumatch.kernels.interrupts import shielded

Kernel: TypeAlias = Callable[..., Any]

_finished = 0
_counting = threading.Lock()


def scalar(function: Kernel) -> Kernel:
    """A small body that drivers call; compiled into them, never cached alone."""
    compiled: Kernel = numba.njit(nogil=True, forceinline=True)(function)
    return compiled


def driver(function: Kernel) -> Kernel:
    """An entry point called from Python: releases the GIL and keeps its machine code on disk."""
    with _cache_folder():
        try:
            kernel = numba.njit(nogil=True, cache=True)(function)
        except RuntimeError:  # no place to cache in, such as a read-only file system
            kernel = numba.njit(nogil=True)(function)
    counted = partial(_counted, kernel, kernel._compile_for_args)
    kernel._compile_for_args = partial(shielded, counted)  # what numba calls for new types
    one: Kernel = kernel
    return one


def compiled(*drivers: Any) -> bool:
    """Whether these drivers can run without being compiled: each has machine code, here or in the cache folder."""
    return all(one.overloads or _on_disk(one) for one in drivers)


def compilations() -> int:
    """A number that grows when a compilation ends: unchanged by a call that compiled nothing and waited for none."""
    return _finished


def _on_disk(one: Any) -> bool:
    file = getattr(one._cache, "_cache_file", None)  # a driver without a cache has none
    if file is None:
        return False
    machine = one.targetctx.codegen().magic_tuple()
    return any(key[1] == machine for key in file._load_index())


def _counted(one: Any, compile_for_args: Kernel, *args: Any) -> Any:
    """Called for argument types that are new in this process; only what is not in the cache folder is a miss."""
    global _finished
    before = one._cache_misses.total()
    try:
        return compile_for_args(*args)
    finally:
        with _counting:
            _finished += one._cache_misses.total() - before


def _source_hash() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    try:
        for path in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(path.read_bytes())
    except OSError:  # inside an archive: the file name of the archive carries the version
        digest.update(__file__.encode())
    return digest.hexdigest()[:16]


def _folder() -> str:
    base = os.environ.get("GPUMATCH_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "gpumatch"
    )
    folder = os.path.join(base, _source_hash())
    try:
        os.makedirs(folder, exist_ok=True)
        return folder
    except OSError:
        return os.path.join(tempfile.gettempdir(), f"gpumatch-{os.getuid()}", _source_hash())


_FOLDER = _folder()


@contextmanager
def _cache_folder() -> Iterator[None]:
    """numba reads its cache folder when a function is decorated: lend it ours just then."""
    before = numba.core.config.CACHE_DIR
    numba.core.config.CACHE_DIR = _FOLDER
    try:
        yield
    finally:
        numba.core.config.CACHE_DIR = before
