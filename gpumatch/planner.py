"""Which index some clauses get, and why.

Costs are estimates per event on one core, from how likely predicates hold: by observed events, or else by the share of
codes that they cover. They need not be right, but rank the indexes as measurements do.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpumatch.errors import SchemaError, nearest
from gpumatch.index import KINDS, ATree, Gem, IndexParams, Input, Ladder, PstBloom, PstHash, Scan, Tama, params_from
from gpumatch.index.costs import Costs
from gpumatch.predicates import Array

INDEX_NAMES = ("auto", *KINDS)
_FEW = 64  # clauses up to which building postings by block does not pay
_WORTH = 1.25  # a second index must make matching faster by this factor
_CALLS = 256  # that are remembered for what matching costs
_CELLS = (64, 32, 16)  # cells of Gem, fewer where memory is short


def requested_index(index: str | IndexParams) -> IndexParams | None:
    """What ``index=`` asks for: parameters, or None for "auto"."""
    if isinstance(index, IndexParams):
        return index
    if not isinstance(index, str) or index not in INDEX_NAMES:
        hint = nearest(index, INDEX_NAMES) if isinstance(index, str) else ""
        if isinstance(index, type) and issubclass(index, IndexParams):
            hint = f"; write {index.__name__}(), with parentheses"
        raise SchemaError(
            f"index is one of {', '.join(INDEX_NAMES)} or parameters such as Scan(), found {index!r}{hint}"
        )
    return None if index == "auto" else KINDS[index].params()


def checked_limit(memory_limit: int | None, index: IndexParams | None) -> int | None:
    """``memory_limit=`` as it was given, if it is a number of bytes, and only "auto" is left to choose."""
    if memory_limit is None:
        return None
    if isinstance(memory_limit, bool) or not isinstance(memory_limit, int) or memory_limit < 1:
        raise SchemaError(f"memory_limit is a whole number of bytes above 0, or None, found {memory_limit!r}")
    if index is not None:
        raise SchemaError(f"memory_limit is for index='auto', found index={index}; leave one of them out")
    return memory_limit


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked of the planner: an index or None for any, bytes for indexes, and for how many destinations."""

    index: IndexParams | None = None
    memory_limit: int | None = None
    destinations: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """An index for some clauses, why, and what it and others are expected to cost, in microseconds per event."""

    params: IndexParams
    reason: str
    estimate: float
    others: tuple[tuple[str, float], ...] = ()
    clauses: Array = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)

    def to_dict(self) -> dict[str, Any]:
        facts = {"index": self.params.to_dict(), "reason": self.reason, "estimate": self.estimate}
        return {**facts, "others": [list(pair) for pair in self.others]}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Choice:
        others = tuple((str(name), float(cost)) for name, cost in facts["others"])
        return cls(params_from(facts["index"]), str(facts["reason"]), float(facts["estimate"]), others)


