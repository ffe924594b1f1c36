"""Seeded workloads from the literature, for benchmarks and tests: subscriptions and the events to match them with.

``gem`` and ``box`` constrain every attribute of a few (GEM's experiment); ``dense``, ``sparse`` and ``tama`` put a few
predicates on distinct attributes of many (BE-Gen's and TAMA's), ``ads`` a varying number of them; ``mixed`` is half
``gem`` and half ``sparse``. The same arguments always give the same arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[Any]  # int64 or float64, as the schema says
DenseEvents: TypeAlias = dict[str, NDArray[np.float64]]


class SparseEvents(NamedTuple):
    """Events in CSR form, the arguments of ``EventBatch.from_csr``; attributes ascend within an event."""

    offsets: NDArray[np.int64]
    attribute: NDArray[np.int32]
    value: Values
    names: tuple[str, ...]


class Loads(Protocol):
    """The methods of a ``Matcher`` that load a workload."""

    def add_ranges(self, ids: Any, ranges: Any, *, closed: Any = ...) -> Any: ...
    def add_predicates(self, table: Any) -> Any: ...


@dataclass(frozen=True)
class Workload(ABC):
    """Base of all workloads: ``ids`` are 0, 1, 2 …, so that an id is also a row."""

    name: str
    schema: dict[str, str]
    ids: NDArray[np.int64]

    @abstractmethod
    def add_to(self, matcher: Loads) -> None:
        """Load all subscriptions in bulk."""

    @abstractmethod
    def events(self, n: int, seed: int = 0) -> DenseEvents | SparseEvents:
        """``n`` events in the form that suits the workload."""


@dataclass(frozen=True)
class RangeWorkload(Workload):
    """Every subscription has a closed range on every attribute; events are uniform in [0, 1) and have all values."""

    ranges: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]

    def add_to(self, matcher: Loads) -> None:
        matcher.add_ranges(self.ids, self.ranges, closed="both")

    def events(self, n: int, seed: int = 0) -> DenseEvents:
        rng = np.random.default_rng([seed, len(self.ranges)])
        return {name: rng.random(n) for name in self.ranges}


@dataclass(frozen=True)
class PredicateWorkload(Workload):
    """Subscription i has the closed ranges ``lo[i, j]..hi[i, j]`` on the distinct attributes ``sub_attr[i, j]``.

    An attribute of -1 means no predicate; every subscription has at least one.
    """

    sub_attr: NDArray[Any]  # int16 or int32
    lo: Values
    hi: Values
    present: int  # attributes per event
    planted: bool = False  # whether each event satisfies one subscription drawn at random
    popularity: NDArray[np.float64] | None = None  # weights of attributes in events, if they differ

    def add_to(self, matcher: Loads) -> None:
        matcher.add_predicates(self.to_arrow())

    def to_arrow(self) -> Any:
        """The long form, one row per predicate: ``=`` has a ``value``, ``between`` has two ``values``."""
        import pyarrow as pa

        used = self.sub_attr >= 0
        lo, hi = self.lo[used], self.hi[used]
        point = lo == hi
        pairs = np.column_stack([lo, hi])[~point].ravel()
        ends = np.concatenate([[0], np.cumsum(np.where(point, 0, 2))]).astype(np.int32)
        attributes = pa.DictionaryArray.from_arrays(self.sub_attr[used], pa.array(list(self.schema)))
        operators = pa.DictionaryArray.from_arrays((~point).astype(np.int8), pa.array(["=", "between"]))
        return pa.table(
            {
                "id": np.repeat(self.ids, used.sum(axis=1)),
                "attribute": attributes,
                "op": operators,
                "value": pa.array(lo, mask=~point),
                "values": pa.ListArray.from_arrays(ends, pairs, mask=pa.array(point)),
            }
        )

    def events(self, n: int, seed: int = 0) -> SparseEvents:
        rng = np.random.default_rng([seed, self.present])
        dims, planted = len(self.schema), self.sub_attr.shape[1] if self.planted else 0
        if self.popularity is None:
            others = distinct(rng, n, self.present - planted, dims - planted)
        else:
            others = popular(rng, n, self.present, self.popularity)
        value = self._uniform(rng, others.shape)
        if planted:
            row = rng.integers(0, len(self.ids), n)
            own = np.sort(self.sub_attr[row], axis=1)
            for j in range(planted):  # the other attributes skip the planted ones
                others += others >= own[:, j : j + 1]
            others = np.concatenate([self.sub_attr[row], others], axis=1)
            value = np.concatenate([self._within(rng, self.lo[row], self.hi[row]), value], axis=1)
        order = np.argsort(others, axis=1)
        attribute = np.take_along_axis(others, order, 1).astype(np.int32).ravel()
        value = np.take_along_axis(value, order, 1).ravel()
        return SparseEvents(np.arange(n + 1, dtype=np.int64) * self.present, attribute, value, tuple(self.schema))

    def _uniform(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
        return rng.integers(0, CARDINALITY, shape) if self.lo.dtype.kind == "i" else rng.random(shape)

    def _within(self, rng: np.random.Generator, lo: Values, hi: Values) -> Values:
        if lo.dtype.kind == "i":
            return rng.integers(lo, hi + 1)
        value: Values = np.minimum(lo + rng.random(lo.shape) * (hi - lo), hi)  # rounding must not leave the range
        return value


@dataclass(frozen=True, kw_only=True)
class MixedWorkload(PredicateWorkload):
    """Subscriptions and events of two workloads in one: those of ``ranges`` come first, both attributes and rows."""

    ranges: RangeWorkload
    rest: PredicateWorkload

    def events(self, n: int, seed: int = 0) -> SparseEvents:
        """Events with the values of both, so that they satisfy what events of either alone would."""
        dense = np.column_stack(list(self.ranges.events(n, seed).values()))
        sparse, width = self.rest.events(n, seed), dense.shape[1]
        first = np.broadcast_to(np.arange(width, dtype=np.int32), dense.shape)
        attribute = np.hstack([first, sparse.attribute.reshape(n, -1) + np.int32(width)])
        value = np.hstack([dense, sparse.value.reshape(n, -1)])
        ends = np.arange(n + 1, dtype=np.int64) * attribute.shape[1]
        return SparseEvents(ends, attribute.ravel(), value.ravel(), tuple(self.schema))


CARDINALITY = 100  # of the integer attributes of dense, sparse and ads


def gem(n: int = 1_000_000, dims: int = 10, theta: float = 0.5, seed: int = 0, name: str = "w1") -> RangeWorkload:
    """W1: all of ``dims`` attributes, low ~ U[0, 1 - theta], high ~ U[theta, 1].

    The paper does not say what happens if low exceeds high, which is possible for theta < 0.5. Here both are redrawn:
    the result is uniform over the ranges that the paper allows, where a swap would favour the narrow ones.
    The mean width is theta from 0.5 on, and falls no lower than a third.
    """
    if not 0 <= theta <= 1:
        raise ValueError(f"theta must be in [0, 1], found {theta}")
    rng = np.random.default_rng([seed, dims])
    ranges = {f"x{d}": _bounds(rng, n, theta) for d in range(dims)}
    return RangeWorkload(name, dict.fromkeys(ranges, "float64"), np.arange(n), ranges)


def _bounds(rng: np.random.Generator, n: int, theta: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = rng.random(n) * (1 - theta), theta + rng.random(n) * (1 - theta)
    bad = np.flatnonzero(low > high)
    while len(bad):
        low[bad] = rng.random(len(bad)) * (1 - theta)
        high[bad] = theta + rng.random(len(bad)) * (1 - theta)
        bad = bad[low[bad] > high[bad]]
    return low, high


def dense(n: int = 1_000_000, dims: int = 100, k: int = 5, seed: int = 0) -> PredicateWorkload:
    """W2: ``k`` integer predicates on distinct attributes of ``dims``; events have 30 of them."""
    return _integers("w2", n, dims, k, seed, planted=False)


def sparse(n: int = 1_000_000, dims: int = 30_000, k: int = 5, seed: int = 0) -> PredicateWorkload:
    """W3: as W2 over very many attributes; each event satisfies at least one subscription."""
    return _integers("w3", n, dims, k, seed, planted=True)


def tama(n: int = 100_000, dims: int = 1000, k: int = 10, width: float = 0.01, seed: int = 0) -> PredicateWorkload:
    """W4: ``k`` narrow ranges on distinct attributes of ``dims``; events have 100, planted as in W3."""
    rng = np.random.default_rng([seed, dims])
    attribute = distinct(rng, n, k, dims).astype(np.int32)
    lo = rng.random((n, k)) * (1 - width)
    return PredicateWorkload("w4", _schema(dims, "float64"), np.arange(n), attribute, lo, lo + width, 100, True)


def box(n: int = 100_000, seed: int = 0) -> RangeWorkload:
    """W5: as W1 in four dimensions, so that events match one subscription in sixteen."""
    return gem(n, 4, 0.5, seed, "w5")


def mixed(n: int = 1_000_000, seed: int = 0) -> MixedWorkload:
    """W6: half W1 and half W3 in one set; all values are float64, since a CSR batch has one type."""
    ranges, rest = gem(n - n // 2, seed=seed), sparse(n // 2, seed=seed)
    width, k = len(ranges.schema), rest.sub_attr.shape[1]
    attribute = np.full((n, width), -1, np.int32)
    attribute[: len(ranges.ids)] = np.arange(width)
    attribute[len(ranges.ids) :, :k] = rest.sub_attr + width
    lo, hi = np.zeros((2, n, width))
    for d, (low, high) in enumerate(ranges.ranges.values()):
        lo[: len(low), d], hi[: len(low), d] = low, high
    lo[len(ranges.ids) :, :k], hi[len(ranges.ids) :, :k] = rest.lo, rest.hi
    schema = dict.fromkeys([*ranges.schema, *rest.schema], "float64")
    present = width + rest.present
    return MixedWorkload("w6", schema, np.arange(n), attribute, lo, hi, present, ranges=ranges, rest=rest)


def ads(n: int = 3_000_000, dims: int = 122, most: int = 56, seed: int = 0) -> PredicateWorkload:
    """Like the thesis's display ads (10.3.4): 1 to 56 predicates, 8 on average, on 122 attributes; events have 20.

    Details that the thesis does not give are made up: the attributes' popularity is Zipf's in subscriptions and events,
    four predicates in five are equalities of values of 0..99, the others ranges as in W2.
    """
    rng = np.random.default_rng([seed, dims])
    popularity = 1 / np.arange(1, dims + 1)
    attribute, lo, hi = np.empty((3, n, most), np.int16)
    for first in range(0, n, 100_000):  # in chunks, since these draws take ten times the memory of their result
        chunk = slice(first, min(n, first + 100_000))
        size = chunk.stop - first
        count = np.minimum(1 + rng.negative_binomial(3, 0.3, size), most)
        drawn = popular(rng, size, most, popularity)
        attribute[chunk] = np.where(np.arange(most) < count[:, None], drawn, -1)
        lo[chunk], hi[chunk] = _integer_bounds(rng, (size, most), 0.8)
    return PredicateWorkload("ads", _schema(dims, "int64"), np.arange(n), attribute, lo, hi, 20, popularity=popularity)


WORKLOADS: dict[str, tuple[int, Callable[[int], Workload]]] = {
    "w1-100k": (100_000, lambda n: gem(n, name="w1-100k")),
    "w1-1m": (1_000_000, lambda n: gem(n, name="w1-1m")),
    "w2": (1_000_000, dense),
    "w3": (1_000_000, sparse),
    "w4": (100_000, tama),
    "w5": (100_000, box),
    "w6": (1_000_000, mixed),
    "ads": (3_000_000, ads),
}


def make(name: str, scale: float = 1.0) -> Workload:
    """A workload of its published size times ``scale``."""
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}")
    size, generator = WORKLOADS[name]
    return generator(max(1, round(size * scale)))


def distinct(rng: np.random.Generator, rows: int, k: int, among: int) -> NDArray[np.int64]:
    """In each row a uniform k-subset of ``range(among)``, by Floyd's algorithm on all rows together."""
    chosen = np.empty((rows, k), np.int64)
    for j in range(k):
        top = among - k + j
        draw = rng.integers(0, top + 1, rows)
        taken = (chosen[:, :j] == draw[:, None]).any(axis=1)
        chosen[:, j] = np.where(taken, top, draw)
    return chosen


