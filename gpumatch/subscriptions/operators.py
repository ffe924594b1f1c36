"""Turns columns of predicates and operators in postfix order into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpumatch.arrays import Array
from gpumatch.expr.tree import Connective
from gpumatch.opcodes import OP_AND, OP_OR, RANGE
from gpumatch.subscriptions.block import BlockBuilder, op_item, op_items
from gpumatch.subscriptions.predicates import Predicates

CONNECTIVES: tuple[Connective, ...] = ("not", "and", "or", "xor", "xnor")  # in the order of their numbers in OPERATORS


@dataclass(frozen=True)
class Postfix:
    """Rows of some subscriptions, each one's together and in postfix order; what they leave is joined by AND."""

    row: Array  # the subscription of each row, ascending
    operator: Array  # as in OPERATORS, or -1 for a predicate
    arity: Array  # int64: of an operator

    @cached_property
    def starts(self) -> Array:
        """The first row of each subscription."""
        return np.flatnonzero(np.append(len(self.row) > 0, self.row[1:] != self.row[:-1]))

    @cached_property
    def lasts(self) -> Array:
        return np.append(self.starts, len(self.row))[1:] - 1

    @cached_property
    def number(self) -> Array:
        """The number of each row's subscription, from 0."""
        return np.repeat(np.arange(len(self.starts)), self.lasts - self.starts + 1)

    @cached_property
    def height(self) -> Array:
        """The height of the stack after each row."""
        steps = np.where(self.operator < 0, 1, 1 - self.arity)
        total = np.cumsum(steps)
        height: Array = total - (total - steps)[self.starts][self.number]
        return height

    def lacking(self) -> Array:
        """The first operator of each subscription that lacks operands."""
        wrong = np.flatnonzero((self.operator >= 0) & (self.height < 1))
        return wrong[np.flatnonzero(np.diff(self.row[wrong], prepend=-1))]

    def take(self, mask: Array) -> Postfix:
        return Postfix(self.row[mask], self.operator[mask], self.arity[mask])


@dataclass(frozen=True, slots=True)
class Tests:
    """The predicate of each row, a RANGE of keys or NOT of one; anything in rows of operators."""

    predicates: Predicates
    negated: Array

    def take(self, mask: Array) -> Tests:
        return Tests(self.predicates.take(mask), self.negated[mask])


def add_conjunctions(
    builder: BlockBuilder, rows: Array, clause: Array, tests: Predicates, programs: Array | None = None
) -> None:
    """Add clauses of numeric ranges: ``rows`` are their subscriptions, ``clause`` has the clause of each test.

    Ranges on one attribute are intersected.
    """
    columns = len(builder.schema)
    key = clause.astype(np.int64) * columns + tests.attribute
    order = np.argsort(key, kind="stable")
    key, tests = key[order], tests.take(order)
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    if len(starts) < len(key):
        lo, hi = np.maximum.reduceat(tests.lo, starts), np.minimum.reduceat(tests.hi, starts)
        key, tests = key[starts], Predicates.of(tests.attribute[starts], RANGE, lo, hi)
    builder.add(rows, np.bincount(key // columns, minlength=len(rows)), tests, programs)


def add_branches(builder: BlockBuilder, given: Postfix, tests: Tests) -> Array:
    """Add subscriptions that are an OR of ANDs of ranges, one clause per branch; returns a mask of their rows."""
    other: Array = (given.operator >= 0) & (given.operator != OP_AND) | (given.operator < 0) & tests.negated
    others = np.bincount(given.number, weights=other, minlength=len(given.starts))
    root_or = ((given.operator == OP_OR) & (given.height == 1))[given.lasts]
    mask: Array = (root_or & (others == 1))[given.number]
    chosen, kept = given.take(mask), tests.predicates.take(mask)
    ends = chosen.operator == OP_OR
    top = _tops(chosen, ends)
    clause = np.cumsum(top) - top  # a branch ends where the next begins
    literal = chosen.operator < 0
    add_conjunctions(builder, chosen.row[top], clause[literal], kept.take(literal))
    return mask


def add_programs(builder: BlockBuilder, given: Postfix, tests: Tests) -> None:
    """Add subscriptions as one clause each: the ranges that the outermost AND joins, and a program for all else."""
    lasts = given.lasts
    root = np.zeros(len(given.row), np.bool_)  # the AND that joins everything: not part of a program
    root[lasts] = (given.operator == OP_AND)[lasts] & (given.height == 1)[lasts]
    top = _tops(given, root)
    is_test = given.operator < 0
    literal = top & is_test & ~tests.negated
    rest = ~literal & ~root
    count = len(given.starts)
    results = np.bincount(given.number[rest & top], minlength=count)
    programs = np.full(count, -1, np.int32)
    nonempty = np.flatnonzero(results)
    if len(nonempty):
        programs[nonempty] = _add_items(builder, given, tests, rest, results)
    add_conjunctions(builder, given.row[given.starts], given.number[literal], tests.predicates.take(literal), programs)


def _tops(given: Postfix, root: Array) -> Array:
    """The last row of each operand of a subscription's root, which is left out, or of each result if it has no root."""
    if len(given.row) == 0:
        return np.zeros(0, np.bool_)
    # After an operand the height never falls back to what it was there. Later subscriptions are above earlier ones.
    above = int(given.height.max()) + 1
    height = np.where(root, above, given.height) + above * given.number
    after = np.append(np.minimum.accumulate(height[:0:-1])[::-1], np.iinfo(np.int64).max)
    tops: Array = (height < after) & ~root
    return tops


def _add_items(builder: BlockBuilder, given: Postfix, tests: Tests, rest: Array, results: Array) -> Array:
    """Add programs of the rows ``rest``, ANDing the ``results`` of each subscription. Returns the programs' numbers."""
    is_test = given.operator < 0
    negated = is_test & tests.negated
    width = np.where(rest, 1 + negated, 0)
    joined = np.flatnonzero(results > 1)
    width[given.lasts[joined]] += 1  # for the AND of what is left
    ends = np.cumsum(width)
    item = np.empty(int(ends[-1]), np.int32)
    item[ends[given.lasts[joined]] - 1] = op_items(np.full(len(joined), OP_AND), results[joined])
    start = ends - width
    leaf = np.flatnonzero(rest & is_test)
    item[start[leaf]] = np.arange(len(leaf))
    item[start[leaf[negated[leaf]]] + 1] = op_item("not", 1)
    at = np.flatnonzero(rest & ~is_test)
    item[start[at]] = op_items(given.operator[at], given.arity[at])
    lengths = np.add.reduceat(width, given.starts)
    return builder.programs.add(lengths[lengths > 0], item, tests.predicates.take(leaf))
