"""Kernels in numba's own simulation of threads, which run as they please: what users get who set the variable."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from numba.cuda.simulator import kernel as simulator

import gpumatch as gm
from gpumatch.index import KINDS, IndexParams
from tests.conformance.device_suite import EVENTS, filled, numbers, there
from tests.sim import strict


@pytest.fixture(autouse=True)
def plainly() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads that wait by asking leave the others more time
    with strict.plainly():
        assert simulator.BlockManager is not strict.Block
        yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("index", [*(kind.params() for kind in KINDS.values()), gm.Gem(caches=0)], ids=str)
def test_every_index(index: IndexParams) -> None:
    right = filled(index)
    mine = there(right)
    assert mine.match(EVENTS) == right.match(EVENTS)
    assert mine.match(numbers("int64")) == right.match(numbers("int64"))
