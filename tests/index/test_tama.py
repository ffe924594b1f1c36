"""TAMA: the paper's example, exactness at any number of levels, supersets without, and what stats() tells."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import gpumatch as gm
from gpumatch.kernels.tama import MOST
from gpumatch.store.merging import unindexed
from tests.conformance.test_oracle import cases, expected
from tests.examples import examples, later

EXACT = (gm.Tama(levels=0), gm.Tama(levels=1), gm.Tama(levels=3), gm.Tama(max_fpr=0.3), gm.Tama())
COARSE = gm.Tama(levels=2, approximate=True)
SLOW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(40))


def matcher_of(schema: dict[str, str], index: gm.Tama, wanted: list[Any]) -> gm.Matcher:
    matcher = gm.Matcher(schema, index=index)
    matcher.add(dict(enumerate(wanted)))
    return matcher


def facts_of(matcher: gm.Matcher) -> dict[str, Any]:
    [segment] = matcher.stats()["segments"]
    [part] = segment["parts"]
    assert part["index"] == "tama"
    return dict(part)


def ranges(index: gm.Tama | str, count: int = 2000, dims: int = 2, width: float = 0.1) -> gm.Matcher:
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


def rate_of(matcher: gm.Matcher, exact: gm.Matcher, events: Any) -> float:
    """The share of false answers, counted."""
    found, right = list(matcher.match(events)), list(exact.match(events))
    assert all(set(some) >= set(needed) for some, needed in zip(found, right, strict=True))
    return 1 - sum(map(len, right)) / sum(map(len, found))


@pytest.mark.long
@pytest.mark.parametrize("levels", [0, 2, 4, 6, 8])
def test_rate_is_that_of_a_count(levels: int) -> None:
    events = uniform(3200)
    matcher = ranges(gm.Tama(levels=levels, approximate=True))
    assert facts_of(matcher)["fpr"] is None
    rate = rate_of(matcher, ranges(gm.Tama()), events)
    facts = facts_of(matcher)
    assert facts["fpr"] == pytest.approx(rate)
    assert rate > 0
    assert facts["checked"] == matcher.count(events).sum()
    assert "fpr" not in facts_of(ranges(gm.Tama(levels=levels)))


def test_more_levels_make_the_rate_smaller() -> None:
    events, exact = uniform(1000), ranges(gm.Tama())
    rates = [rate_of(ranges(gm.Tama(levels=levels, approximate=True)), exact, events) for levels in (4, 6, 8)]
    assert rates[0] > 2 * rates[1] > 4 * rates[2] > 0


@SLOW
@given(case=cases())
def test_rate_of_any_expressions_is_that_of_a_count(case: tuple[Any, ...]) -> None:
    """An answer that one clause of a subscription gives rightly is right, whatever its others do."""
    schema, wanted, batch = case
    matcher = matcher_of(schema, gm.Tama(levels=1, approximate=True), wanted)
    found = sum(map(len, matcher.match(batch)))
    right = sum(map(len, expected(schema, wanted, batch)))
    assume(wanted)
    facts = facts_of(matcher)
    assert facts["checked"] == found
    assert facts["fpr"] == (pytest.approx(1 - right / found) if found else None), [str(expr) for expr in wanted]


@pytest.mark.long
@pytest.mark.parametrize("period", [2, 16])
def test_rate_of_events_that_come_in_turns(period: int) -> None:
    """An answer is false at one turn only, and most of these are not checked."""
    wanted = {0: "x = 0", 1: "y BETWEEN 20 AND 40", 2: "y BETWEEN 30 AND 50"}
    matcher, exact = (gm.Matcher({"x": "int64", "y": "int64"}, index=index) for index in (COARSE, "scan"))
    for each in (matcher, exact):
        each.add(wanted)
    turn = np.arange(200_000) % period
    rate = rate_of(matcher, exact, {"x": np.zeros(len(turn), np.int64), "y": np.where(turn, 60, 10)})
    assert rate == pytest.approx(1 / (period + 1))
    assert facts_of(matcher)["fpr"] == pytest.approx(rate, rel=0.2)


def test_single_codes_are_never_false() -> None:
    """Equality has a table of its own, however coarse the cells are."""
    matcher = gm.Matcher({"x": "int64", "y": "int64"}, index=gm.Tama(levels=1, approximate=True))
    matcher.add({at: f"x = {at} AND y IN ({at}, {at + 2})" for at in range(50)})
    assert list(matcher.match({"x": np.arange(50), "y": np.arange(50)})) == [[at] for at in range(50)]
    assert list(matcher.match({"x": np.arange(50), "y": np.arange(50) + 1})) == [[]] * 50
    assert facts_of(matcher)["fpr"] == 0


def test_checks_go_on_over_batches_and_threads() -> None:
    """Of 4,096 events every one is checked, of later ones one in 16."""
    matcher = ranges(gm.Tama(levels=6, approximate=True))
    event = {"x0": np.full(64, 0.5), "x1": np.full(64, 0.5)}
    each = matcher.count(event)[0]
    assert facts_of(matcher)["checked"] == 64 * each > 0
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: matcher.match(event), range(63)))
        facts = facts_of(matcher)
        assert facts["checked"] == 4096 * each
        list(pool.map(lambda _: matcher.match(event), range(512)))
    later = facts_of(matcher)
    assert later["checked"] - facts["checked"] == pytest.approx(2048 * each, rel=0.1)
    assert later["fpr"] == pytest.approx(facts["fpr"])


# A bound of the rate


def disjoint(index: gm.Tama | str) -> gm.Matcher:
    """Ranges of which no two overlap, but the last two."""
    matcher = gm.Matcher({"x": "int64"}, index=index)
    matcher.add({at: f"x BETWEEN {10 * at} AND {10 * at + 4}" for at in range(98)})
    matcher.add({98: "x BETWEEN 1000 AND 1009", 99: "x BETWEEN 1005 AND 1014"})
    return matcher


def narrow(index: gm.Tama | str) -> gm.Matcher:
    return ranges(index, 300, 1, 1e-4)


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("make", [disjoint, narrow])
def test_few_answers_are_true(make: Any, observed: bool) -> None:
    """Where most events match nothing, what a range covers says little of what is found."""
    events = {"x": np.arange(1015)} if make is disjoint else uniform(4000, 1)
    matcher, exact = make(gm.Tama(max_fpr=0.05, approximate=True)), make("scan")
    if observed:
        matcher.observe(events)
    assert rate_of(matcher, exact, events) <= 0.05
    facts = facts_of(matcher)
    assert facts["fpr"] <= 0.05
    why = f"{len(events.popitem()[1]):,} observed events do not show" if observed else "no events were observed"
    assert facts["note"].startswith(f"nothing is rounded: {why}")
    assert facts["note"] in str(matcher.plan())


@pytest.mark.parametrize("separation", ["codes", "events"])
def test_levels_for_a_rate(separation: Any) -> None:
    """Fewer levels and bytes for a larger rate; observed events keep it, and so do others like them."""
    exact, last = ranges(gm.Tama()), None
    events = uniform(8000, power=3.0)
    observed, others = ({name: values[some::2] for name, values in events.items()} for some in (0, 1))
    for bound in (0.9, 0.5, 0.2, 0.05):
        matcher = ranges(gm.Tama(max_fpr=bound, approximate=True, separation=separation))
        matcher.observe(observed)
        assert 0 < rate_of(matcher, exact, observed) <= bound
        facts = facts_of(matcher)
        assert 0 < rate_of(matcher, exact, others) <= bound
        assert "note" not in facts
        assert str(matcher.plan()).count("rounded") == 0
        assert last is None or (facts["levels"] > last["levels"] and facts["bytes"] > last["bytes"])
        last = facts


@pytest.mark.parametrize("seed", [0, 8, 9, *later(*range(1, 8), 10, 11)])
def test_bound_is_kept(seed: int) -> None:
    """Whatever ranges and events are like, and though more levels need not make fewer answers false."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 1 << rng.integers(4, 12), (2, 300))
    high = low + rng.integers(0, 1 << rng.integers(1, 8), (2, 300))
    exact = gm.Matcher({"x0": "int64", "x1": "int64"}, index="scan")
    exact.add_ranges(np.arange(300), {f"x{d}": (low[d], high[d]) for d in range(2)})
    events = {f"x{d}": rng.choice(low[d], 2000) + rng.integers(-3, 3, 2000) for d in range(2)}
    for bound in (0.01, 0.1, 0.4, 0.8, 0.999):
        matcher = gm.Matcher(exact.schema, index=gm.Tama(max_fpr=bound, approximate=True))
        matcher.observe(events)
        matcher.add_ranges(np.arange(300), {f"x{d}": (low[d], high[d]) for d in range(2)})
        rate = rate_of(matcher, exact, events)
        assert rate <= bound
        assert facts_of(matcher)["fpr"] == pytest.approx(rate)


