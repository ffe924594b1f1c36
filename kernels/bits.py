"""Bit counting by machine instructions, which numba does not offer by name on the CPU."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic


@intrinsic
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Position of the lowest set bit of a uint64 that is not zero."""
    if word != types.uint64:
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(types.boolean, 1))

    return types.uint64(types.uint64), generate
