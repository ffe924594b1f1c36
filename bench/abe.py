"""Arbitrary Boolean expressions as a workload, and ABE-Gen of the thesis (10.4.1), which draws them at random.

A workload holds its expressions as postfix programs in flat arrays. The same arguments always give the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpumatch.expr import Expr, Op, Predicate
from gpumatch.workloads import Loads, SparseEvents, Workload, distinct, popular

PREDICATE, AND, OR, NOT, XOR, XNOR = range(6)
NAMES: tuple[Any, ...] = ("", "and", "or", "not", "xor", "xnor")
OPERATORS = (0.4, 0.4, 0.1, 0.05, 0.05)  # shares of and, or, not, xor, xnor
WIDEST = 50  # of ranges, as in W2
_TABLE_ROWS = 32 << 20  # at most in one table, for loading one takes several times its memory


class Programs(NamedTuple):
    """Expressions in postfix order, one after the other."""

    offsets: NDArray[np.int64]
    kind: NDArray[np.int8]
    operand: NDArray[np.int32]  # number of the predicate, or how many operands the operator has

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: NDArray[Any]) -> Programs:
        """The programs with these numbers, in this order."""
        at, offsets = ragged(self.offsets[rows], self.offsets[rows + 1])
        return Programs(offsets, self.kind[at], self.operand[at])


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
    popularity: NDArray[np.float64] | None = None  # weights of attributes in events; low values are popular too then

    def add_to(self, matcher: Loads) -> None:
        for table in self.tables:
            matcher.add_predicates(table)

    @cached_property
    def tables(self) -> list[Any]:
        """The long form with operators as rows; several tables where one would be very large."""
        return [self.to_arrow(a, b) for a, b in pairwise(_cuts(self.programs.offsets, _TABLE_ROWS))]

    def to_arrow(self, start: int, stop: int) -> Any:
        """Expressions ``start`` to ``stop`` in the long form: a row per predicate and operator, in postfix order."""
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
            ends = np.concatenate([[0], np.cumsum(2 * is_range)]).astype(np.int32)
            bounds = np.column_stack([lo, hi])[is_range].ravel()
            columns["values"] = pa.ListArray.from_arrays(ends, bounds, mask=pa.array(~is_range))
        return pa.table(columns)

    def expression(self, row: int) -> Expr:
        """One of the expressions as a tree of its own, for the oracle and for ``Matcher.add``."""
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
        """How large the expressions are, and how many distinct parts they have, whatever the order of operands."""
        hashes, roots = links(self.programs).hashes, self.programs.offsets[1:] - 1
        inner = self.programs.kind != PREDICATE
        leaves = np.diff(np.concatenate([[0], np.cumsum(~inner)])[self.programs.offsets])
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
    """What the items of programs have to do with each other; a node's last operand is the item before it."""

    size: NDArray[np.int32]  # items of the part that ends here
    height: NDArray[np.int16]  # 0 for predicates
    parent: NDArray[np.int64]  # -1 for roots
    hashes: NDArray[np.uint64]  # equal for equal parts, whatever the order of operands


@cache
def compiled(function: Callable[..., Any]) -> Any:
    """A plain loop made fast; several threads may be in it at once."""
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


