"""Shard plans: no match is lost, shards stay within their bounds, and filters hold back what nobody wants."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import evaluate, parse
from gpumatch.routing import CostModel, ShardPlan, plan_shards
from tests.examples import examples

SCHEMA = {"x": "int64", "y": "float64", "s": "string", "t": "list<string>"}
FREE = CostModel(tf=1.0, tc=0.0, arrivals=1.0)  # every filter that saves anything is used

_number = st.sampled_from([-(2**63), -7, 0, 1, 2, 3, 5, 8, 2**63 - 1])
_real = st.sampled_from([float("-inf"), -1.5, 0.0, 0.5, 2.0, 1e300, float("inf"), float("nan")])
_text = st.sampled_from(["", "a", "ab", "b", "ä", "z\U0001f600"])
_event = st.fixed_dictionaries(
    {}, optional={"x": _number, "y": _real, "s": _text, "t": st.lists(_text, max_size=3)}
) | st.just({"x": None, "y": None, "s": None, "t": None})


def _literal() -> st.SearchStrategy[str]:
    integers = st.sampled_from([-7, 0, 1, 2, 3, 5, 8])
    return st.one_of(
        st.tuples(integers, integers).map(lambda p: f"x BETWEEN {min(p)} AND {max(p)}"),
        integers.map(lambda v: f"x = {v}"),
        integers.map(lambda v: f"x != {v}"),
        st.lists(integers, min_size=1, max_size=3).map(lambda vs: f"x IN ({', '.join(map(str, vs))})"),
        st.sampled_from(["y < 0.5", "y >= 2", "y > -1.5 AND y <= 0.5", "y IS NULL", "y IS NOT NULL"]),
        st.sampled_from(["s = 'a'", "s LIKE 'a%'", "s NOT IN ('a', 'b')", "s >= 'ab'", "s IS NULL"]),
        st.sampled_from(
            ["s LIKE '%b'", "s NOT ILIKE '_'", "t LIKE '%A%'", "x IS DISTINCT FROM 3", "s LIKE '%a%' XOR x = 1"]
        ),
        st.sampled_from(["t = 'a'", "t != 'b'", "t IS NOT NULL"]),
    )


_expression = st.recursive(
    _literal(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) AND ({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) OR ({p[1]})"),
        inner.map(lambda e: f"NOT ({e})"),
    ),
    max_leaves=4,
)


def _matcher(expressions: Sequence[str], index: str = "auto") -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, index=index, device="cpu")
    matcher.add(dict(enumerate(expressions)))
    return matcher


def _lost(plan: ShardPlan, expressions: Sequence[str], events: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Matches in shards that the event is not sent to."""
    trees = [parse(text) for text in expressions]
    sent = [set(shards) for shards in plan.route(list(events))]
    return [
        (at, number)
        for at, event in enumerate(events)
        for number, tree in enumerate(trees)
        if evaluate(tree, event, gm.Schema.of(SCHEMA)) is True and int(plan.shard[number]) not in sent[at]
    ]


@settings(max_examples=examples(60), deadline=None)
@given(
    expressions=st.lists(_expression, max_size=12),
    events=st.lists(_event, max_size=8),
    shards=st.integers(1, 5),
    filters=st.sampled_from([None, 1, 2, 3]),
    index=st.sampled_from(["auto", "pstbloom", "atree"]),
    seen=st.booleans(),
)
def test_no_match_is_lost(
    expressions: list[str],
    events: list[dict[str, Any]],
    shards: int,
    filters: int | None,
    index: str,
    seen: bool,
) -> None:
    matcher = _matcher(expressions, index)
    sample = events if seen and events else None
    plan = plan_shards(matcher, shards, events=sample, filters=filters, cost=FREE)
    assert plan.shards == shards
    assert _lost(plan, expressions, events) == []
    report = plan.report(events)
    assert sum(report.subscriptions) == len(expressions)
    assert report.copies == plan.route(events).n_pairs
    if filters is None:
        assert report.leaked == 0


def _stripes(count: int, width: int = 4) -> tuple[gm.Matcher, list[dict[str, Any]]]:
    """Narrow ranges of x in random order, and events all over."""
    places = list(range(0, 100 * count, 100))
    random.Random(3).shuffle(places)
    matcher = gm.Matcher({"x": "int64", "y": "float64"}, device="cpu")
    matcher.add({at: f"x BETWEEN {at} AND {at + width} AND y > {at % 7}" for at in places})
    return matcher, [{"x": at * 10 + 3, "y": float(at % 9)} for at in range(10 * count)]