def test_bound_is_kept_where_not_all_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumatch.index.tama._PLENTY", 5000)
    events, exact = uniform(4000), ranges(gm.Tama())
    for bound in (0.9, 0.5, 0.2):
        matcher = ranges(gm.Tama(max_fpr=bound, approximate=True))
        matcher.observe(events)
        assert 0 < rate_of(matcher, exact, events) <= bound


@pytest.mark.long
def test_bounds_near_zero_and_one() -> None:
    events, exact = uniform(2000), ranges(gm.Tama())
    strict, loose = (ranges(gm.Tama(max_fpr=bound, approximate=True)) for bound in (1e-9, 1 - 1e-9))
    for matcher in (strict, loose):
        matcher.observe(events)
    assert rate_of(strict, exact, events) == 0
    assert facts_of(strict)["note"].startswith("nothing is rounded: 2,000 observed events do not show")
    assert 0.9 < rate_of(loose, exact, events) < 1
    assert facts_of(loose)["levels"] == 0


def test_events_that_match_nothing_show_nothing() -> None:
    matcher = ranges(gm.Tama(max_fpr=0.5, approximate=True))
    matcher.observe({"x0": np.full(1000, 7.0), "x1": np.full(1000, 7.0)})
    assert rate_of(matcher, ranges(gm.Tama()), uniform(500)) == 0
    assert "1,000 observed events do not show" in facts_of(matcher)["note"]


