"""Arbitrary Boolean expressions as indexed conjunctions, which the thesis calls Translation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engines.ours import Ours
from generators.programs import AND, NOT, OR, PREDICATE, XOR, BooleanWorkload, PredicateTable, compiled, links
from gpumatch.arrays import pointers
from gpumatch.expr.keys import MAX, MIN
from gpumatch.opcodes import RANGE, SET
from gpumatch.store.source import Source
from gpumatch.subscriptions.block import Block
from gpumatch.subscriptions.predicates import Predicates


class Conjunctions(NamedTuple):
    """The disjunctive normal forms of expressions, clause by clause, as lists of predicates and NOTs."""

    owner: NDArray[np.int64]  # expression of each clause, ascending
    offsets: NDArray[np.int64]
    predicate: NDArray[np.int32]
    negated: NDArray[np.bool_]


class Literals(NamedTuple):
    """The clauses that some event satisfies, with one set of values for each attribute that they test."""

    owner: NDArray[np.int32]
    offsets: NDArray[np.int64]  # of clauses among literals
    attribute: NDArray[np.int32]
    pieces: NDArray[np.int64]  # of literals among ranges
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]


def clause_counts(workload: BooleanWorkload) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each item, how many conjunctions make it true and how many make it false, including contradictions."""
    programs, found = workload.programs, links(workload.programs)
    true, false = np.ones((2, len(programs.kind)))
    compiled(_counts)(programs.kind, programs.operand, found.size, true, false)
    return true, false


def clauses_of(workload: BooleanWorkload) -> float:
    """The number of conjunctions of all expressions."""
    return float(clause_counts(workload)[0][workload.programs.offsets[1:] - 1].sum())


def _counts(kind: Any, operand: Any, size: Any, true: Any, false: Any) -> None:
    for i in range(len(kind)):
        if kind[i] == PREDICATE:
            continue
        child, product, sums, odd, even = i - 1, np.ones(2), np.zeros(2), 0.0, 1.0
        for _ in range(operand[i]):
            t, f = true[child], false[child]
            product[0] *= t
            product[1] *= f
            sums[0] += t
            sums[1] += f
            odd, even = odd * f + even * t, odd * t + even * f
            child -= size[child]
        if kind[i] == AND:
            true[i], false[i] = product[0], sums[1]
        elif kind[i] == OR:
            true[i], false[i] = sums[0], product[1]
        elif kind[i] == XOR:
            true[i], false[i] = odd, even
        else:
            true[i], false[i] = even, odd  # NOT is the XNOR of one operand


def conjunctions(workload: BooleanWorkload) -> Conjunctions:
    """All clauses of all expressions. XOR and XNOR have two operands."""
    programs, found = workload.programs, links(workload.programs)
    if (programs.operand[programs.kind >= XOR] != 2).any():
        raise ValueError("XOR and XNOR of other than two operands are not translated")
    counts = [array.astype(np.int64) for array in clause_counts(workload)]
    given = (programs.offsets, programs.kind, programs.operand, found.size, *counts)
    room = int(np.diff(programs.offsets).max())
    clauses = int(counts[0][programs.offsets[1:] - 1].sum())
    of_clauses = np.empty(clauses, np.int64), np.zeros(clauses + 1, np.int64)
    literals = compiled(_write)(*given, room, *of_clauses, np.empty(0, np.int32), np.empty(0, np.bool_))
    made = Conjunctions(*of_clauses, np.empty(literals, np.int32), np.empty(literals, np.bool_))
    compiled(_write)(*given, room, *made)
    return made


def _write(
    offsets: Any, kind: Any, operand: Any, size: Any, true: Any, false: Any, room: int, owner: Any, ends: Any,
    predicate: Any, negated: Any,
) -> int:  # fmt: skip
    """Write clause after clause. The digits of its number select the alternative at each node.

    Without space for literals they are only counted.
    """
    node, digit = np.empty(room + 1, np.int64), np.empty(room + 1, np.int64)
    wrong = np.empty(room + 1, np.bool_)  # must the node be false?
    clause = literals = 0
    for e in range(len(offsets) - 1):
        root = offsets[e + 1] - 1
        for number in range(true[root]):
            node[0], digit[0], wrong[0] = root, number, False
            top = 1
            while top > 0:
                top -= 1
                i, j, no = node[top], digit[top], wrong[top]
                if kind[i] == PREDICATE:
                    if len(predicate) > 0:
                        predicate[literals], negated[literals] = operand[i], no
                    literals += 1
                elif kind[i] == NOT:
                    node[top], digit[top], wrong[top] = i - 1, j, not no
                    top += 1
                elif kind[i] == AND or kind[i] == OR:
                    child, all_of = i - 1, (kind[i] == AND) != no
                    for _ in range(operand[i]):
                        ways = false[child] if no else true[child]
                        if all_of:
                            node[top], digit[top], wrong[top] = child, j % ways, no
                            top += 1
                            j //= ways
                        elif j < ways:
                            node[top], digit[top], wrong[top] = child, j, no
                            top += 1
                            break
                        else:
                            j -= ways
                        child -= size[child]
                else:
                    b = i - 1
                    a = b - size[b]
                    differ = (kind[i] == XOR) != no  # true and false, or false and true; else both the same
                    ways = false[b] if differ else true[b]
                    second = j >= true[a] * ways
                    if second:
                        j -= true[a] * ways
                        ways = true[b] if differ else false[b]
                    node[top], digit[top], wrong[top] = a, j // ways, second
                    node[top + 1], digit[top + 1], wrong[top + 1] = b, j % ways, second != differ
                    top += 2
            owner[clause], ends[clause + 1] = e, literals
            clause += 1
    return literals