def test_neighbours_share_a_shard_and_an_event_goes_to_few() -> None:
    matcher, events = _stripes(400)
    plan = plan_shards(matcher, 8, events=events)
    assert [plan.placed_by(shard) for shard in range(8)] == [["x"]] * 8
    report = plan.report(events)
    assert report.subscriptions == (50,) * 8
    assert report.replication <= 1.0
    assert report.dropped >= sum(1 for event in events if event["x"] % 100 > 4)
    assert report.balance < 1.3


def test_shards_match_what_the_whole_matches() -> None:
    matcher, events = _stripes(200)
    plan = plan_shards(matcher, 5, events=events, filters=6)
    parts = plan.matchers()
    assert sum(map(len, parts)) == len(matcher)
    routed = plan.route(events)
    found: list[set[Any]] = [set() for _ in events]
    for shard, part in enumerate(parts):
        mine = [at for at, shards in enumerate(routed) if shard in shards]
        for at, ids in zip(mine, part.match([events[at] for at in mine]), strict=True):
            found[at].update(ids)
    assert found == [set(ids) for ids in matcher.match(events)]


def test_fewer_filters_leak_more_and_never_lose() -> None:
    matcher, events = _stripes(300)
    reports = [plan_shards(matcher, 6, events=events, filters=k).report(events) for k in (1, 4, 16, 64)]
    leaks = [report.leaked for report in reports]
    assert leaks == sorted(leaks, reverse=True)
    assert leaks[0] > leaks[-1]
    assert plan_shards(matcher, np.int64(6), events=events).report(events).leaked == 0


def test_capacity_bounds_every_shard() -> None:
    matcher, events = _stripes(103)
    plan = plan_shards(matcher, capacity=10, events=events)
    assert plan.shards == 11
    assert max(plan.report(events).subscriptions) <= 10
    with pytest.raises(gm.RoutingError, match=r"103 subscriptions do not fit into 10 shards .* these need 11"):
        plan_shards(matcher, 10, capacity=10)


def test_subscriptions_go_by_their_most_selective_attribute() -> None:
    matcher = gm.Matcher({"x": "int64", "s": "string"}, device="cpu")
    matcher.add({at: f"x = {at}" for at in range(50)})
    matcher.add({100 + at: f"s = 'n{at}'" for at in range(50)})
    plan = plan_shards(matcher, 4)
    by = dict(zip(plan.to_arrow()["id"].to_pylist(), plan.shard.tolist(), strict=True))
    assert {tuple(plan.placed_by(by[at])) for at in range(50)} == {("x",)}
    assert {tuple(plan.placed_by(by[100 + at])) for at in range(50)} == {("s",)}
    assert plan.route([{"x": 3}]).ids(0) == [by[3]]
    assert plan.route([{"s": "n7"}]).ids(0) == [by[107]]
    assert plan.route([{"x": 3, "s": "n7"}]).ids(0) == sorted([by[3], by[107]])
    assert plan.route([{"x": 300}]).ids(0) == []


def test_missing_values_pass_to_those_who_can_do_without() -> None:
    matcher = _matcher(["x = 1", "x = 1 OR y > 2", "x IS NULL AND y = 0.5"])
    plan = plan_shards(matcher, 3, cost=FREE)
    assert _lost(plan, ["x = 1", "x = 1 OR y > 2", "x IS NULL AND y = 0.5"], [{}, {"y": 3.0}, {"y": 0.5}]) == []


def test_an_attribute_that_saves_little_is_not_tested() -> None:
    matcher = gm.Matcher({"x": "int64", "y": "int64"}, device="cpu")
    matcher.add({at: f"x = {at} AND y > 1" for at in range(64)})
    events = [{"x": at % 64, "y": 2 + at % 5} for at in range(1000)]
    plan = plan_shards(matcher, 8, events=events)
    assert plan.filtered_by == []
    assert {name for shard in range(8) for name in plan.placed_by(shard)} == {"x"}


def test_an_attribute_that_saves_much_is_tested_as_well() -> None:
    matcher = gm.Matcher({"x": "int64", "y": "int64"}, device="cpu")
    matcher.add({at: f"x = {at} AND y < 3" for at in range(64)})
    events = [{"x": at % 64, "y": at % 7} for at in range(1000)]
    plan = plan_shards(matcher, 8, events=events)
    assert plan.filtered_by == ["y"]
    assert plan.report(events).copies == sum(1 for event in events if event["y"] < 3)


