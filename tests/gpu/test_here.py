"""Is there a device? The others of this folder are only looked at if there is."""

from __future__ import annotations

import pytest

import gpumatch as gm
from gpumatch.device import resolve_device
from gpumatch.device.discovery import why_not


@pytest.mark.gpu
def test_a_device_can_be_used() -> None:
    missing = why_not()
    if missing:
        pytest.skip(missing)
    assert resolve_device("auto")[0] == resolve_device("cuda")[0] == "cuda:0"
    matcher = gm.Matcher({"x": "int64"})
    matcher.add({1: "x > 3"})
    assert matcher.device == "cuda:0"
    assert list(matcher.match([{"x": 4}, {"x": 3}])) == [[1], []]
