"""What a matcher does on a CUDA device, against the same on the CPU. Run by tests/sim and tests/gpu."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.device_memory import is_device_array, library, to_host
from gpumatch.index import KINDS, IndexParams
from gpumatch.store.merging import unindexed
from tests.conformance.devices import new_matcher, sized
from tests.conformance.test_oracle import each_variant
from tests.subscriptions.test_destinations import add, cases, check

each_kind = pytest.mark.parametrize("index", KINDS)
SCHEMA = {"x": "int64", "y": "float64", "s": "string", "t": "list<string>", "n": "list<int64>"}
TEXTS = [
    "t = 'a'",
    "x IS NULL",
    "NOT (t = 'b')",
    "x > 3 AND y < 2.5",
    "x BETWEEN 1 AND 9 OR y = 1",
    "s LIKE 'ab%' AND x <> 4",
    "(x = 1) XOR (y > 2)",
    "n IN (3, 5) AND x < 8 AND y > 0",
    "t IS NULL AND s IN ('ab', 'zz', 'abc')",
    "x >= 4 AND y >= 1 AND y <= 3",
    "NOT (n > 4) AND t >= 'b'",
    "TRUE",
    "x = 4 AND y = 1.0",
    "s LIKE '%b%' AND x < 5",
    "t NOT ILIKE '_B' XOR s LIKE '_z'",
]
EVENTS: list[dict[str, Any]] = [
    {"t": ["a"]},
    {"x": 1, "n": [5, 5, 1], "y": 0.5},
    {"t": ["b", "a"], "n": []},
    {"x": 5, "y": 2.0, "s": "abc"},
    {"x": 4, "s": "ab", "y": 1.0, "t": ["c", None, "b"]},
    {"y": 3.0, "t": []},
    {},
    {"x": 4, "y": float("nan"), "s": "zz", "n": [3]},
]


def filled(index: str | IndexParams = "auto", copies: int = 1) -> gm.Matcher:
    """The texts with two destinations, on the CPU."""
    matcher = gm.Matcher(SCHEMA, index=index, device="cpu")
    ids = range(copies * len(TEXTS))
    matcher.add({at: TEXTS[at % len(TEXTS)] for at in ids}, destination=["north" if at % 3 else "south" for at in ids])
    return matcher


def there(matcher: gm.Matcher) -> gm.Matcher:
    """The same subscriptions where the suite runs."""
    return matcher.to(new_matcher({"x": "int64"}).device)


def assert_same(mine: gm.Matcher, right: gm.Matcher, events: Any = EVENTS) -> None:
    """All answers that there are."""
    found = mine.match(events)
    assert found == right.match(events)
    assert found.rows.dtype == np.int32
    assert found.offsets.dtype == np.int64
    assert mine.count(events).tolist() == right.count(events).tolist()
    assert mine.any(events).tolist() == right.any(events).tolist()
    assert mine.destinations(events) == right.destinations(events)


@each_variant
def test_every_way_to_ask(index: IndexParams) -> None:
    right = filled(index)
    mine = there(right)
    assert mine.device == new_matcher(SCHEMA).device
    assert_same(mine, right)
    for event in EVENTS[:3]:
        assert mine.match_one(event) == right.match_one(event)
    parts = list(mine.match_iter(EVENTS))
    assert [ids for part in parts for ids in part] == list(right.match(EVENTS))


@each_kind
def test_changes(index: str) -> None:
    """Several segments, removed and changed subscriptions, and one segment again."""
    right = filled(index)
    right.match(EVENTS)
    right.add({1000 + at: text for at, text in enumerate(TEXTS[:5])}, destination="late")
    right.match(EVENTS)
    right.add({2000: "x > 0"})
    mine = there(right)
    assert len(mine.plan().segments) == 3
    assert_same(mine, right)
    before = mine.match(EVENTS)
    for matcher in (mine, right):
        matcher.remove([0, 3, 11, 1004])
    assert_same(mine, right)
    for matcher in (mine, right):
        matcher.replace({4: "x < 5", 2000: "FALSE"})
    assert_same(mine, right)
    for matcher in (mine, right):
        matcher.compact()
    assert len(mine.plan().segments) == 1
    assert_same(mine, right)
    assert before.ids(0)[:2] == [0, 1]  # results are those of the subscriptions that there were


@each_kind
@settings(max_examples=sized(40, few=4), suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), gone=st.sets(st.integers(0, 9)))
def test_destinations_equal_the_oracle(index: str, case: tuple[Any, ...], gone: set[int]) -> None:
    schema, held, batch = case
    matcher = new_matcher(schema, index=index)
    add(matcher, held)
    check(matcher, schema, held, batch)
    matcher.remove(gone & set(held))
    had = any(name is not None for _, name in held.values())
    check(matcher, schema, {at: one for at, one in held.items() if at not in gone}, batch, had)


@each_kind
def test_saved_and_moved(index: str, tmp_path: Path) -> None:
    right = filled(index)
    mine = there(right)
    mine.save(tmp_path / "idx")
    assert_same(gm.load(tmp_path / "idx", device=mine.device), right)
    back = mine.to("cpu")
    assert back.device == "cpu"
    assert_same(back, right)
    assert_same(back.to(mine.device), right)


def test_a_plan_tells_the_device() -> None:
    matcher = new_matcher(SCHEMA)
    assert str(matcher.plan()).startswith(f"device {matcher.device} (as asked")
    matcher.add({1: "x > 3"})
    matcher.match(EVENTS)
    assert matcher.plan().device == matcher.device


def test_parts_with_an_index_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of seven clauses in bitsets, and expressions in a graph: some subscriptions have clauses in two parts."""
    monkeypatch.setattr("gpumatch.index.planner._FEW", 0)
    monkeypatch.setattr("gpumatch.expr.normal._SMALL", 0)
    monkeypatch.setattr("gpumatch.index.planner._rank", lambda offer: -len(offer.parts))
    gem = KINDS["gem"]
    assert gem.planning is not None
    some = gem.planning._replace(takes=lambda costs, clauses: clauses[clauses % 7 > 2])
    monkeypatch.setitem(KINDS, "gem", replace(gem, planning=some))
    right = filled(copies=6)
    mine = there(right)
    assert [part.index.kind for part in mine.plan().segments][::2] == ["gem", "atree"]
    assert sum(part.subscriptions for part in mine.plan().segments) > len(mine)
    assert_same(mine, right)
    assert mine.count_subscriptions(EVENTS).tolist() == right.count_subscriptions(EVENTS).tolist()