def test_no_subscriptions_and_no_events() -> None:
    empty = gm.Matcher(SCHEMA, device="cpu")
    plan = plan_shards(empty, 3)
    assert (plan.shards, len(plan.shard)) == (3, 0)
    assert [len(part) for part in plan.matchers()] == [0, 0, 0]
    report = plan.report([{"x": 1}])
    assert (report.replication, report.leak, report.balance, report.dropped) == (0.0, 0.0, 1.0, 1)
    assert len(plan_shards(_matcher(["x = 1"]), 2).route([])) == 0


def test_more_shards_than_subscriptions() -> None:
    plan = plan_shards(_matcher(["x = 1", "x = 2"]), 7)
    assert plan.shards == 7
    assert np.bincount(plan.shard, minlength=7).max() == 1
    assert plan.route([{"x": 2}]).ids(0) == [int(plan.shard[1])]
    with pytest.raises(gm.RoutingError, match="no shard 7: they are numbered 0 to 6"):
        plan.placed_by(7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the number of shards"),
        ({"shards": 0}, "shards must be a whole number of at least 1, found 0"),
        ({"shards": True}, "shards must be a whole number"),
        ({"capacity": -1}, "capacity must be a whole number"),
        ({"shards": 2, "filters": 0}, "filters must be a whole number"),
        ({"shards": 2.5}, "found 2.5"),
        ({"shards": 10**30}, "at most 65,536 shards"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(gm.RoutingError, match=message):
        plan_shards(_matcher(["x = 1"]), **options)


def test_a_router_goes_without_the_subscriptions() -> None:
    matcher, events = _stripes(100)
    plan = plan_shards(matcher, 4, events=events)
    packed = pickle.dumps(plan.router)
    router = pickle.loads(packed)
    assert router.route(events) == plan.route(events)
    assert router.shards == 4
    assert len(packed) < 50_000


def test_shards_have_the_destinations_of_the_whole() -> None:
    matcher = gm.Matcher({"x": "int64"}, device="cpu")
    matcher.add({1: "x = 1"}, destination="A")
    matcher.add({2: "x = 2"})
    events = [{"x": 1}, {"x": 2}]
    found = [part.destinations(events) for part in plan_shards(matcher, 3).matchers()]
    assert sorted(name for each in found for ids in each for name in ids) == ["A"]


def test_a_schema_without_attributes() -> None:
    matcher = gm.Matcher({}, device="cpu")
    assert plan_shards(matcher, 2).route([{}]).ids(0) == []
    matcher.add({1: "TRUE"})
    plan = plan_shards(matcher, 2)
    assert plan.route([{}, {}]).ids(1) == [int(plan.shard[0])]


def test_a_sample_that_shows_little_does_little_harm() -> None:
    matcher = gm.Matcher({"x": "int64"}, device="cpu")
    matcher.add({at: f"x = {at}" for at in range(1000)})
    events = [{"x": at} for at in range(1000)]
    without = plan_shards(matcher, 16, filters=16).report(events)
    one_value = plan_shards(matcher, 16, events=[{"x": 3}] * 100, filters=16).report(events)
    assert without.replication == 1.0
    assert one_value.replication < 1.5


def test_slips_are_told_in_few_words() -> None:
    matcher, events = _stripes(300)
    with pytest.raises(gm.RoutingError, match="shards must be a whole number") as caught:
        plan_shards(matcher, events)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 120
    with pytest.raises(gm.RoutingError, match=r"needs a Matcher, found 'idx'; gm\.load"):
        plan_shards("idx", 3)  # type: ignore[arg-type]
    with pytest.raises(gm.RoutingError, match=r"cost must be a CostModel\(tf, tc\), found 0\.1"):
        plan_shards(matcher, 3, cost=0.1)  # type: ignore[arg-type]
    report = plan_shards(matcher, 3, events=events).report(events)
    assert repr(report).startswith("<ShardReport: 3 shards, 0.09 copies of each of 3,000 events")


def test_removed_subscriptions_are_not_planned() -> None:
    matcher, events = _stripes(50)
    gone = [at for at in matcher.ids.tolist() if at < 2500]
    matcher.match(events[:1])
    matcher.remove(gone)
    plan = plan_shards(matcher, 4, events=events)
    assert len(plan.shard) == 25
    assert plan.route([{"x": 100, "y": 9.0}]).ids(0) == []
