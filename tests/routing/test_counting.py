"""Optimistic counting against direct evaluation, over arrival orders, delays, duplicates and late copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve import trees
from gpumatch.routing.sieve.counting import MessageCache, OptimisticCounter
from tests.examples import examples

NAMES = "abcde"
TIMEOUT = 100
BOUND = st.integers(-3, 6)
RANGE = st.tuples(BOUND, BOUND).map(lambda pair: (min(pair), max(pair)))
RANGES = st.dictionaries(st.sampled_from(NAMES), RANGE, min_size=1, max_size=4)
MESSAGE = st.dictionaries(st.sampled_from(NAMES), st.integers(-4, 7) | st.just(float("nan")), max_size=5)

Subscriptions = dict[int, dict[str, tuple[int, int]]]


def holds(ranges: Mapping[str, tuple[float, float]], message: Mapping[str, Any]) -> bool:
    """The oracle."""
    return all(name in message and low <= message[name] < high for name, (low, high) in ranges.items())


@st.composite
def subscribed_sets(draw: Any) -> tuple[Subscriptions, dict[int, list[str]]]:
    subscriptions = dict(enumerate(draw(st.lists(RANGES, min_size=1, max_size=8))))
    chosen = {}
    for user, ranges in subscriptions.items():
        if draw(st.booleans()):
            chosen[user] = draw(st.lists(st.sampled_from(sorted(ranges)), min_size=1, unique=True))
    return subscriptions, chosen


@st.composite
def arrivals(draw: Any, latest: int) -> tuple[list[dict[str, Any]], list[tuple[int, int, str]]]:
    """Messages, and the time, message and tree of each copy; some copies come twice."""
    messages = draw(st.lists(MESSAGE, min_size=1, max_size=5))
    copies = []
    for number, message in enumerate(messages):
        start = draw(st.integers(0, 150))
        for name in message:
            delays = draw(st.lists(st.integers(0, latest), min_size=1, max_size=2))
            copies += [(start + delay, number, name) for delay in delays]
    order = draw(st.permutations(range(len(copies))))
    return messages, sorted((copies[i] for i in order), key=lambda copy: copy[0])


def run(
    counter: OptimisticCounter, messages: list[dict[str, Any]], copies: list[tuple[int, int, str]]
) -> Counter[tuple[int, Hashable]]:
    found: Counter[tuple[int, Hashable]] = Counter()
    for now, number, tree in copies:
        message = messages[number]
        matched = counter.receive(tree, number, message[tree], message, now)
        assert matched == sorted(matched)
        found.update((number, user) for user in matched)
    return found


@settings(max_examples=examples(400), deadline=None)
@given(subscribed_sets(), arrivals(TIMEOUT - 1), st.sampled_from([1, 7, 10, 250]))
def test_equals_direct_evaluation(sets: Any, arrived: Any, resolution: int) -> None:
    (subscriptions, chosen), (messages, copies) = sets, arrived
    counter = OptimisticCounter(TIMEOUT, resolution=resolution)
    counter.subscribe(subscriptions, chosen)
    expected = {(i, u) for i, m in enumerate(messages) for u, ranges in subscriptions.items() if holds(ranges, m)}
    assert run(counter, messages, copies) == Counter(dict.fromkeys(expected, 1))
    assert counter.cache.parses <= len(messages)
    assert counter.cache.parses <= counter.full_matches
    counter.advance(10_000)
    assert len(counter.cache) == 0
    assert not any(counter.pending(user) for user in subscriptions)


@settings(max_examples=examples(300), deadline=None)
@given(subscribed_sets(), arrivals(5 * TIMEOUT))
def test_late_copies_give_no_false_match(sets: Any, arrived: Any) -> None:
    (subscriptions, chosen), (messages, copies) = sets, arrived
    counter = OptimisticCounter(TIMEOUT, resolution=10)
    counter.subscribe(subscriptions, chosen)
    assert all(holds(subscriptions[user], messages[number]) for number, user in run(counter, messages, copies))


@settings(max_examples=examples(200), deadline=None)
@given(subscribed_sets(), st.lists(MESSAGE, max_size=6), st.data())
def test_counts_in_bulk(sets: Any, messages: list[dict[str, Any]], data: Any) -> None:
    subscriptions, chosen = sets
    counter = OptimisticCounter(TIMEOUT)
    counter.subscribe(subscriptions, chosen)
    numbers = data.draw(st.lists(st.integers(-(2**60), 2**60), min_size=6, max_size=6, unique=True))
    copies = {}
    for tree in (*NAMES, "unknown"):
        held = [(numbers[i], m[tree]) for i, m in enumerate(messages) if tree in m]
        held += [(number, 10_000) for number, _ in held]  # a second copy counts no more
        copies[tree] = ([number for number, _ in held], [value for _, value in held])
    expected = Counter(
        (numbers[i], user)
        for i, m in enumerate(messages)
        for user, ranges in subscriptions.items()
        for tree in chosen.get(user, ranges)
        if holds({tree: ranges[tree]}, m)
    )
    found = counter.counts(copies)
    triples = list(zip(*(column.tolist() for column in found), strict=True))
    assert triples == sorted((number, user, count) for (number, user), count in expected.items())
    assert len(counter.cache) == counter.increments == 0


def figure_7() -> tuple[OptimisticCounter, list[dict[str, str]]]:
    """u1 has three attributes, all subscribed; u2 has six, of which five are."""
    parsed: list[dict[str, str]] = []

    def parse(raw: dict[str, str]) -> dict[str, int]:
        parsed.append(raw)
        return {name: int(value) for name, value in raw.items()}

    counter = OptimisticCounter(TIMEOUT, parse=parse)
    u1 = dict.fromkeys("abc", (10, 50))
    u2 = dict.fromkeys("bcdefg", (20, 70))
    counter.subscribe({"u1": u1, "u2": u2}, {"u2": "bcdef"})
    return counter, parsed


@pytest.mark.parametrize(("value_of_g", "at_last"), [("69", ["u1", "u2"]), ("70", ["u1"])])
def test_figure_7(value_of_g: str, at_last: list[str]) -> None:
    counter, parsed = figure_7()
    assert (counter.row("u1").attribute_count, counter.row("u1").full_match) == (3, True)
    assert (counter.row("u2").attribute_count, counter.row("u2").full_match) == (5, False)
    assert counter.ranges("b").tolist() == [10, 20, 50, 70]  # three ranges: u1's, both, u2's
    message = dict.fromkeys("abcdef", "30") | {"g": value_of_g}
    for now, tree in enumerate("abdef"):
        assert counter.receive(tree, "M1", 30, message, now) == []
    assert counter.receive("a", "M2", 49, {}, 5) == []
    assert counter.pending("u1") == {"M1": 2, "M2": 1}
    assert counter.pending("u2") == {"M1": 4}
    assert parsed == []
    assert counter.receive("c", "M1", 30, message, 6) == at_last
    assert parsed == [message]
    assert counter.pending("u1") == {"M2": 1}
    assert counter.pending("u2") == {}
    assert (counter.increments, counter.full_matches, counter.cache.parses) == (9, 1, 1)


def test_every_order_gives_the_same_and_parses_once() -> None:
    message = {"a": "1", "b": "1", "c": "1"}
    for order in permutations("abc"):
        counter = OptimisticCounter(TIMEOUT, parse=lambda raw: {name: int(value) for name, value in raw.items()})
        ranges = dict.fromkeys("abc", (0, 2))
        counter.subscribe({1: ranges, 2: ranges, 3: ranges, 4: ranges | {"d": (0, 1)}}, {2: "ab", 3: "c", 4: "abc"})
        found = [user for i, tree in enumerate(order) for user in counter.receive(tree, 0, 1, message, i)]
        assert sorted(found) == [1, 2, 3]
        assert counter.cache.parses == 1
        assert counter.full_matches == 3


def test_other_trees_and_duplicates_do_not_count() -> None:
    counter = OptimisticCounter(TIMEOUT)
    counter.subscribe({"u": {"a": (0, 5), "b": (0, 5)}, "v": {"b": (0, 9), "c": (3, 4)}}, {"v": "c"})
    message = {"a": 1, "b": 1, "c": 0}
    assert counter.receive("c", 1, 0, message, 0) == []  # outside v's range: a leak
    assert counter.receive("z", 1, 0, message, 0) == []
    assert len(counter.cache) == 0
    assert counter.receive("a", 1, 1, message, 0) == []
    assert counter.receive("a", 1, 1, message, 1) == []
    assert counter.pending("u") == {1: 1}
    assert counter.receive("b", 1, 1, message, 2) == ["u"]
    assert counter.receive("b", 1, 1, message, 3) == []
    assert counter.receive("a", 1, 1, message, 3) == []
    assert counter.increments == 2
    assert counter.trees == ["a", "b", "c"]


def test_a_copy_after_the_purge_is_a_new_message() -> None:
    counter = OptimisticCounter(100, resolution=10)
    counter.subscribe({"both": {"a": (0, 2), "b": (0, 2)}, "one": {"a": (0, 2)}})
    message = {"a": 1, "b": 1}
    assert counter.receive("a", 1, 1, message, 5) == ["one"]
    assert counter.advance(105) == []  # the bucket of the deadline is not over
    assert counter.receive("a", 1, 1, message, 109) == []
    assert counter.receive("b", 1, 1, message, 115) == []  # too late for the first
    assert counter.pending("both") == {1: 1}
    assert counter.receive("a", 1, 1, message, 120) == ["both", "one"]  # and so found again
    assert counter.advance(400) == [1]
    assert counter.pending("both") == {}
    with pytest.raises(RoutingError, match="time goes forward"):
        counter.receive("a", 1, 1, message, 399)


def test_counts_do_not_outlive_the_record_of_trees() -> None:
    """With a timer for each pending count the duplicate from ``b`` would complete a match that is none."""
    counter = OptimisticCounter(100, resolution=10)
    counter.subscribe({"u": {"b": (0, 2), "c": (0, 2)}, "v": {"a": (0, 2), "z": (0, 1)}})
    assert counter.receive("a", 1, 1, {}, 0) == []
    assert counter.receive("b", 1, 1, {}, 90) == []
    assert counter.receive("b", 1, 1, {}, 120) == []
    assert counter.pending("u") == {1: 1}


def test_infinities_extremes_and_missing_values() -> None:
    lowest, highest = -(2**63), 2**63 - 1
    counter = OptimisticCounter(TIMEOUT)
    inf = float("inf")
    counter.subscribe(
        {
            "all": {"x": (-inf, inf)},
            "none": {"x": (3, 3)},
            "int": {"i": (lowest, highest)},
            "rest": {"x": (0, 1), "i": (2**53, 2**53 + 1)},
        },
        {"rest": "x"},
    )
    assert counter.receive("x", 1, -inf, {}, 0) == ["all"]
    assert counter.receive("x", 2, inf, {}, 0) == []
    assert counter.receive("x", 3, float("nan"), {}, 0) == []
    assert counter.receive("x", 4, None, {}, 0) == []
    assert counter.receive("x", 5, 3, {}, 0) == ["all"]
    assert counter.receive("i", 6, lowest, {}, 0) == ["int"]
    assert counter.receive("i", 7, highest, {}, 0) == []
    assert counter.receive("i", 8, np.int64(highest - 1), {}, 0) == ["int"]
    assert counter.receive("i", 9, 10**30, {}, 0) == []
    for number, value in enumerate((2**53 + 1, np.int64(2**53 + 1), None, float("nan"))):
        assert counter.receive("x", 10 + number, 0.5, {"x": 0.5, "i": value}, 0) == ["all"]
    assert counter.receive("x", 20, np.float32(0.5), {"x": 0.5, "i": np.int64(2**53)}, 0) == ["all", "rest"]


def test_subscriptions_that_come_later() -> None:
    counter = OptimisticCounter(TIMEOUT)
    message = {"a": 1, "b": 1}
    assert counter.receive("a", 0, 1, message, 0) == []
    counter.subscribe({1: {"a": (0, 2), "b": (0, 2)}})
    assert counter.receive("a", 1, 1, message, 1) == []
    counter.subscribe({2: {"a": (1, 9), "b": (1, 9)}, 3: {"b": (1, 9)}})
    assert counter.receive("b", 1, 1, message, 2) == [1, 3]
    assert counter.receive("a", 2, 1, message, 3) == []
    assert counter.receive("b", 2, 1, message, 4) == [1, 2, 3]


@pytest.mark.parametrize(
    ("subscriptions", "subscribed", "message"),
    [
        ({1: {}}, None, "at least one attribute"),
        ({1: {"a": (0, 1)}}, {1: []}, "at least one attribute"),
        ({1: {"a": (0, 1)}}, {1: ["b"]}, "1 has no range on 'b'"),
        ({1: {"a": (0, 1)}}, {2: ["a"]}, "2 is not one of the given subscriptions"),
        ({1: {"a": (2, 1)}}, None, "expected low <= high"),
        ({1: {"a": (0, float("nan"))}}, None, "expected low <= high"),
        ({1: {"a": (None, 1)}}, None, "expected low <= high"),
        ({1: {"a": ("x", "y")}}, None, "expected a number, found 'x'"),
        ({1: {"a": (0, 1, 2)}}, None, "range on 'a' of 1: expected two bounds"),
        ({1: {"a": 5}}, None, "range on 'a' of 1: expected two bounds"),
        ({1: 5}, None, "1: expected ranges by attribute, found 5"),
        ({0: {"a": (0, 1)}}, None, "0 already exists"),
        ({1: {"a": (0, 2**63)}}, None, "fit 64 bits"),
        ({1: {"a": (0, 2**60 + 1)}, 2: {"a": (0.5, 1)}}, None, "cannot meet float bounds exactly"),
    ],
)
def test_subscriptions_that_cannot_be(subscriptions: Any, subscribed: Any, message: str) -> None:
    counter = OptimisticCounter(TIMEOUT)
    counter.subscribe({0: {"a": (0, 1)}})
    with pytest.raises(RoutingError, match=message):
        counter.subscribe({7: {"a": (0, 1), "z": (0, 1)}} | subscriptions, subscribed)
    assert [row.id for row in counter.rows] == [0]
    assert counter.trees == ["a"]


def test_questions_that_have_no_answer() -> None:
    counter = OptimisticCounter(TIMEOUT)
    counter.subscribe({0: {"a": (0, 1)}})
    for ask in (counter.row, counter.pending):
        with pytest.raises(RoutingError, match="subscription 1 does not exist"):
            ask(1)
    with pytest.raises(RoutingError, match="nothing is subscribed to on it"):
        counter.ranges("b")
    with pytest.raises(RoutingError, match="expected a number, found 'x'"):
        counter.receive("a", 1, "x", {}, 0)
    with pytest.raises(RoutingError, match="expected a value for each message"):
        counter.counts({"a": ([1, 2], [1])})
    for timeout in (0, -1, float("nan"), float("inf"), "a", None, 10**400):
        with pytest.raises(RoutingError, match="timeout of messages: expected a finite time"):
            OptimisticCounter(timeout)  # type: ignore[arg-type]


def test_cache_parses_once_and_purges() -> None:
    cache = MessageCache(100, resolution=10, parse=lambda raw: {"a": int(raw)})
    assert cache.add("m", "5")
    assert not cache.add("m", "6")
    assert cache.parses == 0
    assert cache.parsed("m") == cache.parsed("m") == {"a": 5}
    assert cache.parses == 1
    cache.advance(60)
    assert cache.add("n", "7")
    assert cache.advance(110) == ["m"]
    assert "m" not in cache
    assert "n" in cache
    with pytest.raises(RoutingError, match="message 'm' is not in the cache"):
        cache.parsed("m")
    assert cache.advance(170) == ["n"]
    assert len(cache) == 0
    assert cache.add("m", "8")
    assert cache.parsed("m") == {"a": 8}


def test_values_that_cannot_be_compared_match_nothing() -> None:
    for value in ("oops", None, float("nan"), [1], b"1", np.array([1, 2])):
        counter = OptimisticCounter(TIMEOUT)
        counter.subscribe({"full": {"a": (0, 9)}, "part": {"a": (0, 9), "b": (0, 9)}}, {"part": "a"})
        assert counter.receive("a", 1, 3, {"a": 3, "b": value}, 0) == ["full"]
        assert counter.receive("a", 1, 3, {"a": 3, "b": value}, 0) == []
        assert (counter.increments, counter.full_matches) == (2, 1)


def test_a_message_that_cannot_be_parsed_leaves_no_trace() -> None:
    counter = OptimisticCounter(TIMEOUT, parse=lambda raw: {name: int(value) for name, value in raw.items()})
    both = {"a": (0, 9), "b": (0, 9)}
    counter.subscribe({"full": {"a": (0, 9)}, "part": both, "both": both}, {"part": "a"})
    with pytest.raises(ValueError, match="oops"):
        counter.receive("a", 1, 3, {"a": "3", "b": "oops"}, 0)
    assert (len(counter.cache), counter.increments, counter.full_matches, counter.cache.parses) == (0, 0, 0, 0)
    assert not counter.pending("both")
    assert counter.advance(10 * TIMEOUT) == []
    assert counter.receive("a", 1, 3, {"a": "3", "b": "4"}, 10 * TIMEOUT) == ["full", "part"]
    assert counter.pending("both") == {1: 1}
    assert counter.receive("b", 2, 3, {"b": "oops"}, 10 * TIMEOUT) == []
    with pytest.raises(ValueError, match="oops"):
        counter.receive("a", 2, 3, {"b": "oops"}, 10 * TIMEOUT)
    assert counter.pending("both") == {1: 1, 2: 1}  # what came before is kept
    assert counter.receive("b", 1, 3, {}, 10 * TIMEOUT) == ["both"]


@settings(max_examples=examples(200), deadline=None)
@given(subscribed_sets(), st.lists(MESSAGE, min_size=1, max_size=4), st.data())
def test_unsubscribed_in_between(sets: Any, messages: list[dict[str, Any]], data: Any) -> None:
    """Whoever stays, finds what it would; who leaves, nothing more; who comes again, what comes from then on."""
    subscriptions, chosen = sets
    counter = OptimisticCounter(TIMEOUT)
    counter.subscribe(subscriptions, chosen)
    copies = data.draw(st.permutations([(0, i, name) for i, m in enumerate(messages) for name in m]))
    cut = data.draw(st.integers(0, len(copies)))
    gone = data.draw(st.lists(st.sampled_from(sorted(subscriptions)), unique=True))
    found = run(counter, messages, copies[:cut])
    for user in gone:
        counter.unsubscribe(user)
    kept = {user: ranges for user, ranges in subscriptions.items() if user not in gone}
    assert [row.id for row in counter.rows] == list(kept)
    assert set(counter.trees) == {name for user, ranges in kept.items() for name in chosen.get(user, ranges)}
    after = run(counter, messages, copies[cut:])
    assert all(user in kept for _, user in after)
    expected = {(i, u) for i, m in enumerate(messages) for u, ranges in kept.items() if holds(ranges, m)}
    assert {pair: n for pair, n in (found + after).items() if pair[1] in kept} == dict.fromkeys(expected, 1)
    counter.subscribe({user: subscriptions[user] for user in gone}, {u: c for u, c in chosen.items() if u in gone})
    assert not any(counter.pending(user) for user in gone)
    again = [(0, i + len(messages), name) for _, i, name in copies]
    assert set(run(counter, messages * 2, again)) == {
        (i + len(messages), u)
        for i, m in enumerate(messages)
        for u, ranges in subscriptions.items()
        if holds(ranges, m)
    }
    place = {row.id: i for i, row in enumerate(counter.rows)}
    first = {name: ([0], [value]) for name, value in messages[0].items()}
    assert set(counter.counts(first).subscription.tolist()) == {
        place[u]
        for u, ranges in subscriptions.items()
        if any(holds({name: ranges[name]}, messages[0]) for name in chosen.get(u, ranges))
    }


def test_unsubscribed_floats_make_room_for_large_integers() -> None:
    counter = OptimisticCounter(TIMEOUT)
    large = {"a": (2**53, 2**53 + 1)}
    counter.subscribe({0: {"a": (0.5, 1.5)}, 1: {"a": (0, 1)}})
    with pytest.raises(RoutingError, match="cannot meet float bounds exactly"):
        counter.subscribe({2: large})
    counter.unsubscribe(0)
    counter.subscribe({2: large})
    with pytest.raises(RoutingError, match="cannot meet float bounds exactly"):
        counter.subscribe({3: {"a": (0.5, 1.5)}})
    assert counter.ranges("a").tolist() == [0, 1, 2**53, 2**53 + 1]
    assert [counter.receive("a", v, v, {}, 0) for v in (0, 2**53, 2**53 + 1)] == [[1], [2], []]
    with pytest.raises(RoutingError, match="subscription 0 does not exist"):
        counter.unsubscribe(0)


def test_large_integers_on_float_ranges() -> None:
    counter = OptimisticCounter(TIMEOUT)
    counter.subscribe({0: {"a": (0.0, 2.0**53 + 4)}, 1: {"a": (2.0**53 + 4, float("inf"))}})
    values = [2**53 + 3, 2**53 + 4, 2**63 - 1]
    assert [counter.receive("a", value, value, {}, 0) for value in values] == [[0], [1], [1]]
    assert counter.counts({"a": ([0, 1, 2], values)}).subscription.tolist() == [0, 1, 1]


def test_what_is_kept_of_nested_ranges_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "KEPT", 50)
    counter = OptimisticCounter(TIMEOUT)
    for user in range(40):
        counter.subscribe({user: {"a": (user, 40)}})
    for value in (*range(40), *range(39, -1, -1)):
        assert counter.receive("a", (value, len(counter.cache)), value, {}, 0) == list(range(value + 1))
        tree = counter._trees["a"]
        assert sum(map(len, tree._rows.values())) == tree._kept <= 50


def test_clocks_below_zero() -> None:
    counter = OptimisticCounter(100, resolution=10, start=-1000)
    counter.subscribe({0: {"a": (0, 1), "b": (0, 1)}})
    assert counter.receive("a", 1, 0, {}, -1000) == []
    assert counter.receive("b", 1, 0, {}, -905) == [0]
    assert counter.advance(-880) == [1]
    with pytest.raises(RoutingError, match="time goes forward"):
        OptimisticCounter(100).advance(-1)
