"""Arbitrary Boolean expressions as a workload: postfix programs in flat arrays, over a table of distinct predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpumatch.arrays import pointers, spans
from gpumatch.expr import Expr, Op, Predicate
from gpumatch.workloads import Loads, SparseEvents, Workload, distinct, popular

PREDICATE, AND, OR, NOT, XOR, XNOR = range(6)
NAMES: tuple[Any, ...] = ("", "and", "or", "not", "xor", "xnor")
_TABLE_ROWS = 32 << 20  # per table, since loading one takes several times its memory


class Programs(NamedTuple):
    """Consecutive expressions in postfix order."""

    offsets: NDArray[np.int64]
    kind: NDArray[np.int8]
    operand: NDArray[np.int32]  # number of the predicate, or number of operands of the operator

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: NDArray[Any]) -> Programs:
        """The programs with these numbers, in this order."""
        lengths = np.diff(self.offsets)[rows]
        at = spans(self.offsets[rows], lengths)
        return Programs(pointers(lengths), self.kind[at], self.operand[at])


class PredicateTable(NamedTuple):
    """The distinct predicates ``lo <= x <= hi``, ascending by attribute."""

    attribute: NDArray[np.int32]
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.attribute)


@dataclass(frozen=True)
class BooleanWorkload(Workload):
    """Expressions over integer attributes, and events that have ``present`` of these attributes."""

    programs: Programs
    predicates: PredicateTable
    present: int
    cardinality: NDArray[np.int64]  # of each attribute
    popularity: NDArray[np.float64] | None = None  # weights of attributes in events; low values are then popular too

    def add_to(self, matcher: Loads) -> None:
        for table in self.tables:
            matcher.add_predicates(table)

    @cached_property
    def tables(self) -> list[Any]:
        """The long form with operators as rows; several tables if one would be very large."""
        return [self.to_arrow(a, b) for a, b in pairwise(cuts(self.programs.offsets, _TABLE_ROWS))]

    def to_arrow(self, start: int, stop: int) -> Any:
        """Expressions ``start`` to ``stop`` in the long form: one row per predicate and operator, in postfix order."""
        import pyarrow as pa

        offsets, inside = self.programs.offsets[start : stop + 1], slice(*self.programs.offsets[[start, stop]].tolist())
        kind, operand = self.programs.kind[inside], self.programs.operand[inside]
        is_predicate = kind == PREDICATE
        at = np.where(is_predicate, operand, 0)
        lo, hi = self.predicates.lo[at], self.predicates.hi[at]
        is_range = is_predicate & (lo != hi)
        attribute = pa.array(self.predicates.attribute[at], mask=~is_predicate)
        operators = pa.array(["=", "between", "AND", "OR", "NOT", "XOR", "XNOR"])
        columns = {
            "id": np.repeat(self.ids[start:stop], np.diff(offsets)),
            "attribute": pa.DictionaryArray.from_arrays(attribute, pa.array(list(self.schema))),
            "op": pa.DictionaryArray.from_arrays(np.where(is_predicate, is_range, kind + 1).astype(np.int8), operators),
            "value": pa.array(np.where(is_predicate, lo, operand), mask=is_range | (kind == NOT)),
        }
        if is_range.any():
            ends = pointers(2 * is_range).astype(np.int32)
            bounds = np.column_stack([lo, hi])[is_range].ravel()
            columns["values"] = pa.ListArray.from_arrays(ends, bounds, mask=pa.array(~is_range))
        return pa.table(columns)

    def expression(self, row: int) -> Expr:
        """One expression as a tree, for the oracle and for ``Matcher.add``."""
        inside = slice(*self.programs.offsets[row : row + 2].tolist())
        items = zip(self.programs.kind[inside].tolist(), self.programs.operand[inside].tolist(), strict=True)
        return Expr(tuple(self._predicate(n) if kind == PREDICATE else Op(NAMES[kind], n) for kind, n in items))

    def _predicate(self, number: int) -> Predicate:
        attribute, lo, hi = (int(column[number]) for column in self.predicates)
        name = self.names[attribute]
        return Predicate(name, "=", (lo,)) if lo == hi else Predicate(name, "between", (lo, hi))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema)

    def events(self, n: int, seed: int = 0) -> SparseEvents:
        rng = np.random.default_rng([seed, self.present])
        if self.popularity is None:
            attribute = distinct(rng, n, self.present, len(self.schema))
            value = rng.integers(0, self.cardinality[attribute])
        else:
            attribute = popular(rng, n, self.present, self.popularity)
            value = zipf(rng, self.cardinality[attribute])
        order = np.argsort(attribute, axis=1)
        attribute, value = (np.take_along_axis(one, order, 1) for one in (attribute, value))
        ends = np.arange(n + 1, dtype=np.int64) * self.present
        return SparseEvents(ends, attribute.astype(np.int32).ravel(), value.ravel(), self.names)

    def facts(self) -> dict[str, float]:
        """Sizes of the expressions, and their numbers of distinct subexpressions, ignoring the order of operands."""
        hashes, roots = links(self.programs).hashes, self.programs.offsets[1:] - 1
        inner = self.programs.kind != PREDICATE
        leaves = np.diff(pointers(~inner)[self.programs.offsets])
        return {
            "expressions": len(self.programs),
            "items": len(inner),
            "predicates_least": int(leaves.min()),
            "predicates_mean": float(leaves.mean()),
            "predicates_most": int(leaves.max()),
            "distinct_predicates": len(self.predicates),
            "distinct_subexpressions": len(np.unique(hashes[inner])),
            "distinct_expressions": len(np.unique(hashes[roots])),
        }


class Links(NamedTuple):
    """Relations between the items of programs; a node's last operand is the item before it."""

    size: NDArray[np.int32]  # items of the subexpression that ends here
    height: NDArray[np.int16]  # 0 for predicates
    parent: NDArray[np.int64]  # -1 for roots
    hashes: NDArray[np.uint64]  # equal for equal subexpressions, whatever the order of operands


