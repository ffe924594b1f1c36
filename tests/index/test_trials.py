"""Indexes that are tried before one is chosen: which, on what events, and that answers stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.index import planner, trials
from gpumatch.kernels import compile as compiling

SCHEMA = {"sym": "string", "px": "float64", "qty": "int64", "tags": "list<string>", "hot": "bool"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of sets as small as these, on two samples of different size."""
    monkeypatch.setenv("GPUMATCH_TRIALS", "1")
    for name, value in (("_LEAST", 100), ("_SAMPLE", 64), ("_EVENTS", 32), ("_FEW_EVENTS", 4)):
        monkeypatch.setattr(trials, name, value)


def texts(count: int, seed: int = 0) -> dict[int, str]:
    """Conjunctions, expressions that are none, lists and nulls."""
    rng = np.random.default_rng(seed)
    found = {}
    for at in range(count):
        low, symbol = int(rng.integers(0, 90)), int(rng.integers(0, 8))
        forms = (
            f"sym = 's{symbol}' AND px > {low}.5",
            f"px BETWEEN {low} AND {low + 20} AND qty >= {low % 7}",
            f"(sym = 's{symbol}' OR px < {low}) AND (qty = {low % 5} OR hot) AND NOT px = {low}",
            f"tags = 't{symbol}' AND qty < {low}",
            f"sym IN ('s{symbol}', 's{symbol + 1}') AND qty IS NOT NULL AND NOT hot",
            f"px IS NULL AND qty <> {low}",
        )
        found[at] = forms[at % len(forms)]
    return found


def events(count: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {
        "sym": [None if x == 9 else f"s{x}" for x in rng.integers(0, 10, count).tolist()],
        "px": [None if x > 95 else x / 1.0 for x in rng.integers(0, 100, count).tolist()],
        "qty": rng.integers(0, 10, count).tolist(),
        "tags": [[f"t{x}" for x in rng.integers(0, 9, rng.integers(0, 4)).tolist()] for _ in range(count)],
        "hot": (rng.random(count) < 0.5).tolist(),
    }
    types = {"tags": pa.list_(pa.string())}
    return pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()})