# Events


def numbers(kind: Any) -> gm.EventBatch:
    values = np.array([1, 5, 3, 4, 2, 5, 5, 4], kind)
    return gm.EventBatch.from_csr([0, 2, 2, 6, 8], [0, 4, 1, 0, 4, 4, 4, 1], values, list(SCHEMA))


def strings() -> gm.EventBatch:
    values = ["abc", "a", "b", "ab", "c", None, "zz"]
    return gm.EventBatch.from_csr([0, 3, 4, 4, 7], [2, 3, 3, 2, 3, 3, 2], values, list(SCHEMA))


def without_lists() -> gm.EventBatch:
    return gm.EventBatch.from_csr([0, 1, 3, 3], [0, 1, 0], np.array([4, 1, 4]), ["x", "y"])


SPARSE = ["integers", "floats", "strings", "without lists"]


@each_kind
@pytest.mark.parametrize("batch", [numbers("int64"), numbers("float64"), strings(), without_lists()], ids=SPARSE)
def test_sparse_events(index: str, batch: gm.EventBatch) -> None:
    right = filled(index)
    assert_same(there(right), right, batch)


def test_sparse_events_without_list_attributes() -> None:
    for kind in ("float64", "float32"):
        right = gm.Matcher({"a": kind, "b": "int64"}, device="cpu")
        right.add({at: f"a > {at}.1 OR b = {at}" for at in range(9)}, destination="d")
        for values in (np.array([3, 2, 5, 1]), np.array([3.1, 2.0, 5.5, np.nan])):
            batch = gm.EventBatch.from_csr([0, 1, 1, 3, 4], [0, 1, 0, 0], values, ["a", "b"])
            assert_same(there(right), right, batch)


