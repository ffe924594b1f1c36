"""Out of memory on the device: smaller pieces with the same result, or one clear error; never anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.device import card, matching
from gpumatch.device_memory import library
from gpumatch.index import KINDS, IndexParams
from tests.conformance.device_suite import EVENTS, filled, numbers, strings, there

pytestmark = pytest.mark.long

SINGLE = "not have enough memory to match a single event"


@contextmanager
def allocating(refuses: Callable[[int], bool]) -> Iterator[None]:
    """Calls that make arrays on the device fail where ``refuses`` says so of the bytes they take."""
    xp = library()
    with pytest.MonkeyPatch.context() as patch:
        for name, call in vars(xp).items():
            if not isinstance(call, type):
                patch.setattr(xp, name, _checking(call, refuses))
        yield


def _checking(call: Callable[..., Any], refuses: Callable[[int], bool]) -> Callable[..., Any]:
    def checked(*args: Any, **options: Any) -> Any:
        made = call(*args, **options)
        if refuses(getattr(made, "nbytes", 0)):
            raise MemoryError("no memory for an array")
        return made

    return checked


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of events that were begun."""
    begun: list[tuple[int, int]] = []
    real = matching._match_range

    def noted(made: Any, targets: Any, encoders: Any, start: int, stop: int, once: bool) -> Any:
        begun.append((start, stop))
        return real(made, targets, encoders, start, stop, once)

    monkeypatch.setattr(matching, "_match_range", noted)
    return begun


def many() -> tuple[gm.Matcher, dict[str, Any]]:
    right = gm.Matcher({"x": "int64", "y": "int64"}, index="scan", device="cpu")
    right.add({at: f"x < {at} AND y > {at % 5}" for at in range(30)}, destination="d")
    return right, {"x": np.arange(16), "y": np.arange(16) % 7}


def test_smaller_ranges(ranges: list[tuple[int, int]]) -> None:
    """Halves until they fit, each range once in the result."""
    right, events = many()
    mine, expected = there(right), right.match(events)
    with allocating(lambda size: size > 8 * 30 * 4):
        found = mine.match(events)
    assert found == expected
    assert ranges[0] == (0, 16)
    assert {stop - start for start, stop in ranges} == {16, 8, 4}
    ranges.clear()
    with allocating(lambda size: size > 8 * 30 * 4):
        assert mine.destinations(events) == right.destinations(events)
    assert len(ranges) > 1


def test_one_after_the_other_before_smaller(ranges: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pieces do not fit side by side; each fits alone."""
    monkeypatch.setattr(matching, "_EVENTS", 8)
    right, events = many()
    mine, expected = there(right), right.match(events)
    failed = []

    def once(size: int) -> bool:
        if size > 8 * 30 * 4 and not failed:
            failed.append(size)
            return True
        return False

    with allocating(once):
        assert mine.match(events) == expected
    assert failed
    assert len(ranges) == 3
    assert set(ranges) == {(0, 8), (8, 16)}


def test_too_little_for_one_event() -> None:
    right, events = many()
    mine = there(right)
    mine.match(events)
    with allocating(lambda size: size > 100), pytest.raises(gm.DeviceError, match=SINGLE) as caught:
        mine.match(events)
    assert "no memory for an array" in str(caught.value)
    assert "device='cpu'" in str(caught.value)
    assert mine.match(events) == right.match(events)  # what failed has left nothing behind


def test_an_index_that_does_not_fit() -> None:
    right, events = many()
    mine = there(right)
    with allocating(lambda size: size > 200), pytest.raises(gm.DeviceError, match="bytes of an index do not fit"):
        mine.match(events)
    assert mine.match(events) == right.match(events)


def test_tama_needs_counters_for_all_hits(ranges: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where those of all events would be too many, there are fewer events; one event may have as many as it takes."""
    right = gm.Matcher({"t": "list<int64>", "x": "int64"}, index="tama", device="cpu")
    right.add({at: f"t > {at} AND x < {at + 9}" for at in range(20)})
    events = [{"t": [at, at + 3, 40], "x": at} for at in range(4)]
    mine = there(right)
    expected = right.match(events)
    for budget in (16, 4000):
        monkeypatch.setattr(mine._engine, "_card", card.Card(0))
        mine._engine._card.budget = budget
        monkeypatch.setattr(mine._engine, "_residents", {})
        ranges.clear()
        assert mine.match(events) == expected
        assert {stop - start for start, stop in ranges if (start, stop) != (0, 4)} <= {1, 2}
        assert len(ranges) > 1


def test_graphs_take_words_of_events(ranges: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many whole words as there is room for at all nodes, and one if there is none."""
    right = gm.Matcher({"x": "int64"}, index="atree", device="cpu")
    right.add({at: f"x = {at} OR x = {at + 100}" for at in range(80)})
    events = {"x": np.arange(140)}
    mine, expected = there(right), right.match(events)
    nodes = len(right._seal().segments[0].parts[0].index.arrays["parent_ptr"]) - 1
    assert 8 * nodes > 4 * 140  # else it is not the graph that says how many
    for budget, starts in ((8 * nodes - 1, [0, 64, 128]), (16 * nodes - 1, [0, 64, 128]), (16 * nodes, [0, 128])):
        monkeypatch.setattr(mine._engine._card, "budget", budget)
        ranges.clear()
        assert mine.match(events) == expected
        assert [start for start, _ in ranges] == starts


def refusing(first: int, last: int) -> Callable[[int], bool]:
    """Refuses the calls ``first`` to ``last``."""
    calls = iter(range(10**9))
    return lambda size: first <= next(calls) <= last


def calls_of(matcher: gm.Matcher, batch: Any) -> int:
    """How many arrays a match asks for."""
    sizes: list[int] = []
    with allocating(lambda size: bool(sizes.append(size))):
        matcher.match(batch)
    return len(sizes)


def right_or_refused(mine: gm.Matcher, batch: Any, expected: gm.Matches, first: int, last: int) -> None:
    found, error = None, None
    with allocating(refusing(first, last)):
        try:
            found = mine.match(batch)
        except gm.DeviceError as raised:
            error = raised
    assert "memory" in str(error) if found is None else found == expected


@pytest.mark.parametrize("index", [*(kind.params() for kind in KINDS.values()), gm.Gem(caches=0)], ids=str)
def test_every_call_may_fail(index: IndexParams) -> None:
    """One array after another is refused, once or from then on: the right result, or an error that says so."""
    right, batch = filled(index), EVENTS[3:5]
    expected = right.match(batch)
    for first in range(calls_of(there(right), batch)):
        mine = there(right)
        right_or_refused(mine, batch, expected, first, first if first % 2 else 10**9)
        if first % 16 == 0:
            assert mine.match(batch) == expected


@pytest.mark.parametrize("batch", [numbers("float64"), strings()], ids=["numbers", "strings"])
def test_every_call_may_fail_for_sparse_events(batch: gm.EventBatch) -> None:
    right = filled("pstbloom")
    mine, expected = there(right), right.match(batch)
    for first in range(calls_of(mine, batch)):
        right_or_refused(mine, batch, expected, first, first)
