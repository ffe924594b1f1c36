"""Selective subscription against plain Python, brute force over subsets, and what the counter counts."""

from __future__ import annotations

import importlib
import math
import sys
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.counting import OptimisticCounter
from gpumatch.routing.sieve.selective import CostModel, Selection, select_subscriptions
from tests.examples import examples

BENCH = str(Path(__file__).parents[2] / "bench")
sys.path.insert(0, BENCH)  # scripts import each other by bare names
try:
    sieve, generator = importlib.import_module("sieve"), importlib.import_module("generators.sieve")
finally:
    sys.path.remove(BENCH)

SHARE = st.sampled_from([0.0, 1e-6, 0.01, 0.25, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)
SETS = st.lists(st.lists(SHARE, min_size=1, max_size=4), max_size=6)
MODELS = st.builds(CostModel, st.just(1.0), st.sampled_from([0.0, 0.001, 0.1, 1.0, 3.0]), st.just(5.0))


def arrays(sets: list[list[float]]) -> tuple[list[int], list[float]]:
    return np.cumsum([0, *map(len, sets)]).tolist(), [p for shares in sets for p in shares]


def expected(sets: list[list[float]], chosen: list[set[int]]) -> tuple[float, float]:
    """Full matches and increments of a message, from the definition."""
    n1 = sum(math.prod(s[i] for i in on) for s, on in zip(sets, chosen, strict=True) if len(on) < len(s))
    return n1, sum(s[i] for s, on in zip(sets, chosen, strict=True) for i in on)


def walk(sets: list[list[float]], model: CostModel, batch: int | None) -> tuple[list[set[int]], list[float]]:
    """The incremental search as it is told, everything computed anew at each step; no batch: to the end."""
    ptr, _ = arrays(sets)
    chosen = [{min(range(len(s)), key=s.__getitem__)} for s in sets]
    left = [(s[i], ptr[u] + i, u, i) for u, s in enumerate(sets) for i in range(len(s)) if i not in chosen[u]]
    if batch is not None:
        left = [one for one in left if min(sets[one[2]]) > 0]
    left.sort()
    costs = [model.time(*expected(sets, chosen))]
    while left:
        tried = [set(on) for on in chosen]
        several = []
        for _, _, u, i in left[: batch or 1]:
            tried[u].add(i)
            several.append(model.time(*expected(sets, tried)))
        if batch is not None and not several[-1] < costs[-1]:
            break
        left, chosen = left[batch or 1 :], tried
        costs += several
    return chosen, costs


def sets_of(selection: Selection, sets: list[list[float]]) -> list[set[int]]:
    ptr, _ = arrays(sets)
    return [set(np.flatnonzero(selection.chosen[a:b]).tolist()) for a, b in pairwise(ptr)]


def check(selection: Selection, sets: list[list[float]], model: CostModel) -> None:
    """What a selection says of itself."""
    n1, n2 = expected(sets, sets_of(selection, sets))
    assert selection.n1[-1] == pytest.approx(n1, rel=1e-9, abs=1e-300)
    assert selection.n2[-1] == pytest.approx(n2, rel=1e-9, abs=1e-300)
    assert len(selection.n1) == len(selection.n2) == len(selection.throughput) == len(selection.added) + 1
    assert selection.chosen.sum() == len(sets) + len(selection.added)
    assert (selection.n1 >= 0).all()
    for a, b, share in zip(selection.n1, selection.n2, selection.throughput, strict=True):
        cost = model.arrivals * model.time(a, b)
        assert share == (1 / float(cost) if cost > 1e-308 else math.inf)


@settings(max_examples=examples(200), deadline=None)
@given(SETS, MODELS)
def test_the_whole_curve(sets: list[list[float]], model: CostModel) -> None:
    selection = select_subscriptions(*arrays(sets), model, rule="all")
    check(selection, sets, model)
    assert selection.chosen.all()
    _, costs = walk(sets, model, None)
    assert model.time(selection.n1, selection.n2) == pytest.approx(costs, rel=1e-9, abs=1e-300)
    assert selection.throughput[selection.best] == selection.throughput.max()


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.lists(st.floats(0.001, 0.99), min_size=1, max_size=4), max_size=6), MODELS, st.integers(1, 3))
def test_the_paper_s_rule(sets: list[list[float]], model: CostModel, batch: int) -> None:
    selection = select_subscriptions(*arrays(sets), model, rule="stop", batch=batch)
    check(selection, sets, model)
    chosen, costs = walk(sets, model, batch)
    found = model.time(selection.n1[-1], selection.n2[-1])
    if len(selection.added) + 1 != len(costs):  # rounding may decide where a step changes nothing
        assert found == pytest.approx(costs[-1], rel=1e-9)
    else:
        assert sets_of(selection, sets) == chosen
    assert found <= costs[0] * (1 + 1e-9)


