"""Compiled code: plain functions over arrays, one module per subject. Imported only when something is matched."""

from importlib import import_module

from gpumatch.kernels.interrupts import shielded

shielded(import_module, "numba")
