"""Which index a segment gets, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpumatch.coded import Table
from gpumatch.errors import SchemaError, nearest
from gpumatch.index import KINDS, IndexParams, PstBloom, Scan, params_from
from gpumatch.predicates import Array

INDEX_NAMES = ("auto", *KINDS)
_FEW = 64  # clauses up to which building postings by block does not pay


def requested_index(index: str | IndexParams) -> IndexParams | None:
    """What ``index=`` asks for: parameters, or None for "auto"."""
    if isinstance(index, IndexParams):
        return index
    if not isinstance(index, str) or index not in INDEX_NAMES:
        hint = nearest(index, INDEX_NAMES) if isinstance(index, str) else ""
        raise SchemaError(
            f"index is one of {', '.join(INDEX_NAMES)} or parameters such as Scan(), found {index!r}{hint}"
        )
    return None if index == "auto" else KINDS[index].params()


@dataclass(frozen=True, slots=True)
class Choice:
    """An index for some clauses, and why."""

    params: IndexParams
    reason: str
    clauses: Array = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {"index": self.params.to_dict(), "reason": self.reason}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Choice:
        return cls(params_from(facts["index"]), str(facts["reason"]))


class Usage:
    """What matching has cost: events, and the seconds of all threads together."""

    def __init__(self) -> None:
        self.events, self.seconds = 0, 0.0
        self._lock = threading.Lock()

    @contextmanager
    def of(self, events: int) -> Iterator[None]:
        """Count the time that the block takes for so many events."""
        start = time.perf_counter()
        yield
        spent = time.perf_counter() - start
        with self._lock:
            self.events += events
            self.seconds += spent


def choose(requested: IndexParams | None, table: Table, likelihood: Array) -> list[Choice]:
    """Indexes for all clauses of a table, whose predicates are sorted by how likely they hold."""
    clauses = np.arange(len(table.clause_row))
    if requested is not None:
        return [Choice(requested, "as asked", clauses)]
    if len(clauses) <= _FEW:
        return [Choice(Scan(), f"auto: {len(clauses)} clauses are tested faster than looked up", clauses)]
    return [Choice(PstBloom(), f"auto: {len(clauses)} clauses, found by their most selective predicate", clauses)]


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment's size, its index, and why it has it."""

    subscriptions: int
    index: IndexParams
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``Matcher.plan`` tells; prints as text."""

    device: str
    device_reason: str
    segments: tuple[PlannedSegment, ...]

    def __str__(self) -> str:
        lines = [f"device {self.device} ({self.device_reason})"]
        lines += [f"{part.subscriptions} subscriptions: {part.index} ({part.reason})" for part in self.segments]
        return "\n".join(lines if self.segments else [*lines, "no subscriptions"])
