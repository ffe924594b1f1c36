"""Choice of an index for clauses, and the reason for it.

Costs are estimated per event on one core from how likely predicates are to hold: by observed events, or else by the
share of codes that they cover. With many clauses, the cheapest by estimate are tried, and the fastest is taken.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.table import Table
from gpumatch.errors import SchemaError, nearest
from gpumatch.expr.normal import Splitting
from gpumatch.index import KINDS, FlatIndex, IndexParams, Input, Kind, kind_of, params_from, trials
from gpumatch.index.costs import Costs, sample
from gpumatch.index.flat import Planning
from gpumatch.kernels.compile import compilations

_FEW = 64  # up to this many clauses, building postings by block does not pay
_WORTH = 1.25  # how many times faster an index must seem than one that is better known
_CALLS = 256  # remembered to measure what matching costs
_SHARE = 64  # a part with less than one in this many clauses costs more than it saves
_TRIED = 4  # offers that are timed
_SEVERAL = 1.2  # how many times faster several parts must be than one index for all, since their results are merged


def index_names() -> tuple[str, ...]:
    """Names that ``index=`` accepts."""
    return "auto", *KINDS


def requested_index(index: str | IndexParams) -> IndexParams | None:
    """Parameters that ``index=`` asks for, or None for "auto"."""
    if isinstance(index, IndexParams):
        return index
    names = index_names()
    if not isinstance(index, str) or index not in names:
        hint = nearest(index, names) if isinstance(index, str) else ""
        if isinstance(index, type) and issubclass(index, IndexParams):
            hint = f"; write {index.__name__}(), with parentheses"
        example = next(iter(KINDS.values())).params
        raise SchemaError(
            f"index is one of {', '.join(names)} or parameters such as {example.__name__}(), found {index!r}{hint}"
        )
    return None if index == "auto" else KINDS[index].params()


def splitting_for(index: IndexParams | None) -> Splitting:
    """How far expressions are split for an index, or for any index (None)."""
    return Splitting.SMALL if index is None else kind_of(index).splitting


def checked_limit(memory_limit: int | None, index: IndexParams | None) -> int | None:
    """``memory_limit=``, if it is a number of bytes and the choice is left to "auto"."""
    if memory_limit is None:
        return None
    if isinstance(memory_limit, bool) or not isinstance(memory_limit, int) or memory_limit < 1:
        raise SchemaError(f"memory_limit is a whole number of bytes above 0, or None, found {memory_limit!r}")
    if index is not None:
        raise SchemaError(f"memory_limit is for index='auto', found index={index}; leave one of them out")
    return memory_limit


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the planner: an index or None for any, bytes for indexes, and the number of destinations.

    ``timed``: indexes may be tried, which takes a quarter of a second.
    """

    index: IndexParams | None = None
    memory_limit: int | None = None
    destinations: int = 0
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """An index for some clauses, the reason, and expected costs of it and of others, in microseconds per event."""

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
    """CPU time of the latest calls of an index, in the threads that made them, without compiling or encoding events.

    Appending to a deque needs no lock, which a fork could leave locked.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[int, float]] = deque(maxlen=_CALLS)

    @staticmethod
    def start() -> tuple[float, int]:
        """To be given to ``stop``."""
        return time.thread_time(), compilations()

    def stop(self, events: int, started: tuple[float, int]) -> None:
        """Note that ``events`` events were matched since, by this thread."""
        if compilations() == started[1]:
            self._calls.append((events, time.thread_time() - started[0]))

    @property
    def events(self) -> int:
        """Events of the measured calls."""
        return sum(events for events, _ in list(self._calls))

    @property
    def measured(self) -> float | None:
        """Microseconds per event: the median of the calls, since the first one also loads machine code."""
        calls = [seconds / events for events, seconds in list(self._calls) if events]
        return 1e6 * statistics.median(calls) if calls else None


class _Part(NamedTuple):
    """An index for some clauses, the reason, and nanoseconds per event."""

    params: IndexParams
    clauses: Array
    reason: str
    cost: float


class _Offer(NamedTuple):
    """Parts that together hold all clauses. ``doubt``: how many times cheaper than others it must be to be chosen."""

    parts: tuple[_Part, ...]
    doubt: float = 1.0

    @property
    def cost(self) -> float:
        return sum(part.cost for part in self.parts)

    @property
    def name(self) -> str:
        return " + ".join(part.params.kind for part in self.parts)


def choose(request: Request, given: Input, likelihood: Array) -> tuple[list[Choice], trials.Trials | None]:
    """Indexes for all clauses of a table, and the trials that check them if there are enough clauses."""
    costs = Costs(given, likelihood, request.destinations)
    everything = np.arange(given.first, given.last)
    timing = (
        trials.Trials(given, likelihood, costs.entries) if request.timed and trials.wanted(len(everything)) else None
    )
    off = 1.0
    if request.index is not None:
        offers = [_Offer((_Part(request.index, everything, "as asked", _cost(costs, request.index, everything)),))]
    else:
        offers = sorted(_offers(costs, everything, request.memory_limit), key=_rank)
        if timing is not None and len(offers) > 1:
            offers, off = _tried(offers, timing)
    others = _others(costs, everything, offers, off) if len(everything) > _FEW else ()  # with few there is no choice
    if timing is not None:
        timing.forget()
    *parts, last = (Choice(p.params, p.reason, _us(p.cost), (), p.clauses) for p in offers[0].parts)
    return [*parts, replace(last, others=others)], timing


def checked(choice: Choice, index: FlatIndex, table: Table, timing: trials.Trials | None) -> Choice:
    """The choice with the measured cost of the index that was built for it, and without its clauses."""
    choice = replace(choice, clauses=np.zeros(0, np.int64))  # the index has them
    if timing is None or not timing.possible(choice.params):
        return choice
    return replace(choice, estimate=_us(timing.check(index, table)))


def _rank(offer: _Offer) -> float:
    return offer.cost * offer.doubt


def _us(cost: float) -> float:
    return round(cost / 1000, 1)


def _others(costs: Costs, everything: Array, offers: Sequence[_Offer], off: float) -> tuple[tuple[str, float], ...]:
    """The alternatives, tried or estimated, and each kind of index for the whole segment; the cheapest first.

    ``off``: the factor by which the estimates of tried indexes were wrong.
    """
    found = {offer.name: _us(offer.cost) for offer in offers[1:]}
    for kind in KINDS.values():
        if kind.params.kind not in (*found, offers[0].name):
            found[kind.params.kind] = _us(off * _cost(costs, kind.params(), everything))
    return tuple(sorted(found.items(), key=lambda pair: pair[1]))


def _tried(offers: Sequence[_Offer], timing: trials.Trials) -> tuple[list[_Offer], float]:
    """The offers, best first, with measured times instead of estimates for the most promising; and the median error of
    their estimates, which corrects the estimates of the others and of indexes that are not compiled."""
    promising = _promising(offers)
    found, rest = [], []
    off: list[float] = []
    known: dict[tuple[IndexParams, int], float] = {}  # several offers have parts in common
    best = np.inf
    for offer in offers:
        hopeless = off and statistics.median(off) * offer.cost > trials.HOPELESS * best
        if hopeless or offer.name not in promising or not all(timing.possible(part.params) for part in offer.parts):
            rest.append(offer)
            continue
        parts = []
        for part in offer.parts:
            key = part.params, id(part.clauses)
            known[key] = known[key] if key in known else timing.time(part.params, part.clauses, best)
            parts.append(part._replace(reason=f"{part.reason}; tried", cost=known[key]))
        several = _SEVERAL if len(parts) > 1 else 1.0
        found.append(_Offer(tuple(parts), several * max(_doubt_after(timing, part) for part in parts)))
        off.append(found[-1].cost / offer.cost)
        best = min(best, found[-1].cost)
    if not found:
        return sorted(rest, key=_rank), 1.0
    factor = statistics.median(off)
    for offer in rest:
        grown = tuple(part._replace(cost=factor * part.cost) for part in offer.parts)
        found.append(_Offer(grown, _WORTH * offer.doubt))
    return sorted(found, key=_rank), factor


def _doubt_after(timing: trials.Trials, part: _Part) -> float:
    """How many times cheaper a part must be that has been tried."""
    planning = kind_of(part.params).planning
    return planning.doubt if planning and planning.varies and not timing.tries_all(part.clauses) else 1.0


def _promising(offers: Sequence[_Offer]) -> list[str]:
    """Names of the offers to try: first the cheapest with each leading kind of index."""
    leading = {offer.parts[0].params.kind: offer.name for offer in reversed(offers)}
    return sorted((offer.name for offer in offers), key=lambda name: name not in leading.values())[:_TRIED]


def _cost(costs: Costs, params: IndexParams, clauses: Array) -> float:
    """Estimated nanoseconds per event, scaled up from a sample of the clauses."""
    kind, some = kind_of(params), sample(clauses)
    each = float(kind.cost(params, costs, some).sum())
    return costs.event + kind.overhead(params, costs) + each * len(clauses) / max(len(some), 1)


def _considered() -> list[tuple[Kind, Planning]]:
    """The kinds that are considered for many clauses."""
    known = [(kind, kind.planning) for kind in KINDS.values() if kind.planning is not None]
    return [(kind, planning) for kind, planning in known if not planning.last_resort]


def _offers(costs: Costs, clauses: Array, memory_limit: int | None, parted: Sequence[str] = ()) -> list[_Offer]:
    """Indexes of the clauses: one for all, or one for those that it finds at lower cost and others for the rest.

    ``parted``: kinds that have a part already; of other kinds that take just some clauses, only those that lead follow.
    """
    if len(clauses) <= _FEW:
        return [_last_resort(costs, clauses)]
    found = []
    for kind, planning in _considered():
        if kind.name in parted or (parted and planning.takes is not None and not planning.leads):
            continue
        found += _one(costs, planning, clauses, memory_limit)
        if planning.takes is None:
            continue
        some = planning.takes(costs, clauses)
        taken = np.zeros(len(costs.given.table.clause_row), np.bool_)
        taken[some] = True
        rest = clauses[~taken[clauses]]
        if len(some) <= _FEW or len(rest) * _SHARE <= len(clauses):  # not enough for indexes of their own
            continue
        for own in _one(costs, planning, some, memory_limit):
            used = kind.bytes(own.parts[0].params, costs, some)
            left = None if memory_limit is None else memory_limit - used
            for other in _offers(costs, rest, left, [*parted, kind.name]):
                parts = own.parts + other.parts if planning.leads else other.parts + own.parts
                found.append(_Offer(parts, own.doubt * other.doubt))
    return found or [_last_resort(costs, clauses, "no other index of {} clauses fits the memory limit")]


def _one(costs: Costs, planning: Planning, clauses: Array, memory_limit: int | None) -> list[_Offer]:
    """One index for all of the clauses, the fastest that fits in memory; none if none does."""
    for params in planning.choices:
        if memory_limit is None or kind_of(params).bytes(params, costs, clauses) <= memory_limit:
            part = _Part(params, clauses, f"auto: {planning.reason(costs, clauses)}", _cost(costs, params, clauses))
            return [_Offer((part,), planning.doubt)]
    return []


def plainest() -> Planning:
    """The last-resort index, against which the others are checked."""
    return next(kind.planning for kind in KINDS.values() if kind.planning and kind.planning.last_resort)


def plain_choice(clauses: int) -> Choice:
    """The last resort without considering anything, for clauses that have just been added."""
    [params] = plainest().choices
    return Choice(params, "just added", 0.0, (), np.arange(clauses))


def _last_resort(costs: Costs, clauses: Array, why: str | None = None) -> _Offer:
    """An index that is small and needs no knowledge of the clauses."""
    planning = plainest()
    reason = planning.reason(costs, clauses) if why is None else why.format(len(clauses))
    [params] = planning.choices
    return _Offer((_Part(params, clauses, f"auto: {reason}", _cost(costs, params, clauses)),))


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """Some subscriptions, their index, the reason, and microseconds per event: expected, measured, of other indexes."""

    subscriptions: int
    index: IndexParams
    reason: str
    estimate: float
    measured: float | None = field(default=None, compare=False)
    events: int = field(default=0, compare=False)
    others: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.subscriptions} subscriptions: {self.index} ({self.reason})"]
        line = f"  estimated {self.estimate:,g} µs per event" if self.estimate else "  not estimated"
        if self.measured is not None:
            line += f", measured {self.measured:,.1f} over {self.events:,} events"
        lines.append(line)
        if self.others:
            others = ", ".join(f"{name} {cost:,g}" for name, cost in self.others)
            lines.append(f"  the whole segment in another index, estimated: {others}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of ``Matcher.plan``; prints as text."""

    device: str
    device_reason: str
    segments: tuple[PlannedPart, ...]

    def __str__(self) -> str:
        lines = [f"device {self.device} ({self.device_reason})"]
        if self.device != "cpu":
            lines.append("indexes are chosen, and estimates made, for one core of the CPU")
        return "\n".join([*lines, *(map(str, self.segments) if self.segments else ["no subscriptions"])])
