"""What matching some clauses costs under each index: nanoseconds per event on one core, and bytes."""

from __future__ import annotations

import numpy as np

from gpumatch.coded import EventEncoder
from gpumatch.index.flat import IndexParams, Input
from gpumatch.index.gem import Dims, Gem, bytes_of_bitsets
from gpumatch.index.ladder import Ladder
from gpumatch.index.postings import Scan
from gpumatch.index.psthash import PstHash
from gpumatch.index.tama import Tama
from gpumatch.kernels import plan as kernels
from gpumatch.predicates import Array

# Nanoseconds, fitted to the benchmark's workloads
_FILTER, _HEAD, _VERIFY = 1.2, 6.0, 40.0  # a posting, one that passed its filter, a clause that is looked up
_TEST = 8.0  # a predicate that is looked up at once
_WORD = 0.16  # a word of a bitset
_SURVIVOR, _DENSE = 25.0, 6.5  # what bitsets leave over: where that is little, and where it is much
_COUNT = 2.5  # a hit that is counted
_PAIR, _LOOKUP = 75.0, 60.0  # two attributes of an event that are looked up together, and one
_CALL = 500.0  # a batch's part for one event, whatever the index holds
_STOPS = 0.2  # share of verification that is left where an event stops at the first match for a destination
_POSTING, _BLOCKS = 12, 3  # bytes of a posting, and how many blocks a range is cut into
_ENTRIES = 30  # values of an event, where none was observed and there are more attributes


class Costs:
    """Estimates for clauses of one table."""

    def __init__(self, given: Input, likelihood: Array, destinations: int) -> None:
        """``destinations``: how many there are, 0 if subscriptions themselves are asked for."""
        self._given, self._likelihood = given, likelihood
        self._verify = _VERIFY * (_STOPS if destinations else 1.0)
        self._entries, self._present = self._values_of_an_event()
        self._chance = np.empty((4, len(given.table.clause_row)))
        kernels.chances(given.table.clause_ptr, likelihood, self._present, self._chance)

    def _values_of_an_event(self) -> tuple[float, float]:
        """How many there are, and how likely an attribute is there beyond what likelihoods know of it."""
        given = self._given
        used = np.zeros(len(given.attributes), np.bool_)
        used[given.table.columns()[0]] = True
        events, attributes = sum(map(len, given.sample)), int(np.count_nonzero(used))
        if events == 0:
            return float(min(attributes, _ENTRIES)), min(attributes, _ENTRIES) / max(attributes, 1)
        encoders = (EventEncoder(given.book, given.attributes, used, batch) for batch in given.sample)
        coded = (encoder.encode(0, len(batch)) for encoder, batch in zip(encoders, given.sample, strict=True))
        return sum(np.count_nonzero(used[part.attribute]) for part in coded) / events, 1.0

    def of(self, params: IndexParams, clauses: Array) -> float:
        """Nanoseconds per event."""
        one, two, three, hits = self._chance[:, clauses]
        base = _CALL + self._entries * _LOOKUP
        if isinstance(params, Gem):
            return self._bitsets(clauses)
        if isinstance(params, Tama):
            return base + _COUNT * float(hits.sum())
        if isinstance(params, PstHash) and params.access == 2:
            pairs = self._entries * (self._entries - 1) / 2 * _PAIR
            return base + pairs + float((two * _HEAD + three * self._verify).sum())
        if isinstance(params, Ladder):
            return base + float((one * _TEST + two * self._verify).sum())
        met = self._present if isinstance(params, Scan) else one
        return base + float(
            (met * _FILTER + one * _HEAD * isinstance(params, Scan) + two * _HEAD + three * self._verify).sum()
        )

    def _bitsets(self, clauses: Array) -> float:
        dims, left = self._survival(clauses)
        words = len(clauses) / 64 * max(len(dims.dims), 4) * (2 if dims.many else 1)
        each = _DENSE if dims.many else _SURVIVOR
        return _CALL + self._entries * _LOOKUP + words * _WORD + float(left.sum()) * each

    def _survival(self, clauses: Array) -> tuple[Dims, Array]:
        """The dimensions that Gem would index, and how likely each clause survives their bitsets."""
        table = self._given.table
        dims, left = Dims(self._given, clauses), np.empty(len(clauses))
        kernels.survival(clauses, table.clause_ptr, table.predicate, self._likelihood, self._present, dims.dim_of, left)
        return dims, left

    def dense(self, clauses: Array) -> Array:
        """Those of the clauses that bitsets find cheaper than postings do."""
        one, two, three, _ = self._chance[:, clauses]
        alone = one * _FILTER + two * _HEAD + three * self._verify
        found: Array = clauses[alone > 4 * _WORD / 64]
        if len(found) == 0:
            return found
        dims, left = self._survival(found)
        each = max(len(dims.dims), 4) * _WORD / 64 + left * (_DENSE if dims.many else _SURVIVOR)
        kept: Array = found[each < alone[np.searchsorted(clauses, found)]]
        return kept

    def dimensions(self, clauses: Array) -> int:
        """How many dimensions Gem would index."""
        return len(self._survival(clauses)[0].dims)

    def bytes_of(self, params: IndexParams, clauses: Array) -> int:
        """Bytes of the index itself, besides the table of predicates that all have."""
        if isinstance(params, Gem):
            return bytes_of_bitsets(params.cells, Dims(self._given, clauses), len(clauses))
        postings: int = {"scan": 1, "pstbloom": _BLOCKS}.get(params.kind, 2 * _BLOCKS)
        return len(clauses) * _POSTING * postings
