"""TAMA: the paper's example, exactness at any number of levels, supersets without, and what stats() tells."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import gpumatch as gm
from gpumatch.kernels.tama import MOST
from tests.conformance.test_oracle import cases, expected

EXACT = (gm.Tama(levels=0), gm.Tama(levels=1), gm.Tama(levels=3), gm.Tama(max_fpr=0.3), gm.Tama())
SLOW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=40)


def matcher_of(schema: dict[str, str], index: gm.Tama, wanted: list[Any]) -> gm.Matcher:
    matcher = gm.Matcher(schema, index=index)
    matcher.add(dict(enumerate(wanted)))
    return matcher


def facts_of(matcher: gm.Matcher) -> dict[str, Any]:
    [segment] = matcher.stats()["segments"]
    [part] = segment["parts"]
    assert part["index"] == "tama"
    return dict(part)


def ranges(index: gm.Tama, count: int = 2000, dims: int = 2, width: float = 0.1) -> gm.Matcher:
    """Ranges of one width on every attribute, at random places."""
    rng = np.random.default_rng(3)
    low = rng.random((dims, count)) * (1 - width)
    matcher = gm.Matcher({f"x{d}": "float64" for d in range(dims)}, index=index)
    matcher.add_ranges(np.arange(count), {f"x{d}": (low[d], low[d] + width) for d in range(dims)})
    return matcher


def uniform(count: int, dims: int = 2, power: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {f"x{d}": rng.random(count) ** power for d in range(dims)}


@pytest.mark.parametrize("index", EXACT, ids=repr)
@SLOW
@given(case=cases())
def test_equals_oracle(index: gm.Tama, case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    found = list(matcher_of(schema, index, wanted).match(batch))
    assert found == expected(schema, wanted, batch), [str(expr) for expr in wanted]


@SLOW
@given(case=cases())
def test_cells_cut_by_events_equal_oracle(case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    matcher = gm.Matcher(schema, index=gm.Tama(levels=2, separation="events"))
    matcher.observe(batch)
    matcher.add(dict(enumerate(wanted)))
    assert list(matcher.match(batch)) == expected(schema, wanted, batch), [str(expr) for expr in wanted]


@pytest.mark.parametrize("levels", [0, 2, None])
@SLOW
@given(case=cases())
def test_approximate_results_hold_every_match(levels: int | None, case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    found = list(matcher_of(schema, gm.Tama(levels=levels, approximate=True), wanted).match(batch))
    right = expected(schema, wanted, batch)
    assert all(set(some) >= set(needed) for some, needed in zip(found, right, strict=True))
    if levels is None:
        assert found == right, "the codes of few constants are all told apart"


@pytest.mark.parametrize("index", [*EXACT, gm.Tama(levels=4)], ids=repr)
def test_worked_example(index: gm.Tama) -> None:
    """Section III-D, with verification where codes are coarse."""
    matcher = gm.Matcher(dict.fromkeys(("temperature", "distance", "height"), "float64"), index=index)
    matcher.add(
        {
            1: "temperature BETWEEN 10 AND 70 AND distance BETWEEN 100 AND 600",
            2: "temperature BETWEEN 0 AND 5 AND height BETWEEN 5 AND 100",
        }
    )
    assert matcher.match_one({"temperature": 40, "distance": 200, "height": 70}) == [1]


@pytest.mark.parametrize("levels", [0, 1, 2, 5, None])
def test_many_predicates_and_ranges(levels: int | None) -> None:
    """Sets whose ranges share a coarse cell, more predicates than are counted, and values of a list that hit twice."""
    names = [f"a{at}" for at in range(MOST + 3)]
    matcher = gm.Matcher({**dict.fromkeys(names, "int64"), "t": "list<int64>"}, index=gm.Tama(levels=levels))
    matcher.add({at: f"a0 = {at} AND a1 <> {at}" for at in range(40)})
    matcher.add({100: "a0 NOT IN (1, 3, 5, 7, 9, 20) AND a1 IN (1, 2, 3, 8, 9, 10, 30)"})
    matcher.add({101: " AND ".join(f"{name} > 1" for name in names), 102: "t > 3 AND t < 3 AND t <> 9", 103: "t > 0"})
    event = dict.fromkeys(names, 2)
    assert matcher.match_one(event) == [100, 101]
    assert matcher.match_one({**event, names[-1]: 1}) == [100]
    assert matcher.match_one({"a0": 5, "a1": 6, "t": [4, 4, 5, 1, 2]}) == [5, 102, 103]
    assert matcher.match_one({"t": [4, 5, 9, 1]}) == [103]


def test_postings_stay_within_two_per_level() -> None:
    """Whatever the width: two cells of each level, two of the last in doubt."""
    for levels in (0, 1, 4, 8, None):
        facts = facts_of(ranges(gm.Tama(levels=levels), 500, 1, 0.5))
        assert facts["levels"] == (10 if levels is None else levels)
        assert facts["postings"] <= 500 * (2 * facts["levels"] + 2)
    one_sided = gm.Matcher({"x": "int64"}, index=gm.Tama())
    one_sided.add({at: f"x >= {at}" for at in range(1000)})
    assert facts_of(one_sided)["postings"] <= 1000 * 10


def test_approximate_results_are_measured() -> None:
    """The rate in stats() is about what exact results tell; more levels make it smaller."""
    events = uniform(3200)
    right = len(ranges(gm.Tama()).match(events).rows)
    rates = []
    for levels in (4, 6, 8):
        matcher = ranges(gm.Tama(levels=levels, approximate=True))
        assert facts_of(matcher)["fpr"] is None
        found = len(matcher.match(events).rows)
        facts = facts_of(matcher)
        rates.append(facts["fpr"])
        assert facts["checked"] == pytest.approx(found / 16, rel=0.2)
        assert rates[-1] == pytest.approx(1 - right / found, rel=0.25)
    assert rates[0] > 2 * rates[1] > 4 * rates[2] > 0
    assert "fpr" not in facts_of(ranges(gm.Tama(levels=4)))


def test_single_codes_are_never_false() -> None:
    """Equality has a table of its own, however coarse the cells are."""
    matcher = gm.Matcher({"x": "int64", "y": "int64"}, index=gm.Tama(levels=1, approximate=True))
    matcher.add({at: f"x = {at} AND y IN ({at}, {at + 2})" for at in range(50)})
    assert list(matcher.match({"x": np.arange(50), "y": np.arange(50)})) == [[at] for at in range(50)]
    assert list(matcher.match({"x": np.arange(50), "y": np.arange(50) + 1})) == [[]] * 50
    assert facts_of(matcher)["fpr"] == 0


def test_sampling_goes_on_over_batches_and_threads() -> None:
    matcher = ranges(gm.Tama(levels=6, approximate=True))
    events = [{"x0": 0.5, "x1": 0.5}]
    found = len(matcher.match(events).rows)
    assert found > 0
    assert facts_of(matcher)["checked"] == found
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: matcher.match(events), range(159)))
    assert facts_of(matcher)["checked"] == 10 * found


def test_levels_for_a_rate() -> None:
    """Fewer levels and bytes for a larger rate; what is measured stays below it."""
    events = uniform(1600)
    last = None
    for rate in (0.5, 0.1, 0.02):
        matcher = ranges(gm.Tama(max_fpr=rate, approximate=True))
        matcher.match(events)
        facts = facts_of(matcher)
        assert 0 < facts["fpr"] <= rate
        assert last is None or (facts["levels"] > last["levels"] and facts["bytes"] > last["bytes"])
        last = facts


def test_cells_follow_observed_events() -> None:
    """Where events crowd, cells cut at their medians are finer, and less is false."""
    events = uniform(1600, power=8.0)
    right = len(ranges(gm.Tama()).match(events).rows)
    rates = {}
    for separation in ("codes", "events"):
        matcher = ranges(gm.Tama(levels=7, approximate=True, separation=separation))  # type: ignore[arg-type]
        matcher.observe(events)
        rates[separation] = 1 - right / len(matcher.match(events).rows)
        assert facts_of(matcher)["separation"] == separation
    assert 0 < rates["events"] < 0.7 * rates["codes"]


def test_no_observed_events() -> None:
    matcher = ranges(gm.Tama(levels=5, separation="events"))
    events = uniform(100)
    right = list(matcher.match(events))
    assert facts_of(matcher)["separation"].startswith("codes: no events were observed")
    matcher.observe(events)
    matcher.compact()
    assert facts_of(matcher)["separation"] == "events"
    assert list(matcher.match(events)) == right


def test_destinations() -> None:
    matcher = gm.Matcher({"x": "int64"}, index=gm.Tama(levels=2))
    for name in ("a", "b"):
        matcher.add({f"{name}{at}": f"x >= {at} AND x < {at + 40}" for at in range(50)}, destination=name)
    matcher.add({"c": "x > 70 OR x = 0"}, destination="c")
    assert [sorted(some) for some in matcher.destinations({"x": np.array([0, 60, 88, 200])})] == [
        ["a", "b", "c"],
        ["a", "b"],
        ["a", "b", "c"],
        ["c"],
    ]


@pytest.mark.parametrize("separation", ["codes", "events"])
def test_save_and_load(tmp_path: Path, separation: Any) -> None:
    index = gm.Tama(max_fpr=0.2, separation=separation)
    matcher = ranges(index, 500)
    events = uniform(200)
    matcher.observe(events)
    right = list(matcher.match(events))
    matcher.save(tmp_path / "idx")
    loaded = gm.load(tmp_path / "idx")
    assert loaded.plan().segments[0].index == index
    assert list(loaded.match(events)) == right
    assert facts_of(loaded) == facts_of(matcher)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"levels": 32}, "levels are a whole number from 0 to 31, found 32"),
        ({"levels": True}, "levels are a whole number from 0 to 31, found True"),
        ({"levels": 2.0}, "found 2.0"),
        ({"max_fpr": 0}, "max_fpr is a number between 0 and 1, found 0"),
        ({"max_fpr": 1.0}, "found 1.0"),
        ({"max_fpr": "1%"}, "found '1%'"),
        ({"levels": 3, "max_fpr": 0.1}, "levels or max_fpr, found both; leave one out"),
        ({"approximate": 1}, "approximate is True or False, found 1"),
        ({"separation": "medians"}, r"for those given to observe\(\), found 'medians'"),
    ],
)
def test_wrong_parameters(given: dict[str, Any], message: str) -> None:
    with pytest.raises(gm.SchemaError, match=message):
        gm.Tama(**given)
