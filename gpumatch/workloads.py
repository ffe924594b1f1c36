"""Seeded workloads from the literature, for benchmarks and tests: subscriptions and the events to match them with.

``gem`` and ``box`` constrain every attribute of a few (GEM's experiment); ``dense``, ``sparse`` and ``tama`` put a few
predicates on distinct attributes of many (BE-Gen's and TAMA's). The same arguments always give the same arrays.
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
    """The part of a ``Matcher`` that a workload fills."""

    def add_ranges(self, ids: Any, ranges: Any, *, closed: Any = ...) -> Any: ...
    def add_predicates(self, table: Any) -> Any: ...


@dataclass(frozen=True)
class Workload(ABC):
    """What all workloads have: ``ids`` are 0, 1, 2 …, so that an id is also a row."""

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
    """Subscription i has the closed ranges ``lo[i, j]..hi[i, j]`` on the distinct attributes ``sub_attr[i, j]``."""

    sub_attr: NDArray[np.int32]
    lo: Values
    hi: Values
    present: int  # attributes per event
    planted: bool  # whether each event satisfies one subscription drawn at random

    def add_to(self, matcher: Loads) -> None:
        matcher.add_predicates(self.to_arrow())

    def to_arrow(self) -> Any:
        """The long form, one row per predicate: ``=`` has a ``value``, ``between`` has two ``values``."""
        import pyarrow as pa

        k = self.sub_attr.shape[1]
        lo, hi = self.lo.ravel(), self.hi.ravel()
        point = lo == hi
        pairs = np.column_stack([lo, hi])[~point].ravel()
        ends = np.concatenate([[0], np.cumsum(np.where(point, 0, 2))]).astype(np.int32)
        attributes = pa.DictionaryArray.from_arrays(self.sub_attr.ravel(), pa.array(list(self.schema)))
        operators = pa.DictionaryArray.from_arrays((~point).astype(np.int8), pa.array(["=", "between"]))
        return pa.table(
            {
                "id": np.repeat(self.ids, k),
                "attribute": attributes,
                "op": operators,
                "value": pa.array(lo, mask=~point),
                "values": pa.ListArray.from_arrays(ends, pairs, mask=pa.array(point)),
            }
        )

    def events(self, n: int, seed: int = 0) -> SparseEvents:
        rng = np.random.default_rng([seed, self.present])
        dims, planted = len(self.schema), self.sub_attr.shape[1] if self.planted else 0
        others = distinct(rng, n, self.present - planted, dims - planted)
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


CARDINALITY = 100  # of the integer attributes of dense and sparse


def gem(n: int = 1_000_000, dims: int = 10, theta: float = 0.5, seed: int = 0, name: str = "w1") -> RangeWorkload:
    """W1: all of ``dims`` attributes, low ~ U[0, 1 - theta], high ~ U[theta, 1]."""
    if not 0.5 <= theta <= 1:
        raise ValueError(f"theta must be in [0.5, 1] so that low never exceeds high, found {theta}")
    rng = np.random.default_rng([seed, dims])
    ranges = {f"x{d}": (rng.random(n) * (1 - theta), theta + rng.random(n) * (1 - theta)) for d in range(dims)}
    return RangeWorkload(name, dict.fromkeys(ranges, "float64"), np.arange(n), ranges)


def dense(n: int = 1_000_000, dims: int = 100, k: int = 5, seed: int = 0) -> PredicateWorkload:
    """W2: ``k`` integer predicates on distinct attributes of ``dims``; events have 30 of them."""
    return _integers("w2", n, dims, k, seed, planted=False)


def sparse(n: int = 1_000_000, dims: int = 30_000, k: int = 5, seed: int = 0) -> PredicateWorkload:
    """W3: as W2 over very many attributes; each event satisfies one subscription at least."""
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


WORKLOADS: dict[str, tuple[int, Callable[[int], Workload]]] = {
    "w1-100k": (100_000, lambda n: gem(n, name="w1-100k")),
    "w1-1m": (1_000_000, lambda n: gem(n, name="w1-1m")),
    "w2": (1_000_000, dense),
    "w3": (1_000_000, sparse),
    "w4": (100_000, tama),
    "w5": (100_000, box),
}


def make(name: str, scale: float = 1.0) -> Workload:
    """A workload of the published size times ``scale``."""
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}")
    size, generator = WORKLOADS[name]
    return generator(max(1, round(size * scale)))


def distinct(rng: np.random.Generator, rows: int, k: int, among: int) -> NDArray[np.int64]:
    """In each row a uniform k-subset of ``range(among)``, by Floyd's algorithm on all rows at once."""
    chosen = np.empty((rows, k), np.int64)
    for j in range(k):
        top = among - k + j
        draw = rng.integers(0, top + 1, rows)
        taken = (chosen[:, :j] == draw[:, None]).any(axis=1)
        chosen[:, j] = np.where(taken, top, draw)
    return chosen


def _integers(name: str, n: int, dims: int, k: int, seed: int, planted: bool) -> PredicateWorkload:
    """20 % equality, else low ~ U{0..99} and high 1 to 50 above it, cut at 99."""
    rng = np.random.default_rng([seed, dims])
    attribute = distinct(rng, n, k, dims).astype(np.int32)
    lo = rng.integers(0, CARDINALITY, (n, k))
    width = np.where(rng.random((n, k)) < 0.2, 0, rng.integers(1, 51, (n, k)))
    hi = np.minimum(lo + width, CARDINALITY - 1)
    return PredicateWorkload(name, _schema(dims, "int64"), np.arange(n), attribute, lo, hi, 30, planted)


def _schema(dims: int, kind: str) -> dict[str, str]:
    return {f"a{d}": kind for d in range(dims)}
