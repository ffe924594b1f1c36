"""GEM's triangles: where clauses lie, what is excluded, which method is chosen, and that matches are exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.arrays import Array
from gpumatch.codes.encode import EventEncoder
from gpumatch.codes.table import Table
from gpumatch.expr import evaluate
from gpumatch.index.flat import Input
from gpumatch.index.gem import triangle
from gpumatch.kernels import triangle as triangle_kernels
from gpumatch.store.segment import Segment
from tests.alone import alone
from tests.conformance.strategies import events, expressions, schemas

kernels = alone(triangle_kernels)
SHAPES = [(cells, caches) for cells in (1, 2, 7, 64) for caches in sorted({0, 1, 3, cells - 1}) if caches < cells]
every_shape = pytest.mark.parametrize(("cells", "caches"), SHAPES)


def sealed(matcher: gm.Matcher) -> Segment:
    return matcher._seal().segments[0]


def subscribed(schema: dict[str, str], wanted: Any) -> Segment:
    matcher = gm.Matcher(schema, index="scan")
    matcher.add(wanted)
    return sealed(matcher)


def single(segment: Segment) -> Array:
    """All attributes that may be dimensions."""
    return np.flatnonzero(~segment.attributes.multi).astype(np.int32)


def built(
    segment: Segment, cells: int, caches: int, dims: Array | None = None, span: tuple[int, int] | None = None
) -> dict[str, Array]:
    first, last = span or (0, len(segment.table.clause_row))
    given = Input(segment.attributes, segment.book, segment.table, first, last)
    arrays = triangle.build(cells, caches, given, single(segment) if dims is None else dims)
    assert list(arrays) == list(triangle.ARRAYS)
    for name, spec in triangle.ARRAYS.items():
        assert arrays[name].dtype == spec.dtype
        assert arrays[name].ndim == 1
        arrays[name].flags.writeable = False
    return arrays


def matched(
    segment: Segment,
    arrays: dict[str, Array],
    batch: Any,
    once: bool = False,
    table: Table | None = None,
    span: tuple[int, int] | None = None,
) -> list[list[int]]:
    held = gm.EventBatch.of(batch, segment.attributes.schema)
    coded = EventEncoder(segment.book, segment.attributes, segment.used, held).encode(0, len(held))
    first, last = span or (0, len(segment.table.clause_row))
    offsets, rows = triangle.match(arrays, first, last, segment.attributes, table or segment.table, coded, once)
    assert (offsets.dtype, rows.dtype) == (np.int64, np.int32)
    return [rows[a:b].tolist() for a, b in pairwise(offsets)]


def by_oracle(schema: dict[str, str], wanted: list[Any], batch: list[dict[str, Any]]) -> list[list[int]]:
    typed = gm.Schema.of(schema)
    trees = [gm.parse(one) if isinstance(one, str) else one for one in wanted]
    return [[at for at, tree in enumerate(trees) if evaluate(tree, event, typed) is True] for event in batch]


def check(schema: dict[str, str], wanted: list[Any], batch: list[dict[str, Any]], cells: int, caches: int) -> None:
    segment = subscribed(schema, dict(enumerate(wanted)))
    arrays = built(segment, cells, caches)
    assert matched(segment, arrays, batch) == by_oracle(schema, wanted, batch), [str(one) for one in wanted]


def random_boxes(seed: int, n: int = 300, dims: int = 4, theta: float = 0.5) -> tuple[Segment, dict[str, Array]]:
    """Ranges as in the paper's experiment, some without one or both ends, and events of which some lack values."""
    rng = np.random.default_rng(seed)
    ranges = {}
    for d in range(dims):
        low, high = rng.random(n) * (1 - theta), theta + rng.random(n) * (1 - theta)
        low[rng.random(n) < 0.2] = np.nan
        high[rng.random(n) < 0.2] = np.nan
        ranges[f"x{d}"] = (low, high)
    matcher = gm.Matcher(dict.fromkeys(ranges, "float64"), index="scan")
    matcher.add_ranges(np.arange(n), ranges, closed="both")
    values = {name: np.where(rng.random(60) < 0.1, np.nan, rng.random(60)) for name in ranges}
    return sealed(matcher), values


