"""Subscriptions as a struct of arrays, in value space: clauses of predicates, and programs over predicates.

Predicates hold ranges of int64 keys. A string's key is ``2 * number + side``: its number in the block's pool, and
whether the cut lies below or above it; such keys do not sort until the pool is (see ``codes``).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.expr.keys import MAX, MIN, Cut, Set
from gpumatch.expr.tree import Connective, Op
from gpumatch.schema import Kind, Schema
from gpumatch.subscriptions.programs import Literals, Programs, Row, equal_programs, renumber, share

RANGE, SET, ANY, NONE, NULL = 0, 1, 2, 3, 4  # as in kernels.predicates, which is not imported to stay light
EMPTY = (0, -1)  # a RANGE that holds no key, whatever the type
OPERATORS: dict[Connective | bool, int] = {"not": 0, "and": 1, "or": 2, "xor": 3, "xnor": 4, True: 5, False: 6}
_KINDS = list(OPERATORS)
_OP_BASE = 8


def op_item(kind: Connective | bool, arity: int) -> int:
    """The number that stands for an operator in a program."""
    return -(1 + OPERATORS[kind] + _OP_BASE * arity)


def operator_of(item: int) -> Op | bool:
    """The operator that a number in a program stands for."""
    arity, code = divmod(-1 - item, _OP_BASE)
    kind = _KINDS[code]
    return kind if isinstance(kind, bool) else Op(kind, arity)


def op_items(operators: Array, arity: Array) -> Array:
    """The same for arrays of numbers as in OPERATORS."""
    items: Array = -(1 + operators + _OP_BASE * arity)
    return items


@dataclass(frozen=True, slots=True)
class Attributes:
    """The columns that predicates test: the schema's attributes, then one for the presence of each list.

    Where there are patterns to search for, columns follow for string attributes in their order: each lists the names
    of those that the attribute's value satisfies, or for a list one of its values. They end with the last that is
    tested, so that nobody pays for them who has none.
    """

    schema: Schema
    multi: Array  # bool: a list attribute
    presence: Array  # int32: the column that tells whether the attribute is there
    single: Array  # bool: a float32 attribute, whose values are rounded to that
    patterns: Array  # int32, by attribute of the schema: the column of its patterns, even if there is none yet; or -1
    owners: tuple[int, ...] = ()  # the attributes whose patterns have columns

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
        strings = np.array([kind.kind == "string" for kind in schema.types], np.bool_)
        patterns = np.where(strings, count - 1 + np.cumsum(strings), -1).astype(np.int32)
        return cls(schema, multi, presence, single, patterns)

    def __len__(self) -> int:
        return len(self.multi)

    def covering(self, columns: int) -> Attributes:
        """With so many columns, if there are fewer: those of patterns."""
        if columns <= len(self):
            return self
        first = len(self) - len(self.owners)
        owners = np.flatnonzero(self.patterns >= 0)[: columns - first]
        none = np.zeros(len(owners), np.bool_)
        return replace(
            self,
            multi=np.concatenate([self.multi[:first], ~none]),
            presence=np.concatenate([self.presence[:first], self.presence[owners]]),
            single=np.concatenate([self.single[:first], none]),
            owners=tuple(owners.tolist()),
        )

    def elements(self, attribute: int, pattern: bool) -> int:
        """The column that lists an attribute's values, or the patterns that these satisfy."""
        return int(self.patterns[attribute]) if pattern else attribute

    def of_kind(self, kind: Kind) -> Array:
        """Which columns hold values of a kind."""
        marks = np.zeros(len(self), np.bool_)
        marks[: len(self.schema)] = [type.kind == kind for type in self.schema.types]
        if self.owners:
            marks[-len(self.owners) :] = kind == "string"  # the names of patterns
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

    @property
    def columns(self) -> int:
        """Columns up to the last that predicates test."""
        return int(self.attribute.max(initial=-1)) + 1


