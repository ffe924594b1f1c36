"""Routing tables against plain lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.errors import RoutingError
from gpumatch.expr import evaluate, parse
from gpumatch.routing.overlays.overlap import Overlaps
from gpumatch.routing.overlays.tables import RoutingTable
from tests.examples import examples

SCHEMA = {"a": "int64", "b": "int64"}
TYPED = gm.Schema.of(SCHEMA)
EVENTS = [{"a": a, "b": b} for a in (None, 0, 1, 2) for b in (0, 1)]
EXPRESSIONS = ["a = 0", "a > 0 AND b = 1", "b < 1", "a IS NULL", "a = 1 OR b = 0", "TRUE", "FALSE", "a > 5"]
SOURCES = st.sampled_from([0, 1, "client", ("tree", 2)])


@settings(max_examples=examples(40))
@given(
    changes=st.lists(
        st.tuples(st.just("insert"), st.sampled_from(EXPRESSIONS), SOURCES)
        | st.tuples(st.just("remove"), st.integers(0, 9))
        | st.tuples(st.just("match")),
        max_size=16,
    )
)
def test_equals_a_plain_list(changes: list[tuple[Any, ...]]) -> None:
    table = RoutingTable(SCHEMA)
    held: dict[Any, tuple[str, Any]] = {}
    for at, change in enumerate([*changes, ("match",)]):
        if change[0] == "insert":
            held[("id", at)] = change[1:]
            assert table.insert(("id", at), *change[1:]).source == change[2]
        elif change[0] == "remove" and held:
            gone = list(held)[change[1] % len(held)]
            assert table.remove(gone).id == gone
            del held[gone]
        elif change[0] == "match":
            check(table, held)


def check(table: RoutingTable, held: dict[Any, tuple[str, Any]]) -> None:
    hits = [[id for id, (text, _) in held.items() if evaluate(parse(text), e, TYPED) is True] for e in EVENTS]
    assert table.match(EVENTS) == hits
    assert [set(found) for found in table.sources(EVENTS)] == [{held[id][1] for id in found} for found in hits]
    assert all(len(found) == len(set(found)) for found in table.sources(EVENTS))
    assert len(table) == len(held)
    assert [entry.id for entry in table] == list(held)
    overlaps = Overlaps(SCHEMA)
    expected = [id for id, (text, _) in held.items() if overlaps.overlap(text, "a = 1")]
    assert [entry.id for entry in table.overlapping("a = 1")] == expected
    assert table.overlapping(overlaps.prepare("a = 1")) == table.overlapping("a = 1")


def test_empty_tables_match_nothing() -> None:
    table = RoutingTable(SCHEMA)
    assert table.match(EVENTS) == table.sources(EVENTS) == [[] for _ in EVENTS]
    assert table.match([]) == []
    assert table.overlapping("TRUE") == []
    table.insert(1, "a = 0", "x")
    assert table.match([]) == []
    assert table.sources({"a": [0, 1]}) == [["x"], []]
    table.remove(1)
    assert table.sources(EVENTS) == [[] for _ in EVENTS]


def test_an_id_may_come_back() -> None:
    table = RoutingTable(SCHEMA)
    table.insert(1, "a = 0", "x")
    assert table.sources([{"a": 0}]) == [["x"]]
    table.remove(1)
    table.insert(1, "a = 1", "y")
    assert table.sources([{"a": 0}, {"a": 1}]) == [[], ["y"]]


def test_errors_name_the_entry_and_change_nothing() -> None:
    table = RoutingTable(SCHEMA)
    table.insert(1, "a = 0", "x")
    with pytest.raises(RoutingError, match="already has an entry 1"):
        table.insert(1, "a = 1", "y")
    with pytest.raises(RoutingError, match="no entry 2"):
        table.remove(2)
    with pytest.raises(gm.SchemaError, match="unknown attribute 'z'"):
        table.insert(2, "z = 1", "x")
    with pytest.raises(gm.SchemaError):
        table.match([{"a": "text"}])
    assert [entry.id for entry in table] == [1]
    assert 2 not in table
    assert str(table[1].expression) == "a = 0"
