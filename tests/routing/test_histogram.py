"""Histograms against plain Python: the window, shares of ranges, and traffic between other edges."""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.histogram import Histogram

INT = np.iinfo(np.int64)
inf, nan = float("inf"), float("nan")
EDGES = [0, 2, 3, 7]

values = st.one_of(st.integers(-2, 9).map(float), st.sampled_from([nan, inf, -inf, 1.5, 6.999]))


def binned(found: Any) -> tuple[list[int], int]:
    counts = [sum(low <= v < high for v in found) for low, high in pairwise(EDGES)]
    return counts, len(found) - sum(counts)


@given(st.one_of(st.none(), st.integers(1, 9)), st.lists(st.lists(values, max_size=25), max_size=8))
def test_window_is_of_the_last_values(window: int | None, batches: list[list[float]]) -> None:
    histogram, last = Histogram(EDGES, window), deque[float](maxlen=window)
    for batch in batches:
        histogram.add(np.array(batch))
        last.extend(batch)
        counts, outside = binned(last)
        assert histogram.counts.tolist() == counts
        assert histogram.outside == outside
        assert histogram.total == len(last)


def below(edges: list[int], counts: list[int], bound: int) -> Fraction:
    """Traffic below a bound, exactly."""
    found = Fraction(0)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        found += count * Fraction(min(max(bound - low, 0), high - low), high - low)
    return found


@given(
    st.lists(st.integers(-20, 20), min_size=2, max_size=8, unique=True).map(sorted),
    st.lists(st.integers(-25, 25), min_size=1, max_size=12, unique=True).map(sorted),
    st.data(),
    st.booleans(),
)
def test_weights_between_other_edges(edges: list[int], others: list[int], data: st.DataObject, floats: bool) -> None:
    counts = data.draw(st.lists(st.integers(0, 100), min_size=len(edges) - 1, max_size=len(edges) - 1))
    histogram = Histogram.of_counts(np.array(edges, float) if floats else edges, counts)
    found = histogram.weights(others)
    exact = [below(edges, counts, b) - below(edges, counts, a) for a, b in pairwise(others)]
    assert found.tolist() == pytest.approx([float(e) for e in exact], abs=1e-9)
    assert (found >= 0).all()
    everything = histogram.weights([min(others[0], edges[0]) - 1, *edges, max(others[-1], edges[-1]) + 1])
    assert everything.tolist() == [0, *counts, 0]
    total = sum(counts)
    for a, b in pairwise(others):
        share = float((below(edges, counts, b) - below(edges, counts, a)) / total) if total else 0.0
        assert histogram.share(a, b).tolist() == pytest.approx([share])
        assert histogram.share(b, a).tolist() == [0.0]


def test_share_is_of_all_traffic() -> None:
    histogram = Histogram([0.0, 10.0])
    histogram.add([1.0, 2.0, 11.0, nan])
    assert histogram.share([0, -inf, 5], [10, inf, 10]).tolist() == [0.5, 0.5, 0.25]
    assert Histogram([0, 1]).share(0, 1).tolist() == [0.0]


def test_infinite_edges_hold_all_that_is_counted() -> None:
    histogram = Histogram.of_counts([0, 1, 2], [3, 4])
    assert histogram.weights([-inf, 0.5, inf]).tolist() == [1.5, 5.5]
    assert histogram.weights([]).tolist() == histogram.weights([1]).tolist() == []


def test_integers_that_floats_cannot_tell_apart() -> None:
    big = 2**60
    histogram = Histogram([big, big + 1, big + 3])
    histogram.add([big, big + 1, big + 2, big + 2])
    assert histogram.counts.tolist() == [1, 3]
    assert histogram.weights([big, big + 1, big + 2, big + 3]).tolist() == [1.0, 1.5, 1.5]
    wide = Histogram.of_counts([INT.min, INT.max], [4])
    assert wide.weights([INT.min, 0, INT.max]).tolist() == pytest.approx([2.0, 2.0])


def test_edges_a_hair_apart() -> None:
    histogram = Histogram.of_counts([0.0, 5e-324, 1.0], [2, 3])
    assert histogram.weights([-1.0, 0.0, 5e-324, 1.0]).tolist() == [0.0, 2.0, 3.0]


def test_measured_traffic_and_added_values() -> None:
    histogram = Histogram.of_counts([0, 1, 2], [0.5, 1.5])
    histogram.add([0, 5])
    assert histogram.counts.tolist() == [1.5, 1.5]
    assert histogram.total == 4.0


def test_counts_are_a_copy() -> None:
    histogram = Histogram([0, 1])
    histogram.counts[:] = 7
    assert histogram.counts.tolist() == [0]


@pytest.mark.parametrize(
    "edges", [[], [1], [1, 1], [2, 1], [0.0, nan], [nan, 0.0], [-inf, 0.0], [0.0, inf], [-1.7e308, 1.7e308]]
)
def test_bad_edges(edges: list[float]) -> None:
    with pytest.raises(RoutingError, match="edges of a histogram"):
        Histogram(edges)


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "all"])
def test_bad_window(window: Any) -> None:
    with pytest.raises(RoutingError, match="window: expected"):
        Histogram([0, 1], window)


@pytest.mark.parametrize("counts", [[1], [1, -1], [1.0, nan], [inf, 1.0]])
def test_bad_counts(counts: list[float]) -> None:
    with pytest.raises(RoutingError, match="counts: expected"):
        Histogram.of_counts([0, 1, 2], counts)


@pytest.mark.parametrize("edges", [[1, 0], [0.0, nan], [0, 0]])
def test_bad_edges_of_weights(edges: list[float]) -> None:
    with pytest.raises(RoutingError, match="edges: expected numbers"):
        Histogram([0, 1]).weights(edges)