COLUMNS = {
    "i": pa.array([1, None, -128, 127], pa.int8()),
    "u": pa.array([0, 5, None, 2**40], pa.uint64()),
    "f": pa.array([0.5, None, float("nan"), -0.0], pa.float32()),
    "g": pa.array([1e300, -1.0, None, 0.1]),
    "b": pa.array([True, None, False, True]),
    "s": pa.array(["a", None, "é", ""]).dictionary_encode(),
    "p": pa.chunked_array([["q", None], ["r", "q"]]),
    "d": pa.array([dt.date(2024, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "w": pa.array([dt.datetime(2024, 1, 1, 12), None, dt.datetime(1999, 1, 1), dt.datetime(2024, 1, 2)]),
    "l": pa.array([[1, 2], None, [], [None, 7]], pa.list_(pa.int64())),
    "m": pa.array([["a", "b"], [None], None, []], pa.list_(pa.string())),
    "o": pa.array([[0.5], [1.5, 2.5], None, [float("nan")]], pa.large_list(pa.float64())),
}
TYPES = {
    "i": "int8", "u": "int64", "f": "float32", "g": "float64", "b": "bool", "s": "string", "p": "string", "d": "date",
    "w": "timestamp", "l": "list<int64>", "m": "list<string>", "o": "list<float64>",
}  # fmt: skip
CONDITIONS = [
    "i < 5", "i = -128", "u > 4", "u = 0", "f = 0", "f <> 0.5", "g > 0.05", "g = 0.1", "b = TRUE", "b IS NULL",
    "s = 'é'", "s LIKE '%'", "s < 'b'", "p IN ('q', 'x')", "p <> 'q'", "d >= DATE '2024-01-01'", "d IS NULL",
    "w > TIMESTAMP '2024-01-01 11:00:00'", "w < TIMESTAMP '2000-01-01 00:00:00'", "l = 2", "l <> 2", "l IS NULL",
    "s LIKE '_'", "p NOT ILIKE '%Q'", "m LIKE '%b%'", "m NOT LIKE '_'", "b IS NOT TRUE", "f IS DISTINCT FROM 0.5",
    "m = 'b'", "m IS NOT NULL", "NOT (m = 'a')", "o > 1", "o IS NULL", "NOT (o > 2)", "i > 0 AND l > 6 AND s = ''",
]  # fmt: skip


@each_kind
def test_every_type(index: str) -> None:
    right = gm.Matcher(TYPES, index=index, device="cpu")
    right.add(dict(zip(CONDITIONS, CONDITIONS, strict=True)), destination=list(range(len(CONDITIONS))))
    table = pa.table(COLUMNS)
    assert_same(there(right), right, table)
    assert_same(there(right), right, table.slice(1, 2))
    assert_same(there(right), right, table.slice(2, 0))


@each_kind
def test_events_on_the_device(index: str) -> None:
    """Columns and CSR arrays that are there already, and results that stay there."""
    xp = library()
    right = gm.Matcher({"x": "int64", "y": "float64", "f": "float32", "n": "list<int64>"}, index=index, device="cpu")
    right.add({at: f"x > {at % 5} AND y < {at % 3}.5 OR f = 0.5 AND NOT (n = {at % 4})" for at in range(30)})
    mine = there(right)
    columns = {
        "x": np.array([1, 9, 3, 4]),
        "y": np.array([0.5, np.nan, 2.0, -1.0]),
        "f": np.array([0.5, 0.25, 0.5, 0.5], np.float32),
        "n": np.array([[1, 2], [3, 3], [7, 7], [0, 1]]),
    }
    here = right.match({**columns, "n": columns["n"].tolist()})
    held = {name: xp.asarray(values) for name, values in columns.items()}
    found = mine.match(held)
    assert found == here
    offsets, rows = found.to_cupy()
    assert is_device_array(offsets)
    assert is_device_array(rows)
    assert to_host(offsets).tolist() == here.offsets.tolist()
    assert to_host(rows).tolist() == here.rows.tolist()
    csr = (np.array([0, 2, 2, 4]), np.array([0, 3, 3, 2], np.int32), np.array([2.0, 3.0, 1.0, 0.5]))
    names = ["x", "n", "f", "y"]
    batch = gm.EventBatch.from_csr(*map(xp.asarray, csr), names)
    assert mine.match(batch) == right.match(gm.EventBatch.from_csr(*csr, names))
    assert right.match(held) == here  # a matcher on the CPU takes them, too


@each_variant
def test_few_of_everything(index: IndexParams) -> None:
    """No events, one, none with attributes; no subscriptions, and none that can match."""
    right = filled(index)
    mine = there(right)
    empty: list[list[dict[str, Any]]] = [[], [{}], [{}, {}], [{"x": 4}]]
    for events in empty:
        assert_same(mine, right, events)
    matcher = new_matcher(SCHEMA, index=index)
    for events in empty:
        assert list(matcher.match(events)) == [[]] * len(events)
        assert matcher.any(events).tolist() == [False] * len(events)
    matcher.add({1: "FALSE", 2: "x > 3 AND x < 2"})
    for events in empty:
        assert list(matcher.match(events)) == [[]] * len(events)
    matcher.remove([1, 2])
    assert matcher.count(EVENTS).tolist() == [0] * len(EVENTS)


# Counters, and several threads


@pytest.mark.parametrize("index", [gm.Tama(levels=0, approximate=True), gm.Ladder(), gm.Ladder(order="worst")], ids=str)
def test_counters(index: IndexParams) -> None:
    """What matching counts is the same."""
    schema = {"x": "int64", "y": "int64"}
    mine, right = new_matcher(schema, index=index), gm.Matcher(schema, index=index, device="cpu")
    events = {"x": np.arange(40) % 7, "y": np.arange(40) % 5}
    for matcher in (mine, right):
        matcher.add({at: f"x > {at % 6} AND y < {at % 4}" for at in range(12)})
        matcher.match(events)
        matcher.match(events)
    [mine_facts], [right_facts] = (matcher.stats()["segments"][0]["parts"] for matcher in (mine, right))
    assert mine_facts == right_facts
    assert right_facts.get("checked", 1) > 0


@pytest.mark.parametrize("budget", [1 << 20, 512, 8])
def test_rate_is_that_of_a_count(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """False answers are counted by subscription, whatever its clauses; once, though events are matched again."""
    index = gm.Tama(levels=1, approximate=True)
    mine, right, exact = new_matcher(SCHEMA, index=index), gm.Matcher(SCHEMA, index=index, device="cpu"), filled()
    exact.add({900: "x < 3 OR x > 7"})
    for matcher in (mine, right):
        matcher.add(dict(enumerate(TEXTS)))
        matcher.stats()
        matcher.add({900: "x < 3 OR x > 7"})
        assert matcher._store._settle(unindexed)
    monkeypatch.setattr(mine._engine._card, "budget", budget)
    events = [*EVENTS, *({"x": x, "y": y} for x in range(9) for y in (0.5, 2.0, 9.0))]
    found, true = int(mine.count(events).sum()), int(exact.count(events).sum())
    assert int(right.count(events).sum()) == found > true
    parts = [[s["parts"][0] for s in matcher.stats()["segments"]] for matcher in (mine, right)]
    assert parts[0] == parts[1]
    assert sum(part["checked"] for part in parts[0]) == found
    assert sum(part["fpr"] * part["checked"] for part in parts[0]) == pytest.approx(found - true)


def test_from_several_threads() -> None:
    """One matcher by two threads while a third changes it, and another matcher by a fourth."""
    right = filled(copies=3)
    mine, other = there(right), there(right)
    expected = list(right.match(EVENTS))
    wrong: list[Any] = []

    def ask(matcher: gm.Matcher) -> None:
        try:
            for _ in range(3):
                found = [[at for at in ids if at < 1000] for ids in matcher.match(EVENTS)]
                if found != expected or not matcher.any(EVENTS).all():
                    wrong.append(found)
        except Exception as error:
            wrong.append(error)

    def change() -> None:
        for at in range(1000, 1004):
            mine.add({at: "x > 2"})

    threads = [threading.Thread(target=ask, args=(matcher,)) for matcher in (mine, mine, other)]
    threads.append(threading.Thread(target=change))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
