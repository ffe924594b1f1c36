"""What index= takes, and what plan() says of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.index import KINDS
from gpumatch.index.planner import Plan, requested_index

SCHEMA = {"i": "int64"}


def test_auto_chooses_by_size() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({k: f"i = {k}" for k in range(10)})
    assert [type(part.index) for part in matcher.plan().segments] == [gm.Scan]
    matcher.add({k: f"i = {k}" for k in range(10, 200)})
    assert [(type(part.index), part.reason) for part in matcher.plan().segments][1:] == [(gm.Scan, "just added")]
    matcher.compact()
    plan = matcher.plan()
    assert [type(part.index) for part in plan.segments] == [gm.PstBloom]
    assert plan.segments[0].reason.startswith("auto: 200 clauses")


def test_a_plan_as_text() -> None:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    assert str(matcher.plan()) == "device cpu (as asked)\nno subscriptions"
    matcher.add({k: f"i = {k}" for k in range(300)})
    matcher.match_one({})
    matcher.remove([0])
    matcher.add({0: "i = 0"})
    lines = str(matcher.plan()).splitlines()
    assert lines[0] == "device cpu (as asked)"
    assert lines[1] == "299 subscriptions: PstBloom() (auto: 300 clauses, found by their most selective predicate)"
    assert re.fullmatch(r"  estimated [\d.]+ µs per event, measured [\d.,]+ over 1 events", lines[2])
    assert re.fullmatch(r"  the whole segment in another index, estimated: (\w+ [\d.,]+(, )?){6}", lines[3])
    assert lines[4:] == ["1 subscriptions: Scan() (just added)", "  not estimated"]


def test_a_plan_for_a_device_says_what_its_estimates_are_of() -> None:
    plan = Plan("cuda:0", "as asked", ())
    expected = ["device cuda:0 (as asked)", "indexes are chosen, and estimates made, for one core of the CPU"]
    assert str(plan).splitlines() == [*expected, "no subscriptions"]


@pytest.mark.parametrize("index", [*KINDS, *(kind.params() for kind in KINDS.values()), gm.Gem(cells=3, caches=1)])
def test_an_index_that_is_asked_for_is_used(index: Any) -> None:
    matcher = gm.Matcher(SCHEMA, index=index)
    matcher.add({k: f"i = {k}" for k in range(200)})
    matcher.match_one({})
    matcher.add({-1: "i = 1"})
    wanted = requested_index(index)
    assert wanted is not None
    assert [part.index for part in matcher.plan().segments] == [wanted, gm.Scan()]
    assert matcher.match_one({"i": 1}) == [1, -1]
    matcher.compact()
    assert [(part.index, part.reason) for part in matcher.plan().segments] == [(wanted, "as asked")]
    assert matcher.match_one({"i": 1}) == [1, -1]


def test_no_clauses_at_all() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({1: "FALSE"})
    [part] = matcher.plan().segments
    assert (part.index, part.reason) == (gm.Scan(), "auto: 0 clauses are tested faster than looked up")
    matcher = gm.Matcher(SCHEMA, index="pstbloom")
    matcher.add({1: "i < 0 AND i > 0", 2: "FALSE"})
    assert matcher.match_one({"i": 0}) == []
    [part] = matcher.plan().segments
    assert (part.subscriptions, part.index, part.reason) == (2, gm.PstBloom(), "as asked")


@pytest.mark.parametrize("index", ["bitmap", "", None, 5, ["scan"], gm.Scan, "SCAN"], ids=repr)
def test_an_index_that_is_not_there(index: Any) -> None:
    with pytest.raises(gm.SchemaError, match=r"index is one of auto, scan, pstbloom, .* or parameters such as"):
        gm.Matcher(SCHEMA, index=index)


def test_a_class_is_no_index() -> None:
    with pytest.raises(gm.SchemaError, match=r"; write Gem\(\), with parentheses"):
        gm.Matcher(SCHEMA, index=gm.Gem)  # type: ignore[arg-type]


def test_a_misspelled_index_gets_a_hint() -> None:
    with pytest.raises(gm.SchemaError, match="found 'pst_bloom'; did you mean 'pstbloom'"):
        gm.Matcher(SCHEMA, index="pst_bloom")


def test_loading_to_a_device(tmp_path: Any) -> None:
    gm.Matcher(SCHEMA).save(tmp_path / "idx")
    assert gm.load(tmp_path / "idx", device="cpu").device == "cpu"
    with pytest.raises(gm.DeviceError, match="device is 'auto', 'cpu' or 'cuda:N', found 'gpu'"):
        gm.load(tmp_path / "idx", device="gpu")


# What auto chooses


def ranges(matcher: gm.Matcher, ids: Any, names: list[str], width: float, seed: int) -> None:
    """Subscriptions with a range of that width on each of the named attributes."""
    rng = np.random.default_rng(seed)
    low = {name: rng.random(len(ids)) * (1 - width) for name in names}
    matcher.add_ranges(ids, {name: (lo, lo + width) for name, lo in low.items()})


def kinds(matcher: gm.Matcher) -> list[tuple[str, int]]:
    return [(part.index.kind, part.subscriptions) for part in matcher.plan().segments]


def test_wide_ranges_on_few_dimensions_get_bitsets() -> None:
    matcher = gm.Matcher({"x": "float64", "y": "float64", "z": "float64"})
    ranges(matcher, np.arange(5000), ["x", "y", "z"], 0.5, 0)
    assert kinds(matcher) == [("gem", 5000)]
    assert "3 common dimensions" in str(matcher.plan())


def test_selective_predicates_get_postings() -> None:
    matcher = gm.Matcher({"x": "float64", "y": "float64", "z": "float64"})
    ranges(matcher, np.arange(5000), ["x", "y", "z"], 0.0001, 0)
    assert kinds(matcher) == [("pstbloom", 5000)]


def test_a_set_of_both_gets_both(tmp_path: Any) -> None:
    """And answers as one index does, also where a subscription has a clause in each."""
    narrow = [f"n{at}" for at in range(40)]
    schema = dict.fromkeys(["x", "y", "z", *narrow], "float64")
    mixed, plain = gm.Matcher(schema), gm.Matcher(schema, index="scan")
    for matcher in (mixed, plain):
        ranges(matcher, np.arange(4000), ["x", "y", "z"], 0.6, 0)
        for at in range(40):
            ranges(matcher, np.arange(10_000 + 100 * at, 10_100 + 100 * at), [narrow[at]], 0.001, at)
        texts = {at: f"x > 0.2 AND y > 0.3 AND z < 0.9 OR n{at % 40} = 0.5" for at in range(20_000, 20_400)}
        matcher.add(texts)
        matcher.compact()
    assert [kind for kind, _ in kinds(mixed)] == ["gem", "pstbloom"]
    assert sum(count for _, count in kinds(mixed)) == 8800  # those with OR are in both
    rng = np.random.default_rng(5)
    events = {name: rng.random(50) for name in schema}
    events["n3"][:25] = 0.5
    assert mixed.match(events) == plain.match(events)
    mixed.save(tmp_path / "idx")
    loaded = gm.load(tmp_path / "idx")
    assert loaded.match(events) == plain.match(events)
    assert [part.reason for part in loaded.plan().segments] == [part.reason for part in mixed.plan().segments]


def test_observed_events_change_the_choice() -> None:
    """Ranges that look wide, but hardly ever hold, are found by them."""
    matcher = gm.Matcher({"x": "float64", "y": "float64"})
    ranges(matcher, np.arange(5000), ["x", "y"], 0.5, 0)
    assert kinds(matcher) == [("gem", 5000)]
    matcher.observe({"x": np.full(100, 7.0), "y": np.full(100, 7.0)})
    matcher.compact()
    assert kinds(matcher) == [("pstbloom", 5000)]


@pytest.mark.parametrize(("limit", "expected"), [(10**9, 64), (700_000, 32), (450_000, 16), (100_000, None)])
def test_a_memory_limit(limit: int, expected: int | None, tmp_path: Any) -> None:
    matcher = gm.Matcher(dict.fromkeys("abcdefgh", "float64"), memory_limit=limit)
    ranges(matcher, np.arange(6000), list("abcdefgh"), 0.5, 0)
    [part] = matcher.plan().segments
    assert part.index == (gm.Scan() if expected is None else gm.Gem(cells=expected))
    assert matcher.stats()["segments"][0]["parts"][0]["bytes"] <= limit
    matcher.save(tmp_path / "idx")
    loaded = gm.load(tmp_path / "idx")
    loaded.compact()
    assert [again.index for again in loaded.plan().segments] == [part.index]


@pytest.mark.parametrize("limit", [500_000, 400_000, 300_000])
def test_a_memory_limit_for_several_indexes(limit: int) -> None:
    """All parts together keep to it."""
    matcher = gm.Matcher(dict.fromkeys(["x", "y", "z", "n"], "float64"), memory_limit=limit)
    ranges(matcher, np.arange(6000), ["x", "y", "z"], 0.6, 0)
    ranges(matcher, np.arange(10_000, 14_000), ["n"], 0.0001, 1)
    matcher.compact()
    parts = matcher.stats()["segments"][0]["parts"]
    assert sum(part["bytes"] for part in parts) <= limit


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1 GB", True])
def test_a_memory_limit_that_is_none(limit: Any) -> None:
    with pytest.raises(gm.SchemaError, match="memory_limit is a whole number of bytes above 0, or None, found"):
        gm.Matcher(SCHEMA, memory_limit=limit)


def test_a_memory_limit_beside_an_index() -> None:
    with pytest.raises(gm.SchemaError, match=r"memory_limit is for index='auto', found index=Gem\(cells=64"):
        gm.Matcher(SCHEMA, index="gem", memory_limit=1000)


def test_what_was_measured_is_told() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({k: f"i = {k}" for k in range(300)})
    assert matcher.plan().segments[0].measured is None
    matcher.match([])
    assert matcher.plan().segments[0].measured is None
    matcher.match({"i": np.arange(10)})
    matcher.match({"i": np.arange(30)})
    [part] = matcher.plan().segments
    assert part.events == 40
    assert part.measured is not None
    assert part.measured > 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (lambda: gm.Gem(cells=0), "whole number from 1 to 255, found 0"),
        (lambda: gm.Gem(cells=256), "whole number from 1 to 255, found 256"),
        (lambda: gm.Gem(cells=True), "whole number from 1 to 255, found True"),
        (lambda: gm.Gem(cells=8, caches=9), "from 0 to the number of cells, 8, or None for all of them, found 9"),
        (lambda: gm.Gem(caches=-1), "found -1"),
    ],
)
def test_parameters_that_make_no_sense(params: Any, message: str) -> None:
    with pytest.raises(gm.SchemaError, match=message):
        params()
