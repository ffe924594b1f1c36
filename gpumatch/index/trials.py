"""Measured costs of indexes: some are built from a sample of the clauses and timed on a sample of events.

The events are observed ones, or else drawn from the clauses' own constants.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gpumatch import index as indexes
from gpumatch.arrays import Array, pointers, spans
from gpumatch.codes.encode import EventEncoder
from gpumatch.codes.table import CodedEvents, Table, reorder
from gpumatch.index import FlatIndex, IndexParams, Input, Workspace, kind_of
from gpumatch.kernels.compile import compiled
from gpumatch.opcodes import NULL, RANGE

_LEAST = 4096  # with fewer clauses a trial does not pay
_SAMPLE, _LARGE = 1 << 14, 1 << 16  # clauses in a trial; costs of more are extrapolated from these and a quarter
_SHARE = 16  # one clause in this many is in a trial if there are many: costs flatten out, which a small sample misses
_EVENTS = 512  # a tile of A-Tree
_FEW_EVENTS = 64  # enough to recognise an index that is far too slow
HOPELESS = 4.0  # times the best: not worth a better measurement
_REPEATS = 3
_LONG = 100_000_000  # nanoseconds of calls after which no more are made
_SLOW = 100_000.0  # nanoseconds per event above which a few events are enough to judge an index
_DRAWS = 64  # most clauses that give an event its values
_HASH = np.uint32(0x9E3779B1)
_ALIKE = 1 << 16  # clauses searched for those that name the same value


def allowed() -> bool:
    """False with ``GPUMATCH_TRIALS=0`` in the environment, which makes plans repeatable."""
    return os.environ.get("GPUMATCH_TRIALS", "1") != "0"


def wanted(clauses: int) -> bool:
    """False for few clauses."""
    return clauses >= _LEAST and allowed()


class Trials:
    """Times indexes of the clauses of one table, in nanoseconds per event."""

    def __init__(self, given: Input, likelihood: Array, entries: float) -> None:
        """``entries``: values per event, if events must be drawn."""
        self._given, self._likelihood, self._entries = given, likelihood, entries

    @staticmethod
    def possible(params: IndexParams) -> bool:
        """Only compiled indexes are tried: nobody should wait for a compiler to learn that an index is slow."""
        return compiled(*kind_of(params).drivers)

    def time(self, params: IndexParams, clauses: Array, best: float) -> float:
        """Cost of all these clauses, extrapolated from a sample. ``best`` is the cost to beat."""
        if self.tries_all(clauses):
            return self._measure(params, clauses, best)
        size = self._size(clauses)
        many, few = (self._some(clauses, part) for part in (size, size // 4))
        cost = self._measure(params, many, best)
        if cost > HOPELESS * best:
            return cost * len(clauses) / len(many)
        each = max(cost - self._measure(params, few, best), 0.0) / max(len(many) - len(few), 1)
        return cost + each * (len(clauses) - len(many))

    def tries_all(self, clauses: Array) -> bool:
        """Whether these clauses are few enough to be tried without a sample."""
        return len(clauses) <= self._size(clauses)

    @staticmethod
    def _size(clauses: Array) -> int:
        return min(max(_SAMPLE, len(clauses) // _SHARE), _LARGE)

    def _some(self, clauses: Array, size: int) -> Array:
        """About ``size`` of the clauses: all those of some rows, chosen by a hash since rows may be regular. If
        that gives too few or too many, because some rows have very many, clauses at equal distances."""
        hashed = (self._given.table.clause_row[clauses].astype(np.uint32) + np.uint32(1)) * _HASH
        kept: Array = clauses[hashed < np.uint32(size / len(clauses) * 2**32)]
        return kept if size <= 2 * len(kept) <= 4 * size else clauses[:: -(-len(clauses) // size)]

    def _measure(self, params: IndexParams, clauses: Array, best: float) -> float:
        table, likelihood = self._subset(clauses)
        given = self._given._replace(table=table, first=0, last=len(clauses))
        parts = [(params, np.arange(len(clauses)))]
        indexes.rank(parts, given, likelihood)
        table, _ = indexes.arrange(parts, given)
        index = indexes.build(params, given._replace(table=table))
        cost = self._match(index, table, self._few, 1)
        enough = cost > HOPELESS * best or _is_slow(index, cost)
        return cost if enough else self._match(index, table, self.events, _REPEATS)

    def forget(self) -> None:
        """Drop the clauses, which take much memory: only checks follow, for which there are events now."""
        assert self.events is not None
        self._given = self._given._replace(table=reorder(self._given.table, np.zeros(0, np.int64)))
        self._likelihood = np.zeros(0)

    def check(self, index: FlatIndex, table: Table) -> float:
        """Cost of an index built from all clauses, on events that are new to it, as all will be."""
        cost = self._match(index, table, self._few, 1)
        if _is_slow(index, cost) or len(self.events.ptr) - 1 <= _FEW_EVENTS:
            return cost
        return self._match(index, table, _slice(self.events, _FEW_EVENTS, _EVENTS), 0)

    def _subset(self, clauses: Array) -> tuple[Table, Array]:
        """Some of the clauses, and how likely their predicates are to hold."""
        table = self._given.table
        own = spans(table.clause_ptr[clauses], np.diff(table.clause_ptr)[clauses])
        of_programs = self._likelihood[int(table.clause_ptr[-1]) :]
        return reorder(table, clauses), np.concatenate([self._likelihood[own], of_programs])

    def _match(self, index: FlatIndex, table: Table, events: CodedEvents, repeats: int) -> float:
        """Nanoseconds per event: of the first call, or of the fastest later one, which loads no machine code."""
        times: list[int] = []
        work = Workspace()
        while len(times) <= repeats and (len(times) < 2 or sum(times) < _LONG):
            start = time.thread_time_ns()
            indexes.match(index, self._given.attributes, table, events, False, work)
            times.append(time.thread_time_ns() - start)
        return min(times[1:] or times) / (len(events.ptr) - 1)

    @cached_property
    def _few(self) -> CodedEvents:
        return _slice(self.events, 0, _FEW_EVENTS)

    @cached_property
    def events(self) -> CodedEvents:
        """The newest observed events, or drawn ones."""
        given = self._given
        used = np.ones(len(given.attributes), np.bool_)
        for batch in reversed(given.sample):
            if len(batch):
                encoder = EventEncoder(given.book, given.attributes, used, batch)
                return encoder.encode(max(0, len(batch) - _EVENTS), len(batch))
        return _drawn(given, self._entries)


def _is_slow(index: FlatIndex, cost: float) -> bool:
    """So slow that a few events are enough to judge; where events of a tile share work, it takes a whole tile."""
    return cost > _SLOW and kind_of(index.params).events(index) > _EVENTS


def _slice(events: CodedEvents, first: int, last: int) -> CodedEvents:
    ptr = events.ptr[first : last + 1]
    start, stop = ptr[[0, -1]]
    return CodedEvents(ptr - start, events.attribute[start:stop], events.code[start:stop])


def _drawn(given: Input, entries: float) -> CodedEvents:
    """Events with values of clauses, drawn one after another, so that events combine values as clauses do.

    First come clauses that name a value that the event already has, then any. A value is one end of a predicate's
    range, inside or outside; that of an equality is its constant.
    """
    rng = np.random.default_rng(0)
    table, attributes = given.table, given.attributes
    predicates, multi = table.predicate.reshape(-1, 4), attributes.multi
    last_code = given.book.counts() - 1
    alike = _Alike(table)
    events: list[dict[int, int]] = []
    for _ in range(_EVENTS):
        event: dict[int, int] = {}
        named: list[int] = []
        for draw in range(_DRAWS):
            clause = alike.draw(named if 2 * draw < _DRAWS else [], rng)
            for p in _predicates_of(table, clause):
                attribute, kind, lo, hi = predicates[p].tolist()
                if attribute in event or kind == NULL or (kind != RANGE and lo == hi):
                    continue
                if kind != RANGE:
                    lo, hi = _one_of(table, rng.integers(lo, hi))
                if lo <= hi:
                    event[attribute] = _end(lo, hi, int(last_code[attribute]), rng)
                    if multi[attribute]:
                        event[int(attributes.presence[attribute])] = 0
                    elif lo == hi:
                        named.append((attribute << 32) + lo)
            if len(event) >= entries:
                break
        events.append(event)
    ptr = pointers(np.array([len(event) for event in events]))
    rows = [item for event in events for item in sorted(event.items())]
    attribute, code = np.array(rows, np.int32).reshape(-1, 2).T
    return CodedEvents(ptr, attribute.copy(), code.copy())


class _Alike:
    """Clauses by the values that they name; a value is an attribute and a code in one number."""

    def __init__(self, table: Table) -> None:
        self._count = len(table.clause_row)
        clauses = np.arange(0, self._count, -(-self._count // _ALIKE))
        counts = np.diff(table.clause_ptr)[clauses]
        numbers = spans(table.clause_ptr[clauses], counts)
        attribute, kind, lo, hi = table.predicate.reshape(-1, 4)[numbers].astype(np.int64).T
        named = np.flatnonzero((kind == RANGE) & (lo == hi))
        value = (attribute << 32)[named] + lo[named]
        order = np.argsort(value, kind="stable")
        self._clause = np.repeat(clauses, counts)[named[order]]
        values, starts = np.unique(value[order], return_index=True)
        ends = np.append(starts, len(order))[1:]
        self._stretches = dict(zip(values.tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True))

    def draw(self, values: Sequence[int], rng: np.random.Generator) -> int:
        """A clause that names one of the values; any clause if there are none."""
        stretch = self._stretches.get(values[int(rng.integers(len(values)))]) if values else None
        return int(rng.integers(self._count) if stretch is None else self._clause[rng.integers(*stretch)])


def _predicates_of(table: Table, clause: int) -> list[int]:
    """The numbers of a clause's predicates, including those of its program."""
    own = list(range(table.clause_ptr[clause], table.clause_ptr[clause + 1]))
    program = int(table.clause_program[clause])
    if program < 0:
        return own
    items = table.program_item[table.program_ptr[program] : table.program_ptr[program + 1]]
    return [*own, *items[items >= 0].tolist()]


def _one_of(table: Table, number: int) -> tuple[int, int]:
    """A range of a set."""
    return int(table.range_lo[number]), int(table.range_hi[number])


def _end(lo: int, hi: int, last: int, rng: np.random.Generator) -> int:
    """A code next to one of the cuts that the range makes."""
    cuts = [cut for cut in (lo, hi + 1) if 0 < cut <= last]
    if lo == hi or not cuts:
        return lo
    return cuts[int(rng.integers(len(cuts)))] - int(rng.integers(2))
