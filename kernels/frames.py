"""Many arrays as one argument of compiled code: their addresses and lengths, in sequence.

Each array argument of a call costs a quarter of a microsecond; a frame of twenty costs as much as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types

from gpumatch.kernels.bits import intrinsic
from gpumatch.kernels.compile import maker


class Frame:
    """Holds its arrays, and must itself be held while ``numbers`` are used."""

    __slots__ = ("arrays", "numbers")

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = tuple(map(np.ascontiguousarray, arrays))
        self.numbers = np.array([(array.ctypes.data, array.size) for array in self.arrays], np.int64).ravel()


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@maker
def framed(numbers, at, kind):
    """The array at a position of a frame; ``kind`` must be the type of its items."""
    return carray(_pointer(numbers[2 * at]), numbers[2 * at + 1], kind)


@maker
def framed_table(table, deepest):
    """Clauses, predicates and programs from the frame of a table; its longest program has ``deepest`` items."""
    clauses = (framed(table, 0, np.int32), framed(table, 1, np.int64), framed(table, 2, np.int32))
    predicates = (framed(table, 3, np.int32), framed(table, 4, np.int32), framed(table, 5, np.int32))
    return clauses, predicates, (framed(table, 6, np.int64), framed(table, 7, np.int32), deepest)
