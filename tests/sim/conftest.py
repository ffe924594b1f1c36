"""Everything here runs in numba's simulation of a CUDA device, in a process of its own: ``make test-sim``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from gpumatch.device_memory import library, simulated
from tests.conformance.devices import on

_MOST_BYTES = 1 << 28

if not simulated():
    collect_ignore_glob = ["*"]
else:
    from tests.sim import strict

    strict.on_one_processor()
    settings.register_profile("simulated", max_examples=max(settings.default.max_examples // 8, 1))
    settings.load_profile("simulated")
    for name in ("device_suite", "test_examples", "test_extremes", "test_groups", "test_oracle"):
        pytest.register_assert_rewrite(f"tests.conformance.{name}")


@pytest.fixture(autouse=True, scope="session")
def strictly() -> Iterator[None]:
    with strict.strictly(), on("cuda:0"):
        yield


@pytest.fixture(autouse=True, scope="session")
def new_memory_is_nonsense() -> Iterator[None]:
    """As on a device: what is not written first cannot be relied on to be zero, and there is not too much of it."""

    def empty(shape: Any, dtype: Any = np.float64) -> Any:
        made = before(shape, dtype=dtype)
        if made.nbytes > _MOST_BYTES:
            raise MemoryError(f"{made.nbytes} bytes are more than anything here needs")
        made.view(np.ndarray).view(np.uint8)[...] = 0x5B
        return made

    xp = library()
    before, xp.empty = xp.empty, empty
    yield
    xp.empty = before


@pytest.fixture(autouse=True, scope="session")
def small_indexes_have_all_parts() -> Iterator[None]:
    """Grids pay for themselves above some size, which nothing here has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpumatch.index.psthash._PAYS", 1)
        yield
