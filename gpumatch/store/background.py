"""A thread that works while there is something to do, and ends soon when there is not, or when its owner is gone."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

from gpumatch.errors import GpumatchError

LOG = logging.getLogger("gpumatch")
_LINGER = 0.05  # seconds that the thread waits for more to do: whoever starts another one waits for it
FAILED = "gpumatch could not merge what was added, which is searched as it is; it tries again after the next change"


_compiling: list[Any] = []  # numba's lock, while the process is forked


def _before_fork() -> None:
    """A child would wait for ever for a kernel that a thread of its parent, such as ours, is compiling: wait here."""
    if (numba := sys.modules.get("numba.core.compiler_lock")) is not None:
        numba.global_compiler_lock.acquire()
        _compiling.append(numba.global_compiler_lock)


def _after_fork() -> None:
    if _compiling:
        _compiling.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def report(error: Exception) -> None:
    """Log what has failed, without a traceback if it explains itself."""
    if isinstance(error, GpumatchError):
        LOG.error("%s", error)
    else:
        LOG.exception(FAILED)


class Background:
    """Calls a method in a thread until it returns False. The thread does not keep the method's owner alive."""

    def __init__(self, step: Callable[[], bool]) -> None:
        self._step = WeakMethod(step)
        self._changing = threading.Condition()
        self._is_running = self._is_wanted = self._has_failed = False

    def nudge(self) -> None:
        """There may be something to do, though nothing has changed."""
        if not self._has_failed:
            self.wake()

    def wake(self) -> None:
        """There may be something to do."""
        with self._changing:
            self._is_wanted = True
            self._changing.notify()
            if self._is_running:
                return
            self._is_running = True
        try:
            threading.Thread(target=self._run, name="gpumatch-store").start()
        except Exception:  # the program ends, or the system has no more threads: it is done later, or not needed
            self._is_running = False

    def _run(self) -> None:
        while self._goes_on():
            step = self._step()
            try:
                more = step is not None and step()
                self._has_failed = False
            except Exception as error:
                report(error)
                more, self._has_failed = False, True
            del step
            if more:
                with self._changing:
                    self._is_wanted = True

    def _goes_on(self) -> bool:
        """Not once the program ends: Python waits for this thread."""
        with self._changing:
            if not self._is_wanted:
                self._changing.wait(_LINGER)
            self._is_running = self._is_wanted and threading.main_thread().is_alive()
            self._is_wanted = False
            return self._is_running
