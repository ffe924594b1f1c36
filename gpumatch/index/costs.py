"""Matching cost of clauses in nanoseconds per event on one core: terms that the estimates of all kinds share."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.encode import EventEncoder
from gpumatch.index.input import Input
from gpumatch.kernels import plan as kernels

# Nanoseconds, fitted to the benchmark's workloads
_FILTER, _HEAD, _VERIFY = 1.2, 6.0, 40.0  # a posting, one that passed its filter, a clause that is looked up
_TEST = 8.0  # a predicate that is looked up directly
_STEP = 4.0  # an item of a program that is tested after a clause's predicates
_LOOKUP = 60.0  # an attribute of an event that is looked up
_CALL = 500.0  # a batch's share for one event, whatever the index holds
_STOPS = 0.2  # share of verification left where an event stops at the first match for a destination
_SAMPLE = 1 << 15  # clauses that stand for all
_KNOWN = 1 << 20  # predicates that are searched for equal ones
_MIXED = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5], np.uint64)
_ENTRIES = 30  # assumed values per event if none was observed and there are more attributes


def sample(clauses: Array) -> Array:
    """A sample of the clauses that stands for all."""
    return clauses[:: max(1, len(clauses) // _SAMPLE)].copy()  # kernels are compiled for arrays without gaps


def _values_of_an_event(given: Input, used: Array) -> float:
    """How many of an event's values predicates test: as observed, or a typical number."""
    events = sum(map(len, given.sample))
    if events == 0:
        return float(min(int(np.count_nonzero(used)), _ENTRIES))
    encoders = [EventEncoder(given.book, given.attributes, used > 0, batch) for batch in given.sample]
    coded = (encoder.encode(0, len(batch)) for encoder, batch in zip(encoders, given.sample, strict=True))
    return sum(np.count_nonzero(used[some.attribute]) for some in coded) / events


def _presence(used: Array, entries: float) -> Array:
    """How likely each attribute is present in events of ``entries`` values: in proportion to how often it is tested."""
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
    """How likely the predicates and clauses of one table are to hold, and the costs that follow from that."""

    def __init__(self, given: Input, likelihood: Array, destinations: int) -> None:
        """``destinations``: their number, or 0 if the subscriptions themselves are asked for."""
        self.given = given
        self.verify = _VERIFY * (_STOPS if destinations else 1.0)  # a clause that is looked up
        attribute = given.table.columns()[0]
        used = np.bincount(attribute, minlength=len(given.attributes))
        self.entries = _values_of_an_event(given, used)
        self.there = np.ones(len(used)) if given.sample else _presence(used, self.entries)  # by attribute
        self._present = float((used * self.there).sum()) / len(attribute) if len(attribute) else 1.0
        # By predicate; where all attributes are there it stays as it is, and needs no memory
        self.likelihood = likelihood if (self.there == 1.0).all() else likelihood * self.there[attribute]
        self.chance = np.empty((4, len(given.table.clause_row)))  # of the rarest, the two, the three rarest; and hits
        kernels.chances(given.table.clause_ptr, self.likelihood, self.chance)

    @cached_property
    def distinct(self) -> tuple[Array, float]:
        """1 over the number of predicates equal to each of the first ones, and what stands for all others."""
        keys = self.given.table.predicate.reshape(-1, 4)[:_KNOWN].astype(np.uint64) @ _MIXED
        order = np.argsort(keys)
        starts = np.flatnonzero(np.diff(keys[order], prepend=~keys[order[:1]]))
        count = np.diff(starts, append=len(keys))
        share = np.empty(len(keys))
        share[order] = np.repeat(1 / count, count)
        return share, len(count) / max(len(keys), 1)

    @property
    def event(self) -> float:
        """Cost of an event, whatever the index holds."""
        return _CALL + self.entries * _LOOKUP

    def evaluated(self, clauses: Array) -> Array:
        """Cost of each clause's program, which is tested where the clause's rarest predicates hold."""
        table = self.given.table
        lengths = np.concatenate([np.diff(table.program_ptr), np.zeros(1, np.int64)])  # the last for clauses with none
        each: Array = self.chance[2, clauses] * lengths[table.clause_program[clauses]] * _STEP
        return each

    def postings(self, clauses: Array) -> Array:
        """Cost of each clause that hangs on its rarest predicate, without its program."""
        one, two, three = self.chance[:3, clauses]
        each: Array = one * _FILTER + two * _HEAD + three * self.verify
        return each

    def scanned(self, clauses: Array) -> Array:
        """Cost of finding each clause by the attribute of its rarest predicate, without what follows."""
        each: Array = self._present * _FILTER + self.chance[0, clauses] * _HEAD
        return each

    def tested(self, clauses: Array) -> Array:
        """Cost of each clause whose predicates are tested one after another where the rarest holds."""
        one, two = self.chance[:2, clauses]
        each: Array = one * _TEST + two * self.verify + self.evaluated(clauses)
        return each
