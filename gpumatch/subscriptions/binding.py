"""Binds the constants of texts that share a shape to the types of attributes: as keys, and ranges and sets of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import GpumatchError
from gpumatch.expr import Op, Predicate, Shape, Slot, coerce, constant
from gpumatch.expr.keys import MAX, MIN, Set, around, combine, complement, predicate_set
from gpumatch.expr.normal import Elements, Formula, Literal, Presence, Step, Values
from gpumatch.expr.typing_rules import PATTERNS, operands
from gpumatch.opcodes import ANY, NONE, NULL, RANGE
from gpumatch.schema import AttributeType, Kind
from gpumatch.subscriptions.block import Attributes, BlockBuilder, op_item
from gpumatch.subscriptions.keys import clock_keys, number_keys, outside, point_ranges, prefix_ranges, string_ranges
from gpumatch.subscriptions.predicates import EMPTY, Predicates

_WANTED: dict[str, Callable[[int, int], bool]] = {
    "and": lambda count, sets: count == sets,
    "or": lambda count, sets: count > 0,
    "xor": lambda count, sets: count % 2 == 1,
}
_NEGATED = {"not": "and", "xnor": "xor"}  # a connective that is the complement of another


class Binding:
    """A shape's constants as ranges and sets of keys, in arrays if all are plain, else row by row.

    ``owners``: the attribute of each row, if one predicate stands for several attributes of the same type.
    """

    def __init__(
        self, builder: BlockBuilder, attributes: Attributes, shape: Shape, owners: Array | None = None
    ) -> None:
        self.builder, self.attributes, self.owners = builder, attributes, owners
        self.program, self.columns = shape.template.program, shape.constants
        self.rows: Array = np.array(shape.rows, np.int32)
        self._sets: dict[int, list[Set]] = {}
        self._ranges: dict[int, tuple[Array, Array] | None] = {}

    def check(self, errors: dict[int, GpumatchError], as_arrays: bool) -> None:
        """Bind every predicate; rows with a constant of the wrong type are dropped and reported."""
        bad: dict[int, GpumatchError] = {}
        for at, item in enumerate(self.program):
            if isinstance(item, Predicate) and item.op != "null":
                self._ranges[at] = None
                if as_arrays:
                    self._ranges[at] = self._points_of(item) if item.op == "in" else self._bind_ranges(item)
                if self._ranges[at] is None:
                    self._sets[at] = self._bind_sets(item, bad)
        if bad:
            errors.update((int(self.rows[at]), error) for at, error in bad.items())
            self.keep([at for at in range(len(self.rows)) if at not in bad])

    def keep(self, kept: list[int]) -> None:
        """Drop all other rows."""
        self.rows = self.rows[kept]
        self.owners = None if self.owners is None else self.owners[kept]
        self.columns = [[column[at] for at in kept] for column in self.columns]
        self._sets = {number: [sets[at] for at in kept] for number, sets in self._sets.items()}
        self._ranges = {at: pair and (pair[0][kept], pair[1][kept]) for at, pair in self._ranges.items()}

    def only(self, kept: list[int]) -> Binding:
        """A copy with only some of the rows."""
        binding = copy(self)
        binding.keep(kept)
        return binding

    def _type(self, predicate: Predicate) -> AttributeType:
        return self.attributes.schema[predicate.attribute]

    def _bind_ranges(self, predicate: Predicate) -> tuple[Array, Array] | None:
        """First and last keys as arrays, for the common constants: exact numbers and strings."""
        type, op = self._type(predicate), predicate.op
        slots = [value for value in predicate.values if isinstance(value, Slot)]
        if type.multi or op == "in" or len(slots) < len(predicate.values):
            return None
        if type.kind == "string":
            columns = [self.columns[slot.index] for slot in slots]
            if op == "like" and len(slots) == 1:
                return prefix_ranges(columns[0], type, self.builder.range_of)
            return string_ranges(op, columns, self.builder.key) if all(s.kind == "literal" for s in slots) else None
        if op == "like":
            return None
        points = [self._points(slot, type, predicate.attribute) for slot in slots]
        if any(point is None for point in points):
            return None
        return point_ranges(predicate.op, [point for point in points if point is not None])

    def _points(self, slot: Slot, type: AttributeType, attribute: str) -> Array | None:
        """Keys of a column of constants that are exact values of the attribute's type; None if one is not."""
        column = self.columns[slot.index]
        if type.kind in ("int", "float"):
            return number_keys(column, type)
        if type.kind == "bool":
            return None
        keys = clock_keys(column, slot.kind, type)
        if keys is not None:
            return keys
        known: dict[Any, int] = {}
        try:
            for value in set(column):
                below, above = around(coerce(constant(value, slot.kind), type, attribute), type)
                if not isinstance(below, int) or above != below + 1 or above > MAX:
                    return None
                known[value] = below
        except GpumatchError:
            return None
        return np.fromiter(map(known.__getitem__, column), np.int64, len(column))

    def _bind_sets(self, predicate: Predicate, bad: dict[int, GpumatchError]) -> list[Set]:
        """The set of each row in the predicate's positive form; equal constants are bound once."""
        known: dict[tuple[str, ...], Set | GpumatchError] = {}
        sets: list[Set] = []
        columns = [self.columns[value.index] for value in predicate.values if isinstance(value, Slot)]
        rows: Iterable[tuple[str, ...]] = zip(*columns, strict=True) if columns else [()] * len(self.rows)
        for at, given in enumerate(rows):
            found = known.get(given)
            if found is None:
                found = known[given] = bound_set(predicate, self._type(predicate), given)
            if isinstance(found, GpumatchError):
                bad.setdefault(at, found)
                found = ()
            sets.append(found)
        return sets

    def literals(self, literal: Literal) -> list[Predicates]:
        """A predicate per row, or two: NOT of a list's elements also needs the list to be present."""
        at = self.attributes.schema.index(literal.attribute)
        if isinstance(literal, Values):
            return [self._values(at, literal.formula)]
        if isinstance(literal, Presence):
            return [self._presence(at, literal.present)]
        found = self._elements(at, literal)
        return [found, self._presence(at, True)] if literal.negated else [found]

    def _presence(self, at: int, present: bool) -> Predicates:
        column = np.full(len(self.rows), self.attributes.presence[at])
        return self.builder.constant(column, RANGE if present else NULL)

    def _elements(self, at: int, literal: Elements) -> Predicates:
        column = self.attributes.elements(at, literal.pattern) if self.owners is None else self.owners
        return self.builder.sets(column, self._row_sets(literal.predicate), NONE if literal.negated else ANY)

    def _values(self, at: int, formula: Formula) -> Predicates:
        owners = at if self.owners is None else self.owners
        ranges = self._plain_range(at, formula)
        if ranges is not None:
            return Predicates.of(owners, RANGE, *ranges)
        several = self._several_ranges(at, formula)
        if several is not None:
            return self.builder.range_sets(owners, *several)
        kind = self.attributes.schema.types[at].kind
        numbers = list(numbers_in(formula))
        rows = zip(*[self._row_sets(number) for number in numbers], strict=True)
        return self.builder.sets(
            owners, [formula_set(formula, dict(zip(numbers, row, strict=True)), kind) for row in rows]
        )

    def _plain_range(self, at: int, formula: Formula) -> tuple[Array, Array] | None:
        """The range of one predicate, or of an intersection of numeric ones, if all were bound as arrays."""
        if isinstance(formula, int):
            ranges = self._ranges[formula]
            return ranges if ranges is None or ranges[0].ndim == 1 else None
        if formula[0] == "not" and isinstance(formula[1][0], int):
            return self._flipped(formula[1][0])
        if formula[0] != "and" or self.attributes.schema.types[at].kind == "string":
            return None
        parts = [self._plain_range(at, part) for part in formula[1]]
        if any(part is None for part in parts):
            return None
        pairs = [part for part in parts if part is not None]
        return reduce(np.maximum, [lo for lo, _ in pairs]), reduce(np.minimum, [hi for _, hi in pairs])

    def _flipped(self, number: int) -> tuple[Array, Array] | None:
        """The range of a negated one-sided comparison, if it is a range again."""
        item, ranges = self.program[number], self._ranges[number]
        if ranges is None or not isinstance(item, Predicate) or item.op not in ("<", "<=", ">", ">="):
            return None
        lo, hi = ranges
        if self._type(item).kind == "string":
            if ((lo == MIN) == (hi == MIN)).any():  # empty, or everything
                return None
            return hi, lo
        if (lo > hi).any() or ((lo == MIN) & (hi == MAX)).any():  # at the ends of the keys: rare, and left to sets
            return None
        return (hi + 1, np.full(len(hi), MAX)) if item.op in ("<", "<=") else (np.full(len(lo), MIN), lo - 1)

    def _several_ranges(self, at: int, formula: Formula) -> tuple[Array, Array] | None:
        """The ranges of ``IN``, ``NOT IN``, ``<>`` and ``NOT BETWEEN`` as arrays, where constants allow."""
        number = formula if isinstance(formula, int) else formula[1][0] if formula[0] == "not" else None
        item = self.program[number] if isinstance(number, int) else None
        ranges = self._ranges[number] if isinstance(number, int) else None
        if ranges is None or not isinstance(item, Predicate) or item.op not in ("in", "=", "between", "like"):
            return None
        lo, hi = ranges
        if item.op == "in" and number == formula:
            return lo, hi
        is_string = self.attributes.schema.types[at].kind == "string"
        open_ended = (lo == MIN) | (hi == MIN) | (hi == EMPTY[1]) if is_string else lo > hi
        if open_ended.any():
            return None
        return outside(lo.reshape(len(lo), -1), hi.reshape(len(hi), -1), is_string)

    def _points_of(self, item: Predicate) -> tuple[Array, Array] | None:
        """The points of ``IN`` as ranges, sorted in every row: two-dimensional arrays."""
        type = self._type(item)
        slots = [value for value in item.values if isinstance(value, Slot)]
        if type.multi or not slots or len(slots) < len(item.values):
            return None
        if type.kind == "string":
            if any(slot.kind != "literal" for slot in slots):
                return None
            return self._string_rows([self.columns[slot.index] for slot in slots])
        columns = [self._points(slot, type, item.attribute) for slot in slots]
        if any(column is None for column in columns):
            return None
        points = np.sort(np.stack([column for column in columns if column is not None], axis=1), axis=1)
        return points, points

    def _string_rows(self, columns: Sequence[Sequence[str]]) -> tuple[Array, Array] | None:
        texts = {text for column in columns for text in column}
        if any(text[0] != "'" for text in texts):
            return None
        values = {text: text[1:-1].replace("''", "'").encode() for text in texts}
        ordered = sorted(texts, key=values.__getitem__)
        rank = {text: at for at, text in enumerate(ordered)}
        keys = np.array([self.builder.key((values[text], 0)) for text in ordered], np.int64)
        ranks = np.stack([np.fromiter(map(rank.__getitem__, c), np.int64, len(c)) for c in columns], axis=1)
        cuts = keys[np.sort(ranks, axis=1)]
        return cuts, cuts + 1

    def _row_sets(self, number: int) -> list[Set]:
        if number not in self._sets:
            item = self.program[number]
            assert isinstance(item, Predicate)
            self._sets[number] = self._bind_sets(item, {})
        return self._sets[number]

    def programs(self, steps: Sequence[Step]) -> Array:
        """The number of each row's program."""
        return self.builder.programs.add_pattern([self._step(step) for step in steps], len(self.rows))

    def _step(self, step: Step) -> int | Predicates:
        if isinstance(step, Op):
            return op_item(step.kind, step.arity)
        return op_item(step, 0) if isinstance(step, bool) else self.literals(step)[0]