class Usage:
    """What the latest calls of an index have cost on the threads that made them, without the coding of events.

    Appending to a deque needs no lock, which a fork could leave locked.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[int, float]] = deque(maxlen=_CALLS)

    @contextmanager
    def of(self, events: int) -> Iterator[None]:
        """Count the time that the block takes for so many events."""
        start = time.perf_counter()
        yield
        self._calls.append((events, time.perf_counter() - start))

    @property
    def events(self) -> int:
        """Of the calls that count."""
        return sum(events for events, _ in list(self._calls))

    @property
    def measured(self) -> float | None:
        """Microseconds per event: the median of the calls, since the first ones also compile or load machine code."""
        calls = [seconds / events for events, seconds in list(self._calls) if events]
        return 1e6 * statistics.median(calls) if calls else None


def choose(wishes: Wishes, given: Input, likelihood: Array) -> list[Choice]:
    """Indexes for all clauses of a table."""
    costs = Costs(given, likelihood, wishes.destinations)
    everything = np.arange(given.first, given.last)
    singles = _singles(costs, everything)
    if wishes.index is not None:
        estimate = dict(singles)[wishes.index.kind]
        return [Choice(wishes.index, "as asked", estimate, _without(singles, wishes.index.kind), everything)]
    expressions = everything[given.table.clause_program[everything] >= 0]
    if len(expressions) <= _FEW or not _fits(costs, ATree(), expressions, wishes.memory_limit):
        return _conjunctions(costs, singles, everything, wishes.memory_limit)
    estimate = round(costs.of(ATree(), expressions) / 1000, 1)
    reason = f"auto: {len(expressions)} expressions that are no conjunctions"
    if len(expressions) == len(everything):
        return [Choice(ATree(), reason, estimate, _without(singles, "atree"), everything)]
    left = None if wishes.memory_limit is None else wishes.memory_limit - costs.bytes_of(ATree(), expressions)
    rest = np.setdiff1d(everything, expressions, assume_unique=True)
    return [*_conjunctions(costs, singles, rest, left), Choice(ATree(), reason, estimate, (), expressions)]


def _conjunctions(
    costs: Costs, singles: list[tuple[str, float]], clauses: Array, memory_limit: int | None
) -> list[Choice]:
    """Indexes for clauses that are found by their predicates; a program that one may have is tested at the end."""
    split = _split(costs, singles, clauses, memory_limit)
    if split is not None:
        return split
    params, reason = _postings(costs, clauses, memory_limit)
    estimate = round(costs.of(params, clauses) / 1000, 1)
    return [Choice(params, f"auto: {reason}", estimate, _without(singles, params.kind), clauses)]


def _postings(costs: Costs, clauses: Array, memory_limit: int | None) -> tuple[IndexParams, str]:
    """The best of the indexes that find clauses by selective predicates, and why."""
    count = len(clauses)
    if count <= _FEW:
        return Scan(), f"{count} clauses are tested faster than looked up"
    pays = costs.of(PstHash(), clauses) * _WORTH <= costs.of(PstBloom(), clauses)
    if pays and _fits(costs, PstHash(), clauses, memory_limit):
        return PstHash(), f"{count} clauses, so many that finding them by two predicates pays"
    if _fits(costs, PstBloom(), clauses, memory_limit):
        return PstBloom(), f"{count} clauses, found by their most selective predicate"
    return Scan(), f"no other index of {count} clauses fits the memory limit"


def _pair(
    costs: Costs, gem: Gem, dense: Array, rest: Array, memory_limit: int | None
) -> tuple[Gem, IndexParams, str] | None:
    """Bitsets for some clauses and the best of postings for the others, with the reason; None if they do not fit."""
    left = None if memory_limit is None else memory_limit - costs.bytes_of(gem, dense)
    params, why = _postings(costs, rest, left)
    return (gem, params, why) if _fits(costs, params, rest, left) else None


def _fits(costs: Costs, params: IndexParams, clauses: Array, memory_limit: int | None) -> bool:
    return memory_limit is None or costs.bytes_of(params, clauses) <= memory_limit


def _singles(costs: Costs, clauses: Array) -> list[tuple[str, float]]:
    """Every index for all clauses, the cheapest first, in microseconds."""
    kinds: tuple[IndexParams, ...] = (Scan(), PstBloom(), Gem(), Tama(), PstHash(), Ladder(), ATree())
    found = [(params.kind, round(costs.of(params, clauses) / 1000, 1)) for params in kinds]
    return sorted(found, key=lambda pair: pair[1])


def _without(singles: list[tuple[str, float]], kind: str) -> tuple[tuple[str, float], ...]:
    return tuple(pair for pair in singles if pair[0] != kind)


def _split(
    costs: Costs, singles: list[tuple[str, float]], everything: Array, memory_limit: int | None
) -> list[Choice] | None:
    """Bitsets for clauses that one predicate does not find cheaply, postings for the others; None if that loses."""
    dense = costs.dense(everything)
    if len(dense) <= _FEW:
        return None
    rest = np.setdiff1d(everything, dense, assume_unique=True)
    if len(rest) * 64 <= len(everything):  # so few that their own index costs more than it saves
        dense, rest = everything, rest[:0]
    fitting = (_pair(costs, Gem(cells), dense, rest, memory_limit) for cells in _CELLS)
    found = next((pair for pair in fitting if pair is not None), None)
    if found is None:
        return None
    gem, params, why = found
    cost = [costs.of(gem, dense), costs.of(params, rest) if len(rest) else 0.0]
    if sum(cost) * _WORTH > costs.of(PstBloom(), everything):
        return None
    reason = f"auto: {len(dense)} clauses have wide predicates on {costs.dimensions(dense)} common dimensions"
    if not len(rest):
        return [Choice(gem, reason, round(cost[0] / 1000, 1), _without(singles, "gem"), dense)]
    return [
        Choice(gem, reason, round(cost[0] / 1000, 1), (), dense),
        Choice(params, f"auto: of the others {why}", round(cost[1] / 1000, 1), tuple(singles), rest),
    ]


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """Some subscriptions, their index, why they have it, and microseconds per event: expected, measured, of others."""

    subscriptions: int
    index: IndexParams
    reason: str
    estimate: float
    measured: float | None = field(default=None, compare=False)
    events: int = field(default=0, compare=False)
    others: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.subscriptions} subscriptions: {self.index} ({self.reason})"]
        line = f"  estimated {self.estimate:,g} µs per event"
        if self.measured is not None:
            line += f", measured {self.measured:,.1f} over {self.events:,} events"
        lines.append(line)
        if self.others:
            others = ", ".join(f"{name} {cost:,g}" for name, cost in self.others)
            lines.append(f"  the whole segment in another index, estimated: {others}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``Matcher.plan`` tells; prints as text."""

    device: str
    device_reason: str
    segments: tuple[PlannedPart, ...]

    def __str__(self) -> str:
        lines = [f"device {self.device} ({self.device_reason})"]
        if self.device != "cpu":
            lines.append("indexes are chosen, and estimates made, for one core of the CPU")
        return "\n".join([*lines, *(map(str, self.segments) if self.segments else ["no subscriptions"])])