@dataclass(slots=True)
class _Singles:
    """Clauses, and ranges of sets, that were added one by one: they grow in place, and become arrays once."""

    rows: array[int] = field(default_factory=lambda: array("i"))
    programs: array[int] = field(default_factory=lambda: array("i"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    predicates: array[int] = field(default_factory=lambda: array("q"))  # one after another
    ranges: array[int] = field(default_factory=lambda: array("q"))  # attribute, lo, hi of one after another
    sets: dict[tuple[int, int, Set], Row] = field(default_factory=dict)


@dataclass(slots=True)
class BlockBuilder:
    """Collects clauses; ``build`` puts the arrays together."""

    schema: Schema
    pool: dict[bytes, int] = field(default_factory=dict)
    programs: Programs = field(default_factory=Programs)
    _clauses: list[tuple[Array, Array, list[Literals]]] = field(default_factory=list)
    _flat: list[tuple[Array, Array, Array, Array, Array, Array, Array]] = field(default_factory=list)
    _ranges: list[tuple[Array, Array, Array]] = field(default_factory=list)  # attribute, lo, hi
    _range_count: int = 0
    _singles: _Singles = field(default_factory=_Singles)
    _plain: int = 0  # columns before those of patterns

    def __post_init__(self) -> None:
        self._plain = len(self.schema) + sum(kind.multi for kind in self.schema.types)

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

    def literals(
        self, attribute: int, sets: Sequence[Set], list_kind: int | None = None, owners: Array | None = None
    ) -> Literals:
        """A predicate per set; those of one range need no ranges of their own, except on list attributes.

        ``owners``, here and in ``range_literals``: the attribute of each, where these are several of one type.
        """
        attributes = repeat(attribute, len(sets)) if owners is None else owners.tolist()
        found = [self.predicate(at, values, list_kind) for at, values in zip(attributes, sets, strict=True)]
        kind = np.array([row[1] for row in found], np.uint8)
        lo, hi = (np.array([row[at] for row in found], np.int64) for at in (2, 3))
        return Literals(attribute, kind, lo, hi)

    def predicate(self, attribute: int, values: Set, list_kind: int | None = None) -> Row:
        """The predicate of one set, as those of ``literals``. Equal sets have the same ranges."""
        if list_kind is None and len(values) <= 2:
            return (attribute, RANGE, *(self.range_of(values) if values else EMPTY))
        kind = SET if list_kind is None else list_kind
        known, ranges = self._singles.sets, self._singles.ranges
        found = known.get((attribute, kind, values))
        if found is None:
            first = self._range_count + len(ranges) // 3
            for at in range(0, len(values), 2):
                ranges.extend((attribute, *self.range_of(values[at : at + 2])))
            found = known[attribute, kind, values] = (attribute, kind, first, first + (len(values) + 1) // 2)
        return found

    def range_literals(self, attribute: int, lo: Array, hi: Array, owners: Array | None = None) -> Literals:
        """A SET per row of the ranges ``lo[row, i]..hi[row, i]``, which ascend; those that are empty or repeat go."""
        self._close_ranges()
        kept = lo - 1 != hi if self._is_string(attribute) else lo <= hi  # strings: above and below the same one
        kept[:, 1:] &= (lo[:, 1:] != lo[:, :-1]) | (hi[:, 1:] != hi[:, :-1])
        counts = kept.sum(axis=1)
        ends = self._range_count + np.cumsum(counts)
        first = np.concatenate([[self._range_count], ends])[:-1]
        count = int(np.count_nonzero(kept))
        owner = np.full(count, attribute, np.int32) if owners is None else np.repeat(owners.astype(np.int32), counts)
        self._ranges.append((owner, lo[kept], hi[kept]))
        self._range_count += count
        return Literals(attribute, np.full(len(lo), SET, np.uint8), first, ends)

    def _close_ranges(self) -> None:
        """Give the ranges that were added one by one their place before those that follow."""
        ranges = self._singles.ranges
        if ranges:
            attribute, lo, hi = np.array(ranges, np.int64).reshape(-1, 3).T
            self._ranges.append((attribute.astype(np.int32), lo, hi))
            self._range_count += len(lo)
            self._singles.ranges = array("q")

    def constant(self, attribute: int, kind: int, count: int) -> Literals:
        """The same predicate for so many rows: NULL, or the RANGE of all values."""
        _, _, lo, hi = self.constant_predicate(attribute, kind)
        return Literals(attribute, np.full(count, kind, np.uint8), np.full(count, lo), np.full(count, hi))

    def constant_predicate(self, attribute: int, kind: int) -> Row:
        """NULL, or the RANGE of all values."""
        if kind == NULL:
            return attribute, kind, 0, 0
        return attribute, kind, MIN, MIN if self._is_string(attribute) else MAX

    def _is_string(self, attribute: int) -> bool:
        if attribute < len(self.schema):
            return self.schema.types[attribute].kind == "string"
        return attribute >= self._plain

    def add_clause(self, row: int, predicates: Sequence[Row], program: int = -1) -> None:
        """A clause, unless it has a predicate that nothing satisfies."""
        for attribute, kind, lo, hi in predicates:
            if kind == RANGE:
                if lo > hi and ((lo, hi) == EMPTY or not self._is_string(attribute)):
                    return
            elif kind in (SET, ANY) and lo >= hi:
                return
        singles = self._singles
        singles.rows.append(row)
        singles.programs.append(program)
        singles.counts.append(len(predicates))
        for predicate in predicates:
            singles.predicates.extend(predicate)

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

    def add_flat(
        self,
        row: Array,
        counts: Array,
        attribute: Array,
        lo: Array,
        hi: Array,
        programs: Array | None = None,
        kind: Array | None = None,
    ) -> None:
        """Clauses given predicate by predicate: ``counts[c]`` belong to clause ``c``. RANGE is the default kind."""
        programs = np.full(len(row), -1, np.int32) if programs is None else programs
        kind = np.full(len(attribute), RANGE, np.uint8) if kind is None else kind
        self._flat.append((row, programs, counts, attribute, kind, lo, hi))

    def build(self, length: int) -> Block:
        """The block of all that was added."""
        self._close_ranges()
        clauses = [*map(_flattened, self._clauses), *self._flat, self._single_clauses()]
        rows, programs, counts, attribute, kind, lo, hi = (list(parts) for parts in zip(*clauses, strict=True))
        clause_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(_join(counts, np.int64))])
        parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)), *self._ranges]
        range_attribute, range_lo, range_hi = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        ranges = (range_attribute, range_lo, range_hi)
        lengths, item, leaves = self.programs.arrays(int(clause_ptr[-1]), has_ranges, ranges)
        block = Block(
            length,
            _join(rows, np.int32),
            clause_ptr,
            _join(programs, np.int32),
            _join([*attribute, leaves[0]], np.int32),
            _join([*kind, leaves[1]], np.uint8),
            _join([*lo, leaves[2]], np.int64),
            _join([*hi, leaves[3]], np.int64),
            *ranges,
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
            item,
            list(self.pool),
        )
        return _without_repeats(_without_loose_ranges(block))

    def _single_clauses(self) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
        singles = self._singles
        attribute, kind, lo, hi = np.array(singles.predicates, np.int64).reshape(-1, 4).T
        rows, programs = np.array(singles.rows, np.int32), np.array(singles.programs, np.int32)
        return rows, programs, np.array(singles.counts, np.int64), attribute, kind, lo, hi