@settings(max_examples=examples(300), deadline=None)
@given(SETS, MODELS)
def test_the_best_is_least_of_all_subsets(sets: list[list[float]], model: CostModel) -> None:
    selection = select_subscriptions(*arrays(sets), model)
    check(selection, sets, model)
    least = 0.0
    for shares in sets:
        masks = [{i for i, on in enumerate(bits) if on} for bits in product([0, 1], repeat=len(shares)) if any(bits)]
        least += min(model.time(*expected([shares], [on])) for on in masks)
    assert model.time(selection.n1[-1], selection.n2[-1]) == pytest.approx(least, rel=1e-9, abs=1e-300)
    for rule in ("stop", "all"):
        other = select_subscriptions(*arrays(sets), model, rule=rule)
        assert selection.throughput[-1] >= other.throughput.max() * (1 - 1e-9)


@pytest.mark.parametrize("rule", ["best", "stop", "all"])
def test_the_counter_counts_what_is_expected(rule: Any) -> None:
    """Over every message of a small space, each as likely as the others, the expectation is exact."""
    rng = np.random.default_rng(3)
    users: dict[int, dict[int, tuple[int, int]]] = {}
    for user in range(40):
        held = rng.choice(4, rng.integers(1, 5), replace=False).tolist()
        users[user] = {a: tuple(sorted(rng.choice(6, 2, replace=False).tolist())) for a in held}
    sets = [[(high - low) / 5 for low, high in ranges.values()] for ranges in users.values()]
    selection = select_subscriptions(*arrays(sets), CostModel(1, 0.2, 1), rule=rule)
    on = {u: [list(users[u])[i] for i in chosen] for u, chosen in enumerate(sets_of(selection, sets))}
    counter = OptimisticCounter(1)
    counter.subscribe(users, on)
    messages = np.array(list(product(range(5), repeat=4)))
    for number, message in enumerate(messages.tolist()):
        values = dict(enumerate(message))
        found = [u for tree, value in values.items() for u in counter.receive(tree, number, value, values, 0)]
        assert sorted(found) == [u for u, r in users.items() if all(a <= values[k] < b for k, (a, b) in r.items())]
    assert counter.full_matches / len(messages) == pytest.approx(selection.n1[-1])
    assert counter.increments / len(messages) == pytest.approx(selection.n2[-1])
    counts = counter.counts({tree: (np.arange(len(messages)), messages[:, tree]) for tree in range(4)})
    assert counts.copies.sum() == counter.increments


def tops(rule: Any = "all", ratio: float = 0.005, **given: Any) -> float:
    workload = generator.selective(1000, **given)
    return float(select_subscriptions(workload.ptr, workload.p, sieve.model(ratio), rule=rule).throughput.max())


@pytest.mark.parametrize("seed", range(3))
def test_shapes_of_figures_15_and_16(seed: int) -> None:
    """On a tenth of the subscriptions."""
    small = {"dims": 20, "values": 2000, "present": 4, "seed": seed}
    for ratio in (0.01, 0.005, 0.001):
        curve = sieve.whole(generator.selective(1000, **small), ratio).throughput
        assert curve[0] < 0.5 * curve.max()
        assert curve[-1] < 0.9 * curve.max()
        assert 0 < curve.argmax() < len(curve) - 1
    by_ratio = [tops(ratio=ratio, **small) for ratio in (0.01, 0.005, 0.001)]
    assert by_ratio == sorted(by_ratio)
    by_width = [tops(ratio=0.01, width=width, **small) for width in (10, 30, 90)]
    assert by_width == sorted(by_width, reverse=True)


@pytest.mark.parametrize("width", [20, 100])
def test_shape_of_figure_17(width: int) -> None:
    """More attributes, higher: the optimum in each workload, the top of the curve, which is noisier, in the mean.

    If the number varies between subscriptions only the optimum is sure to rise.
    """
    seeds, counts = range(6), (3, 5, 7)
    curves, optima, spread = (
        np.array([[tops(rule, attributes=k, width=width, spread=by, seed=seed) for k in counts] for seed in seeds])
        for rule, by in (("all", 0), ("best", 0), ("best", 2))
    )
    assert (np.diff(curves.mean(axis=0)) > 0).all()
    assert (np.diff(optima, axis=1) > 0).all()
    assert (np.diff(spread, axis=1) > 0).all()


def test_the_paper_s_rule_stops_short_and_batches_do_not() -> None:
    workload, model = generator.selective(1000), sieve.model(0.005)
    curve, stop, batches, best = (
        select_subscriptions(workload.ptr, workload.p, model, rule=rule, batch=batch)
        for rule, batch in (("all", 1), ("stop", 1), ("stop", 100), ("best", 1))
    )
    assert len(stop.added) < len(batches.added) / 10
    assert stop.throughput[-1] < batches.throughput[-1] / 2
    assert batches.throughput[-1] <= curve.throughput.max() < best.throughput[-1]