def test_rare_events_may_be_missing() -> None:
    """A handful of events shows too little: another one may find nothing that is true."""
    matcher = ranges(gm.Tama(max_fpr=0.1, approximate=True))
    matcher.observe(uniform(8))
    assert "8 observed events do not show" in facts_of(matcher)["note"]


def test_observed_events_count_from_the_next_build() -> None:
    events, exact = uniform(3000), ranges(gm.Tama())
    matcher = ranges(gm.Tama(max_fpr=0.2, approximate=True))
    assert rate_of(matcher, exact, events) == 0
    before = facts_of(matcher)
    assert "no events were observed" in before["note"]
    matcher.observe(events)
    assert facts_of(matcher) == before
    matcher.compact()
    assert 0 < rate_of(matcher, exact, events) <= 0.2
    after = facts_of(matcher)
    assert "note" not in after
    assert after["levels"] < before["levels"]


def test_every_segment_keeps_the_bound() -> None:
    events = uniform(3000)
    matcher = ranges(gm.Tama(max_fpr=0.2, approximate=True))
    exact = ranges(gm.Tama())
    matcher.observe(events)
    matcher.stats()
    low = np.random.default_rng(9).random((2, 40)) * 0.7
    for each in (matcher, exact):
        each.add_ranges(np.arange(5000, 5040), {f"x{d}": (low[d], low[d] + 0.3) for d in range(2)})
        assert each._store._settle(unindexed)
    rate = rate_of(matcher, exact, events)
    parts = [part for segment in matcher.stats()["segments"] for part in segment["parts"]]
    assert len(parts) == 2
    assert 0 < rate <= 0.2
    assert all(part["fpr"] <= 0.2 for part in parts)
    false, found = (
        sum(values) for values in zip(*((p["fpr"] * p["checked"], p["checked"]) for p in parts), strict=True)
    )
    assert false / found == pytest.approx(rate)


def test_exact_results_do_not_depend_on_the_bound() -> None:
    events, right = uniform(500), list(ranges(gm.Tama()).match(uniform(500)))
    for bound in (0.01, 0.5, 0.99):
        matcher = ranges(gm.Tama(max_fpr=bound))
        matcher.observe(events)
        assert list(matcher.match(events)) == right
        assert "fpr" not in facts_of(matcher)


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
        ({"levels": 32}, "levels must be a whole number from 0 to 31, found 32"),
        ({"levels": True}, "levels must be a whole number from 0 to 31, found True"),
        ({"levels": 2.0}, "found 2.0"),
        ({"max_fpr": 0}, "max_fpr must be a number between 0 and 1, found 0"),
        ({"max_fpr": 1.0}, "found 1.0"),
        ({"max_fpr": "1%"}, "found '1%'"),
        ({"levels": 3, "max_fpr": 0.1}, "levels or max_fpr, found both; leave one out"),
        ({"approximate": 1}, "approximate must be True or False, found 1"),
        ({"separation": "medians"}, r"for those given to observe\(\), found 'medians'"),
    ],
)
def test_wrong_parameters(given: dict[str, Any], message: str) -> None:
    with pytest.raises(gm.SchemaError, match=message):
        gm.Tama(**given)
