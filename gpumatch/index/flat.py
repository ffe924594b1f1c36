"""The contract of an index: parameters, named arrays and numbers, and a ``Kind`` that says all there is to know of it.

An index is data, so that saving, loading, counting bytes and copying to a device are one loop each. What needs CUDA or
draws lies beside a kind, in the modules ``device``, ``picture`` and ``roofline`` of its package.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.errors import DeviceError, StorageError
from gpumatch.expr.normal import Splitting
from gpumatch.index.costs import Costs
from gpumatch.index.input import Input
from gpumatch.subscriptions.block import Attributes

_EVENTS = 4096  # that a call of match takes best, whatever the index
_CLAUSE_BYTES = 72  # of a clause, where a kind does not say better
_LENGTH = re.compile(r"(?:(\d+) \* )?(\w+)(?: \+ (\d+))?( or 0)?")


@dataclass(frozen=True, slots=True)
class IndexParams:
    """Base of the parameter classes; ``kind`` is the name that ``index=`` takes."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


class ArraySpec(NamedTuple):
    """What one array of an index holds.

    ``length`` is a name, times and plus a number: ``"nodes + 1"``, ``"2 * attributes"``; that of an array that may be
    empty ends in ``" or 0"``. ``attributes`` and ``clauses`` are those of the index; what other names stand for is up
    to its arrays, but the same for all of them.
    """

    dtype: str
    length: str
    meaning: str
    on_device: bool = True  # else only the CPU's kernels read it


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """One built index, of the clauses ``first:last`` of a table. Nothing in it ever changes."""

    params: IndexParams
    first: int
    last: int
    arrays: dict[str, Array]
    meta: dict[str, int | float] = field(default_factory=dict)


_counting = threading.Lock()


@dataclass(slots=True)
class Workspace:
    """What matching with an index counts, for stats(), and memory that calls leave for others."""

    counters: dict[str, int] = field(default_factory=dict)
    scratch: list[tuple[Array, ...]] = field(default_factory=list)

    def count(self, name: str, more: int) -> int:
        """Add to a counter, from any thread; returns what it was before."""
        with _counting:
            before = self.counters.get(name, 0)
            self.counters[name] = before + more
        return before


def by_access(params: IndexParams, given: Input, clauses: Array) -> Array:
    """Clauses by attribute and first code of their first predicate; those without any go last."""
    table = given.table
    place = np.full(len(clauses), np.iinfo(np.int64).max)
    some = table.clause_ptr[clauses + 1] > table.clause_ptr[clauses]
    first = table.predicate.reshape(-1, 4)[table.clause_ptr[clauses[some]]]
    place[some] = (first[:, 0].astype(np.int64) << 32) + first[:, 2]
    return place


def by_likelihood(params: IndexParams, table: Table, likelihood: Array) -> Array:
    """The predicate that holds least often first, so that checks end early."""
    return likelihood


class Planning(NamedTuple):
    """How "auto" considers a kind of index."""

    # From the fastest to the smallest: the first that fits the memory is considered
    choices: tuple[IndexParams, ...]
    # Why it is taken for some clauses
    reason: Callable[[Costs, Array], str]
    # By this factor it must seem faster than an index that is better known
    doubt: float = 1.0
    # Those of the clauses that it finds cheaper than postings do: it may have them alone, and others the rest
    takes: Callable[[Costs, Array], Array] | None = None
    # Its part comes first in an offer, so that such an offer is tried besides those of other kinds alone
    leads: bool = False
    # It is taken for a few clauses, and where nothing else fits the memory, but never else
    last_resort: bool = False


