"""Distribution of traffic over a line of values: a histogram of all values or of the latest ones (Sieve, III)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.groups import locate
from gpumatch.routing.sieve.values import is_whole, one_line, values_of


class Histogram:
    """Counts of values in bins ``[edge, next edge)`` between adjacent edges.

    With a ``window``, of exactly the last ``window`` values added; else of all. Values outside the edges and NaN
    are traffic, too, but in no bin. Inside a bin, traffic counts as even.
    """

    def __init__(self, edges: Any, window: int | None = None) -> None:
        found = values_of(edges, "edges")
        if len(found) < 2 or not (found[:-1] < found[1:]).all():
            raise RoutingError("edges of a histogram: expected two or more numbers, each above the one before")
        if not np.isfinite(_distance(found[:1], found[-1:])[0]):
            raise RoutingError(f"edges of a histogram: expected a finite width, found {found[0]} to {found[-1]}")
        if window is not None and (not is_whole(window) or window < 1):
            raise RoutingError(f"window: expected a number of latest values from 1, or None, found {window!r}")
        self.edges = found
        self.window = window
        self._counts: Array = np.zeros(len(found), np.int64)  # the last is of values outside
        self._ring: Array = np.empty(window or 0, np.int32)  # bins of the values in the window
        self._at = self._filled = 0  # where the next value goes; how many there are

    @classmethod
    def of_counts(cls, edges: Any, counts: Any) -> Histogram:
        """A histogram of known traffic per bin, counted or measured; values added later count one each."""
        made = cls(edges)
        found = values_of(counts, "counts")
        if len(found) != len(made.edges) - 1:
            raise RoutingError(f"counts: expected {len(made.edges) - 1}, one for each bin, found {len(found)}")
        if not (np.isfinite(found) & (found >= 0)).all():
            raise RoutingError("counts: expected finite numbers from 0")
        made._counts = np.append(found, found.dtype.type(0))
        return made

    @property
    def counts(self) -> Array:
        """Values by bin."""
        return self._counts[:-1].copy()

    @property
    def outside(self) -> int:
        """Values in no bin."""
        return int(self._counts[-1])

    @property
    def total(self) -> float:
        """All traffic, in bins and outside."""
        return float(self._counts.sum())

    def add(self, values: Any) -> None:
        """Count values, the latest last."""
        bins = locate(self.edges, values)
        bins[bins < 0] = len(self._counts) - 1
        if self.window is None:
            self._counts += self._count(bins).astype(self._counts.dtype)
            return
        bins = bins[-self.window :]
        old = self._filled + len(bins) - self.window  # how many values drop out
        if old > 0:
            left = self._ring[(self._at - self._filled + np.arange(old)) % self.window]
            self._counts -= self._count(left)
            self._filled -= old
        self._ring[(self._at + np.arange(len(bins))) % self.window] = bins
        self._counts += self._count(bins)
        self._filled += len(bins)
        self._at = (self._at + len(bins)) % self.window

    def share(self, low: Any, high: Any) -> Array:
        """The share of all traffic that lies in each range, the paper's ``p(r)``; 0 where there is no traffic."""
        low, high = one_line(low, high)
        inside = np.maximum(self._below(high) - self._below(low), 0)
        found: Array = inside / (self.total or 1.0)
        return found

    def weights(self, edges: Any) -> Array:
        """Traffic in each range between adjacent edges of another line, such as those of groups."""
        bounds = values_of(edges, "edges")
        if np.isnan(bounds).any() or not (bounds[:-1] < bounds[1:]).all():
            raise RoutingError("edges: expected numbers, each above the one before")
        return np.maximum(np.diff(self._below(bounds)), 0)

    def _count(self, bins: Array) -> Array:
        return np.bincount(bins, minlength=len(self._counts))

    def _below(self, bounds: Array) -> Array:
        """Traffic in bins below each bound."""
        below = np.concatenate([[0.0], np.cumsum(self._counts[:-1], dtype=np.float64)])
        edges = self.edges
        if bounds.dtype != edges.dtype:
            bounds, edges = bounds.astype(np.float64), edges.astype(np.float64)
        position = np.searchsorted(edges, bounds, "right") - 1
        found = below[np.maximum(position, 0)]
        inside = (position >= 0) & (position < len(edges) - 1)
        at = position[inside]
        share = _distance(edges[at], bounds[inside]) / _distance(edges[at], edges[at + 1])
        found[inside] += share * self._counts[at]
        return found


def _distance(low: Array, high: Array) -> Array:
    """Distance as a float. Integers may be farther apart than int64 can count, and closer than float64 can show."""
    if low.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.subtract(high, low)
    return (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
