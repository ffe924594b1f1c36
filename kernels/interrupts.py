"""Ctrl-C while numba is imported or compiles: it stops the caller at once, and numba not half-way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def shielded(function: Callable[..., Any], *args: Any) -> Any:
    """The function's result. Interrupts reach the main thread only, so it runs on another, to its end in any case.

    numba is not made for being stopped: what is half imported or half compiled stays so in that process.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args)
    aside = ThreadPoolExecutor(1, "gpumatch-compile")
    try:
        found = aside.submit(function, *args)
    except RuntimeError:  # the interpreter ends, and starts no threads
        return function(*args)
    aside.shutdown(wait=False)
    return found.result()
