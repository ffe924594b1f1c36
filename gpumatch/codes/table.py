"""Predicates and events as codes: what indexes are built from and what they match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpumatch.arrays import Array, pointers, read_only, spans
from gpumatch.arrayspec import HOOKED, ArraySpec, Numbers, Pointers, Problem, between, refused
from gpumatch.codes.book import Codebook, make_book, sort_pool
from gpumatch.codes.ends import Ends, Given
from gpumatch.expr.keys import MAX, MIN
from gpumatch.kernels import encode as kernels
from gpumatch.kernels import order
from gpumatch.kernels.frames import Frame
from gpumatch.kernels.order import copy_clauses
from gpumatch.opcodes import HI, LO, NULL, OP_BASE, OP_FALSE, OP_NOT, OP_TRUE, RANGE, SET, WIDTH
from gpumatch.parallel import threads
from gpumatch.subscriptions.block import Attributes, Block
from gpumatch.subscriptions.predicates import EMPTY, Predicates

TABLE_TYPES = {
    "clause_row": ArraySpec("int32", "clauses", "per clause: its subscription", Numbers("rows")),
    "clause_ptr": ArraySpec("int64", "clauses + 1", "where its predicates start", Pointers("predicates", whole=False)),
    "clause_program": ArraySpec("int32", "clauses", "its program, or -1", Numbers("programs", -1)),
    "predicate": ArraySpec("int32", f"{WIDTH} * predicates", "attribute, kind, lo, hi", HOOKED),
    "range_attribute": ArraySpec("int32", "ranges", "per range of a set: its attribute", Numbers("attributes")),
    "range_lo": ArraySpec("int32", "ranges", "its first code", HOOKED),
    "range_hi": ArraySpec("int32", "ranges", "its last code", HOOKED),
    "program_ptr": ArraySpec("int64", "programs + 1", "per program: where its items start", Pointers("items")),
    "program_item": ArraySpec("int32", "items", "predicates, and operators below zero", HOOKED),
}


@dataclass(frozen=True)
class Table:
    """A block as codes: like Block, but ``lo``, ``hi`` and the ranges are int32 codes, and predicates are rows."""

    length: int
    clause_row: Array
    clause_ptr: Array
    clause_program: Array
    predicate: Array  # int32: attribute, kind, lo, hi, predicate by predicate
    range_attribute: Array
    range_lo: Array
    range_hi: Array
    program_ptr: Array
    program_item: Array

    def predicates(self) -> tuple[Array, ...]:
        """Arguments for the matching kernels."""
        return self.predicate, self.range_lo, self.range_hi

    @cached_property
    def programs(self) -> tuple[Array, Array, int]:
        """Programs as arguments for the matching kernels, with the length of the longest."""
        return self.program_ptr, self.program_item, int(np.diff(self.program_ptr).max(initial=0))

    @property
    def frame(self) -> Frame:
        """All of it in one argument; the same for all threads, since compiled code does not hold it."""
        found: Frame | None = self.__dict__.get("_frame")
        if found is None:
            clauses = (self.clause_row, self.clause_ptr, self.clause_program)
            found = self.__dict__.setdefault("_frame", Frame((*clauses, *self.predicates(), *self.programs[:2])))
        return found

    def columns(self) -> tuple[Array, Array, Array, Array]:
        """Attribute, kind, lo and hi of all predicates."""
        attribute, kind, lo, hi = self.predicate.reshape(-1, 4).T
        return attribute, kind, lo, hi


@dataclass(frozen=True, slots=True)
class CodedEvents:
    """Events as rows of (attribute, code), ascending by attribute; a list has an entry per value."""

    ptr: Array  # int64
    attribute: Array  # int32
    code: Array  # int32

    def arrays(self) -> tuple[Array, Array, Array]:
        """Arguments for the matching kernels: always read-only, so that each kernel is compiled once."""
        return read_only(self.ptr), read_only(self.attribute), read_only(self.code)

    def take(self, chosen: Array) -> CodedEvents:
        """Some of the events."""
        counts = np.diff(self.ptr)[chosen]
        at = spans(self.ptr[chosen], counts)
        return CodedEvents(pointers(counts), self.attribute[at], self.code[at])


@dataclass(frozen=True, slots=True)
class FrozenEvents(CodedEvents):
    """The same of arrays that are read-only."""

    def arrays(self) -> tuple[Array, Array, Array]:
        return self.ptr, self.attribute, self.code


def encode_block(block: Block, attributes: Attributes) -> tuple[Codebook, Table]:
    """The codebook of a block's constants, and the block as its codes."""
    pool_data, pool_offsets, order = sort_pool(block.pool)
    strings, floats = attributes.of_kind("string"), attributes.of_kind("float")
    given, ranges = (_with_keys(rows, strings, order) for rows in (block.predicates, block.ranges))
    ends = Ends([Given(given, floats, False), Given(ranges, np.zeros_like(floats), True)], len(attributes))
    book = make_book(floats, *ends.cuts(), (pool_data, pool_offsets))
    predicate, listed = ends.rows(book)
    arrays = (
        block.clause_row,
        block.clause_ptr,
        block.clause_program,
        predicate,
        ranges.attribute,
        listed[LO::WIDTH].copy(),
        listed[HI::WIDTH].copy(),
        block.program_ptr,
        block.program_item,
    )
    return book, Table(block.length, *map(read_only, arrays))


