"""A thread that works while there is something to do, and ends when there is not, or when its owner is gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from weakref import WeakMethod

_LOG = logging.getLogger("gpumatch")


class Background:
    """Calls a method in a thread until it returns False. The thread does not keep the method's owner alive."""

    def __init__(self, step: Callable[[], bool]) -> None:
        self._step = WeakMethod(step)
        self._lock = threading.Lock()
        self._is_running = self._is_wanted = False

    def wake(self) -> None:
        """There may be something to do."""
        with self._lock:
            self._is_wanted = True
            if self._is_running:
                return
            self._is_running = True
        try:
            threading.Thread(target=self._run, name="gpumatch-store").start()
        except RuntimeError:  # the program ends, or the system has no more threads: it is done later, or not needed
            self._is_running = False

    def _run(self) -> None:
        while self._goes_on():
            step = self._step()
            try:
                more = step is not None and step()
            except Exception:  # what it would have built stays as it is, and is searched
                _LOG.exception("gpumatch could not merge what was added; it tries again after the next change")
                more = False
            del step
            if more:
                with self._lock:
                    self._is_wanted = True

    def _goes_on(self) -> bool:
        """Not once the program ends: Python waits for this thread."""
        with self._lock:
            self._is_running = self._is_wanted and threading.main_thread().is_alive()
            self._is_wanted = False
            return self._is_running