def grid_of(arrays: dict[str, Array], cells: int) -> tuple[Any, ...]:
    return (cells, *(arrays[f"triangle_{name}"] for name in ("starts", "ptr", "sub", "bounds")))


# The paper's example and figures


@every_shape
def test_air_quality_example(cells: int, caches: int) -> None:
    """Section II-A: S1 matches the first event, and not the second, of 25 °C and 153 µg."""
    schema = {"time": "date", "temperature": "float64", "pm25": "float64"}
    text = (
        "time BETWEEN DATE '2015-07-02' AND DATE '2015-07-20' AND temperature > 25 AND temperature <= 30 "
        "AND pm25 >= 0 AND pm25 < 100"
    )
    segment = subscribed(schema, {"S1": text})
    arrays = built(segment, cells, caches)
    days = np.array(["2015-07-03", "2015-07-12", "2015-07-12", "2015-07-12"], "datetime64[D]")
    batch = {"time": days, "temperature": [28.0, 25.0, 28.0, 30.0], "pm25": [56.0, 153.0, 153.0, 99.0]}
    assert matched(segment, arrays, batch) == [[0], [], [], [0]]


def test_figure_one_has_36_cells() -> None:
    """Eight cells a side; here one cell more holds the subscriptions that leave the dimension unconstrained."""
    assert [kernels.row_start(0, i, 8) for i in range(9)] == [0, 1, 3, 6, 10, 15, 21, 28, 36]
    assert kernels.row_start(1, 0, 8) == 37
    segment, _ = random_boxes(1, dims=3)
    assert len(built(segment, 8, 0)["triangle_ptr"]) == 3 * 37 + 1


@pytest.mark.parametrize("cells", [1, 2, 7, 64])
def test_every_clause_lies_in_the_row_of_its_high_and_the_column_of_its_low_code(cells: int) -> None:
    segment, _ = random_boxes(2)
    arrays = built(segment, cells, 0)
    n, ptr, sub = len(segment.table.clause_row), arrays["triangle_ptr"], arrays["triangle_sub"]
    for d in range(4):
        bounds = arrays["triangle_bounds"].reshape(4, n, 2)[d]
        seen: list[int] = []
        for i in range(cells + 1):
            for j in range(i + 1 if i < cells else 1):
                at = kernels.row_start(d, i, cells) + j
                for c in sub[ptr[at] : ptr[at + 1]].tolist():
                    low, high = bounds[c].tolist()
                    assert (low < 0) == (i == cells)
                    if low >= 0:
                        assert kernels.cell_at(d, high, cells, arrays["triangle_starts"]) == i
                        assert kernels.cell_at(d, low, cells, arrays["triangle_starts"]) == j
                    seen.append(c)
        assert sorted(seen) == list(range(n))


def test_cells_are_quantiles() -> None:
    """Under skew, cells of equal width would hold nearly all bounds in one; these hold about as many each."""
    low = np.random.default_rng(3).random(1000) ** 8
    matcher = gm.Matcher({"x": "float64"}, index="scan")
    matcher.add_ranges(np.arange(1000), {"x": (low, low + 1e-6)}, closed="both")
    segment = sealed(matcher)
    arrays = built(segment, 16, 0)
    cell = [kernels.cell_at(0, code, 16, arrays["triangle_starts"]) for code in arrays["triangle_bounds"].tolist()]
    assert np.abs(np.bincount(cell, minlength=16) - 125).max() <= 2


# Theorems 1 to 3


