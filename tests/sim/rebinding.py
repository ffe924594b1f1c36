"""Kernels whose functions or constants are others for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpumatch.kernels.cuda import target


@contextmanager
def bound_anew() -> Iterator[None]:
    """Kernels look up what they call and the constants they use again, now and in the end."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    target._bound.clear()
    for kernel in target.KERNELS.values():
        kernel.__dict__.pop("bound", None)
