"""Scalars borrow arrays: only makers, which count references, may return one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from gpumatch.kernels.compile import driver, maker, scalar


def same(array: Any) -> Any:
    return array


def pair(array: Any) -> Any:
    return 1, (array, 2)


@pytest.mark.parametrize("function", [same, pair])
def test_a_scalar_that_returns_an_array_is_refused(function: Any) -> None:
    borrowing = scalar(function)

    @driver
    def use(array):  # type: ignore[no-untyped-def]
        borrowing(array)
        return 0

    with pytest.raises((TypeError, TypingError), match=f"{function.__name__} returns an array: make it a maker"):
        use(np.zeros(1))


def test_a_maker_may() -> None:
    making = maker(same)

    @driver
    def use(array):  # type: ignore[no-untyped-def]
        return making(array)[0]

    assert use(np.arange(3) + 7) == 7
