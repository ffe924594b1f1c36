"""Subscriptions as a struct of arrays, in value space: clauses of predicates, and programs over predicates.

Predicates hold ranges of int64 keys. A string's key is ``2 * number + side``: its number in the block's pool, and
whether the cut lies below or above it; such keys do not sort until the pool is sorted (see ``codes``).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.expr.keys import MAX, MIN, Cut, Set
from gpumatch.expr.tree import Connective, Op
from gpumatch.opcodes import (
    NULL,
    OP_AND,
    OP_BASE,
    OP_FALSE,
    OP_NOT,
    OP_OR,
    OP_TRUE,
    OP_XNOR,
    OP_XOR,
    RANGE,
    SET,
)
from gpumatch.schema import Kind, Schema
from gpumatch.subscriptions.predicates import EMPTY, Predicates
from gpumatch.subscriptions.programs import Programs, equal_programs, renumber, share

OPERATORS: dict[Connective | bool, int] = {
    "not": OP_NOT,
    "and": OP_AND,
    "or": OP_OR,
    "xor": OP_XOR,
    "xnor": OP_XNOR,
    True: OP_TRUE,
    False: OP_FALSE,
}
_KINDS = {code: kind for kind, code in OPERATORS.items()}


def op_item(kind: Connective | bool, arity: int) -> int:
    """An operator as a program item."""
    return -(1 + OPERATORS[kind] + OP_BASE * arity)


def operator_of(item: int) -> Op | bool:
    """The operator of a program item."""
    arity, code = divmod(-1 - item, OP_BASE)
    kind = _KINDS[code]
    return kind if isinstance(kind, bool) else Op(kind, arity)


def op_items(operators: Array, arity: Array) -> Array:
    """``op_item`` of arrays of operator codes."""
    items: Array = -(1 + operators + OP_BASE * arity)
    return items


@dataclass(frozen=True, slots=True)
class Attributes:
    """The columns that predicates test: the schema's attributes, then one for the presence of each list.

    If there are patterns to search for, a column for each string attribute follows, up to the last that is tested: the
    names of the patterns that the attribute's value, or for a list any of its values, satisfies.
    """

    schema: Schema
    multi: Array  # bool: a list attribute
    presence: Array  # int32: the column with the presence of the attribute
    single: Array  # bool: a float32 attribute, whose values are rounded to float32
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
        """With columns of patterns added, if need be, to make ``columns`` columns."""
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
        """The column that lists an attribute's values, or the patterns they satisfy."""
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
    """Some subscriptions: the predicates of their clauses, then those of their programs, and the ranges of sets."""

    length: int
    clause_row: Array  # int32: the subscription that each clause is a branch of
    clause_ptr: Array  # int64: clause c has predicates clause_ptr[c]:clause_ptr[c + 1]
    clause_program: Array  # int32: a program that must hold too, or -1
    predicates: Predicates
    ranges: Predicates
    program_ptr: Array  # int64
    program_item: Array  # int32: a predicate, or an operator if negative
    pool: list[bytes]

    @property
    def columns(self) -> int:
        """The number of columns up to the last one tested."""
        return int(self.predicates.attribute.max(initial=-1)) + 1


