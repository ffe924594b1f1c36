"""PSTHash: clauses in grids of two attributes, and what grids do not hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import evaluate
from gpumatch.index import psthash
from tests.conformance.strategies import events, expressions, schemas
from tests.examples import examples

BOUNDS = {
    "as it is": {},
    "every grid": {"_PAYS": 1},
    "coarse": {"_PAYS": 1, "_CELLS": 2},
    "fine": {"_PAYS": 1, "_CELLS": 1000, "_PER_CELL": 1 / 64},
    "no room": {"_PAYS": 1, "_POSTINGS": 0},
}


@pytest.fixture(params=BOUNDS)
def bounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Answers do not depend on what grids hold."""
    for name, value in BOUNDS[request.param].items():
        monkeypatch.setattr(psthash, name, value)
    return str(request.param)


@pytest.fixture
def every_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psthash, "_PAYS", 1)


def facts(matcher: gm.Matcher) -> dict[str, Any]:
    [segment] = matcher.stats()["segments"]
    [part] = segment["parts"]
    found: dict[str, Any] = part
    return found


def integers(texts: list[str], names: str = "abcd", access: int = 2) -> gm.Matcher:
    matcher = gm.Matcher(dict.fromkeys(names, "int64"), index=gm.PstHash(access=access))
    matcher.add(dict(enumerate(texts)))
    return matcher


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[gm.Expr], list[dict[str, Any]]]:
    schema = draw(schemas())
    wanted = draw(st.lists(expressions(schema), max_size=12))
    return schema, wanted, draw(st.lists(events(schema), min_size=1, max_size=6))


@pytest.mark.parametrize("access", [1, 2])
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases())
def test_equals_oracle(bounds: str, access: int, case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    typed = gm.Schema.of(schema)
    matcher = gm.Matcher(schema, index=gm.PstHash(access=access))
    matcher.add(dict(enumerate(wanted)))
    right = [[at for at, expr in enumerate(wanted) if evaluate(expr, event, typed) is True] for event in batch]
    assert list(matcher.match(batch)) == right, [str(expr) for expr in wanted]
    matcher.observe(batch)
    matcher.compact()
    assert list(matcher.match(batch)) == right


def random_set(rng: np.random.Generator, n: int) -> Iterator[str]:
    """Conjunctions of one to four predicates over six attributes; ``t`` is a list."""
    for _ in range(n):
        parts = []
        for name in rng.choice(list("abcdet"), rng.integers(1, 5), replace=False):
            low = int(rng.integers(0, 60))
            high = low + int(rng.integers(0, [2, 30][rng.integers(0, 2)]))
            numbers = ", ".join(str(x) for x in rng.integers(0, 60, 3))
            parts.append([f"{name} BETWEEN {low} AND {high}", f"{name} IN ({numbers})", f"{name} = {low}"][low % 3])
        yield " AND ".join(parts)


@pytest.mark.long
@pytest.mark.parametrize("access", [1, 2])
def test_many_equal_pstbloom(bounds: str, access: int) -> None:
    """Thousands of clauses of one to four predicates, lists among them; events with and without attributes."""
    rng = np.random.default_rng(7)
    schema = {**dict.fromkeys("abcde", "int64"), "t": "list<int64>"}
    texts = dict(enumerate(random_set(rng, 3000)))
    batch: list[dict[str, Any]] = []
    for _ in range(200):
        event: dict[str, Any] = {name: int(rng.integers(0, 60)) for name in "abcde" if rng.random() < 0.7}
        batch.append(event | {"t": rng.integers(0, 60, rng.integers(0, 4)).tolist()} if rng.random() < 0.7 else event)
    found = []
    for index in (gm.PstBloom(), gm.PstHash(access=access)):
        matcher = gm.Matcher(schema, index=index)
        matcher.add(texts)
        found.append(list(matcher.match(batch)))
    assert found[0] == found[1]
    assert sum(map(len, found[0])) > 1000
    held = facts(matcher)["in grids"]
    assert held == 0 if access == 1 or bounds == "no room" else held > 1000
    assert held <= psthash._POSTINGS * facts(matcher)["clauses"]


def test_figure_8_1_1(every_grid: None) -> None:
    """The thesis's four subscriptions: S1 and S2 hang in one cell, S3 and S4 in others; the event finds S2."""
    matcher = gm.Matcher(dict.fromkeys("abc", "int64"), index="psthash")
    matcher.observe([{"a": at, "b": at, "c": at} for at in range(-5, 6)])
    texts = ["a = 1 AND b = -1 AND c < 0", "a = 1 AND b = -1 AND c > 0", "a = 1 AND b < -1 AND c = 0"]
    matcher.add(dict(enumerate([*texts, "a < 1 AND b = -1 AND c = 0"])))
    assert list(matcher.match([{"a": 1, "b": -1, "c": 2}])) == [[1]]
    [segment] = matcher._seal().segments
    index, table = segment.parts[0].index, segment.table
    pairs = [set(row[:2]) for row in np.split(table.columns()[0], table.clause_ptr[1:-1])]
    by_row = dict(zip(table.clause_row.tolist(), pairs, strict=True))
    assert by_row[0] == by_row[1] == {0, 1}
    assert by_row[2] == {0, 2}
    assert by_row[3] == {1, 2}
    assert len(index.arrays["grid_facts"]) == 3
    heads = index.arrays["pairs"].reshape(-1, 3)[:, 2] & 0x7FFFFFFF
    runs = [set(table.clause_row[run]) for run in np.split(heads, index.arrays["cell_ptr"][1:-1]) if len(run)]
    assert {0, 1} in runs


def test_all_equal_and_all_disjoint(bounds: str) -> None:
    same = integers(["a = 3 AND b BETWEEN 2 AND 9"] * 500, "ab")
    batch = [{"a": 3, "b": 2}, {"a": 3}, {"a": 3, "b": 1}, {"b": 5}, {}]
    assert [len(ids) for ids in same.match(batch)] == [500, 0, 0, 0, 0]
    apart = integers([f"a = {at} AND b = {at}" for at in range(500)], "ab")
    assert list(apart.match([{"a": 7, "b": 7}, {"a": 7, "b": 8}, {"b": 7}])) == [[7], [], []]


def test_nothing_constrained_and_single_predicates(bounds: str) -> None:
    matcher = integers(["TRUE", "a = 1", "a IS NULL", "a IS NULL AND b = 2", "FALSE", "a = 1 AND a = 2", "b = 2"])
    assert list(matcher.match([{}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}])) == [
        [0, 2],
        [0, 1],
        [0, 2, 3, 6],
        [0, 1, 6],
    ]
    assert facts(matcher)["in grids"] == 0