@every_shape
def test_four_boundary_types(cells: int, caches: int) -> None:
    """Theorems 1 and 2: a value on an exclusive end is outside, on an inclusive one inside."""
    wanted = ["x > 2 AND x < 5", "x > 2 AND x <= 5", "x >= 2 AND x < 5", "x >= 2 AND x <= 5"]
    segment = subscribed({"x": "float64"}, dict(enumerate(wanted)))
    batch = {"x": [1.9, 2.0, 2.1, 4.9, 5.0, 5.1]}
    right = [[], [2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [1, 3], []]
    assert matched(segment, built(segment, cells, caches), batch) == right


@pytest.mark.parametrize("cells", [1, 2, 7, 64])
def test_excluded_count_and_both_ways_of_partition(cells: int) -> None:
    """Of every code: the count is #(high < v) + #(low > v), and cells give the same clauses in either direction."""
    segment, _ = random_boxes(4, n=100)
    arrays = built(segment, cells, 0)
    n, grid, counts = 100, grid_of(arrays, cells), (arrays["count_ptr"], arrays["pass_count"])
    found, words = np.empty(n + 1, np.int32), np.empty(2, np.uint64)
    for d in range(4):
        low, high = arrays["triangle_bounds"].reshape(4, n, 2)[d].T
        for code in range(-1, int(np.diff(arrays["count_ptr"])[d]) - 1):
            assert n - kernels.passing(d, code, counts) == (high < code).sum() + (low > code).sum()
            right = np.flatnonzero((low <= code) & (code <= high)).tolist()
            assert sorted(found[: kernels.include(d, code, n, grid, found)].tolist()) == right
            kernels.all_of(n, words)
            kernels.exclude(d, code, n, grid, words)
            assert found[: kernels.unpack(words, found)].tolist() == right


# The decision algorithm


def algorithm_4(clauses: int, passing: list[int], cost: list[int]) -> tuple[list[int], int]:
    """As printed, in counts: C, and how many of D are 0; dimensions that exclude nothing have nothing to do."""
    sequence = sorted(range(len(passing)), key=lambda d: passing[d])
    partition, share = 1, 1.0
    while partition < len(sequence):
        share *= passing[sequence[partition - 1]] / clauses
        if share * clauses <= cost[sequence[partition]]:
            break
        partition += 1
    busy = [d for d in sequence if passing[d] < clauses]
    return busy, min(partition, len(busy))


@given(st.integers(1, 1000).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), max_size=8))))
def test_decision_is_algorithm_4(case: tuple[int, list[int]]) -> None:
    clauses, passing = case
    cost = [clauses - one for one in passing]
    order = np.empty(len(passing), np.int64)
    used, by_cells = kernels.decide(clauses, np.array(passing, np.int64), np.array(cost, np.int64), order)
    assert (order[:used].tolist(), by_cells) == algorithm_4(clauses, passing, cost)


def test_decision_by_hand() -> None:
    """Rates 0.7, 0.8, 0.9, 1: three dimensions by cells, 20 and then 10 excluded being fewer than 70 and 56 left."""
    order = np.empty(4, np.int64)
    passing = np.array([90, 100, 70, 80], np.int64)
    assert kernels.decide(100, passing, 100 - passing, order) == (3, 3)
    assert order[:3].tolist() == [2, 3, 0]
    passing = np.array([50, 5, 60, 100], np.int64)
    assert kernels.decide(100, passing, 100 - passing, order) == (3, 1)
    assert order[:3].tolist() == [1, 0, 2]


# Caches


