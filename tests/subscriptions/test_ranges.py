"""add_ranges against the oracle: a range is the same as the comparisons that it stands for."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import Expr, Predicate, evaluate
from gpumatch.expr.values import is_missing, plain
from gpumatch.parallel import threads
from gpumatch.subscriptions import ranges
from gpumatch.subscriptions.block import Attributes
from tests.conformance.strategies import FLOATS, INTS, SCALARS
from tests.examples import examples

MOST, LEAST = 2**63 - 1, -(2**63)
OPEN = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "neither": (">", "<")}
# A column of ends holds whole numbers, or what float64 holds: mixtures that neither can hold are refused.
ENDS = {
    **SCALARS,
    "int64": st.sampled_from([MOST, MOST - 1, LEAST, LEAST + 1, 2**53, 2**53 + 1]) | st.integers(-3, 3),
    "float64": FLOATS,
    "float32": FLOATS,
}
LARGE = [2.0**53, 2.0**62, 2.0**63, 1e19, 1e300, np.inf]
HALVES = st.sampled_from([-0.5, 0.5, 1.5, 2.0, *LARGE, *(-x for x in LARGE)])
Case: TypeAlias = tuple[dict[str, str], str, dict[str, list[Any]], list[dict[str, Any]]]


def ranged(schema: dict[str, str], ranges: dict[str, Any], count: int = 1, closed: str = "both") -> gm.Matcher:
    matcher = gm.Matcher(schema)
    matcher.add_ranges(list(range(count)), ranges, closed=closed)
    return matcher


def meaning(name: str, low: Any, high: Any, closed: str) -> list[Expr]:
    """The comparisons that a range stands for."""
    ends = zip(OPEN[closed], (low, high), strict=True)
    return [Expr((Predicate(name, op, (plain(end, name),)),)) for op, end in ends if not is_missing(end)]  # type: ignore[arg-type]


def ordered(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    low, high = pair
    return (high, low) if not is_missing(low) and not is_missing(high) and low > high else pair


@st.composite
def cases(draw: Any, kinds: dict[str, st.SearchStrategy[Any]]) -> Case:
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=3))
    schema = {f"a{i}": kind for i, kind in enumerate(chosen)}
    count = draw(st.integers(0, 6))
    pairs = {
        name: draw(st.lists(st.tuples(*[kinds[kind] | st.none()] * 2).map(ordered), min_size=count, max_size=count))
        for name, kind in schema.items()
    }
    values = {name: SCALARS[kind] | st.none() for name, kind in schema.items()}
    events = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=5))
    return schema, draw(st.sampled_from(sorted(OPEN))), pairs, events


def check(case: Case) -> None:
    schema, closed, pairs, events = case
    typed = gm.Schema.of(schema)
    count = len(next(iter(pairs.values())))
    # Events on the ends are where mistakes are.
    ends = [{name: end} for name, held in pairs.items() for pair in held for end in pair if fits(end, schema[name])]
    events = events + ends[:12]
    ranges = {name: ([low for low, _ in held], [high for _, high in held]) for name, held in pairs.items()}
    matcher = ranged(schema, ranges, count, closed)
    tests = [[e for name, held in pairs.items() for e in meaning(name, *held[row], closed)] for row in range(count)]
    expected = [[r for r in range(count) if all(evaluate(t, e, typed) for t in tests[r])] for e in events]
    assert list(matcher.match(events)) == expected
    for event, matched in zip(events[:3], expected, strict=False):
        assert [row for row in range(count) if matcher.explain(event, row)] == matched


def fits(end: Any, kind: str) -> bool:
    """Whether an event can hold a range's end."""
    if end is None or kind == "float32":
        return False
    if kind == "float64":
        return float(end) == end
    least, most = (-128, 127) if kind == "int8" else (LEAST, MOST)
    return not kind.startswith("int") or (least <= end <= most and end == int(end))


@settings(max_examples=examples(150))
@given(case=cases(ENDS))
def test_ranges_equal_comparisons(case: Case) -> None:
    check(case)


@settings(max_examples=examples(60))
@given(case=cases({"int64": HALVES, "int8": HALVES}))
def test_float_ends_on_integers_are_not_rounded(case: Case) -> None:
    check(case)


