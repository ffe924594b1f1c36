"""Bits of 512 events side by side, as eight words, which one or two vector instructions combine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from gpumatch.kernels.bits import intrinsic

WORDS = 8  # of 64 events each
EVENTS = 64 * WORDS


def _combination(combine: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """``function(words, to, a, b)``: combine the eight words at ``a`` and ``b`` into those at ``to``; is a bit set?"""

    @intrinsic
    def function(typingctx: Any, words: Any, to: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = ir.VectorType(ir.IntType(64), WORDS)
            view = context.make_array(signature.args[0])(context, builder, args[0])
            target, left, right = (
                builder.bitcast(builder.gep(view.data, [place]), vector.as_pointer()) for place in args[1:]
            )
            result = combine(builder, builder.load(left, align=8), builder.load(right, align=8))
            builder.store(result, target, align=8)
            bits = builder.bitcast(result, ir.IntType(64 * WORDS))
            return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(64 * WORDS), 0))

        return types.boolean(words, types.int64, types.int64, types.int64), generate

    return function


and_words = _combination(lambda builder, a, b: builder.and_(a, b))
or_words = _combination(lambda builder, a, b: builder.or_(a, b))
cut_words = _combination(lambda builder, a, b: builder.and_(a, builder.not_(b)))  # a without b
