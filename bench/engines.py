"""What every engine under test has in common: subscriptions in, CSR of matching rows out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpumatch.workloads import DenseEvents, PredicateWorkload, RangeWorkload, SparseEvents, Workload

Events: TypeAlias = "DenseEvents | SparseEvents"
Rows: TypeAlias = NDArray[np.int64]
Csr: TypeAlias = tuple[NDArray[np.int64], Rows]  # offsets, rows ascending within an event


class Engine(ABC):
    """One way to match. ``variant`` says which of several ways it took, if it had a choice."""

    variant: str = ""
    index_s: float = 0.0  # CPU time of ``build`` after everything was loaded, where these are two steps

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        """Whether the engine is meant for such a workload; if not, the table shows a dash."""
        return True

    @abstractmethod
    def build(self, workload: Workload) -> None: ...

    def given(self, events: Events) -> Any:
        """The events as ``match`` takes them; making them so is not timed."""
        return events

    @abstractmethod
    def match(self, events: Any) -> Csr: ...

    def bytes(self) -> int | None:
        """Size of the index, where it can be told."""
        return None


class PerEvent(Engine):
    """Answers event by event; several threads take a share of the events each."""

    arrays: Sequence[NDArray[Any]] = ()

    def match(self, events: Events) -> Csr:
        if self.threads == 1:
            return csr(self.rows_of(events))
        ends = np.linspace(0, count(events), self.threads + 1).astype(int).tolist()
        with ThreadPoolExecutor(self.threads) as pool:
            shares = pool.map(self.rows_of, [cut(events, a, b) for a, b in pairwise(ends)])
            return csr([rows for share in shares for rows in share])

    @abstractmethod
    def rows_of(self, events: Events) -> list[Rows]: ...

    def bytes(self) -> int | None:
        return sum(array.nbytes for array in self.arrays)


class Predicates(NamedTuple):
    """All kinds of workload in one form: row i has ``lo[i, j] <= x <= hi[i, j]`` on attribute ``attr[i, j]``.

    A row that has fewer predicates than others is filled up with ranges without end on one attribute more than the
    schema has, of which ``each`` says that events have it.
    """

    attr: NDArray[np.int32]
    lo: NDArray[Any]
    hi: NDArray[Any]
    dims: int

    @classmethod
    def of(cls, workload: Workload) -> Predicates:
        if isinstance(workload, PredicateWorkload):
            attr, lo, hi, dims = workload.sub_attr, workload.lo, workload.hi, len(workload.schema)
            none = attr < 0
            if not none.any():
                return cls(attr, lo, hi, dims)
            kind = np.float32 if lo.dtype.kind == "i" else np.float64
            lo, hi = np.where(none, -np.inf, lo).astype(kind), np.where(none, np.inf, hi).astype(kind)
            return cls(np.where(none, dims, attr), lo, hi, dims + 1)
        assert isinstance(workload, RangeWorkload)
        lo, hi = (np.column_stack(side) for side in zip(*workload.ranges.values(), strict=True))
        return cls(np.broadcast_to(np.arange(lo.shape[1], dtype=np.int32), lo.shape), lo, hi, lo.shape[1])

    def value_type(self) -> type:
        """The smallest type that holds all bounds exactly and has a NaN for missing values."""
        small = self.lo.dtype.kind == "i" and max(-self.lo.min(), self.hi.max()) < 2**24
        return np.float32 if small or self.lo.dtype == np.float32 else np.float64


def each(events: Events, dims: int, kind: type = np.float64) -> Iterator[tuple[NDArray[Any], ...]]:
    """For every event its attributes, their values, and a row over all attributes with NaN where one is missing."""
    if isinstance(events, dict):
        for values in np.column_stack(list(events.values())).astype(kind, copy=False):
            yield np.arange(dims), values, values
        return
    row: NDArray[Any] = np.full(dims, np.nan, kind)
    row[len(events.names) :] = 0  # what fills up rows of predicates
    values = events.value.astype(kind, copy=False)
    for a, b in pairwise(events.offsets.tolist()):
        attribute, value = events.attribute[a:b], values[a:b]
        row[attribute] = value
        yield attribute, value, row
        row[attribute] = np.nan


def count(events: Events) -> int:
    return len(next(iter(events.values()))) if isinstance(events, dict) else len(events.offsets) - 1


def filled(workload: Workload) -> bool:
    """Whether some subscriptions have fewer predicates than others."""
    return isinstance(workload, PredicateWorkload) and bool((workload.sub_attr < 0).any())


def cut(events: Events, a: int, b: int) -> Events:
    """Events ``a`` to ``b``."""
    if isinstance(events, dict):
        return {name: values[a:b] for name, values in events.items()}
    ends = events.offsets[a : b + 1]
    inside = slice(ends[0], ends[-1])
    return SparseEvents(ends - ends[0], events.attribute[inside], events.value[inside], events.names)


def csr(rows: Sequence[Rows]) -> Csr:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(r) for r in rows], out=offsets[1:])
    return offsets, np.concatenate(rows) if rows else np.zeros(0, np.int64)
