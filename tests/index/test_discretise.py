"""Discretisation: the paper's example and errata, no value lost, the halving of what is false, and compact codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.index.tama.discretise import (
    Cells,
    Line,
    cover,
    decode_range,
    decode_value,
    encode_range,
    encode_value,
    median_cuts,
)

TEMPERATURE, DISTANCE, HEIGHT = Line(0, 100, 4), Line(0, 1000, 4), Line(0, 100, 4)
SUBSCRIPTIONS = {1: {TEMPERATURE: (10, 70), DISTANCE: (100, 600)}, 2: {TEMPERATURE: (0, 5), HEIGHT: (5, 100)}}


def meets(cells: Cells, value_cells: tuple[int, ...]) -> int:
    """How many of a range's cells hold the value."""
    return sum(value_cells[level] in found for level, found in cells.items())


def test_worked_example() -> None:
    """Section III-D: the event (40, 200, 70) retrieves {1, 1, 2}, so that subscription 1 alone has its two hits."""
    event = {TEMPERATURE: 40, DISTANCE: 200, HEIGHT: 70}
    cells = {line: line.cells_of(value) for line, value in event.items()}
    assert list(cells.values()) == [(0, 0, 1, 3, 6), (0, 0, 0, 1, 3), (0, 1, 2, 5, 11)]
    retrieved = [
        name
        for line in event
        for name, ranges in SUBSCRIPTIONS.items()
        if line in ranges and meets(line.discretise(*ranges[line]), cells[line])
    ]
    assert sorted(retrieved) == [1, 1, 2]
    assert [name for name in SUBSCRIPTIONS if retrieved.count(name) == len(SUBSCRIPTIONS[name])] == [1]


def test_cells_of_the_example() -> None:
    assert TEMPERATURE.discretise(10, 70) == {2: (1,), 3: (1, 4), 4: (1, 10, 11)}
    assert DISTANCE.discretise(100, 600) == {2: (1,), 3: (1,), 4: (1, 8, 9)}
    assert TEMPERATURE.discretise(0, 5) == {4: (0,)}
    assert HEIGHT.discretise(5, 100) == {1: (1,), 2: (1,), 3: (1,), 4: (0, 1)}


def test_errata() -> None:
    """The first level with a contained cell ends the search; a range within a finest cell, or across two of them."""
    line = Line(0.0, 1.0, 4)
    assert line.discretise(0, 1) == {0: (0,)}
    assert line.discretise(0.26, 0.27) == {4: (4,)}
    assert line.discretise(0.3, 0.32) == {4: (4, 5)}
    # two finest cells at either end, where Algorithm 1 speaks of two in all
    assert line.discretise(0.3, 0.7) == {3: (3, 4), 4: (4, 5, 10, 11)}
    assert line.discretise(0.25, 0.5) == {2: (1,), 4: (8,)}, "0.5 belongs to the cell that begins there"
    assert line.discretise(-5, np.nextafter(0.5, 0)) == {1: (0,)}
    assert line.discretise(2, 3) == {}


VALUES = st.floats(0, 1) | st.integers(0, 64).map(lambda n: n / 64)


@st.composite
def lines(draw: Any) -> Line:
    levels = draw(st.integers(0, 8))
    if draw(st.booleans()):
        return Line(0.0, 1.0, levels)
    return Line(0.0, 1.0, levels, median_cuts(np.array(draw(st.lists(VALUES))), 0.0, 1.0, levels))


@given(line=lines(), ends=st.tuples(VALUES, VALUES), value=VALUES)
def test_cells_hold_the_range_and_hardly_more(line: Line, ends: tuple[float, float], value: float) -> None:
    low, high = sorted(ends)
    cells = line.discretise(low, high)
    hits = meets(cells, line.cells_of(value))
    assert hits == (line.finest(low) <= line.finest(value) <= line.finest(high)), "once, and only in touched cells"
    assert hits == 1 or not low <= value <= high
    certain = {level: found for level, found in cells.items() if level < line.levels}
    assert low <= value <= high or not meets(certain, line.cells_of(value)), "only the last level rounds"
    assert all(len(found) <= (2 if level < line.levels else 4) for level, found in cells.items())


