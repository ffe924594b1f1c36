"""What goes to a device when subscriptions change: segments that are new, and bits for removed rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.device.card import Card

EVENTS = [{"x": at} for at in (0, 3, 7)]


def test_only_what_changed_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    hold = Card.hold
    monkeypatch.setattr(Card, "hold", lambda self, array: (copied.append(array), hold(self, array))[1])
    mine, right = (
        gm.Matcher({"x": "int64"}, index="scan", device=device, background=False) for device in ("cuda:0", "cpu")
    )

    def copies() -> list[Any]:
        copied.clear()
        assert mine.match(EVENTS) == right.match(EVENTS)
        return list(copied)

    for matcher in (mine, right):
        matcher.add_ranges(np.arange(40), {"x": (np.arange(40) % 8, None)})
    whole = copies()
    assert whole
    assert copies() == []
    for names in ([3], [4, 17]):
        for matcher in (mine, right):
            matcher.remove(names)
        bits, before = copies()
        assert (bits.dtype, before.dtype, len(bits)) == (np.uint32, np.int32, len(before))
        assert np.unpackbits(bits.view(np.uint8)).sum() == 40 - len(mine)
        assert copies() == []
    [resident] = mine._engine._residents.values()
    for matcher in (mine, right):
        matcher.add({99: "x = 7"})
    assert 0 < len(copies()) <= len(whole)
    assert len(mine._engine._residents) == 2
    assert resident in mine._engine._residents.values()
    assert copies() == []
