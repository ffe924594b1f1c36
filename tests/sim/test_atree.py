"""Graphs of expressions on the device: where words, levels, groups and pieces end, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.device import matching
from gpumatch.index import ATree
from gpumatch.index.atree import device
from tests.conformance.device_suite import EVENTS, assert_same, filled, there
from tests.examples import later
from tests.sim.strict import Race

NAMES = "uvxyz"
SCHEMA = {**dict.fromkeys(NAMES, "int64"), "n": "list<int64>"}
SHARED = "(x > 2 AND y < 6)"
TEXTS = [
    "TRUE",
    "FALSE",
    "x IS NULL",
    "n IS NOT NULL AND NOT (n = 3)",
    "NOT (n IN (1, 2, 3))",
    "NOT (n > 4) AND NOT (n < 1)",
    f"{SHARED} OR z = 2",
    f"NOT ({SHARED} OR z = 2)",
    f"u = 1 AND ({SHARED} OR z = 2)",
    f"u = 1 AND ({SHARED} OR z = 2) XOR v < 4",
    f"(u = 1 AND ({SHARED} OR z = 2) XOR v < 4) OR n = 3",
    f"NOT (u = 1 AND ({SHARED} OR z = 2) XOR v < 4)",
    "NOT (x BETWEEN 2 AND 7)",
    "(x > 4) XOR (y > 4) XOR (z > 4) XOR (u > 4)",
    "x IS NULL OR NOT (y IS NULL) AND n IS NULL",
    SHARED,
    "x = 2",
    "x < 9",
]


def of(texts: Iterable[str], schema: dict[str, str] | None = None) -> gm.Matcher:
    right, held = gm.Matcher(schema or SCHEMA, index="atree", device="cpu"), dict(enumerate(texts))
    right.add(held, destination=["north" if at % 3 else "south" for at in held])
    return right


def some_events(count: int, seed: int = 0, names: Iterable[str] = NAMES) -> list[dict[str, Any]]:
    """With gaps, and lists that are there, empty, or not there."""
    rng = np.random.default_rng(seed)
    made: list[dict[str, Any]] = []
    for _ in range(count):
        made.append({name: int(rng.integers(0, 9)) for name in names if rng.random() < 0.8})
        if rng.random() < 0.7:
            made[-1]["n"] = rng.integers(0, 6, rng.integers(0, 4)).tolist()
    return made


def levels(matcher: gm.Matcher) -> int:
    """Of units below the clauses."""
    [segment] = matcher._seal().segments
    return len(segment.parts[-1].index.arrays["level_ptr"]) - 1


@pytest.mark.parametrize("count", [1, 64, 65, *later(31, 32, 33, 63, 127, 128, 129)])
def test_events_around_the_ends_of_words(count: int) -> None:
    right = of(TEXTS)
    assert levels(right) > 2
    mine, events = there(right), some_events(count, seed=count)
    if count == 65:
        assert_same(mine, right, events)
    else:
        assert mine.match(events) == right.match(events)


def nested(depth: int, rng: Any) -> str:
    """An expression of so many operators within each other, different ones in turn, here and there on both sides."""
    if depth == 0:
        kinds = ["{} > {}", "{} = {}", "NOT ({} < {})", "n = {1}", "{} IS NULL"]
        return kinds[rng.integers(len(kinds))].format(NAMES[rng.integers(5)], rng.integers(0, 9))
    joined = ("AND", "OR", "XOR", "OR")[depth % 4]
    left, right = nested(depth - 1, rng), nested(depth - 1 if depth % 4 == 0 else 0, rng)
    return f"{'NOT ' if depth % 5 == 0 else ''}({left} {joined} {right})"


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 6, 8, 12])
def test_groups_within_each_other(depth: int) -> None:
    """Up to as many as a program may have, and more, which makes levels."""
    rng = np.random.default_rng(depth)
    right = of(nested(depth, rng) for _ in range(6))
    assert depth <= 4 or levels(right) > 0
    assert_same(there(right), right, some_events(10, seed=depth))


def alternatives(depth: int) -> str:
    """Nothing but AND and OR in turn: one program as long as it may be, and all of it used once."""
    text = "x > 2"
    for at in range(depth):
        text = f"({NAMES[at % 5]} {'>' if at % 3 else '<'} {at % 7} {'AND' if at % 2 else 'OR'} {text})"
    return text


@pytest.mark.parametrize("depth", [3, 4, 5, 9])
def test_no_more_groups_than_there_is_room_for(depth: int) -> None:
    right = of([alternatives(depth)])
    assert levels(right) == (depth - 1) // 4
    assert_same(there(right), right, some_events(20, seed=depth))


def test_long_groups() -> None:
    """More members than a program takes from parts that are used once."""
    names = [f"a{at}" for at in range(300)]
    every, either = (word.join(f"{name} > {at % 5}" for at, name in enumerate(names)) for word in (" AND ", " OR "))
    none = " AND ".join(f"NOT ({name} = {at % 7})" for at, name in enumerate(names))
    pairs = " AND ".join(f"({a} > 3 OR {b} < 2)" for a, b in pairwise(names[:101]))
    right = of([every, either, none, pairs, f"NOT ({every})", f"({pairs}) XOR ({none})"], dict.fromkeys(names, "int64"))
    most = dict.fromkeys(names, 5)
    events = [most, {**most, "a299": 4}, {**most, "a298": 3}, dict.fromkeys(names[:-1], 9), {"a7": 3}, {"a7": 0}, {}]
    found = there(right).match(events)
    assert found == right.match(events)
    assert [0 in ids for ids in found] == [True, False, False, False, False, False, False]
    assert [1 in ids for ids in found] == [True, True, True, True, True, False, False]


def test_few_kinds_of_clauses() -> None:
    """No graph at all, only what is always or never true, only predicates, and only negated ones."""
    cases = [["TRUE"], ["FALSE"], ["TRUE", "FALSE"], ["x = 3"], ["NOT (n = 3)"], ["x IS NULL"], ["x = 3 AND y = 3"]]
    for texts in cases:
        right = of(texts)
        mine = there(right)
        for events in (some_events(1), some_events(65), [{}] * 64):
            assert_same(mine, right, events)


@pytest.mark.parametrize("step", [1, 18, *later(2, 5, 17)])
def test_clauses_in_pieces(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many clauses at a time, over two words."""
    right, events = of(TEXTS), some_events(70)
    mine = there(right)
    expected = mine.match(events)
    assert expected == right.match(events)
    monkeypatch.setattr(matching, "_at_once", lambda made, targets, count: count)
    monkeypatch.setattr(mine._engine._card, "budget", 8 * 2 * step)
    assert mine.match(events) == expected
    assert mine.destinations(events) == right.destinations(events)


