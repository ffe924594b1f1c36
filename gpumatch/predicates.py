"""Subscriptions as a struct of arrays, in value space: clauses of predicates, and programs over predicates.

Predicates hold ranges of int64 keys. A string's key is ``2 * number + side``: its number in the block's pool, and
whether the cut lies below or above it; such keys do not sort until the pool is (see ``codes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpumatch.keys import MAX, MIN, Cut, Set
from gpumatch.schema import Kind, Schema

Array: TypeAlias = NDArray[Any]

RANGE, SET, ANY, NONE, NULL = 0, 1, 2, 3, 4  # as in kernels.predicates, which is not imported to stay light
OPERATORS = {"not": 0, "and": 1, "or": 2, "xor": 3, "xnor": 4, True: 5, False: 6}
_OP_BASE = 8


def op_item(kind: str | bool, arity: int) -> int:
    """The number that stands for an operator in a program."""
    return -(1 + OPERATORS[kind] + _OP_BASE * arity)


@dataclass(frozen=True, slots=True)
class Attributes:
    """The columns that predicates test: the schema's attributes, then one for the presence of each list."""

    schema: Schema
    multi: Array  # bool: a list attribute
    presence: Array  # int32: the column that tells whether the attribute is there
    single: Array  # bool: a float32 attribute, whose values are rounded to that

    @classmethod
    def of(cls, schema: Schema) -> Attributes:
        lists = [at for at, kind in enumerate(schema.types) if kind.multi]
        count = len(schema) + len(lists)
        multi = np.zeros(count, np.bool_)
        multi[lists] = True
        presence = np.arange(count, dtype=np.int32)
        presence[lists] = np.arange(len(schema), count)
        single = np.zeros(count, np.bool_)
        single[: len(schema)] = [kind.name == "float32" for kind in schema.types]
        return cls(schema, multi, presence, single)

    def __len__(self) -> int:
        return len(self.multi)

    def of_kind(self, kind: Kind) -> Array:
        """Which columns hold values of a kind."""
        marks = np.zeros(len(self), np.bool_)
        marks[: len(self.schema)] = [type.kind == kind for type in self.schema.types]
        return marks


@dataclass(frozen=True, slots=True)
class Block:
    """Some subscriptions. ``lo`` and ``hi`` are first and last key of a RANGE, or delimit the ranges of a set."""

    length: int
    clause_row: Array  # int32: the subscription that a clause is a branch of
    clause_ptr: Array  # int64: clause c has predicates clause_ptr[c]:clause_ptr[c + 1]
    clause_program: Array  # int32: a program that must hold too, or -1
    attribute: Array  # int32
    kind: Array  # uint8
    lo: Array  # int64
    hi: Array  # int64
    range_attribute: Array  # int32
    range_lo: Array  # int64
    range_hi: Array  # int64
    program_ptr: Array  # int64
    program_item: Array  # int32: a predicate, or an operator if negative
    pool: list[bytes]


@dataclass(slots=True)
class Literals:
    """One predicate for each of some rows. ``lo > hi`` in a RANGE is a predicate that nothing satisfies."""

    attribute: int
    kind: Array
    lo: Array
    hi: Array

    def take(self, at: Array) -> Literals:
        return Literals(self.attribute, self.kind[at], self.lo[at], self.hi[at])