def _flattened(
    clauses: tuple[Array, Array, list[Literals]],
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    """Clauses of several columns predicate by predicate."""
    rows, programs, literals = clauses
    attribute = np.tile(np.array([one.attribute for one in literals], np.int32), len(rows))
    kind, lo, hi = (
        np.stack(columns, axis=1).ravel() if columns else np.zeros(0, np.int64)
        for columns in ([one.kind for one in literals], [one.lo for one in literals], [one.hi for one in literals])
    )
    return rows, programs, np.full(len(rows), len(literals)), attribute, kind, lo, hi


def shared(block: Block) -> Block:
    """The block with one predicate for those of its programs that are equal, and without sets that nobody has."""
    own = int(block.clause_ptr[-1])
    leaves = (block.attribute[own:], block.kind[own:], block.lo[own:], block.hi[own:])
    if len(leaves[0]) == 0:
        return block
    ranges = (block.range_attribute, block.range_lo, block.range_hi)
    number, leaves = share(leaves, has_ranges(leaves[1]), ranges)
    item = block.program_item.copy()
    renumber(item, number + own, own)
    columns = (block.attribute, block.kind, block.lo, block.hi)
    attribute, kind, lo, hi = (np.concatenate([whole[:own], leaf]) for whole, leaf in zip(columns, leaves, strict=True))
    joined = replace(block, attribute=attribute, kind=kind, lo=lo, hi=hi, program_item=item)
    return _without_repeats(_without_loose_ranges(joined))


def _without_repeats(block: Block) -> Block:
    """The block with one program for those that are equal."""
    first, number = equal_programs(block.program_ptr, block.program_item)
    if len(first) == len(block.program_ptr) - 1:
        return block
    kept = np.zeros(len(block.program_ptr) - 1, np.bool_)
    kept[first] = True
    lengths = np.diff(block.program_ptr)
    program = np.where(block.clause_program >= 0, number[block.clause_program], -1).astype(np.int32)
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[first], dtype=np.int64)])
    return replace(
        block, clause_program=program, program_ptr=ptr, program_item=block.program_item[np.repeat(kept, lengths)]
    )