def test_predicates_stay_on_the_host() -> None:
    """A graph leaves nothing to be tested."""
    mine = there(filled("atree"))
    mine.match(EVENTS)
    [resident] = mine._engine._residents.values()
    tested = (resident.clause_ptr, resident.clause_program, *resident.predicates, *resident.programs)
    assert [len(array) for array in tested] == [0] * 7
    assert "parent" not in resident.indexes[0].arrays
    assert len(resident.indexes[0].arrays["items"])


def test_beside_another_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjunctions in one part and graphs in the other, in several segments."""
    monkeypatch.setattr("gpumatch.index.planner._FEW", 0)
    monkeypatch.setattr("gpumatch.index.planner._rank", lambda offer: -len(offer.parts))
    monkeypatch.setattr("gpumatch.expr.normal._LITERALS", 0)  # expressions stay as they are
    right = gm.Matcher(SCHEMA, device="cpu")
    xor = [f"(x > {at % 7}) XOR (y > {at % 5}) XOR (u = {at % 4}) XOR (z < {at % 6}) XOR v IS NULL" for at in range(12)]
    right.add(dict(enumerate([*TEXTS, *xor])), destination="d")
    events = some_events(9)
    right.match(events)
    right.add({100 + at: text for at, text in enumerate(reversed(xor))}, destination="e")
    mine = there(right)
    kinds = {part.index.kind for part in mine.plan().segments}
    assert "atree" in kinds
    assert len(kinds) > 1
    assert_same(mine, right, events)
    for matcher in (mine, right):
        matcher.remove([0, 6, 9, 20, 104])
    assert_same(mine, right, events)


def backwards(starts: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(starts))[::-1]


def without_the_last(starts: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(starts))[:-1]


@pytest.mark.parametrize("order", [backwards, without_the_last])
def test_levels_in_a_wrong_order_are_noticed(
    order: Callable[[list[int]], list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, events = of(TEXTS), some_events(70)
    monkeypatch.setattr(device, "pairwise", order)
    assert there(right).match(events) != right.match(events)


def test_levels_at_once_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right, events = of(TEXTS), some_events(70)
    monkeypatch.setattr(device, "pairwise", lambda starts: [(starts[0], starts[-1])])
    with pytest.raises(Race):
        there(right).match(events)


def test_a_graph_counts_what_it_evaluates() -> None:
    """All units, for up to 512 events at a time."""
    mine = there(of(TEXTS))
    [part] = mine._seal().segments[0].parts
    assert isinstance(part.index.params, ATree)
    before = mine.stats()["segments"][0]["parts"][0]["evaluated"]
    mine.match(some_events(3))
    after = mine.stats()["segments"][0]["parts"][0]["evaluated"]
    assert after - before == len(part.index.arrays["unit_ptr"]) - 1