@dataclass(slots=True)
class BlockBuilder:
    """Collects clauses; ``build`` puts the arrays together."""

    schema: Schema
    pool: dict[bytes, int] = field(default_factory=dict)
    _clauses: list[tuple[Array, Array, list[Literals]]] = field(default_factory=list)
    _flat: list[tuple[Array, Array, Array, Array, Array]] = field(default_factory=list)
    _ranges: list[tuple[Array, Array, Array]] = field(default_factory=list)  # attribute, lo, hi
    _range_count: int = 0
    _programs: list[list[int | Literals]] = field(default_factory=list)

    def key(self, cut: Cut) -> int:
        """The key of a cut; strings are put into the pool."""
        if isinstance(cut, int):
            return cut
        return 2 * self.pool.setdefault(cut[0], len(self.pool)) + cut[1]

    def range_of(self, values: Sequence[Cut]) -> tuple[int, int]:
        """Keys of a set that is one range: first and last of numbers, lower and upper cut of strings (MIN: open)."""
        low, high = values[0], values[1] if len(values) > 1 else None
        if isinstance(low, int):
            return low, MAX if high is None else self.key(high) - 1
        return MIN if low == (b"", 0) else self.key(low), MIN if high is None else self.key(high)

    def literals(self, attribute: int, sets: Sequence[Set], list_kind: int | None = None) -> Literals:
        """A predicate per set; those of one range need no ranges of their own, except on list attributes."""
        kind, lo, hi = [], [], []
        lows: list[int] = []
        highs: list[int] = []
        for values in sets:
            if list_kind is None and len(values) <= 2:
                kind.append(RANGE)
                first, last = self.range_of(values) if values else EMPTY
            else:
                kind.append(SET if list_kind is None else list_kind)
                first = self._range_count + len(lows)
                for at in range(0, len(values), 2):
                    low, high = self.range_of(values[at : at + 2])
                    lows.append(low)
                    highs.append(high)
                last = self._range_count + len(lows)
            lo.append(first)
            hi.append(last)
        self._add_ranges(attribute, np.array(lows, np.int64), np.array(highs, np.int64))
        return Literals(attribute, np.array(kind, np.uint8), np.array(lo, np.int64), np.array(hi, np.int64))

    def range_literals(self, attribute: int, lo: Array, hi: Array) -> Literals:
        """A SET per row of the ranges ``lo[row, i]..hi[row, i]``, which ascend; those that are empty do no harm."""
        rows, width = lo.shape
        first = self._range_count + width * np.arange(rows)
        self._add_ranges(attribute, lo.ravel(), hi.ravel())
        return Literals(attribute, np.full(rows, SET, np.uint8), first, first + width)

    def _add_ranges(self, attribute: int, lo: Array, hi: Array) -> None:
        self._ranges.append((np.full(len(lo), attribute, np.int32), lo, hi))
        self._range_count += len(lo)

    def constant(self, attribute: int, kind: int, count: int) -> Literals:
        """The same predicate for so many rows: NULL, or the RANGE of all values."""
        lo, hi = (0, 0) if kind == NULL else (MIN, MIN if self._is_string(attribute) else MAX)
        return Literals(attribute, np.full(count, kind, np.uint8), np.full(count, lo), np.full(count, hi))

    def _is_string(self, attribute: int) -> bool:
        return attribute < len(self.schema) and self.schema.types[attribute].kind == "string"

    def add_clauses(self, rows: Array, literals: list[Literals], programs: Array | None = None) -> None:
        """A clause per row; rows with a predicate that nothing satisfies get none."""
        alive = np.ones(len(rows), np.bool_)
        for literal in literals:
            alive &= ~never(literal.kind, literal.lo, literal.hi, self._is_string(literal.attribute))
        if not alive.all():
            at = np.flatnonzero(alive)
            rows, literals = rows[at], [literal.take(at) for literal in literals]
            programs = None if programs is None else programs[at]
        if len(rows):
            programs = np.full(len(rows), -1, np.int32) if programs is None else programs
            self._clauses.append((rows, programs, literals))

    def add_flat(self, row: Array, counts: Array, attribute: Array, lo: Array, hi: Array) -> None:
        """Clauses of RANGE predicates only, given predicate by predicate: ``counts[c]`` belong to clause ``c``."""
        self._flat.append((row, counts, attribute, lo, hi))

    def add_program(self, items: list[int | Literals]) -> int:
        """A program of operators and of predicates of one row each; returns its number."""
        self._programs.append(items)
        return len(self._programs) - 1

    def build(self, length: int) -> Block:
        rows, programs, counts, attribute, kind, lo, hi = [], [], [], [], [], [], []
        for row, program, literals in self._clauses:
            shape = (len(row), len(literals))
            rows.append(row)
            programs.append(program)
            counts.append(np.full(*shape))
            attribute.append(np.tile(np.array([one.attribute for one in literals], np.int32), len(row)))
            kind.append(_rows_first([one.kind for one in literals]))
            lo.append(_rows_first([one.lo for one in literals]))
            hi.append(_rows_first([one.hi for one in literals]))
        for row, count, attributes, low, high in self._flat:
            rows.append(row)
            programs.append(np.full(len(row), -1, np.int32))
            counts.append(count)
            attribute.append(attributes)
            kind.append(np.zeros(len(attributes), np.uint8))
            lo.append(low)
            hi.append(high)
        clause_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(_join(counts, np.int64))])
        program_ptr, program_item, leaves = self._program_arrays(int(clause_ptr[-1]))
        attribute += [np.full(1, leaf.attribute, np.int32) for leaf in leaves]
        return Block(
            length,
            _join(rows, np.int32),
            clause_ptr,
            _join(programs, np.int32),
            _join(attribute, np.int32),
            _join(kind + [leaf.kind for leaf in leaves], np.uint8),
            _join(lo + [leaf.lo for leaf in leaves], np.int64),
            _join(hi + [leaf.hi for leaf in leaves], np.int64),
            _join([ranges[0] for ranges in self._ranges], np.int32),
            _join([ranges[1] for ranges in self._ranges], np.int64),
            _join([ranges[2] for ranges in self._ranges], np.int64),
            program_ptr,
            program_item,
            list(self.pool),
        )

    def _program_arrays(self, first: int) -> tuple[Array, Array, list[Literals]]:
        """Programs point to predicates that follow those of the clauses."""
        ends, numbers = [0], []
        leaves: list[Literals] = []
        for items in self._programs:
            for item in items:
                if isinstance(item, Literals):
                    numbers.append(first + len(leaves))
                    leaves.append(item)
                else:
                    numbers.append(item)
            ends.append(len(numbers))
        return np.array(ends, np.int64), np.array(numbers, np.int32), leaves


EMPTY = (0, -1)  # a RANGE that holds no key, whatever the type


def never(kind: Array, lo: Array, hi: Array, is_string: bool) -> Array:
    """Which predicates nothing satisfies. Cuts of strings do not sort yet; an empty range of them is EMPTY."""
    empty: Array = (lo == EMPTY[0]) & (hi == EMPTY[1]) if is_string else lo > hi
    no_ranges: Array = ((kind == SET) | (kind == ANY)) & (lo >= hi)
    never: Array = (empty & (kind == RANGE)) | no_ranges
    return never


def move_cuts(cuts: Array, numbers: Array) -> Array:
    """Cuts of strings after the strings got other numbers; MIN stays the open end."""
    moved = cuts.copy()
    at = np.flatnonzero(cuts != MIN)
    moved[at] = 2 * numbers[cuts[at] >> 1] + (cuts[at] & 1)
    return moved


def _rows_first(columns: list[Array]) -> Array:
    return np.stack(columns, axis=1).ravel() if columns else np.zeros(0, np.int64)


def _join(parts: list[Array], dtype: Any) -> Array:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)
