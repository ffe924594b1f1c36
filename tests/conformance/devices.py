"""Where the conformance suite runs: on the CPU; tests/sim and tests/gpu run the same tests on a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpumatch as gm
from gpumatch.device_memory import simulated

_device = "cpu"


def new_matcher(schema: Any, index: Any = "auto") -> gm.Matcher:
    """A matcher where the suite runs."""
    return gm.Matcher(schema, index=index, device=_device)


def sized(count: int, few: int) -> int:
    """So many, or so few where each thread of the device is one of Python's."""
    return few if simulated() else count


@contextmanager
def on(device: str) -> Iterator[None]:
    """The suite runs on this device."""
    global _device
    before, _device = _device, device
    try:
        yield
    finally:
        _device = before
