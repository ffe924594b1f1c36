"""Match-Ladder: the order of attributes, what it costs, and that no order changes the answer."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.codes.table import Table
from gpumatch.expr import evaluate
from gpumatch.index.ladder import ORDERS, layers
from gpumatch.parallel import threads
from gpumatch.workloads.stocks import SCHEMA, draw_alerts, draw_bars, to_events
from tests.conformance.strategies import events, expressions, schemas
from tests.examples import examples


def ladder(texts: list[str], names: str = "abcd", order: str = "best", sample: Any = None) -> gm.Matcher:
    matcher = gm.Matcher(dict.fromkeys(names, "int64"), index=gm.Ladder(order=order))
    if sample is not None:
        matcher.observe(sample)
    matcher.add(dict(enumerate(texts)))
    return matcher


def order_of(matcher: gm.Matcher, row: int = 0) -> list[int]:
    """Attributes of a row's only clause, in the order in which they are tested."""
    [segment] = matcher._seal().segments
    table = segment.table
    [clause] = np.flatnonzero(table.clause_row == row)
    found: list[int] = table.columns()[0][table.clause_ptr[clause] : table.clause_ptr[clause + 1]].tolist()
    return found


def counted(matcher: gm.Matcher) -> int:
    return int(matcher.stats()["segments"][0]["parts"][0]["tests"])


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[gm.Expr], list[dict[str, Any]]]:
    schema = draw(schemas())
    wanted = draw(st.lists(expressions(schema), max_size=12))
    return schema, wanted, draw(st.lists(events(schema), min_size=1, max_size=6))


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_equals_oracle(order: str, case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    typed = gm.Schema.of(schema)
    matcher = gm.Matcher(schema, index=gm.Ladder(order=order))
    matcher.add(dict(enumerate(wanted)))
    right = [[at for at, expr in enumerate(wanted) if evaluate(expr, event, typed) is True] for event in batch]
    assert list(matcher.match(batch)) == right, [str(expr) for expr in wanted]
    matcher.observe(batch)
    matcher.compact()
    assert list(matcher.match(batch)) == right


@settings(max_examples=examples(100))
@given(data=st.data())
def test_theorem_1(data: Any) -> None:
    """No order of a clause's attributes costs less than the ladder's: sum over k of pa_k times pp_1 … pp_k."""
    holds = np.array(data.draw(st.lists(st.integers(0, 8), min_size=4, max_size=4))) / 8
    others = data.draw(st.lists(st.integers(0, 3), max_size=10))
    attribute = np.array([0, 1, 2, 3, *others], np.int32)
    predicate = np.stack([attribute, *[np.zeros_like(attribute)] * 3], axis=1).ravel()
    ptr = np.array([0, *range(4, 5 + len(others))], np.int64)
    nothing = np.zeros(0, np.int32)
    rows = np.arange(len(ptr) - 1, dtype=np.int32)
    table = Table(
        len(rows), rows, ptr, 0 * rows - 1, predicate, nothing, nothing, nothing, np.zeros(1, np.int64), nothing
    )
    popular = np.bincount(attribute) / len(rows)

    def cost(order: Any) -> float:
        return float(np.sum(popular[list(order)] * np.cumprod(holds[list(order)])))

    place = layers(table, holds[attribute])
    assert cost(np.argsort(place)) <= min(map(cost, permutations(range(4)))) + 1e-12
    always = holds == 1
    assert place[always].min(initial=4) > place[~always].max(initial=-1)


def test_orders() -> None:
    """By the share of codes without observed events, by how often predicates held with them, or as written."""
    texts = ["c < 5 AND a = 1 AND b < 9", *(f"a = {at} AND b < {at} AND c < {at}" for at in range(20))]
    assert order_of(ladder(texts, "abc", "given")) == [2, 0, 1]
    assert order_of(ladder(texts, "abc", "best"))[0] == 0
    assert order_of(ladder(texts, "abc", "worst")) == order_of(ladder(texts, "abc", "best"))[::-1]
    often = [{"a": 1, "b": at, "c": 100} for at in range(20)]  # a = 1 held always: others go first
    [first, *_, last] = order_of(ladder(["c < 5 AND a = 1 AND b < 9"], "abc", "best", often))
    assert (first, last) == (2, 0)


def test_the_given_order_outlives_rebuilding() -> None:
    matcher = ladder(["c < 5 AND a = 1 AND b < 9", "b = 1 AND a = 1"], "abc", "given")
    matcher.match([{}])
    matcher.add({2: "c = 1 AND b = 2 AND a = 3"})
    matcher.compact()
    assert [order_of(matcher, row) for row in range(3)] == [[2, 0, 1], [1, 0], [2, 1, 0]]


def test_tests_are_counted() -> None:
    """Postings lead to clauses whose first predicate may hold; predicates are tested up to the first that fails."""
    matcher = ladder(["a = 1 AND b = 1 AND c = 1", "a = 1 AND b = 2", "a = 2"], "abc", "given")
    assert counted(matcher) == 0
    right = [({}, 0), ({"a": 1}, 4), ({"a": 1, "b": 1}, 5), ({"a": 2}, 1), ({"a": 1, "b": 1, "c": 1}, 5)]
    for event, expected in right:
        before = counted(matcher)
        matcher.match([event])
        assert counted(matcher) - before == expected, event


def test_worst_order_tests_more_than_the_best() -> None:
    """Table 1 without a clock."""
    rng = np.random.default_rng(3)
    bars = draw_bars(2000, rng)
    alerts, batch = draw_alerts(1000, bars, rng), to_events(bars, 2000)
    found, tests = {}, {}
    for order in ORDERS:
        matcher = gm.Matcher(SCHEMA, index=gm.Ladder(order=order))
        matcher.observe(batch)
        matcher.add_table(alerts)
        found[order] = matcher.match(batch).rows.tolist()
        tests[order] = counted(matcher)
    assert found["best"] == found["worst"] == found["given"] != []
    assert tests["worst"] > 1.5 * tests["best"]
    assert tests["best"] <= tests["given"] <= tests["worst"]


@pytest.mark.parametrize("order", ORDERS)
def test_extremes(order: str) -> None:
    """All equal, all disjoint, nothing constrained, single predicates, absent attributes, 60 predicates."""
    same = ladder(["b BETWEEN 2 AND 9 AND a = 3"] * 500, "ab", order)
    batch: list[dict[str, int]] = [{"a": 3, "b": 2}, {"a": 3}, {"b": 5}, {}]
    assert [len(ids) for ids in same.match(batch)] == [500, 0, 0, 0]
    apart = ladder([f"a = {at} AND b = {at}" for at in range(500)], "ab", order)
    assert list(apart.match([{"a": 7, "b": 7}, {"a": 7, "b": 8}, {"b": 7}])) == [[7], [], []]
    odd = ladder(["TRUE", "a = 1", "a IS NULL", "a IS NULL AND b = 2", "FALSE", "a = 1 AND a = 2"], order=order)
    assert list(odd.match([{}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}])) == [[0, 2], [0, 1], [0, 2, 3], [0, 1]]
    names = [f"x{at}" for at in range(60)]
    long = gm.Matcher(dict.fromkeys(names, "int64"), index=gm.Ladder(order=order))
    long.add({at: " AND ".join(f"{name} >= {at}" for name in names) for at in range(50)})
    whole = dict.fromkeys(names, 30)
    assert list(long.match([whole, whole | {"x30": 5}, {"x0": 1000}])) == [[*range(31)], [*range(6)], []]