@dataclass(slots=True)
class BlockBuilder:
    """Collects clauses; ``build`` puts the arrays together."""

    schema: Schema
    pool: dict[bytes, int] = field(default_factory=dict)
    programs: Programs = field(default_factory=Programs)
    _clauses: list[tuple[Array, Array, Array, Predicates]] = field(default_factory=list)  # row, program, count
    _ranges: list[Predicates] = field(default_factory=list)
    _range_count: int = 0
    _single_ranges: array[int] = field(default_factory=lambda: array("q"))  # attribute, lo, hi, range by range
    _known_sets: dict[tuple[int, int, Set], tuple[int, int, int]] = field(default_factory=dict)
    _strings: Array = field(init=False)  # which columns hold strings

    def __post_init__(self) -> None:
        types = self.schema.types
        strings = [type.kind == "string" for type in types]
        lists = sum(type.multi for type in types)
        self._strings = np.array([*strings, *repeat(False, lists), *repeat(True, sum(strings))], np.bool_)

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

    def sets(self, attribute: Array | int, sets: Sequence[Set], kind: int = SET) -> Predicates:
        """A predicate per set. A SET of one range is a RANGE."""
        attributes = repeat(attribute, len(sets)) if isinstance(attribute, int) else attribute.tolist()
        found = [self._set(at, values, kind) for at, values in zip(attributes, sets, strict=True)]
        kinds, lo, hi = np.array(found, np.int64).reshape(-1, 3).T
        return Predicates.of(attribute, kinds, lo, hi)

    def _set(self, attribute: int, values: Set, kind: int) -> tuple[int, int, int]:
        """Kind, lo and hi. Equal sets have the same ranges."""
        if kind == SET and len(values) <= 2:
            return (RANGE, *(self.range_of(values) if values else EMPTY))
        found = self._known_sets.get((attribute, kind, values))
        if found is None:
            first = self._range_count + len(self._single_ranges) // 3
            for at in range(0, len(values), 2):
                self._single_ranges.extend((attribute, *self.range_of(values[at : at + 2])))
            found = self._known_sets[attribute, kind, values] = (kind, first, first + (len(values) + 1) // 2)
        return found

    def range_sets(self, attribute: Array | int, lo: Array, hi: Array) -> Predicates:
        """A SET per row of the ascending ranges ``lo[row, i]..hi[row, i]``, without empty and repeated ones."""
        self._close_ranges()
        attribute = np.broadcast_to(attribute, len(lo))
        strings = self._strings[attribute][:, None]
        kept = np.where(strings, lo - 1 != hi, lo <= hi)  # strings: above and below the same one
        kept[:, 1:] &= (lo[:, 1:] != lo[:, :-1]) | (hi[:, 1:] != hi[:, :-1])
        counts = kept.sum(axis=1)
        ends = self._range_count + pointers(counts)
        self._add_ranges(Predicates.of(np.repeat(attribute, counts), RANGE, lo[kept], hi[kept]))
        return Predicates.of(attribute, SET, ends[:-1], ends[1:])

    def _add_ranges(self, ranges: Predicates) -> None:
        self._ranges.append(ranges)
        self._range_count += len(ranges)

    def _close_ranges(self) -> None:
        """Append the ranges that were added one by one, before others follow."""
        if self._single_ranges:
            attribute, lo, hi = np.array(self._single_ranges, np.int64).reshape(-1, 3).T
            self._add_ranges(Predicates.of(attribute, RANGE, lo, hi))
            self._single_ranges = array("q")

    def constant(self, attribute: Array, kind: int) -> Predicates:
        """NULL, or the RANGE of all values."""
        lo = np.full(len(attribute), 0 if kind == NULL else MIN)
        hi = lo if kind == NULL else np.where(self._strings[attribute], MIN, MAX)
        return Predicates.of(attribute, kind, lo, hi)

    def add_columns(self, rows: Array, literals: Sequence[Predicates], programs: Array | None = None) -> None:
        """A clause per row; each of the literals has a predicate for every row."""
        order = np.arange(len(rows) * len(literals)).reshape(len(literals), len(rows)).T.ravel()
        self.add(rows, np.full(len(rows), len(literals)), Predicates.join(literals).take(order), programs)

    def add(self, rows: Array, counts: Array, predicates: Predicates, programs: Array | None = None) -> None:
        """Add clauses of ``counts`` predicates each; those that nothing satisfies are left out."""
        programs = np.full(len(rows), -1, np.int32) if programs is None else programs
        never = np.flatnonzero(predicates.never(self._strings))
        if len(never):
            clause = np.repeat(np.arange(len(rows)), counts)
            alive = np.ones(len(rows), np.bool_)
            alive[clause[never]] = False
            predicates = predicates.take(alive[clause])
            rows, programs, counts = rows[alive], programs[alive], counts[alive]
        self._clauses.append((rows, programs, counts, predicates))

    def build(self, length: int) -> Block:
        """The block of everything added."""
        self._close_ranges()
        rows, programs, counts = (
            np.concatenate([np.zeros(0, dtype), *(clauses[at] for clauses in self._clauses)]).astype(dtype, copy=False)
            for at, dtype in enumerate((np.int32, np.int32, np.int64))
        )
        clause_ptr = pointers(counts)
        ranges = Predicates.join(self._ranges)
        program_ptr, item, leaves = self.programs.arrays(int(clause_ptr[-1]), ranges)
        predicates = Predicates.join([*(clauses[3] for clauses in self._clauses), leaves])
        predicates, ranges = predicates.with_own(ranges)
        block = Block(length, rows, clause_ptr, programs, predicates, ranges, program_ptr, item, list(self.pool))
        return _without_repeats(block)


def shared(block: Block) -> Block:
    """The block with equal predicates of programs merged, and without unused ranges."""
    own = int(block.clause_ptr[-1])
    leaves = block.predicates.take(slice(own, None))
    if len(leaves) == 0:
        return block
    number, leaves = share(leaves, block.ranges)
    item = block.program_item.copy()
    renumber(item, number + own, own)
    predicates, ranges = Predicates.join([block.predicates.take(slice(own)), leaves]).with_own(block.ranges)
    return _without_repeats(replace(block, predicates=predicates, ranges=ranges, program_item=item))


def _without_repeats(block: Block) -> Block:
    """The block with equal programs merged."""
    if len(block.program_item) == 0:
        return block
    first, number = equal_programs(block.program_ptr, block.program_item)
    if len(first) == len(block.program_ptr) - 1:
        return block
    kept = np.zeros(len(block.program_ptr) - 1, np.bool_)
    kept[first] = True
    lengths = np.diff(block.program_ptr)
    program = np.where(block.clause_program >= 0, number[block.clause_program], -1).astype(np.int32)
    item = block.program_item[np.repeat(kept, lengths)]
    return replace(block, clause_program=program, program_ptr=pointers(lengths[first]), program_item=item)