@pytest.mark.parametrize(("cells", "caches"), [shape for shape in SHAPES if shape[1] > 0])
def test_nearest_cache_and_the_cells_between_lose_nothing(cells: int, caches: int) -> None:
    segment, _ = random_boxes(5, n=100)
    arrays = built(segment, cells, caches)
    n, grid, cached = 100, grid_of(arrays, cells), arrays["cache_cell"].tolist()
    assert len(set(cached)) == caches
    assert np.ptp(np.diff(cached)) <= 1 if caches > 1 else cached == [cells // 2]
    held = tuple(arrays[f"cache_{name}"] for name in ("nearest", "cell", "bits", "added"))
    found, words, kept = np.empty(n + 1, np.int32), np.empty(2, np.uint64), np.empty(2, np.uint64)
    for d in range(4):
        low, high = arrays["triangle_bounds"].reshape(4, n, 2)[d].T
        for code in range(-1, int(np.diff(arrays["count_ptr"])[d]) - 1):
            kernels.all_of(n, words)
            kernels.intersect(d, code, grid, held, words, kept)
            got = set(found[: kernels.unpack(kept, found)].tolist())
            right = set(np.flatnonzero((low <= code) & (code <= high)).tolist())
            assert right <= got
            cell = kernels.cell_at(d, code, cells, grid[1])
            added = int(arrays["cache_added"][d * (cells + 1) + cell])
            if code < 0:
                assert got == right
                assert added == len(right)
                continue
            at = arrays["cache_nearest"][cell]
            assert abs(cached[at] - cell) == min(abs(one - cell) for one in cached)
            start = 2 * (d * caches + at)
            assert len(got) - found[: kernels.unpack(arrays["cache_bits"][start : start + 2], found)].size == added


# Exactness


@every_shape
@pytest.mark.parametrize("theta", [0.5, 0.9])
def test_boxes(cells: int, caches: int, theta: float) -> None:
    """Narrow boxes go by one dimension and selection, wide ones by several dimensions."""
    segment, values = random_boxes(6, theta=theta)
    arrays = built(segment, cells, caches)
    n = len(segment.table.clause_row)
    bounds = arrays["triangle_bounds"].reshape(4, n, 2)
    held = gm.EventBatch.of(values, segment.attributes.schema)
    coded = EventEncoder(segment.book, segment.attributes, segment.used, held).encode(0, len(held))
    right = []
    for start, stop in pairwise(coded.ptr):
        codes = np.full(4, -1)
        codes[coded.attribute[start:stop]] = coded.code[start:stop]
        holds = ((bounds[:, :, 0] <= codes[:, None]) & (codes[:, None] <= bounds[:, :, 1])).all(axis=0)
        right.append(sorted(segment.table.clause_row[holds].tolist()))
    assert matched(segment, arrays, values) == right


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[gm.Expr], list[dict[str, Any]]]:
    schema = draw(schemas())
    wanted = draw(st.lists(expressions(schema), min_size=1, max_size=12))
    return schema, wanted, draw(st.lists(events(schema), min_size=1, max_size=6))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(case=cases(), shape=st.sampled_from(SHAPES), some=st.sets(st.integers(0, 9)))
def test_equals_oracle(case: tuple[Any, ...], shape: tuple[int, int], some: set[int]) -> None:
    """Whichever attributes are dimensions, and however the index is cut into parts."""
    schema, wanted, batch = case
    segment = subscribed(schema, dict(enumerate(wanted)))
    right = by_oracle(schema, wanted, batch)
    assert matched(segment, built(segment, *shape), batch) == right, [str(one) for one in wanted]
    dims = np.array([d for d in single(segment).tolist() if d not in some], np.int32)
    assert matched(segment, built(segment, *shape, dims), batch) == right
    matcher = gm.Matcher(schema, index=gm.Gem(*shape))
    matcher.add(dict(enumerate(wanted)))
    assert list(matcher.match(batch)) == right
    half = len(segment.table.clause_row) // 2
    parts = [(0, half), (half, len(segment.table.clause_row))]
    found = [matched(segment, built(segment, *shape, span=span), batch, span=span) for span in parts]
    assert [sorted({*a, *b}) for a, b in zip(*found, strict=True)] == right


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(case=cases(), shape=st.sampled_from(SHAPES), rows=st.lists(st.integers(-1, 3), min_size=12, max_size=12))
def test_shared_rows_are_found_once(case: tuple[Any, ...], shape: tuple[int, int], rows: list[int]) -> None:
    """As destinations need it: many clauses of one row, and clauses of none."""
    schema, wanted, batch = case
    segment = subscribed(schema, dict(enumerate(wanted)))
    target = np.array(rows[: len(segment)], np.int32)
    table = replace(segment.table, length=4, clause_row=target[segment.table.clause_row])
    table.clause_row.flags.writeable = False
    right = [sorted({rows[at] for at in found} - {-1}) for found in by_oracle(schema, wanted, batch)]
    assert matched(segment, built(segment, *shape), batch, once=True, table=table) == right


