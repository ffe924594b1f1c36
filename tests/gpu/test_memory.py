"""A device with little memory left: smaller pieces with the same result, or an error that says so."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.device import matching
from gpumatch.device_memory import library

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("rmm") is not None, reason="RMM is used, which has limits of its own"),
]


@contextmanager
def room_for(more: int) -> Iterator[None]:
    """CuPy's pool gives out so many bytes besides those in use."""
    pool = library().get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.get_limit()
    pool.set_limit(size=pool.used_bytes() + more)
    try:
        yield
    finally:
        pool.set_limit(size=before)


def filled() -> tuple[gm.Matcher, dict[str, np.ndarray]]:
    right = gm.Matcher({"x": "float64"}, index="scan", device="cpu")
    low = np.random.default_rng(0).random(2000)
    right.add_ranges(np.arange(2000), {"x": (low, low + 0.001)})
    return right, {"x": np.random.default_rng(1).random(4000)}


def test_smaller_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    right, events = filled()
    mine = right.to("cuda:0")
    expected = right.match(events)
    assert mine.match(events) == expected
    lengths = []
    real = matching._match_range

    def noted(card: object, targets: object, encoders: object, start: int, stop: int, once: bool) -> object:
        lengths.append(stop - start)
        return real(card, targets, encoders, start, stop, once)

    monkeypatch.setattr(matching, "_match_range", noted)
    with room_for(16 << 20):
        assert mine.match(events) == expected
    assert min(lengths) < max(lengths)


def test_too_little_for_one_event() -> None:
    right, events = filled()
    mine = right.to("cuda:0")
    mine.match(events)
    with room_for(1 << 12), pytest.raises(gm.DeviceError, match="memory"):
        mine.match(events)
    assert mine.match(events) == right.match(events)


def test_an_index_that_does_not_fit() -> None:
    right, events = filled()
    mine = right.to("cuda:0")
    with room_for(1 << 12), pytest.raises(gm.DeviceError, match="do not fit in the free memory of the device"):
        mine.match(events)
    assert mine.match(events) == right.match(events)


def test_memory_is_given_back() -> None:
    pool = library().get_default_memory_pool()
    right, events = filled()
    gc.collect()
    before = pool.used_bytes()
    mine = right.to("cuda:0")
    mine.match(events)
    assert pool.used_bytes() > before
    del mine
    gc.collect()
    assert pool.used_bytes() == before