@cache
def compiled(function: Callable[..., Any]) -> Any:
    """A compiled loop; several threads may run it at the same time."""
    import numba

    return numba.njit(nogil=True, cache=True)(function)


def links(programs: Programs) -> Links:
    n = len(programs.kind)
    found = Links(np.ones(n, np.int32), np.zeros(n, np.int16), np.full(n, -1, np.int64), np.empty(n, np.uint64))
    compiled(_link)(programs.kind, programs.operand, *found)
    return found


def _link(kind: Any, operand: Any, size: Any, height: Any, parent: Any, hashes: Any) -> None:
    for i in range(len(kind)):
        mixed = np.uint64(kind[i])
        if kind[i] == PREDICATE:
            mixed = np.uint64(operand[i] + 8)
        else:
            child = i - 1
            for _ in range(operand[i]):
                mixed += hashes[child] * (hashes[child] >> np.uint64(32) | np.uint64(1))
                height[i] = max(height[i], height[child] + 1)
                size[i] += size[child]
                parent[child] = i
                child -= size[child]
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[i] = mixed ^ (mixed >> np.uint64(31))


def interned(
    attribute: NDArray[Any], lo: NDArray[Any], hi: NDArray[Any], most: int
) -> tuple[PredicateTable, NDArray[np.int32]]:
    """The distinct predicates, and the number of each; values are below ``most``."""
    keys = (attribute * most + lo) * most + hi
    space = int(keys.max()) + 1
    if space <= 1 << 28:  # a flag for every possible key is faster than sorting
        marks = np.zeros(space, np.bool_)
        marks[keys] = True
        held = np.flatnonzero(marks)
        numbers = np.cumsum(marks, dtype=np.int32)[keys] - np.int32(1)
    else:
        held, inverse = np.unique(keys, return_inverse=True)
        numbers = inverse.astype(np.int32)
    rest, high = np.divmod(held, most)
    first, low = np.divmod(rest, most)
    return PredicateTable(first.astype(np.int32), low, high), numbers


def zipf(rng: np.random.Generator, among: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers from 0 to below those given, roughly as 1 / (r + 1): uniform on a log scale, rounded down."""
    drawn = np.exp(rng.random(among.shape) * np.log(among + 1)).astype(np.int64) - 1
    below: NDArray[np.int64] = np.minimum(drawn, among - 1)
    return below


def cuts(offsets: NDArray[Any], most: int) -> Iterator[int]:
    """Boundaries between chunks of expressions with at most this many items, or one expression."""
    at, last = 0, len(offsets) - 1
    yield 0
    while at < last:
        at = max(at + 1, int(np.searchsorted(offsets, offsets[at] + most, "right")) - 1)
        yield at