@given(line=lines(), ends=st.tuples(VALUES, VALUES))
def test_compact_codes_of_ranges(line: Line, ends: tuple[float, float]) -> None:
    cells = line.discretise(*sorted(ends))
    code = encode_range(cells, line.levels)
    assert decode_range(code) == cells
    assert len(code) <= 10 + (line.levels + 2) / 4 + 1, "the paper's bound, and two more bits for the last level"


@given(levels=st.integers(0, 62), ends=st.tuples(st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1)), sides=st.data())
def test_compact_codes_of_any_cover(levels: int, ends: tuple[int, int], sides: st.DataObject) -> None:
    first, last = sorted(end >> (62 - levels) for end in ends)
    cells = cover(first, last, sides.draw(st.booleans()), sides.draw(st.booleans()), levels)
    assert decode_range(encode_range(cells, levels)) == cells


@given(levels=st.integers(0, 62), value=VALUES, first=st.integers(0, 32))
def test_compact_codes_of_values(levels: int, value: float, first: int) -> None:
    first = min(first, levels)
    cells = Line(0.0, 1.0, levels).cells_of(value)[first:]
    code = encode_value(cells, first)
    assert decode_value(code) == (first, cells)
    assert len(code) == 1 + (8 + 32 + len(cells) - 1 + 7) // 8


def test_a_compact_code_bit_by_bit() -> None:
    """Level 2, one cell, number 1; one more on both sides; on the last level one to the left and two to the right."""
    bits = "000010" + "0" + "01" + "1" + "1" + "01" + "10"
    code = encode_range({2: (1,), 3: (1, 4), 4: (1, 10, 11)}, 4)
    assert code == bytes([len(bits), int(bits[:8], 2), int(bits[8:].ljust(8, "0"), 2)])


def test_false_positives_halve_with_each_level() -> None:
    """Theorem 3, on values: of ranges of width 0.01, as the share of what cells cover beyond them."""
    rng = np.random.default_rng(7)
    low = rng.random(20_000) * 0.99
    shares = []
    for levels in range(8, 21):
        line = Line(0.0, 1.0, levels)
        covered = (line.finest(low + 0.01) - line.finest(low) + 1) / (1 << levels)
        shares.append(1 - 0.01 / covered.mean())
    ratios = np.array(shares[1:]) / shares[:-1]
    assert ((ratios > 0.45) & (ratios < 0.6)).all()
    assert shares[-1] < 5e-4


def test_medians_share_a_skewed_line() -> None:
    """Algorithm 3: every cell gets its part of the sample, however the values lie."""
    sample = np.random.default_rng(1).pareto(2.0, 4096).clip(0, 50)
    even, fair = Line(0, 50, 5), Line(0, 50, 5, median_cuts(sample, 0, 50, 5))
    held = np.bincount(fair.finest(sample), minlength=32)
    assert held.min() == held.max() == 128
    assert np.bincount(even.finest(sample), minlength=32).max() > 2000
    assert median_cuts(np.array([]), 0, 8, 3).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert median_cuts(np.array([2.0, 2.0, 2.0, 5.0]), 0, 8, 2).tolist() == [1, 2, 5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Line(0, 1, 63), "0 to 62 levels, found 63"),
        (lambda: Line(1, 1, 3), "from a number to a larger one, found 1 to 1"),
        (lambda: Line(0, 1, 2, np.array([0.5])), "4 cells need one cut less than cells, found 1"),
        (lambda: Line(0, 1, 2).cells_of(1.5), "1.5 is not on the line from 0 to 1"),
        (lambda: Line(0, 1, 2).finest([0.5, float("nan")]), "nan is not on the line"),
        (lambda: encode_range({}, 4), "a range without cells has no compact code"),
    ],
)
def test_what_is_no_line(make: Any, message: str) -> None:
    with pytest.raises(gm.SchemaError, match=message):
        make()


@pytest.mark.parametrize("first", [31, 32, 33, 40, 45])
def test_compact_codes_of_values_that_start_at_a_deep_level(first: int) -> None:
    """Cells of level 33 and deeper do not fit 32 bits."""
    cells = Line(0.0, 1.0, 45).cells_of(1.0)[first:]
    assert decode_value(encode_value(cells, first)) == (first, cells)