@pytest.mark.parametrize("order", ORDERS)
def test_many_constants(order: str) -> None:
    count = 1 << 16
    low = np.arange(count, dtype=np.float64)
    matcher = gm.Matcher({"x": "float64", "y": "float64"}, index=gm.Ladder(order=order))
    matcher.add_ranges(np.arange(count), {"x": (low, low + 0.5), "y": (low, low + 1)})
    batch = {"x": [7.0, 7.25, 7.75, 60_000.5], "y": [7.5, 9.0, 7.0, 60_000.0]}
    assert list(matcher.match(batch)) == [[7], [], [], [60_000]]


def test_saved_and_loaded(tmp_path: Any) -> None:
    matcher = ladder([f"a = {at % 7} AND b < {at}" for at in range(300)] + ["c IS NULL"], order="worst")
    batch = [{"a": 3, "b": 200, "c": 1}, {"a": 6, "b": -1}, {}]
    matcher.save(tmp_path / "idx")
    loaded = gm.load(tmp_path / "idx")
    assert loaded.plan().segments[0].index == gm.Ladder(order="worst")
    assert list(loaded.match(batch)) == list(matcher.match(batch))
    assert order_of(loaded) == order_of(matcher)


@pytest.mark.parametrize("order", ORDERS)
def test_destinations(order: str) -> None:
    """Rows that many subscriptions share are found once; clauses that cannot add one are not tested."""
    matcher = gm.Matcher(dict.fromkeys("abc", "int64"), index=gm.Ladder(order=order))
    for at in range(3):
        texts = [f"a = {at} AND b < {k % 9}" for k in range(200)] + [f"c > {at}", f"a = {at + 1} AND c = 5"]
        matcher.add({1000 * at + k: text for k, text in enumerate(texts)}, destination=f"d{at}")
    batch = [{"a": 1, "b": 3}, {"a": 2, "b": 100}, {"a": 2, "b": 100, "c": 5}, {"c": 1}, {}]
    assert list(matcher.destinations(batch)) == [["d1"], [], ["d0", "d1", "d2"], ["d0"], []]
    once = counted(matcher)
    matcher.match(batch)
    assert counted(matcher) - once > once


def test_threads_count_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"a = {at % 7} AND b < {at}" for at in range(300)]
    batch = [{"a": at % 7, "b": at} for at in range(2000)]
    counts = []
    for count in (1, 2):
        monkeypatch.setattr(threads, "_count", count)
        matcher = ladder(texts)
        matcher.match(batch)
        counts.append(counted(matcher))
    assert counts[0] == counts[1] > 2000


@pytest.mark.parametrize("order", ["", "Best", None, 1])
def test_other_orders(order: Any) -> None:
    with pytest.raises(gm.SchemaError, match="best, worst, given, found"):
        gm.Ladder(order=order)