def merged(made: Conjunctions, table: PredicateTable) -> Literals:
    """Predicates of a clause on one attribute become one set of values; clauses with an empty one are dropped."""
    room = int(np.diff(made.offsets).max())
    nothing = np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(1, np.int64)
    bounds = np.zeros(0, np.int64), np.zeros(0, np.int64)
    clauses, literals, pieces = compiled(_merge)(*made, *table, room, False, *nothing, *bounds)
    of_clauses = np.empty(clauses, np.int32), np.zeros(clauses + 1, np.int64)
    # A clause may turn out to be empty after some of it was written: reserve space for it at the end
    attribute, ends = np.empty(literals + room, np.int32), np.zeros(literals + room + 1, np.int64)
    lo, hi = np.empty((2, pieces + 2 * room), np.int64)
    compiled(_merge)(*made, *table, room, True, *of_clauses, attribute, ends, lo, hi)
    return Literals(*of_clauses, attribute[:literals], ends[: literals + 1], lo[:pieces], hi[:pieces])


def _merge(
    owner: Any, ends: Any, predicate: Any, negated: Any, attribute: Any, lo: Any, hi: Any, room: int, fill: bool,
    out_owner: Any, out_ends: Any, out_attribute: Any, out_pieces: Any, out_lo: Any, out_hi: Any,
) -> tuple[int, int, int]:  # fmt: skip
    held = np.empty(room, np.int64)
    clauses = literals = pieces = 0
    for c in range(len(owner)):
        count = ends[c + 1] - ends[c]
        for k in range(count):  # by number of the predicate: by attribute, then by lower bound
            at, place = ends[c] + k, k
            while place > 0 and predicate[held[place - 1]] > predicate[at]:
                held[place] = held[place - 1]
                place -= 1
            held[place] = at
        first_literal, first_piece, k, dead = literals, pieces, 0, False
        while k < count and not dead:
            on, start = attribute[predicate[held[k]]], k
            low, high = MIN, MAX
            while k < count and attribute[predicate[held[k]]] == on:
                p = predicate[held[k]]
                if not negated[held[k]]:
                    low, high = max(low, lo[p]), min(high, hi[p])
                k += 1
            before = pieces
            for i in range(start, k):
                p = predicate[held[i]]
                if negated[held[i]]:
                    if lo[p] > low and low <= high:
                        if fill:
                            out_lo[pieces], out_hi[pieces] = low, min(high, lo[p] - 1)
                        pieces += 1
                    low = max(low, hi[p] + 1)
            if low <= high:
                if fill:
                    out_lo[pieces], out_hi[pieces] = low, high
                pieces += 1
            dead = pieces == before
            if not dead:
                if fill:
                    out_attribute[literals], out_pieces[literals + 1] = on, pieces
                literals += 1
        if dead:
            literals, pieces = first_literal, first_piece
            continue
        if fill:
            out_owner[clauses], out_ends[clauses + 1] = owner[c], literals
        clauses += 1
    return clauses, literals, pieces


class Translation(Ours):
    """Every clause of every expression's disjunctive normal form as a conjunction in the index that auto chooses.

    A clause becomes what ``add`` makes of a branch of an OR, so an expression is returned once. Clauses are added as
    arrays, bypassing the public API, which would take hours for clauses with ``<>``. Above ``most`` clauses the engine
    is skipped.
    """

    most = 30_000_000

    @classmethod
    def suits(cls, workload: Any) -> bool:
        return clauses_of(workload) <= cls.most

    def load(self, workload: Any) -> None:
        made = merged(conjunctions(workload), workload.predicates)
        source = Source(pa.array(workload.ids), None, _block(made, len(workload.ids)), None)
        self.matcher._add_block(source, {}, "raise")
        self.clauses = len(made.owner)

    def chosen(self) -> str:
        return f"{self.clauses:,} conjunctions"


def _block(made: Literals, length: int) -> Block:
    """Literals with one range store it directly; those with several store where their ranges start and end."""
    first, last = made.pieces[:-1], made.pieces[1:]
    is_set = last - first > 1
    in_set = np.repeat(is_set, last - first)
    place = pointers(in_set)
    lo, hi = (np.where(is_set, place[end], bound[first]) for end, bound in ((first, made.lo), (last, made.hi)))
    predicates = Predicates.of(made.attribute, np.where(is_set, SET, RANGE), lo, hi)
    held = np.repeat(made.attribute, last - first)[in_set]
    ranges = Predicates.of(held, RANGE, made.lo[in_set], made.hi[in_set])
    none = np.full(len(made.owner), -1, np.int32)
    programs = np.zeros(1, np.int64), np.zeros(0, np.int32)
    return Block(length, made.owner, made.offsets, none, predicates, ranges, *programs, [])