@settings(max_examples=examples(60))
@given(case=cases({"float64": INTS, "float32": INTS}))
def test_integer_ends_on_floats_are_not_rounded(case: Case) -> None:
    check(case)


def test_ends_beside_large_floats() -> None:
    matcher = ranged({"i": "int64"}, {"i": (np.array([2.0**53]), None)}, closed="neither")
    assert list(matcher.match([{"i": 2**53}, {"i": 2**53 + 1}])) == [[], [0]]
    matcher = ranged({"x": "float64"}, {"x": ([2**53 + 1], None)})
    assert list(matcher.match([{"x": 2.0**53}, {"x": 2.0**53 + 2}])) == [[], [0]]


@pytest.mark.parametrize("end", [np.inf, 2.0**63, 1e300])
def test_nothing_lies_beyond_the_integers(end: float) -> None:
    above = ranged({"i": "int64"}, {"i": (np.array([end]), None)})
    below = ranged({"i": "int64"}, {"i": (None, np.array([-end * 1.5]))})
    events = [{"i": MOST}, {"i": LEAST}, {"i": 0}]
    assert list(above.match(events)) == list(below.match(events)) == [[], [], []]


@pytest.mark.parametrize(("kind", "end"), [("int64", MOST), ("bool", True), ("float64", np.inf), ("date", dt.date.max)])
def test_open_end_at_the_largest_value_never_matches(kind: str, end: Any) -> None:
    matcher = ranged({"a": kind}, {"a": ([end], None)}, closed="neither")
    assert matcher.match_one({"a": end}) == []
    assert not matcher.explain({"a": end}, 0)
    assert ranged({"a": kind}, {"a": ([end], None)}).match_one({"a": end}) == [0]


@pytest.mark.parametrize(
    ("kind", "end"), [("int64", LEAST), ("bool", False), ("float64", -np.inf), ("date", dt.date.min), ("string", "")]
)
def test_open_end_at_the_smallest_value_never_matches(kind: str, end: Any) -> None:
    matcher = ranged({"a": kind}, {"a": (None, [end])}, closed="neither")
    assert matcher.match_one({"a": end}) == []
    assert not matcher.explain({"a": end}, 0)
    assert ranged({"a": kind}, {"a": (None, [end])}).match_one({"a": end}) == [0]


@pytest.mark.parametrize("nothing", [None, [None, None], [float("nan")] * 2, np.array([np.nan] * 2), pa.nulls(2)])
def test_both_sides_open_always_match(nothing: Any) -> None:
    matcher = ranged({"i": "int64", "x": "float64"}, {"i": (nothing, None), "x": (nothing, nothing)}, 2)
    assert list(matcher.match([{}, {"i": 1}, {"x": 2.0}])) == [[0, 1]] * 3


def test_not_a_time_is_an_open_side() -> None:
    nat = np.array(["NaT", "2024-01-02"], "datetime64[us]")
    dates = pd.to_datetime(["2024-01-01", None])
    matcher = ranged({"t": "timestamp", "d": "date"}, {"t": (nat, None), "d": (None, dates)}, 2)
    events = [{"d": dt.date(2023, 1, 1)}, {"t": dt.datetime(2024, 1, 2)}, {"t": dt.datetime(2024, 1, 1)}, {}]
    assert list(matcher.match(events)) == [[0], [1], [], []]


def test_one_open_side_needs_the_attribute() -> None:
    matcher = ranged({"i": "int64"}, {"i": (np.array([-np.inf]), None)})
    assert list(matcher.match([{}, {"i": LEAST}])) == [[], [0]]