def _without_loose_ranges(block: Block) -> Block:
    held, lo, hi = own_ranges(block.kind, block.lo, block.hi, len(block.range_lo))
    if len(held) == len(block.range_lo):
        return block
    attribute, range_lo, range_hi = block.range_attribute[held], block.range_lo[held], block.range_hi[held]
    return replace(block, lo=lo, hi=hi, range_attribute=attribute, range_lo=range_lo, range_hi=range_hi)


def has_ranges(kind: Array) -> Array:
    """Which predicates have their ranges in the arrays of ranges."""
    marks: Array = (kind != RANGE) & (kind != NULL)
    return marks


def own_ranges(kind: Array, lo: Array, hi: Array, count: int) -> tuple[Array, Array, Array]:
    """Which of so many ranges predicates have, and ``lo`` and ``hi`` when there are no others."""
    sets = np.flatnonzero(has_ranges(kind))
    opened = np.bincount(lo[sets], minlength=count + 1) - np.bincount(hi[sets], minlength=count + 1)
    used = np.cumsum(opened)[:count] > 0
    place = np.concatenate([np.zeros(1, np.int64), np.cumsum(used, dtype=np.int64)])
    lo, hi = lo.copy(), hi.copy()
    lo[sets], hi[sets] = place[lo[sets]], place[hi[sets]]
    return np.flatnonzero(used), lo, hi


def never(kind: Array, lo: Array, hi: Array, is_string: bool | Array) -> Array:
    """Which predicates nothing satisfies. Cuts of strings do not sort yet; an empty range of them is EMPTY."""
    empty: Array = (lo > hi) & (((lo == EMPTY[0]) & (hi == EMPTY[1])) | ~np.asarray(is_string))
    no_ranges: Array = ((kind == SET) | (kind == ANY)) & (lo >= hi)
    never: Array = (empty & (kind == RANGE)) | no_ranges
    return never


def move_cuts(cuts: Array, numbers: Array) -> Array:
    """Cuts of strings after the strings got other numbers; MIN stays the open end."""
    moved = cuts.copy()
    at = np.flatnonzero(cuts != MIN)
    moved[at] = 2 * numbers[cuts[at] >> 1] + (cuts[at] & 1)
    return moved


def _join(parts: list[Array], dtype: Any) -> Array:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)