def bound_set(predicate: Predicate, type: AttributeType, given: Sequence[str] = ()) -> Set | GpumatchError:
    """The values that satisfy a predicate in its positive form; ``given`` are the raw constants of its slots."""
    waiting = iter(given)
    try:
        constants: list[Any] = []
        for value in predicate.values:
            if isinstance(value, Slot):
                value = constant(next(waiting), value.kind)
            constants.append(value if predicate.op in PATTERNS else coerce(value, type, predicate.attribute))
        if predicate.op in PATTERNS:
            constants = [*operands(replace(predicate, values=tuple(constants)), type)]
        return predicate_set(predicate.op, constants, type)
    except GpumatchError as error:
        return error


def formula_set(formula: Formula, sets: Mapping[int, Set], kind: Kind) -> Set:
    """The set of values of a formula, given those of its predicates."""
    if isinstance(formula, int):
        return sets[formula]
    connective, parts = formula
    joined = [formula_set(part, sets, kind) for part in parts]
    wanted = _WANTED[_NEGATED.get(connective, connective)]
    found = combine(joined, lambda count: wanted(count, len(joined)))
    return complement(found, kind) if connective in _NEGATED else found


def numbers_in(formula: Formula) -> Iterator[int]:
    """The predicates of a formula."""
    if isinstance(formula, int):
        yield formula
    else:
        for part in formula[1]:
            yield from numbers_in(part)