def test_the_workload_is_what_it_says() -> None:
    workload = generator.selective(200, attributes=4, width=15, dims=9, values=500, present=3)
    assert workload.presence.sum() == pytest.approx(3)
    assert all(len(set(workload.attribute[a:b].tolist())) == 4 for a, b in pairwise(workload.ptr.tolist()))
    assert (workload.low < workload.high).all()
    assert workload.high.max() <= 500
    messages = workload.messages(20_000)
    found = []
    for attribute, low, high in zip(workload.attribute, workload.low, workload.high, strict=True):
        values = messages[attribute][1]
        found.append(float(((values >= low) & (values < high)).sum()) / 20_000)
    assert np.abs(np.array(found) - workload.p).max() < 0.02
    assert np.sum(found) == pytest.approx(workload.p.sum(), rel=0.05)
    lengths = np.diff(generator.selective(300, attributes=3, spread=2).ptr)
    assert np.unique(lengths).tolist() == [1, 2, 3, 4, 5]
    assert generator.selective(10, present=50).presence.tolist() == [1.0] * 50


def test_edges() -> None:
    model = CostModel(1, 0.1, 2)
    for rule in ("best", "stop", "all"):
        none = select_subscriptions([0], [], model, rule=rule)
        assert (len(none.chosen), len(none.added)) == (0, 0)
        assert none.throughput.tolist() == [math.inf]
        one = select_subscriptions([0, 1], [0.5], model, rule=rule)  # all that it has: never matched in full
        assert (one.n1.tolist(), one.n2.tolist()) == ([0.0], [0.5])
        assert one.throughput.tolist() == [pytest.approx(10)]
        quiet = select_subscriptions([0, 3], [0.0, 0.0, 0.7], model, rule=rule)
        assert quiet.chosen.sum() == (3 if rule == "all" else 1)
    equal = select_subscriptions([0, 3], [0.5, 0.5, 0.5], model)
    assert equal.added.tolist() == [1, 2]
    assert CostModel(1, 0, 1).throughput(0.5, 7) == 2


@pytest.mark.parametrize(
    ("ptr", "p", "options", "message"),
    [
        ([0, 1], [1.5], {}, "expected shares from 0 to 1, found 1.5 at 0"),
        ([0, 2], [0.5, math.nan], {}, "found nan at 1"),
        ([0, 1], [-0.1], {}, "found -0.1"),
        ([0, 1, 1], [0.5], {}, "subscription 1: expected at least one predicate"),
        ([0, 2], [0.5], {}, "ptr: expected integers"),
        ([], [], {}, "ptr: expected integers"),
        ([0.0, 1.0], [0.5], {}, "ptr: expected integers"),
        ([[0, 1]], [0.5], {}, "ptr: expected one dimension"),
        ([0, 1], [[0.5]], {}, "p: expected one dimension"),
        ([0, 1], [0.5], {"rule": "most"}, "expected one of best, stop, all, found 'most'"),
        ([0, 1], [0.5], {"rule": "stop", "batch": 0}, "batch"),
        ([0, 1], ["a"], {}, "p: expected integers or floats"),
        ([0, 1], [[0.5], [1, 2]], {}, "p: expected numbers in one dimension"),
        ([0, 1], [0.5], {"rule": "stop", "batch": 1.5}, "batch"),
        ([0, 1], [0.5], {"batch": 2}, "batch: expected 1, or more with rule='stop'"),
    ],
)
def test_what_cannot_be(ptr: Any, p: Any, options: Any, message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        select_subscriptions(ptr, p, CostModel(1, 1, 1), **options)


@pytest.mark.parametrize(
    "costs", [(0, 1, 1), (1, -1, 1), (1, 1, 0), (math.nan, 1, 1), (1, math.inf, 1), ("a", 1), (None, 1), (10**400, 1)]
)
def test_costs_are_numbers(costs: tuple[Any, ...]) -> None:
    with pytest.raises(RoutingError, match="cost model"):
        CostModel(*costs)


def test_arrivals_by_default() -> None:
    """Shares are of one message: what is chosen is the same, and the throughput is messages per unit of time."""
    model = CostModel(1, 0.125)
    assert (model.arrivals, model.throughput(0.5, 4)) == (1.0, 1.0)
    found, many = (select_subscriptions([0, 2], [0.25, 0.5], m) for m in (model, CostModel(1, 0.125, 10)))
    assert found.chosen.tolist() == many.chosen.tolist()
    assert found.throughput.tolist() == pytest.approx((10 * many.throughput).tolist())
    assert found != many
