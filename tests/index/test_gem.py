"""Bitsets that are made exact, and counts without lists: the same answers as predicates one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.arrays import Array
from gpumatch.index import KINDS, IndexParams
from gpumatch.index.gem import GEM
from gpumatch.store.segment import Segment

N = 300
SCHEMA = {"a": "float64", "b": "int64", "c": "float32", "d": "int64", "e": "float64", "tags": "list<string>"}


def ranges(rng: np.random.Generator, dims: int, width: float) -> dict[str, tuple[Array, Array]]:
    found = {}
    for name in "abcde"[:dims]:
        low = rng.integers(0, 20, N) - 20.0 * (rng.random(N) < 0.1)
        high = low + np.ceil(width * rng.random(N))
        low[rng.random(N) < 0.1] = np.nan
        found[name] = (low, high)
    return found


def events(rng: np.random.Generator) -> list[dict[str, Any]]:
    rows = []
    for _ in range(150):
        row: dict[str, Any] = {name: float(rng.integers(-1, 42)) for name in "abcde" if rng.random() < 0.9}
        rows.append(row | ({"tags": ["x", "y"][: rng.integers(0, 3)]} if rng.random() < 0.7 else {}))
    return rows


def filled(index: str | IndexParams, dims: int, width: float, more: dict[str, str]) -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, index, "cpu", background=False)
    matcher.add_ranges(np.arange(N), ranges(np.random.default_rng(7), dims, width))
    matcher.add({N + at: text for at, text in enumerate(more.values())})
    matcher.compact()
    return matcher


LOOSE = {
    "set": "a IN (1, 2, 30) AND b > 2",
    "twice": "a > 3 AND a <> 7 AND b < 30",
    "list": "tags = 'x' AND c > 1",
    "null": "b IS NULL AND a > 1",
    "nothing": "a > 5 AND a < 5",
}
SEVERAL = {"clauses": "a > 3 AND NOT (b > 5 XOR c < 8)"}


def by_default(matcher: gm.Matcher, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> Array:
    """Counts, made of lists."""
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "counts", False)
        return matcher.count(rows)


@pytest.mark.parametrize("width", [4, 40])
@pytest.mark.parametrize("dims", [1, 3, 5])
@pytest.mark.parametrize("cells", [1, 3, 64])
def test_rows_and_counts(cells: int, dims: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = events(np.random.default_rng(1))
    for more in ({}, LOOSE, LOOSE | SEVERAL):
        matcher, plain = (filled(index, dims, width, more) for index in (gm.Gem(cells=cells), "scan"))
        [segment] = matcher._seal().segments
        assert segment.counts == ("clauses" not in more)
        found, right = matcher.match(rows), plain.match(rows)
        assert found.offsets.tolist() == right.offsets.tolist()
        assert found.rows.tolist() == right.rows.tolist()
        assert [matcher.match_one(row) for row in rows[:20]] == [right.ids(at) for at in range(20)]
        assert matcher.count(rows).tolist() == right.counts.tolist()
        assert matcher.any(rows).tolist() == (right.counts > 0).tolist()
        totals = np.bincount(right.rows, minlength=len(plain)).tolist()
        assert matcher.count_subscriptions(rows).tolist() == plain.count_subscriptions(rows).tolist() == totals
        assert by_default(matcher, monkeypatch, rows).tolist() == right.counts.tolist()


def test_removed_rows_do_not_count() -> None:
    rows = events(np.random.default_rng(2))
    for dims, width in ((5, 1), (2, 60)):  # few match, and many
        matcher = filled(gm.Gem(), dims, width, LOOSE)
        [segment] = matcher._seal().segments
        assert bool(len(segment.parts[0].index.arrays["cover"])) == (width == 60)
        gone = [*range(0, N, 3), N, N + 2]
        right = np.array([len(set(matcher.match_one(row)) - set(gone)) for row in rows])
        assert (right != matcher.count(rows)).any()
        matcher.remove(gone)
        assert matcher.count(rows).tolist() == right.tolist()
        matcher.add({5000: "a IS NULL OR a IS NOT NULL"})
        assert matcher.count(rows).tolist() == (right + 1).tolist()
        assert matcher.any(rows).all()


def test_removed_rows_have_no_totals_nor_make_any() -> None:
    rows = events(np.random.default_rng(4))
    for dims, width in ((5, 1), (2, 60)):
        matcher = filled(gm.Gem(), dims, width, LOOSE)
        found, gone = matcher.match(rows), [*range(0, N, 3), N, N + 2]
        kept = np.setdiff1d(np.arange(len(matcher)), gone)
        totals, last = np.bincount(found.rows, minlength=len(matcher)), matcher.match([rows[0]]).rows
        matcher.remove(gone)
        assert matcher.count_subscriptions(rows).tolist() == totals[kept].tolist()
        assert matcher.count_subscriptions([]).tolist() == [0] * len(kept)
        matcher.remove(np.setdiff1d(last, gone))
        assert matcher.any(rows[:1]).tolist() == [False]
        assert matcher.count(rows[:1]).tolist() == [0]


def test_marked_events_are_passed_over() -> None:
    """Only one of two parts has bitsets, and it marks events that the other need not look at."""
    matcher = gm.Matcher(SCHEMA, gm.Gem(), "cpu", background=False)
    matcher.add_ranges(np.arange(N), ranges(np.random.default_rng(7), 2, 40))
    matcher.compact()
    [segment] = matcher._seal().segments
    rows = events(np.random.default_rng(5))
    right = matcher.match(rows).counts > 0
    assert 0 < right.sum() < len(rows)
    marks = np.arange(len(rows)) % 2 == 0
    batch, found = gm.EventBatch.of(rows, matcher.schema), marks.copy()
    segment.mark_any(batch, matcher._seal().dead[0], lambda: segment.table, found)
    assert found.tolist() == (marks | right).tolist()
    others = gm.Matcher(SCHEMA, "pstbloom", "cpu", background=False)
    others.add_ranges(np.arange(N), ranges(np.random.default_rng(7), 2, 40))
    others.compact()
    [segment], found = others._seal().segments, marks.copy()
    segment.mark_any(batch, others._seal().dead[0], lambda: others._seal().one_row(0), found)
    assert found.tolist() == (marks | right).tolist()


def test_a_part_that_counts_beside_one_that_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bitsets have some of the subscriptions, which have one clause each, and postings the others."""
    monkeypatch.setattr("gpumatch.index.planner._FEW", 0)
    monkeypatch.setattr("gpumatch.index.planner._rank", lambda offer: -len(offer.parts))
    assert GEM.planning is not None
    some = GEM.planning._replace(takes=lambda costs, clauses: clauses[clauses % 7 > 2])
    monkeypatch.setitem(KINDS, "gem", replace(GEM, planning=some))
    rows = events(np.random.default_rng(8))
    matcher, plain = filled("auto", 5, 30, {}), filled("scan", 5, 30, {})
    [segment] = matcher._seal().segments
    assert segment.parts[0].index.params.kind == "gem"
    assert len(segment.parts) > 1
    assert segment.counts
    for gone in ([], [*range(0, N, 3)]):
        matcher.remove(gone)
        plain.remove(gone)
        right = plain.match(rows)
        assert matcher.count(rows).tolist() == right.counts.tolist()
        assert matcher.any(rows).tolist() == (right.counts > 0).tolist()
        assert matcher.count_subscriptions(rows).tolist() == plain.count_subscriptions(rows).tolist()


