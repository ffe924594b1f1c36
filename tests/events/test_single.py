"""A batch of one dict takes a short way; it must lead to the same answer."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.codes.encode import EventEncoder, encode_single
from gpumatch.index import flat
from tests.conformance.strategies import events, expressions, schemas

SCHEMA = {
    "i": "int64",
    "f": "float64",
    "g": "float32",
    "b": "bool",
    "s": "string",
    "d": "date",
    "t": "timestamp",
    "ls": "list<string>",
    "lg": "list<float32>",
}


@st.composite
def cases(draw: Any) -> tuple[Any, ...]:
    schema = draw(schemas())
    wanted = draw(st.lists(expressions(schema, 5), max_size=6))
    return schema, dict(enumerate(wanted)), draw(events(schema))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_alone_or_among_others(case: tuple[Any, ...]) -> None:
    schema, wanted, event = case
    matcher = gm.Matcher(schema)
    matcher.add(wanted)
    both = matcher.match([event, event])
    for _ in range(2):  # the second time its shape is known
        assert matcher.match_one(event) == both.ids(0) == both.ids(1)
    batch = gm.EventBatch.of([event], matcher.schema)
    assert batch.single(matcher.schema) is not None
    assert list(matcher.match(batch)) == next(list(part) for part in matcher.match_iter([event])) == [both.ids(0)]
    two = gm.EventBatch.of([event, event], matcher.schema)
    assert batch.row(0) == two.row(0)


ODD = [
    {},
    {"i": 2**63 - 1, "f": -0.0, "g": 0.1, "b": True, "s": "a"},
    {"i": np.int8(3), "f": 3, "g": np.float32(0.1), "b": np.True_, "s": np.str_("é")},
    {"i": 2.0, "f": float("nan"), "g": 1e300, "b": None, "s": None},
    {"i": pd.NA, "f": float("inf"), "g": float("nan"), "d": dt.date(2024, 1, 1), "t": dt.datetime(2024, 1, 1)},
    {"d": pd.NaT, "t": np.datetime64("2024-01-01"), "ls": [], "lg": [0.1, None, float("nan"), 2]},
    {"ls": ["b", None, "a", "b"], "lg": None, "unknown": object()},
    {"ls": ("", "a\x00"), "lg": np.array([0.1, 1e300])},
]


@pytest.mark.parametrize("event", ODD)
def test_same_entries(event: dict[str, Any]) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "i > 2 AND f >= 0 AND g = 0.1 AND b AND s > 'a'", "b": "ls = 'b' OR lg > 0.1 OR ls IS NULL"})
    matcher.add({"p": "s LIKE '%a%' OR s ILIKE '_' OR s LIKE '_' OR ls NOT LIKE '%b' OR ls LIKE '%a%'"})
    matcher.add({"c": "d > DATE '2023-01-01' AND t >= TIMESTAMP '2024-01-01 00:00:00' AND lg IS NULL"})
    [segment] = matcher._seal().segments
    batch = gm.EventBatch.of([event], matcher.schema)
    single = batch.single(matcher.schema)
    assert single is not None
    found = encode_single(single, segment.book, segment.attributes)
    two = gm.EventBatch.of([event, event], matcher.schema)
    assert two.single(matcher.schema) is None
    right = EventEncoder(segment.book, segment.attributes, segment.used, two).encode(0, 1)
    for mine, others in zip(found.arrays(), right.arrays(), strict=True):
        assert mine.dtype == others.dtype
        assert mine.tolist() == others.tolist()
    columns = EventEncoder(segment.book, segment.attributes, segment.used, batch).encode(0, 1)
    assert [part.tolist() for part in columns.arrays()] == [part.tolist() for part in right.arrays()]


PLAIN = {"i": 3, "f": 0.5, "g": 0.1, "b": True, "s": "é", "d": dt.date(2024, 1, 1), "ls": None, "t": None}


@pytest.mark.parametrize(
    "more",
    [
        {"i": -(2**63), "f": -0.0, "g": 1e300, "b": False, "s": "", "d": dt.date(1, 1, 1)},
        {"i": 2**63 - 1, "f": float("inf"), "g": -1e-300, "s": "a\x00", "d": dt.date(9999, 12, 31)},
        {"f": float("nan"), "s": "b" * 5000},
        {"g": float("nan"), "s": "b"},
    ],
)
def test_a_shape_that_is_known(more: dict[str, Any]) -> None:
    """Twice the same keys and types with other values, on several segments with removed rows."""
    matcher, others = gm.Matcher(SCHEMA, background=False), {**PLAIN, **more}
    for at, text in enumerate(["i > 2 AND f >= 0", "g = 0.1 OR g > 1e30", "s > 'a' AND b", "d > DATE '2000-01-01'"]):
        matcher.add({f"{text} {at}": text, f"not {text}": f"NOT ({text})", f"gone {at}": text})
        matcher.compact()
    matcher.add({"s1": "s = '' OR s = 'é' OR s = 'a'", "ls": "ls IS NULL", "all": "i IS NOT NULL"})
    matcher.remove(["gone 0", "gone 3"])
    for event in (PLAIN, others, PLAIN, {**others, "more": 1}, {**PLAIN, "more": 2}):
        assert matcher.match_one(event) == matcher.match([event, {}]).ids(0)
    shape = matcher._shapes.find(others, False)
    assert shape is not None
    assert shape.packed(others) is not None
    matcher.add({"p": "s LIKE '%b%'"})  # strings are searched for patterns now
    matcher.compact()
    for event in (PLAIN, others):
        assert matcher.match_one(event) == matcher.match([event, {}]).ids(0)
    assert ("p" in matcher.match_one(others)) == ("b" in others["s"])


def test_what_is_not_plain_is_not_packed() -> None:
    matcher = gm.Matcher(SCHEMA)
    assert matcher.match_one(PLAIN) == matcher.match_one(PLAIN) == []
    matcher.add({"a": "i = 3", "b": "s = 'é'"})
    for event in ({}, {"i": None}, {"s": None, "f": 1.0}):
        assert matcher.match_one(event) == matcher.match_one(event) == []
    assert matcher.match_one(PLAIN) == matcher.match_one(PLAIN) == ["a", "b"]
    assert matcher.match_one(PLAIN, strict=True) == ["a", "b"]
    assert matcher.match_one({"i": 3, "j": 1}) == matcher.match_one({"i": 3, "j": 1}) == ["a"]
    for _ in range(2):
        with pytest.raises(gm.SchemaError, match="'j', which is no attribute"):
            matcher.match_one({"i": 3, "j": 1}, strict=True)
        for wrong in ({**PLAIN, "s": "\ud800"}, {**PLAIN, "i": 2**63}, {**PLAIN, "b": 1}):
            with pytest.raises(gm.SchemaError):
                matcher.match_one(wrong)
    with pytest.warns(gm.GpumatchWarning, match="'I'"):
        matcher.match_one({"I": 3, "s": "é"})
    assert matcher.match_one({"i": 3.0, "s": np.str_("é")}) == matcher.match_one({"i": 3.0, "s": np.str_("é")})


def test_an_event_within_another_has_buffers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the handler of a signal matches events: here one more in the midst of each."""
    matcher = gm.Matcher({"x": "int64", "s": "string"}, "atree")
    matcher.add({at: f"x = {at} AND s = 's{at}'" for at in range(9)})
    known = [{"x": at, "s": f"s{at}"} for at in range(9)]
    assert matcher.match_one(known[0]) == [0]
    inner: list[Any] = []
    seal, counting = matcher._seal, flat._counting

    def interrupted() -> Any:
        if not inner:
            inner.append(None)
            with counting:  # the signal may have come while this thread counted something
                inner[0] = matcher.match_one(known[2])
        return seal()

    monkeypatch.setattr(matcher, "_seal", interrupted)
    for _ in range(2):
        inner.clear()
        assert matcher.match_one(known[1]) == [1]
        assert inner == [[2]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_may_count_whatever_its_parent_did_when_it_forked() -> None:
    matcher = gm.Matcher({"x": "int64"}, "atree")
    matcher.add({1: "x > 1"})
    assert matcher.match_one({"x": 2}) == [1]
    with ThreadPoolExecutor(1) as others:
        others.submit(flat._counting.acquire).result()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # it would wait for good
            os._exit(0 if matcher.match_one({"x": 2}) == [1] else 1)
        others.submit(flat._counting.release).result()
    assert os.waitpid(child, 0)[1] == 0


def test_shapes_are_forgotten_once_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumatch.events.shapes._MOST", 2)
    matcher = gm.Matcher({"x": "int64"}, "scan")
    matcher.add({1: "x > 1"})
    for at in range(3):
        assert matcher.match_one({"x": 2, f"more {at}": 0}) == [1]
    assert matcher._shapes.find({"x": 3, "more 1": 9}, False) is not None
    for _ in range(2):
        assert matcher._shapes.find({"x": 3}, False) is None
        assert matcher.match_one({"x": 3}) == [1]
    assert matcher._shapes.find({"x": 3}, False) is not None
    assert matcher._shapes.find({"x": 3, "more 1": 9}, False) is None


def test_threads_have_buffers_of_their_own() -> None:
    matcher = gm.Matcher({"x": "int64", "s": "string"}, "scan")
    matcher.add({at: f"x = {at} AND s = 's{at}'" for at in range(50)})
    wrong: list[int] = []

    def ask(first: int) -> None:
        asked = [at % 50 for at in range(first, first + 500)]
        wrong.extend(at for at in asked if matcher.match_one({"x": at, "s": f"s{at}"}) != [at])

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "event",
    [
        {"i": "1"},
        {"i": 2**63},
        {"i": 2.5},
        {"f": True},
        {"b": 1},
        {"s": 5},
        {"s": "\ud800"},
        {"ls": "a"},
        {"lg": ["a"]},
    ],
)
def test_same_errors(event: dict[str, Any]) -> None:
    schema = gm.Schema.of(SCHEMA)
    with pytest.raises(gm.SchemaError) as alone:
        gm.EventBatch.of([event], schema)
    with pytest.raises(gm.SchemaError) as among:
        gm.EventBatch.of([event, {}], schema)
    assert str(alone.value) == str(among.value)


def test_a_batch_of_one_is_a_batch() -> None:
    schema = gm.Schema.of(SCHEMA)
    tags = ["a"]
    batch = gm.EventBatch.of([{"ls": tags, "i": 1}], schema)
    tags.append("b")
    assert batch.row(0) == {"i": 1, "ls": ["a"]}
    assert len(batch.slice(0, 0)) == 0
    assert batch.slice(0, 5) is batch
    with pytest.raises(gm.SchemaError, match="made for another schema"):
        gm.EventBatch.of(batch, gm.Schema.of({"i": "int64"}))
    equal = gm.Matcher(SCHEMA)  # its schema is equal, but another object
    equal.add({"x": "i = 1 AND ls = 'a'"})
    assert equal.match(batch).ids(0) == ["x"]
    equal.observe(batch)
    equal.compact()
    assert equal.match(batch).ids(0) == ["x"]