LOW, HIGH = [1.0, None, 3.0], [2.0, 2.0, None]
NUMPY = (np.array([1, np.nan, 3]), np.array([2, 2, np.nan]))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (LOW, HIGH),
        (tuple(LOW), tuple(HIGH)),
        NUMPY,
        (pa.array(LOW), pa.chunked_array([[2.0], [2.0, None]])),
        (pd.Series(LOW), pd.Series(HIGH, dtype="Float64")),
        (pl.Series(LOW), pl.Series(HIGH)),
        (np.ma.masked_array([1, 7, 3], [0, 1, 0]), np.ma.masked_array([2.0, 2.0, 7.0], [0, 0, 1])),
        (pd.array([1, None, 3], "Int32"), pa.array([2, 2, None], pa.uint8())),
    ],
)
@pytest.mark.parametrize("kind", ["int64", "float64", "int8", "float32"])
def test_ends_from_any_library(kind: str, low: Any, high: Any) -> None:
    matcher = ranged({"a": kind}, {"a": (low, high)}, 3)
    assert list(matcher.match([{"a": a} for a in (0, 1, 2, 3)])) == [[1], [0, 1], [0, 1], [2]]


def test_times_in_a_zone() -> None:
    berlin = pd.to_datetime(["2024-01-01 12:00"]).tz_localize("Europe/Berlin")
    matcher = ranged({"t": "timestamp[us, tz=UTC]"}, {"t": (berlin, berlin)})
    at = dt.datetime(2024, 1, 1, 11, tzinfo=dt.UTC)
    assert list(matcher.match([{"t": at}, {"t": at + dt.timedelta(microseconds=1)}])) == [[0], []]
    with pytest.raises(gm.SchemaError, match="takes values with a time zone"):
        ranged({"t": "timestamp[us, tz=UTC]"}, {"t": (np.array(["2024-01-01"], "M8[us]"), None)})


def test_strings_order_by_code_point() -> None:
    matcher = ranged({"s": "string"}, {"s": (["B", "a", None, "é"], ["a", "b", "", None])}, 4)
    assert list(matcher.match([{"s": s} for s in ("", "B", "a", "ab", "z", "\U0001f600")])) == [
        [2], [0], [0, 1], [1], [], [3]
    ]  # fmt: skip


def test_categories_are_strings() -> None:
    low, high = pd.Categorical(["a", "c"]), pl.Series(["b", "d"], dtype=pl.Categorical)
    matcher = ranged({"s": "string"}, {"s": (low, high)}, 2)
    assert list(matcher.match([{"s": "a"}, {"s": "c"}])) == [[0], [1]]


@pytest.mark.parametrize(
    ("kind", "low", "high", "shown"),
    [
        ("int64", [1, 5], [1, 4], "5 above its high end 4"),
        ("float64", [1, 0.5], [1, 0.25], "0.5 above its high end 0.25"),
        ("string", ["a", "it's"], ["a", "b"], "'it''s' above its high end 'b'"),
        ("date", [None, dt.date(2024, 1, 2)], [None, dt.date(2024, 1, 1)], "2024-01-02 above its high end 2024-01-01"),
        ("timestamp", [None, dt.datetime(2024, 1, 2)], [None, dt.datetime(2024, 1, 1)], "2024-01-02T00:00:00"),
        ("bool", [True, True], [True, False], "True above its high end False"),
        ("int8", [0, 0.75], [0, 0.5], "0.75 above its high end 0.5"),
    ],
)
def test_low_above_high(kind: str, low: Any, high: Any, shown: str) -> None:
    matcher = gm.Matcher({"at": kind})
    with pytest.raises(gm.SchemaError) as caught:
        matcher.add_ranges([1, 2], {"at": (low, high)})
    assert "'at' at position 1" in str(caught.value)
    assert shown in str(caught.value)
    assert len(matcher) == 0


BAD: list[tuple[Any, str]] = [
    ({"i": ([1, 2, 3], None)}, "'i' have 3 values, expected one for each of the 2 ids"),
    ({"i": (1, 2)}, "'i' must be arrays, found 1"),
    ({"i": [1, 2, 3]}, "'i' must be two arrays"),
    ({"i": np.zeros((2, 2))}, "'i' must be two arrays"),
    ({"i": (["x", "y"], None)}, "'i' is int64, but the end at position 0 holds 'x'"),
    ({"i": ([1, True], None)}, "'i' is int64, but the end at position 1 holds True"),
    ({"i": ([1, 2**70 + 1], None)}, "position 1 holds 1180591620717411303425, which is outside"),
    ({"tags": ([1, 2], None)}, "'tags' is list<int64>; add_ranges takes single-valued attributes only"),
    ({"ii": ([1, 2], None)}, "unknown attribute 'ii'; did you mean 'i'"),
    ({"d": (np.array(["2024-01-01", "12000-01-01"], "M8[D]"), None)}, "'d' at position 1 has an end outside the years"),
    ([("i", (None, None))], "a dict of attribute"),
]


