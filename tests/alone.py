"""Bodies that are compiled into kernels only, made callable for tests."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import numba


def alone(module: ModuleType) -> SimpleNamespace:
    """A module of kernels with each of its functions compiled for itself."""
    return SimpleNamespace(
        **{
            name: numba.njit(held.py_func) if hasattr(held, "py_func") else held
            for name, held in vars(module).items()
            if not name.startswith("__")
        }
    )
