"""Common code of the engines: subscriptions in, CSR of matching rows out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpumatch.arrays import pointers
from gpumatch.workloads import DenseEvents, PredicateWorkload, RangeWorkload, SparseEvents, Workload

Events: TypeAlias = "DenseEvents | SparseEvents"
Rows: TypeAlias = NDArray[np.int64]
Csr: TypeAlias = tuple[NDArray[np.int64], Rows]  # offsets, rows ascending within an event
T = TypeVar("T")


class Engine(ABC):
    """One method of matching. ``variant`` names the chosen method if there are several."""

    variant: str = ""
    index_s: float = 0.0  # CPU time of ``build`` after loading, if these are two steps

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        """Is the engine meant for this workload? If not, the table shows a dash."""
        return True

    @abstractmethod
    def build(self, workload: Any) -> None: ...

    def given(self, events: Events) -> Any:
        """The events as ``match`` accepts them; the conversion is not timed."""
        return events

    @abstractmethod
    def match(self, events: Any) -> Csr: ...

    def bytes(self) -> int | None:
        """Size of the index, if known."""
        return None


class PerEvent(Engine):
    """Matches event by event; threads divide the events."""

    arrays: Sequence[NDArray[Any]] = ()

    def match(self, events: Events) -> Csr:
        return csr([rows for share in shared_out(self.rows_of, events, self.threads) for rows in share])

    @abstractmethod
    def rows_of(self, events: Events) -> list[Rows]: ...

    def bytes(self) -> int | None:
        return sum(array.nbytes for array in self.arrays)


class Predicates(NamedTuple):
    """All kinds of workload in one form: row i has ``lo[i, j] <= x <= hi[i, j]`` on attribute ``attr[i, j]``.

    Shorter rows are padded with unbounded ranges on an extra attribute beyond the schema, which ``each`` gives to every
    event.
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
        """The smallest type that represents all bounds exactly and has a NaN for missing values."""
        small = self.lo.dtype.kind == "i" and max(-self.lo.min(), self.hi.max()) < 2**24
        return np.float32 if small or self.lo.dtype == np.float32 else np.float64


def each(events: Events, dims: int, kind: type = np.float64) -> Iterator[tuple[NDArray[Any], ...]]:
    """For each event: its attributes, their values, and a row over all attributes with NaN for missing ones."""
    if isinstance(events, dict):
        for values in np.column_stack(list(events.values())).astype(kind, copy=False):
            yield np.arange(dims), values, values
        return
    row: NDArray[Any] = np.full(dims, np.nan, kind)
    row[len(events.names) :] = 0  # the padding attribute
    values = events.value.astype(kind, copy=False)
    for a, b in pairwise(events.offsets.tolist()):
        attribute, value = events.attribute[a:b], values[a:b]
        row[attribute] = value
        yield attribute, value, row
        row[attribute] = np.nan


def count(events: Any) -> int:
    if isinstance(events, SparseEvents):
        return len(events.offsets) - 1
    return len(next(iter(events.values()))) if isinstance(events, dict) else len(events)


def cut(events: Any, a: int, b: int) -> Any:
    """Events ``a`` to ``b``."""
    if isinstance(events, dict):
        return {name: values[a:b] for name, values in events.items()}
    if not isinstance(events, SparseEvents):
        return events.slice(a, b - a)
    ends = events.offsets[a : b + 1]
    inside = slice(ends[0], ends[-1])
    return SparseEvents(ends - ends[0], events.attribute[inside], events.value[inside], events.names)


def batches(events: Any, size: int) -> list[Any]:
    """The events in batches of this size; the last may be smaller."""
    return [cut(events, a, min(a + size, count(events))) for a in range(0, count(events), size)]


def shared_out(call: Callable[[Any], T], events: Any, threads: int) -> list[T]:
    """The result of a call on the events, which threads divide."""
    if threads == 1:
        return [call(events)]
    ends = np.linspace(0, count(events), threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, [cut(events, a, b) for a, b in pairwise(ends)]))


def csr(rows: Sequence[Rows]) -> Csr:
    return pointers(np.array([len(r) for r in rows])), np.concatenate(rows) if rows else np.zeros(0, np.int64)


def joined(answers: Sequence[Csr]) -> Csr:
    """Concatenate the answers to consecutive batches."""
    if len(answers) == 1:
        return answers[0]
    return pointers(np.concatenate([np.diff(ends) for ends, _ in answers])), np.concatenate([r for _, r in answers])


def difference(answer: Csr, expected: Csr) -> str:
    """The first error of an answer; empty if it is correct."""
    for e, (got, right) in enumerate(zip(_by_event(answer), _by_event(expected), strict=True)):
        if not np.array_equal(got, right):
            extra, missing = np.setdiff1d(got, right)[:5].tolist(), np.setdiff1d(right, got)[:5].tolist()
            return f"event {e}: {len(got)} rows, expected {len(right)}; not expected {extra}, missing {missing}"
    return "" if len(answer[1]) == len(expected[1]) else f"{len(answer[1])} rows, expected {len(expected[1])}"


def _by_event(answer: Csr) -> list[Rows]:
    return [answer[1][a:b] for a, b in pairwise(answer[0].tolist())]
