"""Rows by id, and the ids of live rows, without a Python object for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gpumatch.store import ids
from gpumatch.store.ids import LiveIds, Lookup, has_repeats
from gpumatch.store.removed import Removed

NUMBERS = pa.array([5, -1, 2**63 - 1, -(2**63), 0, 7], pa.int64())
NAMES = pa.array(["", "a", "é", "a\x00", "aa", "\U0001f600"], pa.large_string())
each = pytest.mark.parametrize("known", [NUMBERS, NAMES], ids=["integers", "strings"])


@each
@pytest.mark.parametrize("few", [0, 100])
def test_rows_of_ids(known: Any, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_FEW", few)
    for held in (known, known.slice(2), known.slice(1, 3), known.slice(0, 0)):
        assert Lookup(held).rows(held).tolist() == list(range(len(held)))
        assert Lookup(held).rows(held.slice(1)[::-1]).tolist() == list(range(len(held) - 1, 0, -1))
    assert Lookup(known.slice(0, 3)).rows(known).tolist() == [0, 1, 2, -1, -1, -1]
    others = pa.array([1, 6], pa.int64()) if known is NUMBERS else pa.array(["b", "é "], pa.large_string())
    assert Lookup(known).rows(others).tolist() == [-1, -1]


@pytest.mark.parametrize("count", [5_000, 300_000])
def test_many_ids(count: int) -> None:
    rng = np.random.default_rng(count)
    numbers = rng.permutation(10 * count)[:count]
    for known in (pa.array(numbers), pa.array([f"id-{at}" for at in numbers.tolist()], pa.large_string())):
        order = rng.permutation(count)
        assert np.array_equal(Lookup(known).rows(known.take(pa.array(order))), order)


@each
def test_repeats(known: Any) -> None:
    for held in (known, known.take(pa.array([4, 1, 0])), known.slice(0, 1), known.slice(0, 0)):
        assert not has_repeats(held)
    for numbers in ([0, 0], [0, 1, 1], [3, 1, 0, 3]):
        assert has_repeats(known.take(pa.array(numbers)))
    assert not has_repeats(known.take(pa.array([0, 0, 1])).slice(1))


@each
@pytest.mark.parametrize("share", [1, 100])
def test_live_ids(known: Any, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``share``: all are put together, or some looked up."""
    monkeypatch.setattr(ids, "_SHARE", share)
    some, none = np.array([True, False, False, True, False, True]), None
    for removed in ([none], [Removed.of(some)], [none, none], [none, Removed.of(some), none], [Removed.of(some)] * 3):
        pieces = [known.slice(0, 6) for _ in removed]
        kept = [
            piece if gone is None else piece.filter(pa.array(~some))
            for piece, gone in zip(pieces, removed, strict=True)
        ]
        right = pa.concat_arrays(kept)
        bases = np.cumsum([0, *map(len, kept)])
        live = LiveIds(known.type, pieces, removed, bases)
        assert len(live) == len(right)
        rows = np.random.default_rng(0).integers(0, len(right), 5)
        assert live.take(pa.array(rows)).equals(right.take(pa.array(rows)))
        assert live.take(pa.array([], pa.int64())).equals(right.slice(0, 0))
        assert live[1].as_py() == right[1].as_py()
        assert live.array.equals(right)
        assert live.take(pa.array(rows)).equals(right.take(pa.array(rows)))
