"""The timer wheel against a plain dictionary of deadlines."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.timers import TimerWheel
from tests.examples import examples

TIMES = st.one_of(
    st.tuples(st.just(0), st.integers(1, 9), st.lists(st.integers(0, 40), min_size=1, max_size=30)),
    st.tuples(
        st.sampled_from([0, 0.25, 1e9]),
        st.sampled_from([0.1, 0.3, 1.0, 1e-3, 7.7]),
        st.lists(st.floats(0, 5, allow_subnormal=False), min_size=1, max_size=30),
    ),
)


@settings(max_examples=examples(300), deadline=None)
@given(TIMES, st.integers(1, 5), st.data())
def test_no_key_expires_early_or_late(times: tuple[float, float, list[float]], slots: int, data: Any) -> None:
    start, resolution, steps = times
    wheel: TimerWheel[int] = TimerWheel(resolution, start=start, slots=slots)
    held: dict[int, float] = {}
    now = start
    for step in steps:
        action = data.draw(st.sampled_from(["add", "add", "cancel", "advance"]))
        key = data.draw(st.integers(0, 5))
        if action == "add":
            held[key] = now + step
            wheel.add(key, now + step)
        elif action == "cancel":
            assert wheel.cancel(key) == (held.pop(key, None) is not None)
        else:
            now += step
            expired = wheel.advance(now)
            assert len(set(expired)) == len(expired)
            ended = [held.pop(key) for key in expired]
            assert all(deadline <= now for deadline in ended)
            ticks = [deadline // resolution for deadline in ended]
            assert ticks == sorted(ticks)
            late = [d for d in held.values() if Fraction(d) + Fraction(resolution) <= Fraction(now)]
            assert not late
        assert len(wheel) == len(held)
        assert all((key in wheel) == (key in held) for key in range(6))


def test_a_bucket_expires_at_once() -> None:
    wheel: TimerWheel[str] = TimerWheel(10)
    for key, deadline in (("late", 19), ("next", 20), ("early", 10), ("first", 3)):
        wheel.add(key, deadline)
    assert wheel.advance(9) == []
    assert wheel.advance(19) == ["first"]
    assert wheel.advance(20) == ["late", "early"]
    assert wheel.advance(30) == ["next"]
    assert wheel.advance(10**30) == []
    assert len(wheel) == 0


def test_timers_of_later_turns_stay() -> None:
    wheel: TimerWheel[int] = TimerWheel(1, slots=4)
    for deadline in (2, 6, 10, 100):
        wheel.add(deadline, deadline)
    assert wheel.advance(3) == [2]
    assert wheel.advance(10) == [6]
    assert wheel.advance(1000) == [10, 100]


def test_a_key_that_is_added_again_moves() -> None:
    wheel: TimerWheel[str] = TimerWheel(1)
    wheel.add("a", 5)
    wheel.add("a", 50)
    assert wheel.advance(20) == []
    wheel.add("a", 21)
    assert len(wheel) == 1
    assert wheel.advance(22) == ["a"]
    assert not wheel.cancel("a")


def test_a_jump_over_many_turns_costs_one() -> None:
    wheel: TimerWheel[str] = TimerWheel(1e-3, slots=8)
    wheel.add("a", 1e12)
    assert wheel.advance(9e11) == []
    assert wheel.advance(2e12) == ["a"]


@pytest.mark.parametrize("resolution", [0, -1, float("nan"), float("inf"), "a", None, True, 10**400])
def test_a_resolution_is_above_zero(resolution: float) -> None:
    with pytest.raises(RoutingError, match="expected a time above 0"):
        TimerWheel(resolution)


def test_time_that_cannot_be() -> None:
    for slots in (0, 2.5, "8"):
        with pytest.raises(RoutingError, match="slots"):
            TimerWheel(1, slots=slots)  # type: ignore[arg-type]
    with pytest.raises(RoutingError, match="too many times the resolution"):
        TimerWheel(1e-300, start=1e300)
    wheel: TimerWheel[str] = TimerWheel(1, start=5)
    wheel.add("a", 8)
    with pytest.raises(RoutingError, match="time goes forward: expected 5 or later, found 4"):
        wheel.advance(4)
    with pytest.raises(RoutingError, match="deadline of 'b': expected 5 or later"):
        wheel.add("b", 4.5)
    for bad in (float("nan"), float("inf"), 10**400):
        with pytest.raises(RoutingError, match="finite"):
            wheel.advance(bad)
        with pytest.raises(RoutingError, match="finite"):
            wheel.add("a", bad)
    assert wheel.advance(9) == ["a"]
