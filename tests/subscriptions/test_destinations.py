"""Destinations: who an event goes to, whatever index, segments, changes and storage are in between."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.codes.encode import EventEncoder
from gpumatch.expr import evaluate
from gpumatch.index import KINDS, Workspace
from gpumatch.kernels import postings as kernels
from tests.alone import alone
from tests.conformance.strategies import events, expressions, schemas
from tests.examples import examples

SCHEMA = {"px": "float64", "qty": "int64"}
NAMES = st.none() | st.sampled_from(["north", "south", "east", "", "é"])


@st.composite
def cases(draw: Any) -> tuple[Any, ...]:
    """A schema, expressions with destinations by id, and events."""
    schema = draw(schemas(4))
    held = draw(st.lists(st.tuples(expressions(schema, 5), NAMES), max_size=10))
    return schema, dict(enumerate(held)), draw(st.lists(events(schema), max_size=5))


def routed(schema: dict[str, str], held: dict[int, Any], batch: list[dict[str, Any]]) -> list[list[Any]]:
    """The oracle: destinations by their first subscription, of those that match."""
    order = list(dict.fromkeys(name for _, name in held.values() if name is not None))
    typed = gm.Schema.of(schema)
    hits = [{name for expr, name in held.values() if evaluate(expr, event, typed) is True} for event in batch]
    return [[name for name in order if name in hit] for hit in hits]


def check(
    matcher: gm.Matcher, schema: dict[str, str], held: dict[int, Any], batch: list[dict[str, Any]], had: bool = False
) -> None:
    """``had``: subscriptions that are gone had destinations, so that asking for them is no error."""
    typed = gm.Schema.of(schema)
    some = [any(evaluate(expr, event, typed) is True for expr, _ in held.values()) for event in batch]
    assert matcher.any(batch).tolist() == some
    names = {name for _, name in held.values()} - {None}
    assert matcher.stats()["destinations"] == len(names)
    if names or had:
        assert list(matcher.destinations(batch)) == routed(schema, held, batch)
    else:
        with pytest.raises(gm.SchemaError, match="no subscription has a destination"):
            matcher.destinations(batch)


def add(matcher: gm.Matcher, held: dict[int, Any]) -> None:
    matcher.add({at: expr for at, (expr, _) in held.items()}, destination=[name for _, name in held.values()])


@pytest.mark.parametrize("index", KINDS)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_index_equals_oracle(index: str, case: tuple[Any, ...]) -> None:
    schema, held, batch = case
    matcher = gm.Matcher(schema, index=index)
    add(matcher, held)
    check(matcher, schema, held, batch)


@pytest.mark.parametrize("index", KINDS)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(case=cases(), gone=st.sets(st.integers(0, 9)), changed=st.sets(st.integers(0, 9)))
def test_changes_keep_destinations(
    index: str, case: tuple[Any, ...], gone: set[int], changed: set[int], tmp_path: Path
) -> None:
    schema, held, batch = case
    always = gm.col(next(iter(schema))).is_null() | gm.col(next(iter(schema))).is_not_null()
    matcher = gm.Matcher(schema, index=index)
    add(matcher, held)
    matcher.match(batch)  # seals a segment; the next one may be merged with it or not
    add(matcher, {100: (always, "south")})
    held |= {100: (always, "south")}
    check(matcher, schema, held, batch)
    gone &= set(held)
    matcher.remove(gone)
    held = {at: one for at, one in held.items() if at not in gone}
    check(matcher, schema, held, batch)
    moved = {at: held[at] for at in sorted(changed & set(held))}
    matcher.replace(dict.fromkeys(moved, always))
    held = {at: one for at, one in held.items() if at not in moved}
    held |= {at: (always, name) for at, (_, name) in moved.items()}
    check(matcher, schema, held, batch)
    matcher.save(tmp_path / "idx")
    check(gm.load(tmp_path / "idx"), schema, held, batch)
    matcher.compact()
    check(matcher, schema, held, batch)


def small(**options: Any) -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "px > 1", "b": "px > 2"}, **options)
    return matcher


def test_several_segments_give_a_destination_once() -> None:
    matcher = gm.Matcher(SCHEMA)
    for first, last, name in ((0, 100, "x"), (100, 120, "y"), (120, 125, "x")):
        matcher.add({at: f"px > {at}" for at in range(first, last)}, destination=name)
        matcher.match([{}])
    matcher.add({200: "qty = 1"})
    assert len(matcher.plan().segments) == 4
    found = matcher.destinations([{"px": 0.5}, {"px": 500.0}, {"qty": 1}])
    assert list(found) == [["x"], ["x", "y"], []]
    matcher.remove(range(100))
    assert list(matcher.destinations([{"px": 0.5}, {"px": 500.0}])) == [[], ["y", "x"]]


@pytest.mark.parametrize("names", [["n", "s", "n"], [7, -(2**63), 7]])
@pytest.mark.parametrize("given_as", [list, tuple, pd.Series, pl.Series, np.array, pa.array, pa.chunked_array])
def test_one_for_each(names: list[Any], given_as: Any) -> None:
    matcher = gm.Matcher(SCHEMA)
    ids = [1, 2, 3]
    given_names = given_as([names] if given_as is pa.chunked_array else names)
    matcher.add_ranges(ids, {"px": ([0, 1, 2], [9, 9, 9])}, destination=given_names)
    assert list(matcher.destinations([{"px": 0.5}, {"px": 1.5}, {"px": 3}])) == [[names[0]], names[:2], names[:2]]


def test_every_way_to_add() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "px > 1"}, destination="dict")
    table = pa.table({"id": ["b", "c"], "expr": ["px > 2", "px > 3"], "to": ["dict", None]})
    matcher.add_table(table, destination=table["to"])
    matcher.add_ranges(["d"], {"px": ([4], [None])}, destination="ranges")
    long = {"id": ["e", "f", "e"], "attribute": ["px"] * 3, "op": [">"] * 3, "value": [5.0, 6.0, 5.0]}
    matcher.add_predicates(pa.table(long), destination=["e's", "f's"])
    batch = [{"px": x} for x in (0.5, 1.5, 3.5, 5.0, 5.5, 7.0)]
    d = ["dict", "ranges", "e's", "f's"]
    assert list(matcher.destinations(batch)) == [[], d[:1], d[:1], d[:2], d[:3], d]
    assert matcher.stats()["destinations"] == 4


def test_result_has_a_column_of_destinations() -> None:
    found = small(destination=[30, 20]).destinations(pa.table({"px": [5.0, None, 1.5]}))
    table = found.to_arrow()
    assert table.schema == pa.schema({"event": pa.int64(), "destination": pa.int64()})
    assert table.to_pydict() == {"event": [0, 0, 2], "destination": [30, 20, 30]}
    assert found.to_pandas().to_dict("list") == found.to_polars().to_dict(as_series=False) == table.to_pydict()
    assert found.ids(0) == [30, 20]
    assert found.rows.tolist() == [0, 1, 0]
    assert found != gm.Matches(found.offsets, found.rows, pa.array([30, 20]))


def test_rejected_rows_drop_their_destinations() -> None:
    matcher = gm.Matcher(SCHEMA)
    rejected = matcher.add(
        {1: "px >", "two": "px > 2", 3: "px > 3", 4: "nope = 1"}, on_error="collect", destination=["p", "q", "r", "s"]
    )
    assert {one.id for one in rejected} == {1, "two", 4}
    assert list(matcher.destinations([{"px": 9}])) == [["r"]]
    matcher.add_ranges([3, 5], {"px": ([1, 1], [2, 2])}, on_error="collect", destination=["x", "y"])
    assert list(matcher.destinations([{"px": 1.5}])) == [["y"]]
    assert matcher.stats()["destinations"] == 2


def test_replace_and_merging_keep_them_apart_from_none() -> None:
    matcher = small(destination="d")
    matcher.add({"c": "px > 3"})
    matcher.replace({"a": "qty = 1", "c": "qty = 2"})
    assert list(matcher.destinations([{"qty": 1}, {"qty": 2}, {"px": 5}])) == [["d"], [], ["d"]]


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        (2.5, "takes a string, an integer, or a list or array of them, found 2.5"),
        (b"d", "takes a string, an integer, or a list or array of them, found b'd'"),
        ({"a": "d"}, "takes a string, an integer, or a list or array of them"),
        (True, r"all strings or all 64-bit integers, found True"),
        (["d", 1.5], r"all strings or all 64-bit integers, found 1.5 \(at position 1\)"),
        (["d", 1], r"all strings or all 64-bit integers, found 'd' and 1 \(at position 1\)"),
        (["d"], "expected a destination for each of the 2 subscriptions, found 1"),
        (2**63, "all strings or all 64-bit integers"),
        (pa.array([2**63, 1], pa.uint64()), "all strings or all 64-bit integers"),
        ("\ud800", "all strings or all 64-bit integers"),
        (pa.array([1.0, 2.0]), "all strings or all 64-bit integers, found double"),
    ],
)
def test_bad_destinations(destination: Any, message: str) -> None:
    matcher = gm.Matcher(SCHEMA)
    with pytest.raises(gm.IdError, match=message):
        matcher.add({"a": "px > 1", "b": "px > 2"}, destination=destination)
    assert len(matcher) == 0


def test_upsert_keeps_them_and_gives_new_ones() -> None:
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({"a": "i = 1", "b": "i = 1"}, destination=["x", None])
    matcher.upsert({"a": "i = 2", "b": "i = 2", "c": "i = 2"}, destination="y")
    assert list(matcher.destinations([{"i": 1}, {"i": 2}])) == [[], ["x", "y"]]
    matcher.upsert({"a": "i = 3", "d": "i = 3", "e": "i = 3"}, destination=["ignored", "z", None])
    assert list(matcher.destinations([{"i": 2}, {"i": 3}])) == [["y"], ["x", "z"]]
    matcher.upsert({"d": "i = 4", "f": "i = 4"})
    assert list(matcher.destinations([{"i": 3}, {"i": 4}])) == [["x"], ["z"]]


def test_upsert_gives_the_first_destination() -> None:
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({1: "i = 1"})
    matcher.upsert({1: "i = 1", 2: "i = 1"}, destination=7)
    assert list(matcher.destinations([{"i": 1}])) == [[7]]
    for destination in ("seven", [1], [1, 1.5]):
        with pytest.raises(gm.IdError, match="destination"):
            matcher.upsert({1: "i = 2", 3: "i = 2"}, destination=destination)
    assert list(matcher.destinations([{"i": 1}, {"i": 2}])) == [[7], []]
    assert list(matcher) == [1, 2]


def test_destinations_of_two_types() -> None:
    for sealed in (False, True):
        matcher = small(destination="d")
        if sealed:
            matcher.match([{}])
        with pytest.raises(gm.IdError, match="the new ones are integers, those added before strings"):
            matcher.add({"c": "px > 3"}, destination=[4])
        assert len(matcher) == 2


def test_no_destination() -> None:
    for matcher in (gm.Matcher(SCHEMA), small(), small(destination=None), small(destination=[None, None])):
        with pytest.raises(gm.SchemaError, match=r"no subscription has a destination; add them with one: add\("):
            matcher.destinations([{"px": 5}])
        assert matcher.stats()["destinations"] == 0
    matcher = gm.Matcher(SCHEMA)
    matcher.add({}, destination="d")
    assert matcher.any([{}, {}]).tolist() == [False, False]
    assert len(small(destination="d").destinations([])) == 0


def test_any_of_a_reader() -> None:
    batches = [pa.record_batch({"px": [0.5, 5.0]}), pa.record_batch({"px": [1.5]})]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert small().any(reader).tolist() == [False, True, True]
    assert small().any(pa.RecordBatchReader.from_batches(batches[0].schema, [])).tolist() == []


def test_tables_are_made_once_per_snapshot() -> None:
    matcher = small(destination="d")
    matcher.destinations([{"px": 5}])
    before = matcher._seal().by_destination
    matcher.destinations([{"px": 5}])
    assert matcher._seal().by_destination is before
    matcher.remove(["a"])
    assert matcher._seal().by_destination is not before


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return vars(alone(kernels))


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(
    ("test", "text"), [("clause_holds", "px IS NULL"), ("program_holds", "px IS NULL XOR qty > 5")]
)
def test_what_is_found_is_not_looked_for_again(
    test: str, text: str, once: bool, compiled: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count how many clauses or programs are verified, by running the kernel's body as plain Python."""
    for name in ("_LITERALS", "_PER_ITEM"):  # expressions stay as they are
        monkeypatch.setattr(f"gpumatch.expr.normal.{name}", 0)
    matcher = gm.Matcher(SCHEMA, index="scan")
    for name in ("x", "y"):
        matcher.add({f"{name}{at}": text for at in range(50)}, destination=name)
    matcher.add({"none": text})
    [(segment, table)] = matcher._seal().by_destination
    verified = []

    def counted(c: int, *rest: Any) -> bool:
        verified.append(c)
        return bool(holds(c, *rest))

    plain = {name: getattr(kernels, name).py_func for name in ("verify", "match_rest")}
    holds = compiled[test]
    nothing = numba.njit(lambda array, at: None)  # an instruction has no body that Python could run
    for name, function in {**compiled, **plain, test: counted, "prefetch": nothing}.items():
        monkeypatch.setattr(kernels, name, function)
    batch = gm.EventBatch.of([{"qty": 1}, {"px": 1.0}], matcher.schema)
    coded = EventEncoder(segment.book, segment.attributes, segment.used, batch).encode(0, 2)
    index = segment.parts[0].index
    held = table if once else segment.table
    offsets, rows = KINDS["scan"].match(index, segment.attributes, held, coded, once, Workspace())
    assert offsets.tolist() == ([0, 2, 2] if once else [0, 101, 101])
    assert rows.tolist() == ([0, 1] if once else list(range(101)))
    assert len(verified) == (2 + 100 if once else 101 + 101)  # of the second event none holds, so all are tried