def popular(rng: np.random.Generator, rows: int, k: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """In each row ``k`` distinct numbers of ``range(len(weights))``, drawn in turn by weight."""
    # the first k of independent exponential waiting times are such a draw
    times = rng.standard_exponential((rows, len(weights)), np.float32) / weights.astype(np.float32)
    order: NDArray[np.int64] = np.argsort(times, axis=1)
    return order[:, :k].copy()


def _integers(name: str, n: int, dims: int, k: int, seed: int, planted: bool) -> PredicateWorkload:
    rng = np.random.default_rng([seed, dims])
    attribute = distinct(rng, n, k, dims).astype(np.int32)
    lo, hi = _integer_bounds(rng, (n, k), 0.2)
    return PredicateWorkload(name, _schema(dims, "int64"), np.arange(n), attribute, lo, hi, 30, planted)


def _integer_bounds(rng: np.random.Generator, shape: tuple[int, ...], equal: float) -> tuple[Values, Values]:
    """A share of equalities, else low ~ U{0..99} and high 1 to 50 above it, capped at 99."""
    lo = rng.integers(0, CARDINALITY, shape)
    width = np.where(rng.random(shape) < equal, 0, rng.integers(1, 51, shape))
    return lo, np.minimum(lo + width, CARDINALITY - 1)


def _schema(dims: int, kind: str) -> dict[str, str]:
    return {f"a{d}": kind for d in range(dims)}
