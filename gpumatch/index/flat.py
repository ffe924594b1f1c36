"""The contract of an index: parameters, named arrays and numbers, and a ``Kind`` that describes it completely.

An index is data, so that saving, loading, counting bytes and copying to a device are one loop each. Code for CUDA, for
drawing and for rooflines is in separate modules of a kind's package: ``device``, ``picture`` and ``roofline``.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from gpumatch.arrays import Array
from gpumatch.arrayspec import ArraySpec, Problem, Sizes, check_types, check_values, raise_first
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.errors import DeviceError, StorageError
from gpumatch.expr.normal import Splitting
from gpumatch.index.costs import Costs
from gpumatch.index.input import Input
from gpumatch.subscriptions.block import Attributes

_EVENTS = 4096  # per call of match, whatever the index
_CLAUSE_BYTES = 72  # per clause, unless a kind has a better estimate


@dataclass(frozen=True, slots=True)
class IndexParams:
    """Base of the parameter classes; ``kind`` is the name that ``index=`` takes."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """A built index of the clauses ``first:last`` of a table; immutable."""

    params: IndexParams
    first: int
    last: int
    arrays: dict[str, Array]
    meta: dict[str, int | float] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)  # made on first use

    def keep(self, name: str, made: Any) -> Any:
        """Keep something for later calls; returns what is kept, which may be from another thread, and stays."""
        return self.kept.setdefault(name, made)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays, and of those made on first use."""
        made = [array for array in list(self.kept.values()) if isinstance(array, np.ndarray)]  # others may add to it
        return sum(array.nbytes for array in (*self.arrays.values(), *made))


class Around(NamedTuple):
    """What was loaded along with an index, and the sizes that its arrays imply."""

    attributes: Attributes
    counts: Array  # codes of each attribute
    table: Table
    sizes: Sizes


_counting = threading.RLock()  # a signal's handler may match events, too


def _after_fork() -> None:
    """The thread that held the lock may not be there."""
    global _counting
    _counting = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(slots=True)
class Workspace:
    """Counters of an index for stats(), and scratch memory that calls reuse."""

    counters: dict[str, int] = field(default_factory=dict)
    scratch: list[tuple[Array, ...]] = field(default_factory=list)

    def count(self, name: str, more: int) -> int:
        """Add to a counter, from any thread; returns its value before."""
        with _counting:
            before = self.counters.get(name, 0)
            self.counters[name] = before + more
        return before


def by_access(params: IndexParams, given: Input, clauses: Array) -> Array:
    """Clauses by attribute and first code of their first predicate; clauses without any go last."""
    table = given.table
    keys = np.full(len(clauses), np.iinfo(np.int64).max)
    some = table.clause_ptr[clauses + 1] > table.clause_ptr[clauses]
    first = table.predicate.reshape(-1, 4)[table.clause_ptr[clauses[some]]]
    keys[some] = (first[:, 0].astype(np.int64) << 32) + first[:, 2]
    return keys


def by_likelihood(params: IndexParams, table: Table, likelihood: Array) -> Array:
    """The predicate that holds least often comes first, so that checks end early."""
    return likelihood


class Planning(NamedTuple):
    """How "auto" considers a kind of index."""

    # From the fastest to the smallest: the first that fits in memory is considered
    choices: tuple[IndexParams, ...]
    # Why it was chosen for some clauses
    reason: Callable[[Costs, Array], str]
    # How many times faster it must seem than an index that is better known
    doubt: float = 1.0
    # The clauses that it finds at lower cost than postings do: it may get just these, and others the rest
    takes: Callable[[Costs, Array], Array] | None = None
    # Its part comes first in an offer, so that such an offer is tried in addition to those of other kinds alone
    leads: bool = False
    # Used for a few clauses, or where nothing else fits in memory, and never otherwise
    last_resort: bool = False
    # An index of a sample may have another form than that of all clauses, so the doubt remains when it has been tried
    varies: bool = False


