"""Ctrl-C while numba is imported or compiles: it stops the caller immediately, but never numba half-way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def shielded(function: Callable[..., Any], *args: Any) -> Any:
    """The function's result. Interrupts reach only the main thread, so it runs on another, always to its end.

    numba cannot be interrupted safely: half-imported or half-compiled code would stay that way in the process.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args)
    aside = ThreadPoolExecutor(1, "gpumatch-compile")
    try:
        found = aside.submit(function, *args)
    except RuntimeError:  # the interpreter is exiting, and starts no threads
        return function(*args)
    aside.shutdown(wait=False)
    return found.result()
