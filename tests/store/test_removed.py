"""Removed rows, whose pages of bits versions share."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from gpumatch.kernels.removed import SPAN
from gpumatch.store import removed
from gpumatch.store.removed import Removed

PAGE = 1 << SPAN
LENGTHS = [1, 63, 64, 65, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 70]


@pytest.mark.parametrize("length", LENGTHS)
def test_every_version_stays_as_it_was(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed, "_SPARE", 1)  # soon there is no room for more pages
    rng = np.random.default_rng(length)
    mask, version, seen = np.zeros(length, np.bool_), Removed.none(length), []
    for _ in range(20):
        seen.append((version, mask.copy()))
        rows = rng.integers(0, length, rng.integers(1, 1 + min(length, 500)))
        mask[rows] = True
        version = version.with_rows(rows)
    for version, mask in seen:
        assert len(version) == mask.sum()
        assert np.array_equal(version.mask, mask)
        numbers = np.where(mask, -1, np.cumsum(~mask) - 1)
        assert np.array_equal(version.numbers(np.arange(length)), numbers)
        living = np.flatnonzero(~mask)
        assert np.array_equal(version.rows(np.arange(len(living))), living)
        words, before = version.words()
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[:length].astype(np.bool_)
        assert np.array_equal(bits, mask)
        assert before.tolist() == [int(mask[: 32 * at].sum()) for at in range(len(words))]


def test_two_versions_of_one() -> None:
    """A matcher and its copy elsewhere, each with removals of its own, by threads of their own."""
    first = Removed.none(10 * PAGE).with_rows(np.array([5]))
    found: dict[int, Removed] = {}

    def remove(rest: int) -> None:
        version = first
        for row in range(rest, 10 * PAGE, 97):
            version = version.with_rows(np.array([row]))
        found[rest] = version

    threads = [threading.Thread(target=remove, args=(rest,)) for rest in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rest, version in found.items():
        mask = np.zeros(10 * PAGE, np.bool_)
        mask[5] = mask[rest::97] = True
        assert np.array_equal(version.mask, mask)
    assert np.flatnonzero(first.mask).tolist() == [5]


def test_kept() -> None:
    mask = np.array([False, True, False, False, True])
    version = Removed.of(mask)
    assert version is not None
    offsets, rows = version.kept(np.array([0, 2, 2, 5]), np.array([0, 1, 1, 2, 4], np.int32), 10)
    assert (offsets.tolist(), rows.tolist()) == ([0, 1, 1, 2], [10, 11])
    assert Removed.of(np.zeros(5, np.bool_)) is None
