"""An index is data: parameters and named arrays. Saving, counting bytes and checking are one loop each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpumatch.coded import CodedEvents, Table
from gpumatch.codes import Codebook
from gpumatch.events import EventBatch
from gpumatch.predicates import Array, Attributes

_EVENTS = 4096  # that a call of match takes best, whatever the index


@dataclass(frozen=True, slots=True)
class IndexParams:
    """Base of the parameter classes; ``kind`` is the name that ``index=`` takes."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


class ArraySpec(NamedTuple):
    """What one array of an index holds."""

    dtype: str
    meaning: str


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """One built index, of the clauses ``first:last`` of a table."""

    params: IndexParams
    first: int
    last: int
    arrays: dict[str, Array]
    counters: dict[str, int] = field(default_factory=dict, compare=False)  # what matching has counted, for stats()
    scratch: list[tuple[Array, ...]] = field(default_factory=list, compare=False)  # memory that calls leave for others


_counting = threading.Lock()


def count(index: FlatIndex, name: str, more: int) -> int:
    """Add to a counter of the index, from any thread; returns what it was before."""
    with _counting:
        before = index.counters.get(name, 0)
        index.counters[name] = before + more
    return before


class Input(NamedTuple):
    """What an index is built from: clauses ``first:last`` of a table, in their final order."""

    attributes: Attributes
    book: Codebook
    table: Table
    first: int
    last: int
    sample: Sequence[EventBatch] = ()  # observed events


class Kind(NamedTuple):
    """What there is to know of one kind of index."""

    params: type[IndexParams]
    arrays: Mapping[str, ArraySpec]
    build: Callable[[Any, Input], dict[str, Array]]
    # Offsets and rows of coded events, ascending and each once; ``once`` tells that rows are shared by many clauses
    match: Callable[[FlatIndex, Attributes, Table, CodedEvents, bool], tuple[Array, Array]]
    # Sort keys of clauses, given their numbers: candidates should lie together
    place: Callable[[Any, Input, Array], Array]
    # Sort keys of predicates within their clauses, from how likely they hold
    rank: Callable[[Any, Table, Array], Array]
    # Facts of a built index for stats(), besides its name
    facts: Callable[[FlatIndex], dict[str, Any]]
    # Compiled functions that match may call
    drivers: tuple[Callable[..., Any], ...]
    # The same once more, of clauses whose predicates are sorted by rank, given their numbers and the sorted keys
    rerank: Callable[[Any, Input, Array, Array], Array] | None = None
    # How many events a call of match takes best
    events: Callable[[FlatIndex], int] = lambda index: _EVENTS
    # What plan() must say of a built index, if anything
    note: Callable[[FlatIndex], str] = lambda index: ""


def by_likelihood(params: IndexParams, table: Table, likelihood: Array) -> Array:
    """The predicate that holds least often first, so that checks end early."""
    return likelihood


def by_access(params: IndexParams, given: Input, clauses: Array) -> Array:
    """Clauses by attribute and first code of their first predicate; those without any go last."""
    table = given.table
    place = np.full(len(clauses), np.iinfo(np.int64).max)
    some = table.clause_ptr[clauses + 1] > table.clause_ptr[clauses]
    first = table.predicate.reshape(-1, 4)[table.clause_ptr[clauses[some]]]
    place[some] = (first[:, 0].astype(np.int64) << 32) + first[:, 2]
    return place


def bits_of(counts: Array) -> Array:
    """The fewest bits that number so many things."""
    bits: Array = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.uint8)
    return bits


def ascent(rows: Array) -> Array:
    """One number, as indexes store it: rows rise (1), without gaps (2), or do not (0)."""
    rising = np.diff(rows)
    return np.array([(rising > 0).all() + (rising == 1).all()], np.uint8)