Match: TypeAlias = "Callable[[FlatIndex, Attributes, Table, CodedEvents, bool, Workspace], tuple[Array, Array]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """All there is to know of one kind of index. Whoever adds one must give the first four; the rest has defaults."""

    params: type[IndexParams]
    arrays: Mapping[str, ArraySpec]
    # Arrays and numbers by name
    build: Callable[[Any, Input], dict[str, Any]]
    # Offsets and rows of coded events, ascending and each once; the flag tells that rows are shared by many clauses
    match: Match
    # What each number besides the arrays means; "ascending" also tells others that rows rise with clauses
    meta: Mapping[str, str] = field(default_factory=dict)
    # How far expressions are split into clauses for it
    splitting: Splitting = Splitting.PRODUCTS
    # Sort keys of predicates within their clauses, from how likely they hold
    rank: Callable[[Any, Table, Array], Array] = by_likelihood
    # The same once more, of clauses whose predicates are sorted by rank, given their numbers and the sorted keys
    rerank: Callable[[Any, Input, Array, Array], Array] | None = None
    # Sort keys of clauses, given their numbers: candidates should lie together
    place: Callable[[Any, Input, Array], Array] = by_access
    # Facts of a built index for stats(), besides its name
    facts: Callable[[FlatIndex, Mapping[str, int]], dict[str, Any]] = lambda index, counters: {}
    # What plan() must say of a built index, if anything
    note: Callable[[FlatIndex], str] = lambda index: ""
    # How many events a call of match takes best
    events: Callable[[FlatIndex], int] = lambda index: _EVENTS
    # Nanoseconds per event of each of some clauses, and of an event besides, both by estimate
    cost: Callable[[Any, Costs, Array], Array] = lambda params, costs, clauses: costs.tested(clauses)
    overhead: Callable[[Any, Costs], float] = lambda params, costs: 0.0
    # Bytes of its arrays for some clauses, by estimate
    bytes: Callable[[Any, Costs, Array], int] = lambda params, costs, clauses: _CLAUSE_BYTES * len(clauses)
    planning: Planning | None = None
    # Compiled functions that match may call
    drivers: tuple[Callable[..., Any], ...] = ()
    # Parameters that between them need all its kernels, if not the defaults
    forms: tuple[IndexParams, ...] = ()
    # Parameters that have a name of their own where kinds are compared
    variants: Mapping[str, IndexParams] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.params.kind

    def has(self, module: str) -> bool:
        """Is there a module of that name beside the kind: ``device``, ``picture`` or ``roofline``?"""
        home = self.params.__module__
        return hasattr(sys.modules[home], "__path__") and find_spec(f"{home}.{module}") is not None

    def beside(self, module: str) -> Any:
        """That module, which is loaded only now."""
        return import_module(f"{self.params.__module__}.{module}")

    def check_device(self) -> None:
        """An error where there are no kernels for a device."""
        if not self.has("device"):
            raise DeviceError(
                f"index {self.name!r} has no kernels for a CUDA device; use device='cpu', or another index"
            )

    def checked(self, index: FlatIndex, attributes: int) -> FlatIndex:
        """The index, if it has the arrays and numbers that it should, in type and length."""
        sizes = {"attributes": attributes, "clauses": index.last - index.first}
        for name, spec in self.arrays.items():
            array = index.arrays.get(name)
            if array is None:
                raise StorageError(f"the {self.name} index lacks the array {name!r}; build it again")
            if array.dtype != spec.dtype or array.ndim != 1:
                shape = f"{array.ndim} dimensions of {array.dtype}"
                raise StorageError(
                    f"the array {name!r} of a {self.name} index should be one of {spec.dtype}, has {shape}"
                )
            if not _agrees(spec.length, len(array), sizes):
                known = ", ".join(f"{size} {name}" for name, size in sizes.items())
                raise StorageError(
                    f"the array {name!r} of a {self.name} index should have {spec.length} numbers, has {len(array)}; "
                    f"there are {known}"
                )
        if index.meta.keys() != self.meta.keys() or index.arrays.keys() != self.arrays.keys():
            wanted, found = sorted([*self.arrays, *self.meta]), sorted([*index.arrays, *index.meta])
            raise StorageError(f"a {self.name} index should have {', '.join(wanted)}, has {', '.join(found)}")
        return index


def _agrees(length: str, found: int, sizes: dict[str, int]) -> bool:
    """Does an array of so many numbers have the length it should? What its name stands for becomes known by that."""
    match = _LENGTH.fullmatch(length)
    assert match is not None, f"a length is a name, times and plus a number, found {length!r}"
    times, name, plus, optional = match.groups()
    if optional and found == 0:
        return True
    size, rest = divmod(found - int(plus or 0), int(times or 1))
    return rest == 0 and size >= 0 and sizes.setdefault(name, size) == size


def bits_of(counts: Array) -> Array:
    """The fewest bits that number so many things."""
    bits: Array = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.uint8)
    return bits


def ascent(rows: Array) -> int:
    """Do rows rise (1), without gaps (2), or do they not (0)?"""
    rising = np.diff(rows)
    return int((rising > 0).all()) + int((rising == 1).all())