def test_sixty_predicates(bounds: str) -> None:
    names = [f"x{at}" for at in range(60)]
    matcher = gm.Matcher(dict.fromkeys(names, "int64"), index="psthash")
    matcher.add({at: " AND ".join(f"{name} >= {at}" for name in names) for at in range(200)})
    low = dict.fromkeys(names, 100)
    assert list(matcher.match([low, low | {"x30": 5}, {"x0": 1000}])) == [[*range(101)], [*range(6)], []]


def test_many_constants(bounds: str) -> None:
    """2^16 constants on two attributes: cells are coarser than codes, verification mends it."""
    count = 1 << 16
    low = np.arange(count, dtype=np.float64)
    matcher = gm.Matcher({"x": "float64", "y": "float64"}, index="psthash")
    matcher.add_ranges(np.arange(count), {"x": (low, low + 0.5), "y": (low, low + 1)})
    events = {"x": [7.0, 7.25, 7.75, 60_000.5], "y": [7.5, 9.0, 7.0, 60_000.0]}
    assert list(matcher.match(events)) == [[7], [], [], [60_000]]


def test_programs_and_several_clauses_of_a_row(every_grid: None) -> None:
    """A row once, however many of its clauses hold; what a program adds is tested too."""
    hard = " AND ".join(f"(c = {at} OR d = {at})" for at in range(8))
    texts = ["(a = 1 AND b = 2) OR (a = 1 AND c = 3) OR (b = 2 AND c = 3)", f"a = 1 AND b = 2 AND NOT ({hard})"]
    matcher = integers(texts)
    batch = [{"a": 1, "b": 2, "c": 3, "d": 4}, {"a": 1, "b": 2}, {"a": 1, "c": 3}, {"b": 2, "d": 1}]
    right = [[at for at, t in enumerate(texts) if evaluate(gm.parse(t), event, matcher.schema)] for event in batch]
    assert list(matcher.match(batch)) == right
    assert facts(matcher)["in grids"] >= 4