@pytest.mark.parametrize("events", [1, 2, 3, 4, 5, 64, 255, 256])
def test_binary_counters_of_any_number_of_events(events: int) -> None:
    matcher = filled(gm.Gem(), 1, 60, {"loose": "b <> 3 AND a > 1"})
    rng = np.random.default_rng(events)
    batch = {name: rng.integers(-1, 42, events).astype(float) for name in "ab"}
    right = np.bincount(matcher.match(batch).rows, minlength=len(matcher))
    assert matcher.count_subscriptions(batch).tolist() == right.tolist()


@pytest.mark.parametrize("count", [1, 2, 40])
def test_destinations_are_found_once_each(count: int) -> None:
    """Where many match, an event is done once it has all of them."""
    rows = events(np.random.default_rng(6))
    for more in ({}, LOOSE):
        matchers = [gm.Matcher(SCHEMA, index, "cpu", background=False) for index in (gm.Gem(), "scan")]
        for matcher in matchers:
            spans = ranges(np.random.default_rng(7), 2, 60)
            matcher.add_ranges(np.arange(N), spans, destination=[at * at % count for at in range(N)])
            matcher.add({N + at: text for at, text in enumerate(more.values())}, destination=0)
            matcher.compact()
            matcher.remove(range(5, N, 7))
        found, right = (matcher.destinations(rows) for matcher in matchers)
        assert found.offsets.tolist() == right.offsets.tolist()
        assert found.rows.tolist() == right.rows.tolist()


def test_a_subscription_of_several_clauses_counts_once() -> None:
    matcher = gm.Matcher(SCHEMA, gm.Gem(), "cpu")
    matcher.add({at: f"a > {at} OR b > {at}" for at in range(50)})
    [segment] = matcher._seal().segments
    assert not segment.counts
    rows = [{"a": 100, "b": 100}, {"a": 10}, {}]
    assert matcher.count(rows).tolist() == [50, 10, 0]
    assert matcher.any(rows).tolist() == [True, True, False]
    assert matcher.count_subscriptions(rows).tolist() == [2] * 10 + [1] * 40


def test_triangles_list() -> None:
    assert GEM.count(gm.Gem(caches=0)) is None
    matcher = filled(gm.Gem(caches=0), 2, 10, {})
    rows = events(np.random.default_rng(3))
    assert matcher.count(rows).tolist() == matcher.match(rows).counts.tolist()
    assert matcher.any(rows).tolist() == (matcher.match(rows).counts > 0).tolist()


def test_bounds_count_as_memory() -> None:
    matcher = filled(gm.Gem(), 2, 60, {})
    before = matcher.stats()
    matcher.match([{"a": 1.0}])
    after = matcher.stats()
    made = after["bytes"] - before["bytes"]
    assert 0 < made <= 2 * 8 * 2 * N
    assert after["segments"][0]["parts"][0]["bytes"] - before["segments"][0]["parts"][0]["bytes"] == made