@pytest.mark.parametrize(("ranges", "message"), BAD)
def test_bad_ranges_add_nothing(ranges: Any, message: str) -> None:
    matcher = gm.Matcher({"i": "int64", "d": "date", "tags": "list<int64>"})
    matcher.add({0: "i = 1"})
    with pytest.raises(gm.SchemaError) as caught:
        matcher.add_ranges([1, 2], ranges)
    assert message in str(caught.value)
    assert matcher.ids.tolist() == [0]


def test_closed_is_one_of_four() -> None:
    with pytest.raises(gm.SchemaError, match="both, left, right, neither, found 'open'"):
        ranged({"i": "int64"}, {}, closed="open")


def test_no_ranges_and_no_rows() -> None:
    assert ranged({"i": "int64"}, {}, 2).match_one({}) == [0, 1]
    assert len(ranged({"i": "int64"}, {"i": ([], [])}, 0)) == 0


def test_many_rows_against_numpy() -> None:
    rng = np.random.default_rng(7)
    low, width = rng.integers(0, 100_000, (2, 3000)), rng.integers(0, 20_000, (2, 3000))
    open_low = rng.random((2, 3000)) < 0.2
    lows = np.where(open_low, np.nan, low)
    highs = np.where(rng.random((2, 3000)) < 0.2, np.nan, low + width)
    values = rng.integers(0, 100_000, (2, 40))
    holds = ~(lows[:, None] > values[:, :, None]) & ~(highs[:, None] < values[:, :, None])
    matcher = ranged({"a": "int64", "b": "float64"}, {"a": (lows[0], highs[0]), "b": (lows[1], highs[1])}, 3000)
    found = matcher.match({"a": values[0], "b": values[1]})
    assert [found.rows[s:e].tolist() for s, e in zip(found.offsets[:-1], found.offsets[1:], strict=True)] == [
        np.flatnonzero(row).tolist() for row in holds[0] & holds[1]
    ]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("int64", [0.5, 2.0**62], [5, 2**62 - 1]), ("float64", np.array([0, 2**53 + 1]), [5.5, 2.0**53])],
)
def test_ends_of_two_types_are_compared_exactly(kind: str, low: Any, high: Any) -> None:
    matcher = gm.Matcher({"v": kind}, device="cpu")
    with pytest.raises(gm.SchemaError, match="position 1 has its low end"):
        matcher.add_ranges([0, 1], {"v": (np.array(low), np.array(high))})


@pytest.mark.parametrize("number", [1, 3])
def test_rows_in_pieces(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block is the same in whatever pieces rows are read, and by however many threads."""
    rng = np.random.default_rng(number)
    low = rng.integers(0, 50, 20)
    attributes = Attributes.of(gm.Matcher({"i": "int64", "f": "float64", "s": "string", "g": "float32"}).schema)
    columns = {
        "i": (low, np.where(low % 7, low + 1, low - 1)),  # some are empty
        "f": (np.where(low % 3, low + 0.5, np.nan), None),
        "s": (None, [None if k % 4 else f"x{k}" for k in low.tolist()]),
    }
    whole, wrong = ranges.range_block(attributes, 20, columns, "left")
    monkeypatch.setattr(ranges, "_ROWS", 3)
    monkeypatch.setattr(threads, "_count", number)
    block, errors = ranges.range_block(attributes, 20, columns, "left")
    assert errors.keys() == wrong.keys() == set(np.flatnonzero(low % 7 == 0).tolist())
    assert block.pool == whole.pool
    for mine, other in zip(block.predicates.columns(), whole.predicates.columns(), strict=True):
        assert mine.tolist() == other.tolist()
    for name in ("clause_row", "clause_ptr", "clause_program"):
        assert getattr(block, name).tolist() == getattr(whole, name).tolist()
