"""Keys of events that are no attributes: warnings for misspelt ones, errors with strict=True."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.events import strangers

SCHEMA = {"px": "float64", "Last Price": "int64", "tags": "list<string>"}


def matcher(**options: Any) -> gm.Matcher:
    made = gm.Matcher(SCHEMA, **options)
    made.add({"a": "px > 1"}, destination="d")
    return made


WAYS: dict[str, Callable[..., Any]] = {
    "match": lambda m, events, **how: m.match(events, **how),
    "match_iter": lambda m, events, **how: list(m.match_iter(events, **how)),
    "count": lambda m, events, **how: m.count(events, **how),
    "any": lambda m, events, **how: m.any(events, **how),
    "destinations": lambda m, events, **how: m.destinations(events, **how),
    "observe": lambda m, events, **how: m.observe(events, **how),
}


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ("PX", "px"),
        ("p_x", "px"),
        (" px", "px"),
        ("last_price", "Last Price"),
        ("LAST-PRICE", "Last Price"),
        ("lastPrice", "Last Price"),
        ("Tags", "tags"),
    ],
)
def test_keys_that_are_nearly_attributes(key: str, attribute: str) -> None:
    with pytest.warns(gm.GpumatchWarning, match=f"key {key!r}.*ignored; did you mean {attribute!r}"):
        assert matcher().match_one({key: 3}) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("events", [[{"PX": 3.0}], [{}, {"PX": 3.0}], ({"PX": 3.0},), {"PX": [3.0]}], ids=repr)
def test_every_way_to_match_warns_once_and_here(way: str, events: Any) -> None:
    made = matcher()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WAYS[way](made, events)
        WAYS[way](made, events)
        made.match_one({"TAGS": ["x"]})
    assert [one.category for one in caught] == [gm.GpumatchWarning]
    assert caught[0].filename == __file__


def test_single_events_warn_too() -> None:
    for call in (lambda m: m.match_one({"PX": 3.0}), lambda m: m.explain({"PX": 3.0}, "a")):
        with pytest.warns(gm.GpumatchWarning) as caught:
            call(matcher())
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "events",
    [
        [{"PX": 3.0, "px": 3.0}],
        [{"PX": 3.0, "px": None}],
        [{"px": 3.0}, {"volume": 1, "pxx": 2, "x": 3, 5: 6, None: 7, "": 8, "_": 9}],
        {"PX": [1.0], "px": [1.0]},
        pd.DataFrame({"PX": [3.0]}),
        pl.DataFrame({"PX": [3.0]}),
        pa.table({"PX": [3.0]}),
        pa.record_batch({"PX": [3.0]}),
        gm.EventBatch.from_csr([0, 1], [0], [3.0], ["PX"]),
        [],
        {},
    ],
    ids=lambda events: type(events).__name__,
)
def test_what_does_not_warn(events: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = matcher()
        made.match(events)
        made.count(events)


def test_an_event_that_lacks_the_attribute_behind_one_that_has_it() -> None:
    with pytest.warns(gm.GpumatchWarning, match="'PX'"):
        matcher().match([{"PX": 1, "px": 1.0}, {"PX": 1}])


def test_attributes_that_differ_in_case_only() -> None:
    made = gm.Matcher({"px": "int64", "PX": "int64"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.match([{"px": 1}, {"PX": 2}, {"Px": 1, "PX": 2}])
    with pytest.warns(gm.GpumatchWarning, match="'Px'.*did you mean 'px'"):
        made.match([{"Px": 1}])


def test_remembered_names_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "_JUDGED", 3)
    made = matcher()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.match([{f"x{i}": 1 for i in range(50)}])
    assert len(made._spelling._judged) <= 3
    with pytest.warns(gm.GpumatchWarning):
        made.match_one({"PX": 1.0, **{f"x{i}": 1 for i in range(50)}})


def test_warnings_as_errors() -> None:
    made = matcher()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(gm.GpumatchWarning):
            made.match_one({"PX": 3.0})
    assert made.match_one({"px": 3.0}) == ["a"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([{"px": 1.0}, {"px": 2.0, "pxx": 3}], "event 1 has the key 'pxx', .*did you mean 'px'"),
        ([{"volume": 1}], "event 0 has the key 'volume', which is no attribute of the schema$"),
        ([{5: 1}], "event 0 has the key 5"),
        ([{"px": 1.0, "PX": 1.0}, {}], "event 0 has the key 'PX'"),
        ({"px": [1.0], "tag": [["x"]]}, "the events have the column 'tag', .*did you mean 'tags'"),
        (pd.DataFrame({"px": [1.0], "PX": 2}), "column 'PX'"),
        (pd.DataFrame({7: [1.0]}), "column 7"),
        (pl.DataFrame({"LastPrice": [1]}), "column 'LastPrice', .*did you mean 'Last Price'"),
        (pa.table({"px": [1.0], "y": [1]}), "column 'y'"),
        (gm.EventBatch.from_csr([0, 1, 3], [0, 0, 1], [1.0, 2.0, 3.0], ["px", "q"]), "event 1 has the key 'q'"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_strict(way: str, events: Any, message: str) -> None:
    made = matcher()
    with pytest.raises(gm.SchemaError, match=message):
        WAYS[way](made, events, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.GpumatchWarning)
        WAYS[way](made, events)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "events",
    [
        [{"px": 2.0}, {"tags": ["x"], "Last Price": None}, {}],
        [MappingProxyType({"px": 2.0})],
        {"px": np.array([2.0])},
        pd.DataFrame({"px": [2.0]}),
        pa.table({"tags": [["a"]]}),
        gm.EventBatch.from_csr([0, 1], [0], [2.0], ["px", "unused"]),
        [],
    ],
    ids=lambda events: type(events).__name__,
)
def test_strict_takes_what_fits(way: str, events: Any) -> None:
    made = matcher()
    strict, other = (WAYS[way](made, events, strict=strict) for strict in (True, False))
    assert np.array_equal(strict, other) if isinstance(strict, np.ndarray) else strict == other


def test_strict_single_events_and_readers() -> None:
    made = matcher()
    assert made.match_one({"px": 3.0}, strict=True) == ["a"]
    with pytest.raises(gm.SchemaError, match=r"event 0 has the key 'PX', .*did you mean 'px'"):
        made.match_one({"PX": 3.0}, strict=True)
    with pytest.raises(gm.SchemaError, match="column 'PX'"):
        made.match_iter(pa.table({"PX": [3.0]}).to_reader(), strict=True)  # before the first batch is asked for
    [result] = made.match_iter(pa.table({"px": [3.0]}).to_reader(), strict=True)
    assert result.ids(0) == ["a"]


def test_strict_batches() -> None:
    made = matcher()
    with pytest.raises(gm.SchemaError, match="event 0 has the key 'q'"):
        gm.EventBatch.of([{"q": 1}], made.schema, strict=True)
    batch = gm.EventBatch.of([{"px": 3.0}], made.schema, strict=True)
    assert made.match(batch).ids(0) == ["a"]
    with pytest.raises(gm.SchemaError, match=r"EventBatch.of\(data, schema, strict=True\)"):
        made.match(batch, strict=True)
