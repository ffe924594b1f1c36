"""What matching some clauses costs under each index: nanoseconds per event on one core, and bytes."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gpumatch.coded import EventEncoder
from gpumatch.index.atree import ATree
from gpumatch.index.flat import IndexParams, Input
from gpumatch.index.gem import Dims, Gem, bytes_of_bitsets
from gpumatch.index.ladder import Ladder
from gpumatch.index.postings import Scan
from gpumatch.index.psthash import PstHash
from gpumatch.index.tama import Tama
from gpumatch.kernels import plan as kernels
from gpumatch.kernels.words import EVENTS
from gpumatch.predicates import Array

# Nanoseconds, fitted to the benchmark's workloads
_FILTER, _HEAD, _VERIFY = 1.2, 6.0, 40.0  # a posting, one that passed its filter, a clause that is looked up
_TEST = 8.0  # a predicate that is looked up at once
_WORD = 0.16  # a word of a bitset
_SURVIVOR, _DENSE = 25.0, 6.5  # what bitsets leave over: where that is little, and where it is much
_LOOSE = 100.0  # the same, if bounds do not tell all of a clause
_COUNT = 2.5  # a hit that is counted
_STEP = 4.0  # an item of a program that is tested behind a clause's predicates
_UNIT, _WAKE, _EMIT = 180.0, 3.0, 12.0  # a tile's expression that is evaluated, woken by an event, true of one
_LEAF = 20.0  # a predicate that holds, in a graph where equal ones are one leaf
_KNOWN = 1 << 20  # predicates by which it is told how many are equal
_PAIR, _LOOKUP = 75.0, 60.0  # two attributes of an event that are looked up together, and one
_CALL = 500.0  # a batch's part for one event, whatever the index holds
_STOPS = 0.2  # share of verification that is left where an event stops at the first match for a destination
_EXPRESSION, _ITEM = 24, 44  # bytes of an expression in a graph, and of each predicate and operator if none are shared
_POSTING, _BLOCKS = 12, 3  # bytes of a posting, and how many blocks a range is cut into
_SAMPLE = 1 << 15  # clauses by which the others are judged
_MIXED = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], np.uint64)
_ENTRIES = 30  # values of an event, where none was observed and there are more attributes


def _sample(clauses: Array) -> Array:
    """Enough of the clauses to stand for all."""
    return clauses[:: max(1, len(clauses) // _SAMPLE)]


def _values_of_an_event(given: Input, used: Array) -> float:
    """How many values an event has that predicates test: as observed, or what is usual."""
    events = sum(map(len, given.sample))
    if events == 0:
        return float(min(int(np.count_nonzero(used)), _ENTRIES))
    encoders = [EventEncoder(given.book, given.attributes, used > 0, batch) for batch in given.sample]
    coded = (encoder.encode(0, len(batch)) for encoder, batch in zip(encoders, given.sample, strict=True))
    return sum(np.count_nonzero(used[part.attribute]) for part in coded) / events


def _presence(used: Array, entries: float) -> Array:
    """How likely each attribute is there, if events have so many values: in proportion to how often it is tested."""
    present = np.zeros(len(used))
    left = np.flatnonzero(used)
    while len(left):
        share = (entries - present.sum()) * used[left] / used[left].sum()
        full = share >= 1
        if not full.any():
            present[left] = share
            break
        present[left[full]] = 1.0
        left = left[~full]
    return present


class Costs:
    """Estimates for clauses of one table."""

    def __init__(self, given: Input, likelihood: Array, destinations: int) -> None:
        """``destinations``: how many there are, 0 if subscriptions themselves are asked for."""
        self._given = given
        self._verify = _VERIFY * (_STOPS if destinations else 1.0)
        attribute = given.table.columns()[0]
        used = np.bincount(attribute, minlength=len(given.attributes))
        self.entries = _values_of_an_event(given, used)
        present = np.ones(len(used)) if given.sample else _presence(used, self.entries)
        self._there = present
        self._likelihood = likelihood * present[attribute]
        self._present = float(present[attribute].mean()) if len(attribute) else 1.0
        self._chance = np.empty((4, len(given.table.clause_row)))
        kernels.chances(given.table.clause_ptr, self._likelihood, self._chance)

    def of(self, params: IndexParams, clauses: Array) -> float:
        """Nanoseconds per event."""
        some, base = _sample(clauses), _CALL + self.entries * _LOOKUP
        if isinstance(params, PstHash) and params.access == 2:
            base += self.entries * (self.entries - 1) / 2 * _PAIR
        return base + self._each(params, some) * len(clauses) / max(len(some), 1)

    def _each(self, params: IndexParams, clauses: Array) -> float:
        """Nanoseconds for all of these clauses, besides what an event costs in any case."""
        if isinstance(params, Gem):
            return float(self._bitsets(Dims(self._given, clauses), clauses).sum())
        if isinstance(params, ATree):
            return float(self._expressions(clauses).sum())
        return self._conjunctions(params, clauses) + float(self._evaluated(clauses).sum())

    def _conjunctions(self, params: IndexParams, clauses: Array) -> float:
        """Nanoseconds for what these clauses are without their programs."""
        one, two, three, hits = self._chance[:, clauses]
        if isinstance(params, Tama):
            return _COUNT * float(hits.sum())
        if isinstance(params, PstHash) and params.access == 2:
            return float((two * _HEAD + three * self._verify).sum())
        if isinstance(params, Ladder):
            return float((one * _TEST + two * self._verify).sum())
        scanned = isinstance(params, Scan) * (self._present * _FILTER + one * _HEAD)
        return float((scanned + self._postings(clauses)).sum())

    def _evaluated(self, clauses: Array) -> Array:
        """Nanoseconds of each clause for its program, which is tested where its rarest predicates hold."""
        table = self._given.table
        lengths = np.concatenate([np.diff(table.program_ptr), np.zeros(1, np.int64)])  # of the last for those with none
        each: Array = self._chance[2, clauses] * lengths[table.clause_program[clauses]] * _STEP
        return each

    def _postings(self, clauses: Array) -> Array:
        """Nanoseconds of each clause that hangs on its rarest predicate."""
        one, two, three = self._chance[:3, clauses]
        each: Array = one * _FILTER + two * _HEAD + three * self._verify
        return each

    def _expressions(self, clauses: Array) -> Array:
        """Nanoseconds of each clause in a graph of expressions: those of a tile of events are evaluated once."""
        table, chance = self._given.table, np.empty((2, len(clauses)))
        heads = (table.clause_ptr, table.clause_program, table.predicate, table.programs)
        kernels.wakings(clauses, *heads, self._likelihood, self._there, chance)
        evaluated = -np.expm1(-EVENTS * chance[1])
        each: Array = evaluated * _UNIT / EVENTS + chance[1] * _WAKE + chance[0] * _EMIT
        return each + self._leaves[clauses]

    @cached_property
    def _leaves(self) -> Array:
        """Nanoseconds of each clause for the leaves of such a graph: its part of what predicates cost that hold."""
        table = self._given.table
        keys = table.predicate.reshape(-1, 4)[:_KNOWN].astype(np.uint64) @ _MIXED
        _, number, count = np.unique(keys, return_inverse=True, return_counts=True)
        share = np.full(len(self._likelihood), len(count) / max(len(keys), 1))
        share[: len(keys)] = 1 / count[number]
        before = np.append(0.0, np.cumsum(_LEAF * share * self._likelihood))
        each: Array = np.diff(before[table.clause_ptr])
        steps = np.append(np.diff(before), 0.0)[np.maximum(table.program_item, -1)]  # operators cost nothing here
        ends = np.append(0.0, np.cumsum(steps))
        programs = np.append(np.diff(ends[table.program_ptr]), 0.0)  # the last for clauses with none
        each += programs[table.clause_program]
        return each

    def _bitsets(self, dims: Dims, clauses: Array) -> Array:
        """Nanoseconds of each clause in bitsets over these dimensions."""
        table, left, loose = self._given.table, np.empty(len(clauses)), np.empty(len(clauses), np.bool_)
        heads = (table.clause_ptr, table.clause_program, table.predicate)
        kernels.survival(clauses, *heads, self._likelihood, dims.dim_of, left, loose)
        words = max(len(dims.dims), 4) * (2 if dims.many else 1) / 64
        each: Array = words * _WORD + left * ((_DENSE if dims.many else _SURVIVOR) + loose * _LOOSE)
        return each

    def dense(self, clauses: Array) -> Array:
        """Those of the clauses that bitsets find cheaper than postings do."""
        postings = self._postings(clauses)
        wide = postings > 4 * _WORD / 64
        found, postings = clauses[wide], postings[wide]
        if len(found) == 0:
            return found
        kept: Array = found[self._bitsets(Dims(self._given, _sample(found)), found) < postings]
        return kept

    def shared(self, clauses: Array) -> Array:
        """Those of the clauses that a graph of expressions finds cheaper than postings do; of a row all or none."""
        saved = self._postings(clauses) + self._evaluated(clauses) - self._expressions(clauses)
        rows = self._given.table.clause_row[clauses]
        kept: Array = clauses[np.bincount(rows, saved)[rows] > 0]
        return kept

    def dimensions(self, clauses: Array) -> int:
        """How many dimensions Gem would index."""
        return len(Dims(self._given, _sample(clauses)).dims)

    def bytes_of(self, params: IndexParams, clauses: Array) -> int:
        """Bytes of the index itself, besides the table of predicates that all have."""
        if isinstance(params, Gem):
            return bytes_of_bitsets(params.cells, Dims(self._given, _sample(clauses)), len(clauses))
        if isinstance(params, ATree):
            table = self._given.table
            own, programs = np.diff(table.clause_ptr)[clauses], table.clause_program[clauses]
            items = int(own.sum() + np.diff(table.program_ptr)[programs[programs >= 0]].sum())
            return len(clauses) * _EXPRESSION + items * _ITEM
        postings: int = {"scan": 1, "pstbloom": _BLOCKS}.get(params.kind, 2 * _BLOCKS)
        return len(clauses) * _POSTING * postings