def _with_keys(given: Predicates, strings: Array, order: Array) -> Predicates:
    """First and last keys; for strings, numbers in the unsorted pool are replaced by sorted positions."""
    at, moved = given.cuts(strings), given.with_cuts(strings, order)
    high = moved.hi[at]
    return moved.with_ends(at, moved.lo[at], np.where(high == MIN, MAX, high - 1)) if len(at) else given


def sort_predicates(table: Table, keys: Array) -> None:
    """Sort the predicates of each clause by keys, stably and in place, and the keys with them."""
    predicate = table.predicate.view()
    predicate.flags.writeable = True  # safe: the table was just made, and nobody has seen it yet
    shares = threads.shares(len(table.clause_row))
    threads.run(lambda share: order.sort_clauses(*share, read_only(table.clause_ptr), keys, predicate), shares)


def reorder(table: Table, order: Array) -> Table:
    """The table with its clauses reordered, or only some of them. All programs stay."""
    counts, own = np.diff(table.clause_ptr)[order], int(table.clause_ptr[-1])
    ptr, leaves = pointers(counts), table.predicate[WIDTH * own :]
    new = int(ptr[-1])
    predicate, item = np.empty(WIDTH * new + len(leaves), np.int32), table.program_item
    predicate[WIDTH * new :] = leaves
    clauses = (read_only(order), read_only(table.clause_ptr), read_only(table.predicate))
    threads.run(lambda share: copy_clauses(*share, *clauses, ptr, predicate), threads.shares(len(order)))
    return replace(
        table,
        clause_row=read_only(table.clause_row[order]),
        clause_ptr=read_only(ptr),
        clause_program=read_only(table.clause_program[order]),
        predicate=read_only(predicate),
        program_item=item if new == own else read_only(np.where(item >= 0, item + (new - own), item).astype(np.int32)),
    )


def problems(table: Table, multi: Array, counts: Array) -> Iterator[Problem]:
    """What is wrong with a loaded table that its arrays' specs do not cover. ``counts``: codes of each attribute."""
    attribute, kind, lo, hi = table.columns()
    yield from between("predicate", attribute, 0, len(counts) - 1)
    yield from between("predicate", kind, RANGE, NULL)
    codes = counts[table.range_attribute] - 1
    yield from between("range_lo", table.range_lo, 0, codes)
    yield from between("range_hi", table.range_hi, 0, codes)
    plain, null = kind == RANGE, kind == NULL
    sets = ~plain & ~null
    listed = kind > SET
    yield from refused("predicate", attribute, ~null & (listed != multi[attribute]), "kinds that fit their attributes")
    ends = np.where(plain, counts[attribute] - 1, len(table.range_lo))
    wrong = np.where(null, (lo != kernels.MISSING) | (hi != kernels.MISSING), (lo < 0) | (hi < lo) | (hi > ends))
    wrong &= ~(plain & (lo == EMPTY[0]) & (hi == EMPTY[1]))
    yield from refused("predicate", hi, wrong, "ranges that exist")
    at = np.flatnonzero(sets & (lo < hi))
    run = np.cumsum(np.diff(table.range_attribute, prepend=-1) != 0)
    owner = table.range_attribute[lo[at]]
    others = (owner != attribute[at]) | (run[lo[at]] != run[hi[at] - 1])
    yield from refused("predicate", attribute[at], others, "ranges of its own attribute")
    yield from _program_problems(table, len(attribute))


def _program_problems(table: Table, predicates: int) -> Iterator[Problem]:
    """Operators must have operands, and each program must leave one result."""
    item, ptr = table.program_item.astype(np.int64), table.program_ptr
    leaf = item >= 0
    yield from between("program_item", item[leaf], int(table.clause_ptr[-1]), predicates - 1)
    arity, op = np.divmod(-1 - item, OP_BASE)
    arity[leaf] = 0
    constant = (op == OP_TRUE) | (op == OP_FALSE)
    right = leaf | np.where(constant, arity == 0, np.where(op == OP_NOT, arity == 1, (arity > 0) & (op < OP_TRUE)))
    yield from refused("program_item", item, ~right, "operators with operands")
    yield from refused("program_ptr", ptr[1:], ptr[1:] == ptr[:-1], "items for each program")
    height = np.concatenate([np.zeros(1, np.int64), np.cumsum(1 - arity)])
    own = height[1:] - np.repeat(height[ptr[:-1]], np.diff(ptr))
    yield from refused("program_item", item, own < 1, "operands before operators")
    yield from refused("program_ptr", ptr[1:], np.diff(height[ptr]) != 1, "one result of each program")