def compiled(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Pretend that only these kinds are compiled."""
    monkeypatch.setattr(trials.Trials, "possible", staticmethod(lambda params: params.kind in kinds))


def filled(count: int = 400, **options: Any) -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, **options)
    matcher.add(texts(count))
    return matcher


def times(monkeypatch: pytest.MonkeyPatch, costs: dict[str, float]) -> list[str]:
    """In the place of a clock: what each kind costs per event, and which were asked for."""
    asked: list[str] = []

    def time(self: Any, params: Any, clauses: Any, best: float) -> float:
        asked.append(params.kind)
        return costs[params.kind]

    monkeypatch.setattr(trials.Trials, "time", time)
    monkeypatch.setattr(trials.Trials, "check", lambda self, index, table: costs[index.params.kind])
    return asked


def test_the_fastest_is_taken_and_the_plan_tells_times(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(monkeypatch, "scan", "pstbloom", "psthash", "gem", "atree")
    monkeypatch.setattr(planner, "_TRIED", 20)
    for fastest in ("pstbloom", "gem", "atree"):
        costs = dict.fromkeys(("pstbloom", "psthash", "gem", "atree", "scan"), 50000.0) | {fastest: 1000.0}
        times(monkeypatch, costs)
        [part] = filled().plan().segments
        assert (part.index.kind, part.estimate) == (fastest, 1.0)
        assert part.reason.endswith("; tried")
        assert min(cost for _, cost in part.others) > 1.0


def test_only_what_is_compiled_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_TRIED", 20)
    compiled(monkeypatch, "pstbloom")
    asked = times(monkeypatch, {"pstbloom": 1.0})
    filled().plan()
    assert set(asked) == {"pstbloom"}
    compiled(monkeypatch)
    asked.clear()
    assert filled().plan() == filled().plan()
    assert asked == []


def shown(matcher: gm.Matcher) -> dict[str, float]:
    """What a plan says of all indexes."""
    parts = matcher.plan().segments
    chosen = " + ".join(part.index.kind for part in parts)
    return {**dict(parts[-1].others), chosen: sum(part.estimate for part in parts)}


def test_estimates_of_others_are_corrected_by_what_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """That an index is ten times as slow as its estimate is no reason to take one that was not tried."""
    monkeypatch.setattr(planner, "_TRIED", 20)
    compiled(monkeypatch, "pstbloom")
    monkeypatch.setenv("GPUMATCH_TRIALS", "0")
    before = shown(filled())
    monkeypatch.setenv("GPUMATCH_TRIALS", "1")
    times(monkeypatch, {"pstbloom": 10_000 * before["pstbloom"]})
    after = shown(filled())
    assert after.keys() == before.keys()
    for name in planner.KINDS:  # the clock knows of no parts
        assert after[name] == pytest.approx(10 * before[name], rel=0.2)


def test_few_clauses_and_a_variable_leave_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(monkeypatch, "pstbloom", "gem", "atree", "psthash", "scan")
    asked = times(monkeypatch, dict.fromkeys(("pstbloom", "psthash", "gem", "atree", "scan"), 1.0))
    filled(40).plan()
    filled(index="gem").plan()
    monkeypatch.setenv("GPUMATCH_TRIALS", "0")
    filled().plan()
    assert asked == []


def test_the_index_that_was_built_is_timed_on_new_events(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[tuple[bool, int]] = []

    def match(self: Any, index: Any, table: Any, events: Any, repeats: int) -> float:
        matched.append((index.last - index.first >= 400, len(events.ptr) - 1))
        return 7000.0 if index.last - index.first >= 400 else 1.0

    compiled(monkeypatch, "pstbloom", "gem", "atree", "psthash", "scan")
    monkeypatch.setattr(trials.Trials, "_match", match)
    for index in ("auto", "gem"):
        [part] = filled(index=index).plan().segments
        assert part.estimate == 7.0
        assert matched[-2:] == [(True, 4), (True, 28)]
    for count in (1, 4, 5):
        matcher = filled()
        matcher.observe(events(count))
        matcher.plan()
        assert matched[-1] == (True, 1 if count == 5 else count)
    monkeypatch.setattr(trials, "_SLOW", 6999.0)
    filled().plan()
    assert matched[-1] == (True, 4)


def answers(matcher: gm.Matcher) -> list[list[int | str]]:
    found = matcher.match(events(200))
    return [found.ids(at) for at in range(200)]


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("sample", [64, 10_000])
def test_real_trials_give_the_same_answers(monkeypatch: pytest.MonkeyPatch, observed: bool, sample: int) -> None:
    monkeypatch.setattr(trials, "_SAMPLE", sample)
    compiled(monkeypatch, "pstbloom", "gem", "atree", "psthash", "scan")
    matcher = gm.Matcher(SCHEMA)
    if observed:
        matcher.observe(events(300, seed=2))
    matcher.add(texts(600))
    [*_, part] = matcher.plan().segments
    assert part.reason.endswith("; tried")
    assert all(cost > 0 for _, cost in part.others)
    assert answers(matcher) == answers(filled(600, index="scan"))
    assert matcher.match(events(200)).counts.sum() > 0


def test_of_more_clauses_more_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a limit; what is extrapolated from few is too much for indexes whose costs rise less and less."""
    sizes: set[int] = set()

    def some(self: trials.Trials, clauses: Any, size: int) -> Any:
        sizes.add(size)
        return clauses[:size]

    monkeypatch.setattr(trials.Trials, "_some", some)
    for name, value in (("_SAMPLE", 40), ("_LARGE", 100), ("_SHARE", 4)):
        monkeypatch.setattr(trials, name, value)
    compiled(monkeypatch, "pstbloom", "psthash", "scan")
    for count, tried in ((120, {40, 10}), (240, {60, 15}), (1000, {100, 25})):
        sizes.clear()
        matcher = gm.Matcher(SCHEMA)
        matcher.add({at: f"px > {at} AND qty = {at % 5}" for at in range(count)})
        matcher.plan()
        assert sizes == tried


@pytest.mark.parametrize(("whole", "chosen"), [(False, "pstbloom"), (True, "psthash")])
def test_a_sample_leaves_doubt_about_psthash(monkeypatch: pytest.MonkeyPatch, whole: bool, chosen: str) -> None:
    """In a sample there are too few clauses for pairs."""
    times(monkeypatch, {"pstbloom": 1000.0, "psthash": 900.0})
    compiled(monkeypatch, "pstbloom", "psthash")
    monkeypatch.setattr(trials.Trials, "tries_all", lambda self, clauses: whole)
    parts = (planner._Part(params, np.arange(9), "why", 1000.0) for params in (gm.PstBloom(), gm.PstHash()))
    found, _ = planner._tried([planner._Offer((part,)) for part in parts], trials.Trials.__new__(trials.Trials))
    assert found[0].parts[0].params.kind == chosen


def drawn_for(matcher: gm.Matcher) -> list[Any]:
    """What trials are made of, and the events that they draw."""
    drawn: list[Any] = []

    class Recording(trials.Trials):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            drawn.append((args[0], self.events))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner.trials, "Trials", Recording)
        matcher.compact()
    return drawn


