"""Sets of subscriptions at the ends of what indexes are made for. Plain arithmetic is the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.expr import evaluate
from gpumatch.index import IndexParams
from tests.conformance.devices import new_matcher, sized
from tests.conformance.test_oracle import INDEXES, each_variant

NAMES = ("a", "b", "c", "d", "e")
SCHEMA = dict.fromkeys(NAMES, "float64")
each_index = each_variant


def check(index: str | IndexParams, low: Any, high: Any, values: Any) -> gm.Matcher:
    """Ranges of shape (subscriptions, attributes), NaN for open sides, against events; NaN for a missing value."""
    matcher = new_matcher(SCHEMA, index=index)
    matcher.add_ranges(np.arange(len(low)), {n: (low[:, i], high[:, i]) for i, n in enumerate(NAMES)})
    found = matcher.match({name: values[:, i] for i, name in enumerate(NAMES)})
    for event in range(len(values)):
        value = values[event]
        free = np.isnan(low) & np.isnan(high)
        inside = ((value >= low) | np.isnan(low)) & ((value <= high) | np.isnan(high)) & ~np.isnan(value)
        right = np.flatnonzero((inside | free).all(axis=1))
        assert found.ids(event) == right.tolist()
    return matcher


def uniform(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).random(shape)


@each_index
def test_all_equal(index: IndexParams) -> None:
    low = np.full((sized(5000, few=70), 5), 0.25)
    check(index, low, low + 0.5, np.array([[0.25] * 5, [0.5] * 5, [0.75] * 5, [0.76] * 5, [np.nan] * 5]))


@each_index
def test_all_disjoint(index: IndexParams) -> None:
    count = float(sized(5000, few=100))
    low = np.arange(count)[:, None] + np.zeros(5)
    values = np.array([0.0, 0.5, 17.25, count - 64, count - 0.5, count, -1.0])[:, None] + np.zeros(5)
    check(index, low, low + 0.5, values)


@each_index
def test_points(index: IndexParams) -> None:
    """Equality only, with few values: many equal subscriptions, and one that is alone."""
    low = np.floor(uniform(1, sized(3000, few=70), 5) * 3)
    low[-1] = 7
    check(index, low, low, np.array([[0, 1, 2, 0, 1], [2, 2, 2, 2, 2], [7, 7, 7, 7, 7], [0.5, 1, 2, 0, 1]]))


@each_index
def test_nothing_constrained(index: IndexParams) -> None:
    open_ = np.full((sized(4200, few=70), 5), np.nan)
    check(index, open_, open_, np.array([[0.5] * 5, [np.nan] * 5]))


@each_index
def test_some_dimensions_open(index: IndexParams) -> None:
    count, events = sized(6000, few=70), sized(12, few=5)
    low, width, values = uniform(2, count, 5), uniform(3, count, 5), uniform(4, events, 5)
    high = low + width
    low[uniform(5, count, 5) < 0.4] = np.nan
    high[uniform(6, count, 5) < 0.4] = np.nan
    values[uniform(7, events, 5) < 0.3] = np.nan
    check(index, low, high, values)


@each_index
def test_every_attribute_absent(index: IndexParams) -> None:
    low = uniform(8, sized(300, few=40), 5) * 0.5
    check(index, low, low + 0.5, np.full((3, 5), np.nan))


@each_index
def test_infinite_bounds_and_values(index: IndexParams) -> None:
    count = sized(300, few=40)
    low = np.where(uniform(9, count, 5) < 0.5, -np.inf, 0.25)
    high = np.where(uniform(10, count, 5) < 0.5, np.inf, 0.75)
    check(index, low, high, np.array([[np.inf] * 5, [-np.inf] * 5, [0.25] * 5, [0.8] * 5, [0.1] * 5]))


@each_index
def test_more_than_a_tile_where_many_match(index: IndexParams) -> None:
    """Tiles of 4,096 clauses, the last one not full; nearly all match, so that results come straight from bitsets."""
    low = uniform(11, sized(9001, few=130), 5) * 0.1
    check(index, low, low + 0.85, uniform(12, sized(40, few=3), 5))


@each_index
def test_more_than_a_tile_where_few_match(index: IndexParams) -> None:
    low = uniform(13, sized(9001, few=130), 5) * 0.6
    check(index, low, low + 0.4, uniform(14, sized(70, few=5), 5))


@pytest.mark.long
@pytest.mark.parametrize("index", INDEXES)
def test_a_million_constants(index: str) -> None:
    """2^20 distinct bounds in one attribute."""
    count = sized(1 << 19, few=100)
    low = np.full((count, 5), np.nan)
    low[:, 0] = np.arange(count)
    high = low + 0.5
    values = np.full((4, 5), 0.5)
    values[:, 0] = [0.0, 0.75, count // 2 + 0.25, count - 0.5]
    matcher = check(index, low, high, values)
    assert matcher.stats()["clauses"] == count


@each_index
def test_sixty_predicates(index: IndexParams) -> None:
    names = [f"x{at}" for at in range(60)]
    matcher = new_matcher(dict.fromkeys(names, "int64"), index=index)
    count = sized(200, few=20)
    matcher.add({at: " AND ".join(f"{n} >= {(at + k) % 7}" for k, n in enumerate(names)) for at in range(count)})
    rng = np.random.default_rng(15)
    events = np.where(rng.random((sized(30, few=3), 60)) < 0.03, 4, 6)
    events[0] = 6
    needed = (np.arange(count)[:, None] + np.arange(60)) % 7
    found = matcher.match({name: events[:, k] for k, name in enumerate(names)})
    assert list(found) == [np.flatnonzero((event >= needed).all(axis=1)).tolist() for event in events]
    assert found.n_pairs > 0


@each_index
@pytest.mark.parametrize("events", [0, 1])
def test_few_events_and_no_subscriptions(index: IndexParams, events: int) -> None:
    matcher = new_matcher(SCHEMA, index=index)
    assert list(matcher.match([{"a": 0.5}] * events)) == [[]] * events
    matcher.add({"never": "a < 0 AND a > 1", "open": "TRUE"})
    assert list(matcher.match([{"a": 0.5}] * events)) == [["open"]] * events


@each_index
def test_clauses_of_all_kinds_among_many(index: IndexParams) -> None:
    """Sets, prefixes, lists, nulls, programs and several clauses of one subscription among thousands of ranges."""
    matcher = new_matcher({**SCHEMA, "s": "string", "t": "list<int64>"}, index=index)
    low = uniform(16, sized(5000, few=70), 5) * 0.5
    matcher.add_ranges(np.arange(len(low)), {n: (low[:, i], low[:, i] + 0.5) for i, n in enumerate(NAMES)})
    texts = {
        5000: "a IN (0.25, 0.5, 0.75) AND b < 0.9",
        5001: "s LIKE 'ab%' OR t = 3",
        5002: "t <> 3 AND a > 0.1",
        5003: "e IS NULL AND a = 0.5",
        5004: "(a > 0.2 XOR b > 0.2) AND c < 2",
        5005: "a NOT IN (0.5) AND s <> 'x'",
    }
    matcher.add(texts)
    events = [
        {"a": 0.5, "b": 0.1, "c": 0.5, "d": 0.5, "e": 0.5, "s": "abc", "t": [1, 3]},
        {"a": 0.5, "b": 0.5, "c": 0.5, "t": [1]},
        {"a": 0.25, "b": 0.5, "c": 0.5, "d": 0.5, "e": 0.5, "s": "y", "t": []},
    ]
    typed = gm.Schema.of(matcher.schema)
    ranges = [np.flatnonzero(((low <= v) & (v <= low + 0.5)).all(axis=1)) for v in (values(e) for e in events)]
    for at, event in enumerate(events):
        others = [name for name, text in texts.items() if evaluate(gm.parse(text), event, typed) is True]
        assert matcher.match_one(event) == [*ranges[at].tolist(), *others]
    assert list(matcher.match(events)) == [matcher.match_one(event) for event in events]


def values(event: dict[str, Any]) -> Any:
    return np.array([event.get(name, np.nan) for name in NAMES])