@every_shape
def test_absent_attributes(cells: int, caches: int) -> None:
    """A subscription that constrains what the event lacks is out, one that leaves it open is not."""
    wanted = ["x > 1", "y > 1", "x > 1 AND y > 1", "x IS NULL", "x IS NULL AND y > 1", "x IS NOT NULL", "x <> 3"]
    check(
        {"x": "int64", "y": "int64"},
        [*wanted, "x > 1 OR y > 1", "NOT (x > 1 AND y > 1)"],
        [{}, {"x": 2}, {"y": 2}, {"x": 2, "y": 2}, {"x": None, "y": 2}, {"x": 0, "y": 0}, {"x": 3}],
        cells,
        caches,
    )


@every_shape
def test_nothing_constrained(cells: int, caches: int) -> None:
    """No attribute is tested by what is always true; on a list, dimensions cannot help."""
    schema = {"x": "int64", "tags": "list<string>"}
    batch: list[dict[str, Any]] = [{}, {"x": 1}, {"tags": ["a", "b"]}, {"x": 1, "tags": []}]
    check(schema, ["TRUE", "FALSE", "TRUE"], batch, cells, caches)
    check(schema, ["tags = 'a'", "tags <> 'a'", "tags IS NULL", "tags IN ('a', 'b')"], batch, cells, caches)
    segment = subscribed(schema, {0: "x = 1"})
    assert matched(segment, built(segment, cells, caches, np.zeros(0, np.int32)), batch) == [[], [0], [], [0]]


@every_shape
def test_all_equal(cells: int, caches: int) -> None:
    batch = [{"x": value, "y": value} for value in (2, 3, 5, 7, 8)]
    check({"x": "int64", "y": "int64"}, ["x BETWEEN 3 AND 7 AND y BETWEEN 3 AND 7"] * 70, batch, cells, caches)


@every_shape
def test_all_disjoint(cells: int, caches: int) -> None:
    wanted = [f"x BETWEEN {4 * i} AND {4 * i + 2} AND y >= {i}" for i in range(40)]
    batch = [{"x": value, "y": 20} for value in range(-1, 162, 2 if caches else 1)]
    check({"x": "int64", "y": "int64"}, wanted, batch, cells, caches)


@every_shape
def test_sets_go_by_their_hull(cells: int, caches: int) -> None:
    wanted = [f"x IN ({i}, {i + 5}, {i + 9})" for i in range(20)] + ["x NOT IN (3, 8)", "x <> 4", "x IN ()"]
    check({"x": "int64"}, wanted, [{"x": value} for value in range(-1, 32)], cells, caches)


def test_ranges_need_no_verification() -> None:
    """Only sets, lists, missing values, programs and attributes that are no dimension are left to predicates."""
    schema = {"x": "int64", "y": "int64", "tags": "list<string>"}
    texts = ["x > 1 AND y < 5", "x = 1", "x IN (1, 3)", "x IS NULL", "x > 1 AND tags = 'a'", "TRUE"]
    segment = subscribed(schema, dict(enumerate(texts)))
    by_row = built(segment, 7, 0)["decided"][np.argsort(segment.table.clause_row)]
    assert by_row.tolist() == [True, True, False, False, False, True]
    only_x = built(segment, 7, 0, np.array([0], np.int32))["decided"][np.argsort(segment.table.clause_row)]
    assert only_x.tolist() == [False, True, False, False, False, True]


@pytest.mark.parametrize(("cells", "caches"), [(1, 0), (7, 3), (64, 0), (64, 63)])
def test_saved_and_loaded(tmp_path: Path, cells: int, caches: int) -> None:
    schema = {"x": "int64", "y": "int64"}
    wanted = {i: f"x BETWEEN {i} AND {i + 20} AND y > {i % 7}" for i in range(100)}
    batch = [{"x": value, "y": value % 9} for value in range(-1, 130, 3)] + [{"x": 5}, {"y": 5}, {}]
    matcher = gm.Matcher(schema, index=gm.Gem(cells, caches))
    matcher.add(wanted)
    matcher.save(tmp_path / "idx")
    right = by_oracle(schema, list(wanted.values()), batch)
    assert list(matcher.match(batch)) == list(gm.load(tmp_path / "idx").match(batch)) == right