def test_from_several_threads() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add_ranges(np.arange(600), {"px": (np.arange(600.0), None)}, destination=np.arange(600) % 7)
    batch = [{"px": float(x)} for x in range(0, 600, 3)]
    right = [sorted({at % 7 for at in range(600) if at <= event["px"]}) for event in batch]
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn in range(10):
            found = [sorted(names) for names in matcher.destinations(batch)]
            wrong.extend(pair for pair in zip(found, right, strict=True) if pair[0] != pair[1])
            matcher.add({1000 + 10 * number + turn: "px > 1e9"}, destination=number)
            if not matcher.any(batch).all():
                wrong.append("any")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert matcher.stats()["destinations"] == 7


def test_the_last_destination_may_go() -> None:
    """A router that loses its last route sends nothing; it does not stop."""
    matcher = gm.Matcher({"x": "int64"})
    matcher.add({1: "x > 0"}, destination="d")
    matcher.add({2: "x > 1"})
    matcher.remove([1])
    for _ in range(2):
        found = matcher.destinations([{"x": 5}, {"x": 0}])
        assert list(found) == [[], []]
        assert found.to_arrow().column_names == ["event", "destination"]
        matcher.compact()
    matcher.remove([2])
    assert list(matcher.destinations([{"x": 5}])) == [[]]
