"""Group ranges against plain Python, the paper's examples, and bounds that tempt to overflow."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.groups import Groups, aggregate, locate

INT = np.iinfo(np.int64)
inf, nan = float("inf"), float("nan")

ranges = st.lists(st.tuples(st.integers(-8, 8), st.integers(-8, 8), st.integers(0, 4)), max_size=25)


def columns(rows: list[tuple[Any, Any, int]]) -> tuple[list[Any], list[Any], list[int]]:
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def interested(rows: list[tuple[Any, Any, int]], value: float) -> set[int]:
    return {owner for low, high, owner in rows if low <= value < high}


def test_example_of_aggregation() -> None:
    """II-C: two ranges meet the line at four points."""
    assert aggregate([20, 10], [70, 50]).tolist() == [10, 20, 50, 70]


def test_figure_4a() -> None:
    """Ranges 1 to 4 and 6 to 9, twice each: three groups, four members, and 80 messages with traffic i for value i."""
    low, high = np.array([1, 6, 1, 6]), np.array([4, 9, 4, 9])
    groups = Groups.of(low, high + 1, range(4))
    assert len(groups) == 3
    assert [groups.members(g).tolist() for g in range(3)] == [[0, 2], [], [1, 3]]
    assert groups.counts.tolist() == [2, 0, 2]
    assert groups.state_space == 4
    assert sum(value * len(groups.members(int(groups.locate(value)[0]))) for value in range(1, 10)) == 80


def test_state_space_of_nested_ranges_takes_no_memory() -> None:
    """III: subscription i for values i to 100,000 makes 5 * 10^9 members, of which none is kept."""
    n = 100_000
    groups = Groups.of(np.arange(1, n + 1), np.full(n, n + 1), np.arange(n))
    assert groups.state_space == n * (n + 1) // 2
    assert len(groups.runs.owner) == n
    assert groups.members(2).tolist() == [0, 1, 2]


@given(ranges)
def test_groups_are_as_in_plain_python(rows: list[tuple[int, int, int]]) -> None:
    groups = Groups.of(*columns(rows), owners=6)
    edges = sorted({bound for low, high, _ in rows if low < high for bound in (low, high)})
    assert groups.edges.tolist() == edges == aggregate(*columns(rows)[:2]).tolist()
    expected = [sorted(interested(rows, edge)) for edge in edges[:-1]]
    assert [groups.members(g).tolist() for g in range(len(groups))] == expected
    assert groups.counts.tolist() == [len(members) for members in expected]
    assert groups.state_space == sum(map(len, expected))
    assert groups.owners == 6


@given(ranges)
def test_runs_are_maximal_and_sorted(rows: list[tuple[int, int, int]]) -> None:
    groups = Groups.of(*columns(rows))
    runs = list(zip(*(column.tolist() for column in groups.runs), strict=True))
    assert runs == sorted(runs)
    covered = {(owner, group) for owner, first, last in runs for group in range(first, last + 1)}
    assert len(covered) == groups.state_space
    assert all((owner, first - 1) not in covered and (owner, last + 1) not in covered for owner, first, last in runs)


@given(ranges, st.integers(-9, 9), st.integers(-9, 9))
def test_spanned_counts_the_ranges_that_are_met(rows: list[tuple[int, int, int]], low: int, high: int) -> None:
    groups = Groups.of(*columns(rows))
    edges = groups.edges.tolist()
    met = sum(a < high and low < b for a, b in pairwise(edges)) if low < high else 0
    assert groups.spanned(low, high).tolist() == [met]


@given(ranges.filter(bool), st.data())
def test_part_of_a_line(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    groups = Groups.of(*columns(rows))
    if not len(groups):
        return
    first = data.draw(st.integers(0, len(groups) - 1))
    last = data.draw(st.integers(first, len(groups) - 1))
    part = groups.part(first, last)
    assert part.edges.tolist() == groups.edges[first : last + 2].tolist()
    assert part.counts.tolist() == groups.counts[first : last + 1].tolist()
    assert [part.members(g).tolist() for g in range(len(part))] == [
        groups.members(g).tolist() for g in range(first, last + 1)
    ]


@pytest.mark.parametrize("given", [([], []), ([3], [3]), ([5.0], [1.0]), ([inf], [inf])])
def test_empty_ranges_make_no_groups(given: tuple[list[float], list[float]]) -> None:
    groups = Groups.of(*given, [0] * len(given[0]))
    assert len(groups) == groups.state_space == len(groups.edges) == 0
    assert groups.locate([0, nan]).tolist() == [-1, -1]
    assert groups.spanned(0, 1).tolist() == [0]


def test_values_outside_and_at_edges() -> None:
    groups = Groups.of([0.0, 2.0], [1.0, inf], [0, 1])
    assert groups.locate([-inf, -0.0, 0.5, 1.0, 2.0, 1e308, inf, nan]).tolist() == [-1, 0, 0, 1, 2, 2, -1, -1]
    assert Groups.of([-inf], [inf], [0]).locate([-inf, 0, inf]).tolist() == [0, 0, -1]


def test_integers_at_the_ends_of_64_bits() -> None:
    groups = Groups.of([INT.min, INT.max - 1], [INT.min + 1, INT.max], [0, 1])
    assert groups.edges.tolist() == [INT.min, INT.min + 1, INT.max - 1, INT.max]
    values = np.array([INT.min, INT.min + 1, INT.max - 2, INT.max - 1, INT.max])
    assert groups.locate(values).tolist() == [0, 1, 1, 2, -1]


def test_floats_on_a_line_of_integers() -> None:
    """A float is in [a, b) of integers as the integer below it is, beyond 64 bits it is nowhere."""
    edges = np.array([INT.min, -1, 2, 2**53 + 1])
    values = [-1e30, -inf, -(2.0**63), -1.5, -0.5, 1.999, 2.0, 2.0**53, 2.0**54, 1e300, inf, nan]
    assert locate(edges, values).tolist() == [-1, -1, 0, 0, 1, 1, 2, 2, -1, -1, -1, -1]


def test_integers_and_floats_meet_where_both_are_exact() -> None:
    assert aggregate([1, 2], [2.5, 4.0]).tolist() == [1.0, 2.0, 2.5, 4.0]
    with pytest.raises(RoutingError, match=r"low: 9007199254740993 cannot meet float bounds"):
        aggregate([2**53 + 1], [inf])


def test_unsigned_and_small_integers() -> None:
    assert aggregate(np.array([3], np.uint8), np.array([5], np.int16)).tolist() == [3, 5]
    with pytest.raises(RoutingError, match="fit 64 bits"):
        aggregate(np.array([2**63], np.uint64), np.array([2**64 - 1], np.uint64))


@pytest.mark.parametrize(
    ("low", "high", "owner", "message"),
    [
        ([nan], [1.0], [0], "low: bounds are numbers or infinite, found NaN at 0"),
        ([0.0, 0.0], [1.0, nan], [0, 0], "high: bounds are numbers or infinite, found NaN at 1"),
        ([0, 1], [1], [0, 0], "equally many, found 2 and 1"),
        ([0], [1], [0, 1], "expected one for each of the 1 ranges, found 2"),
        ([0], [1], [-1], "expected numbers from 0 to 2, found -1"),
        ([0], [1], [3], "expected numbers from 0 to 2, found 3"),
        ([0], [1], [0.5], "owner: expected integers"),
        ([[0]], [[1]], [0], "low: expected one dimension, found 2"),
        (["a"], ["b"], [0], "low: expected integers or floats"),
        ([True], [True], [0], "low: expected integers or floats, found bool"),
    ],
)
def test_bad_ranges(low: Any, high: Any, owner: Any, message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        Groups.of(low, high, owner, owners=3)


def test_bad_questions() -> None:
    groups = Groups.of([0], [1], [0])
    for group in (-1, 1):
        with pytest.raises(RoutingError, match="expected a number from 0 to 0"):
            groups.members(group)
    with pytest.raises(RoutingError, match="groups are of integers"):
        groups.spanned(0.5, 1.0)
    with pytest.raises(RoutingError, match="owners: expected a number from 0"):
        Groups.of([], [], [], owners=-1)


@pytest.mark.parametrize("at", [2**53, 2**62, -(2**62)])
def test_integers_on_a_line_of_floats(at: int) -> None:
    """They are to float edges as they are, though no float equals them."""
    gap = int(np.spacing(float(abs(at))))
    edges = np.array([float(at), float(at + gap), float(at + 2 * gap)])
    values = [at + step for step in range(-2, 2 * gap + 2)] if gap < 9 else [at - 1, at, at + 1, at + gap - 1, at + gap]
    expected = [next((g for g, (a, b) in enumerate(pairwise(map(int, edges))) if a <= v < b), -1) for v in values]
    assert locate(edges, values).tolist() == expected
    assert Groups.of([0.0], [2.0**63], [0]).locate([INT.max, INT.min]).tolist() == [0, -1]


def test_integers_that_floats_would_round_span_nothing() -> None:
    groups = Groups.of([0.0, 2.0**53], [2.0**53, inf], [0, 1])
    assert groups.spanned([0, 2**53], [2**53 + 2, 2**53 + 2]).tolist() == [2, 1]
    with pytest.raises(RoutingError, match="high: 9007199254740993 cannot meet float bounds"):
        groups.spanned([0], [2**53 + 1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([2**53 + 1, 0.5], "low: 9007199254740993 is not an exact float"),
        ([np.int64(2**53 + 1), 0.5], "low: 9007199254740993 is not an exact float"),
        ([2**63, -1], "low: expected integers that fit 64 bits with a sign, found 9223372036854775808"),
        ([10**400, 0.5], "low: expected"),
        ([[0, 1], [2]], "low: expected numbers in one dimension"),
        ([None, 1], "low: expected integers or floats"),
    ],
)
def test_lists_that_no_array_holds(given: list[Any], message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        Groups.of(given, [inf, inf], [0, 0])
    assert Groups.of([2**53, 0.5], [inf, inf], [0, 0]).edges.tolist() == [0.5, 2.0**53, inf]


def test_owners_of_empty_ranges_are_not_asked_for() -> None:
    groups = Groups.of([0, 3, 2], [2, 3, 4], [0, -1, 1])
    assert groups.owners == 2
    assert [groups.members(g).tolist() for g in range(len(groups))] == [[0], [1]]
    assert Groups.of([3], [3], [-1]).owners == 0
    assert Groups.of([3], [3], [9], owners=2).owners == 2


def test_numbers_are_whole() -> None:
    groups = Groups.of([0], [1], [0])
    for group in (0.0, 0.5, True, "0", None):
        with pytest.raises(RoutingError, match="expected a number from 0 to 0"):
            groups.members(group)  # type: ignore[arg-type]
    assert groups.members(np.int64(0)).tolist() == [0]  # type: ignore[arg-type]
    for owners in (2.5, True, "2", 2**31):
        with pytest.raises(RoutingError, match="owners: expected a number from 0"):
            Groups.of([0], [1], [0], owners=owners)  # type: ignore[arg-type]
    assert groups != Groups.of([0], [1], [0])