def test_lists(every_grid: None) -> None:
    """Every value of a list has its cell; two lists share no grid."""
    matcher = gm.Matcher({"t": "list<int64>", "u": "list<int64>", "x": "int64"}, index="psthash")
    matcher.add({0: "t = 1 AND x = 2", 1: "t = 1 AND t = 5 AND x = 2", 2: "t = 1 AND u = 2", 3: "t = 1 AND t = 2"})
    batch = [{"t": [0, 1, 5, 9], "x": 2}, {"t": [1, 2], "u": [3, 2]}, {"t": [], "x": 2}, {"t": [5, 1], "u": [2]}]
    assert list(matcher.match(batch)) == [[0, 1], [2, 3], [], [2]]
    assert facts(matcher)["grids"] == 1


def test_a_common_attribute_owns_no_grids(every_grid: None) -> None:
    """``a`` is paired with all others: these own the grids, so that an event visits as many as it has attributes."""
    names = [f"x{at}" for at in range(100)]
    matcher = gm.Matcher(dict.fromkeys(["a", *names], "int64"), index="psthash")
    matcher.add({at: f"a = {at % 5} AND {name} = 1" for at, name in enumerate(names)})
    [segment] = matcher._seal().segments
    owned = np.diff(segment.parts[0].index.arrays["grid_ptr"])
    assert owned.tolist() == [0] + [1] * 100
    assert list(matcher.match([{"a": 3, "x8": 1, "x9": 1}])) == [[8]]


def test_room_goes_to_clauses_in_few_cells(every_grid: None, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = [f"a = {at} AND b = {at}" for at in range(100)]
    wide = [f"a BETWEEN {at} AND {at + 40} AND b BETWEEN {at} AND {at + 40}" for at in range(100)]
    matcher = integers(narrow + wide, "ab")
    assert facts(matcher)["in grids"] > 200
    monkeypatch.setattr(psthash, "_POSTINGS", 1)
    bounded = integers(narrow + wide, "ab")
    assert facts(bounded)["in grids"] == 100
    batch = [{"a": a, "b": b} for a in range(0, 150, 7) for b in range(0, 150, 11)]
    assert list(bounded.match(batch)) == list(matcher.match(batch))


def test_saved_and_loaded(every_grid: None, tmp_path: Any) -> None:
    texts = [f"a = {at % 7} AND b < {at}" for at in range(300)] + ["c = 1", "c IS NULL"]
    matcher = integers(texts)
    batch = [{"a": 3, "b": 200, "c": 1}, {"a": 6, "b": -1}, {}]
    matcher.save(tmp_path / "idx")
    loaded = gm.load(tmp_path / "idx")
    assert loaded.plan().segments[0].index == gm.PstHash(access=2)
    assert list(loaded.match(batch)) == list(matcher.match(batch))
    assert list(matcher.match(batch))[2] == [301]


def test_destinations(bounds: str) -> None:
    """Rows that many subscriptions share are found once, in grids and outside."""
    matcher = gm.Matcher(dict.fromkeys("abc", "int64"), index="psthash")
    for at in range(3):
        texts = [f"a = {at} AND b < {k % 9}" for k in range(200)] + [f"c > {at}", f"a = {at + 1} AND c = 5"]
        matcher.add({1000 * at + k: text for k, text in enumerate(texts)}, destination=f"d{at}")
    batch = [{"a": 1, "b": 3}, {"a": 2, "b": 100}, {"a": 2, "b": 100, "c": 5}, {"c": 1}, {}]
    assert list(matcher.destinations(batch)) == [["d1"], [], ["d0", "d1", "d2"], ["d0"], []]
    assert matcher.any(batch).tolist() == [True, False, True, True, False]


@pytest.mark.parametrize("access", [0, 3, "2", True, None, 2.5])
def test_other_numbers_of_access_predicates(access: Any) -> None:
    with pytest.raises(gm.SchemaError, match=r"access=1 or access=2 predicates, found"):
        gm.PstHash(access=access)