def test_clauses_are_forgotten_once_an_index_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are kept for their checks, which come while the index is built: that needs the memory."""
    held: list[trials.Trials] = []
    check = trials.Trials.check

    def checking(self: trials.Trials, *args: Any) -> float:
        held.append(self)
        return check(self, *args)

    monkeypatch.setattr(trials.Trials, "check", checking)
    matcher = filled()
    matcher.compact()
    [one] = held
    assert len(one._given.table.clause_row) == len(one._likelihood) == 0
    assert [len(part.choice.clauses) for part in matcher._seal().pieces[0].parts] == [0]


def test_events_are_drawn_from_the_clauses() -> None:
    """They have the values that clauses name, together, and lists are there where one of their values is."""
    [(given, found)] = drawn_for(filled())
    assert len(found.ptr) == 33
    counts = given.book.counts()
    assert (found.code >= 0).all()
    assert (found.code < counts[found.attribute]).all()
    for first, last in zip(found.ptr[:-1], found.ptr[1:], strict=True):
        mine = found.attribute[first:last].tolist()
        assert mine == sorted(set(mine))
        assert (3 in mine) <= (int(given.attributes.presence[3]) in mine)
    assert {0, 1, 2, 3, 4} <= set(found.attribute.tolist())


def test_what_nothing_satisfies_gives_events_no_value() -> None:
    matcher = gm.Matcher({"c": "int64", "a": "list<int64>"})
    matcher.add({at: f"a = {at}" for at in range(100)})
    matcher.add({at: f"c NOT IN ({', '.join(str(3 * j + at) for j in range(20))})" for at in range(100, 200)})
    matcher.add({at: f"a NOT IN () AND c > {at} OR c IN () XOR c < {at}" for at in range(200, 300)})
    [(given, found)] = drawn_for(matcher)
    assert (found.code < given.book.counts()[found.attribute]).all()


@pytest.mark.parametrize("alike", [1 << 16, 134])
def test_what_clauses_say_of_one_value_is_drawn_together(monkeypatch: pytest.MonkeyPatch, alike: int) -> None:
    monkeypatch.setattr(trials, "_ALIKE", alike)
    matcher = gm.Matcher({"sym": "string", "px": "int64", "qty": "int64"})
    matcher.add({at: f"sym = 's{at % 8}' AND {('px', 'qty')[at // 8 % 2]} = {at % 8}" for at in range(400)})
    [(_, found)] = drawn_for(matcher)
    rows = found.code.reshape(-1, 3)
    assert len(np.unique(rows, axis=0)) == len(np.unique(rows[:, 0])) > 4


def test_matched_events_are_what_indexes_are_planned_by(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[int] = []
    build = gm.matcher.Segment.build

    def recording(source: Any, attributes: Any, request: Any, sample: Any) -> Any:
        samples.append(sum(map(len, sample)))
        return build(source, attributes, request, sample)

    monkeypatch.setattr(gm.matcher.Segment, "build", recording)
    monkeypatch.setattr(gm.matcher, "_MET", 50)
    monkeypatch.setattr(gm.matcher, "_FEW", 30)
    hasty = filled()
    hasty.match(events(29))
    matcher = filled()
    matcher.match(events(30))
    matcher.match(events(30))
    matcher.match_one({"px": 3.0})
    matcher.compact()
    matcher.observe(events(7))
    matcher.compact()
    assert samples == [0, 30, 50, 7]
    asked = filled(index="pstbloom")
    asked.match(events(30))
    asked.compact()
    assert samples[4:] == [0, 0]


def test_measurements_leave_compiling_out(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = planner.Usage()
    usage.stop(10, usage.start())
    assert usage.events == 10
    started = usage.start()
    monkeypatch.setattr(compiling, "_finished", compiling.compilations() + 1)
    usage.stop(1000, started)
    assert usage.events == 10


@pytest.mark.parametrize(("rows", "clauses"), [(1, 300), (3, 300), (2, 1000), (40, 10)])
def test_rows_of_very_many_clauses(rows: int, clauses: int) -> None:
    matcher = gm.Matcher(SCHEMA)
    text = " OR ".join(f"qty = {at} AND px > {at % 7}" for at in range(clauses))
    matcher.add(dict.fromkeys(range(rows), text))
    assert matcher.match_one({"qty": 5, "px": 9.5}) == list(range(rows))
    assert "tried" in str(matcher.plan())