def abe(
    n: int = 1_000_000,
    depth: int = 3,
    children: int = 4,
    repeats: int = 0,
    alpha: float = 0.0,
    dims: int = 1000,
    cardinality: int = 100,
    present: int = 20,
    equality: float = 1.0,
    operators: Sequence[float] = OPERATORS,
    seed: int = 0,
) -> BooleanWorkload:
    """ABE-Gen with the thesis's defaults (table 10.4.1).

    The root has depth 1, and a node at depth ``depth`` is a predicate: depth 3 is two levels of operators. AND and OR
    have ``children`` operands, XOR and XNOR two. Each of ``n`` expressions that are drawn occurs ``1 + repeats``
    times, in mixed order, so that there are more expressions with more repeats and not fewer distinct ones: only so
    can the times of engines that do not share rise with repeats, as they do in Fig. 10.3(d).

    What the thesis does not tell: predicates are equalities, except a share of ``1 - equality`` that are ranges 1 to
    50 wide, cut at the largest value as in W2; the attributes of events are uniform whatever ``alpha`` is, for it
    tells of predicates only that they follow Zipf's law.
    """
    rng = np.random.default_rng([seed, depth, children, dims])
    step = max(1, 2_000_000 // children ** (depth - 1))  # in parts, so that a level of all trees need not be in memory
    parts = [_trees(rng, min(step, n - at), depth, children, operators) for at in range(0, n, step)]
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    kind, operand = (np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[1:])
    leaves = np.flatnonzero(kind == PREDICATE)
    attribute = _zipf_ranks(rng, len(leaves), dims, alpha)
    lo = rng.integers(0, cardinality, len(leaves))
    width = np.where(rng.random(len(leaves)) < equality, 0, rng.integers(1, WIDEST + 1, len(leaves)))
    table, operand[leaves] = interned(attribute, lo, np.minimum(lo + width, cardinality - 1), cardinality)
    programs = Programs(ends_of(sizes), kind, operand)
    if repeats:
        programs = programs.take(rng.permutation(np.repeat(np.arange(n), 1 + repeats)))
    schema = {f"a{d}": "int64" for d in range(dims)}
    return BooleanWorkload(
        "abe", schema, np.arange(len(programs)), programs, table, present, np.full(dims, cardinality)
    )


def _trees(rng: np.random.Generator, n: int, depth: int, children: int, operators: Sequence[float]) -> Programs:
    """Trees level by level from the roots on, then each node at its place in postfix order."""
    arities = np.array([0, children, children, 1, 2, 2], np.int32)
    kinds, at = [], np.cumsum(operators)
    count = n
    for _ in range(depth - 1):
        kinds.append((1 + np.searchsorted(at[:-1], rng.random(count) * at[-1], "right")).astype(np.int8))
        count = int(arities[kinds[-1]].sum())
    kinds.append(np.zeros(count, np.int8))
    sizes = [np.ones(count, np.int64)]  # of the part that each node is the root of, the last level first
    for kind in kinds[-2::-1]:
        ends = ends_of(arities[kind])
        below = ends_of(sizes[-1])
        sizes.append(1 + below[ends[1:]] - below[ends[:-1]])
    sizes.reverse()
    offsets = ends_of(sizes[0])
    first = offsets[:-1]
    out, operand = np.empty(offsets[-1], np.int8), np.empty(offsets[-1], np.int32)
    for level, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        place, arity = first + size - 1, arities[kind]
        out[place], operand[place] = kind, arity
        if level + 1 < depth:  # operands lie side by side from the first item of the node on
            below, ends = ends_of(sizes[level + 1]), ends_of(arity)
            first = below[:-1] + np.repeat(first - below[ends[:-1]], arity)
    return Programs(offsets, out, operand)


def _zipf_ranks(rng: np.random.Generator, n: int, among: int, alpha: float) -> NDArray[np.int64]:
    """Numbers below ``among`` with P(r) = C / (r + 1)^alpha."""
    if not alpha:
        return rng.integers(0, among, n)
    at = np.cumsum(np.arange(1, among + 1) ** -float(alpha))
    return np.searchsorted(at[:-1], rng.random(n) * at[-1], "right")


def interned(
    attribute: NDArray[Any], lo: NDArray[Any], hi: NDArray[Any], most: int
) -> tuple[PredicateTable, NDArray[np.int32]]:
    """The distinct predicates, and the number of each; values are below ``most``."""
    keys = (attribute * most + lo) * most + hi
    space = int(keys.max()) + 1
    if space <= 1 << 28:  # a mark for every possible key is quicker than sorting
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
    """Numbers from 0 to below those given, nearly as 1 / (r + 1): the whole part of what is even on a log scale."""
    drawn: NDArray[np.int64] = np.exp(rng.random(among.shape) * np.log(among + 1)).astype(np.int64) - 1
    return np.minimum(drawn, among - 1)


def ragged(starts: NDArray[Any], stops: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All numbers of the ranges one after the other, and where each range begins among them."""
    offsets = ends_of(stops - starts)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], stops - starts), offsets


def ends_of(sizes: NDArray[Any]) -> NDArray[np.int64]:
    out = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def _cuts(offsets: NDArray[np.int64], most: int) -> Iterator[int]:
    """Numbers of expressions between which there are at most so many items, or one expression."""
    at, last = 0, len(offsets) - 1
    yield 0
    while at < last:
        at = max(at + 1, int(np.searchsorted(offsets, offsets[at] + most, "right")) - 1)
        yield at