Match: TypeAlias = "Callable[[FlatIndex, Attributes, Table, CodedEvents, bool, Workspace], tuple[Array, Array]]"
Count: TypeAlias = "Callable[[FlatIndex, Attributes, Table, CodedEvents, Array, Array], Array]"
Find: TypeAlias = "Callable[[FlatIndex, Attributes, Table, CodedEvents, Array, Array], None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Everything about one kind of index. The first four fields are required; the others have defaults."""

    params: type[IndexParams]
    arrays: Mapping[str, ArraySpec]
    # Arrays and numbers by name
    build: Callable[[Any, Input], dict[str, Any]]
    # Offsets and rows of coded events, ascending and without repeats; the flag says that many clauses share rows
    match: Match
    # What finds how many clauses hold for each event faster than listing them, if anything does for these parameters.
    # It is given a bit for each clause that does not count, or none at all, and totals: unless they are empty, it adds
    # to those how many events each clause holds for
    count: Callable[[Any], Count | None] = lambda params: None
    # The same for whether any clause holds: it is given such bits, and marks of events, sets those of the events for
    # which one holds, and passes over events that are marked already
    any: Callable[[Any], Find | None] = lambda params: None
    # Meaning of each number stored with the arrays; "ascending" also tells other code that rows rise with clauses
    meta: Mapping[str, str] = field(default_factory=dict)
    # How far expressions are split into clauses for it
    splitting: Splitting = Splitting.PRODUCTS
    # What is wrong with values of a loaded index that its arrays' specs do not cover
    validate: Callable[[FlatIndex, Around], Iterator[Problem]] = lambda index, around: iter(())
    # Sort keys of predicates within their clauses, from how likely they are to hold
    rank: Callable[[Any, Table, Array], Array] = by_likelihood
    # The same again once predicates are sorted by rank, given the clauses' numbers and the sorted keys
    rerank: Callable[[Any, Input, Array, Array], Array] | None = None
    # Sort keys of clauses, given their numbers, so that candidates are adjacent
    place: Callable[[Any, Input, Array], Array] = by_access
    # Facts of a built index for stats(), in addition to its name
    facts: Callable[[FlatIndex, Mapping[str, int]], dict[str, Any]] = lambda index, counters: {}
    # Text that plan() adds about a built index, if any
    note: Callable[[FlatIndex], str] = lambda index: ""
    # How many events a call of match handles best
    events: Callable[[FlatIndex], int] = lambda index: _EVENTS
    # Estimated nanoseconds per event: of each given clause, and of the event itself
    cost: Callable[[Any, Costs, Array], Array] = lambda params, costs, clauses: costs.tested(clauses)
    overhead: Callable[[Any, Costs], float] = lambda params, costs: 0.0
    # Estimated bytes of its arrays for some clauses
    bytes: Callable[[Any, Costs, Array], int] = lambda params, costs, clauses: _CLAUSE_BYTES * len(clauses)
    planning: Planning | None = None
    # Compiled functions that match may call
    drivers: tuple[Callable[..., Any], ...] = ()
    # Parameter sets that together need all its kernels, if not just the defaults
    forms: tuple[IndexParams, ...] = ()
    # Parameters with a name of their own where kinds are compared
    variants: Mapping[str, IndexParams] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.params.kind

    def has(self, module: str) -> bool:
        """Does the kind's package have this module: ``device``, ``picture`` or ``roofline``?"""
        home = self.params.__module__
        return hasattr(sys.modules[home], "__path__") and find_spec(f"{home}.{module}") is not None

    def beside(self, module: str) -> Any:
        """That module, imported on first use."""
        return import_module(f"{self.params.__module__}.{module}")

    def check_device(self) -> None:
        """Raise unless the kind has kernels for a device."""
        if not self.has("device"):
            raise DeviceError(
                f"index {self.name!r} has no kernels for a CUDA device; use device='cpu', or another index"
            )

    def checked(self, index: FlatIndex, attributes: int) -> FlatIndex:
        """The index, after checking that its arrays and numbers have the expected types and lengths."""
        self._sizes(index, attributes)
        if index.meta.keys() != self.meta.keys() or index.arrays.keys() != self.arrays.keys():
            wanted, found = sorted([*self.arrays, *self.meta]), sorted([*index.arrays, *index.meta])
            raise StorageError(f"a {self.name} index should have {', '.join(wanted)}, has {', '.join(found)}")
        for name, number in index.meta.items():
            if type(number) not in (int, float) or not math.isfinite(number):
                raise StorageError(f"the number {name!r} of a {self.name} index should be finite, is {number!r}")
        return index

    def check_values(self, index: FlatIndex, attributes: Attributes, counts: Array, table: Table) -> None:
        """Raise unless the values of a loaded index are safe to use; ``counts``: codes of each attribute."""
        sizes = self._sizes(index, len(attributes)) | {"first": index.first, "last": index.last}
        owner = f"{self.name} index"
        check_values(owner, self.arrays, index.arrays, sizes)
        raise_first(owner, self.validate(index, Around(attributes, counts, table, sizes)))

    def _sizes(self, index: FlatIndex, attributes: int) -> Sizes:
        """Sizes by their names, after checking that the arrays have them."""
        sizes = {"attributes": attributes, "clauses": index.last - index.first}
        check_types(f"{self.name} index", self.arrays, index.arrays, sizes)
        return sizes


def bits_of(counts: Array) -> Array:
    """The fewest bits that can number ``counts`` things."""
    bits: Array = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.uint8)
    return bits


def ascent(rows: Array) -> int:
    """2 if rows rise without gaps, 1 if they rise, else 0."""
    rising = np.diff(rows)
    return int((rising > 0).all()) + int((rising == 1).all())
