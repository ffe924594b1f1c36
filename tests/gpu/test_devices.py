"""More devices than one."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.device.discovery import count_devices
from gpumatch.device_memory import library
from tests.conformance.device_suite import EVENTS, assert_same, filled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif((count_devices() or 0) < 2, reason="there are not two CUDA devices"),
]


@pytest.mark.parametrize("index", ["scan", "gem", "tama"])
def test_on_the_second(index: str) -> None:
    right = filled(index)
    second = right.to("cuda:1")
    assert_same(second, right)
    offsets, rows = second.match(EVENTS).to_cupy()
    assert offsets.device.id == rows.device.id == 1
    assert library().cuda.Device().id == 0  # the caller's device is as it was
    assert_same(second.to("cuda:0"), right)


def test_both_at_once() -> None:
    right = filled(copies=20)
    expected = list(right.match(EVENTS))
    wrong = []

    def ask(device: str) -> None:
        mine = right.to(device)
        wrong.extend(device for _ in range(20) if list(mine.match(EVENTS)) != expected)

    threads = [threading.Thread(target=ask, args=(f"cuda:{at % 2}",)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_events_of_another_device() -> None:
    """They are on the first, and matched on the second: the user decides what is copied."""
    right = gm.Matcher({"x": "int64"}, device="cpu")
    right.add({0: "x > 3"})
    events = {"x": library().asarray(np.array([1, 4]))}
    with pytest.raises(gm.DeviceError, match="events are on 'cuda:0', subscriptions on 'cuda:1'"):
        right.to("cuda:1").match(events)
    assert right.to("cuda:0").match(events) == right.match(events)
