"""Expressions to blocks: shapes are put into normal form once, their constants are bound column by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import GpumatchError
from gpumatch.expr import Expr, Op, Predicate, Shape, Slot, coerce, constant, parse_alike, parse_many
from gpumatch.expr.keys import MAX, MIN, Set, around
from gpumatch.expr.normal import Elements, Formula, Presence, Splitting, Step, Values, normal_form, plain
from gpumatch.expr.patterns import prefix, read
from gpumatch.expr.typing_rules import operands, pattern_of
from gpumatch.schema import AttributeType
from gpumatch.subscriptions.binding import RowBinder, bound_set, distinct_constant, formula_set, numbers_in
from gpumatch.subscriptions.block import ANY, EMPTY, NONE, NULL, RANGE, Attributes, BlockBuilder, op_item
from gpumatch.subscriptions.keys import clock_keys, number_keys, outside, point_ranges, prefix_ranges, string_ranges
from gpumatch.subscriptions.programs import Literals

_MANY = 16  # rows from which binding whole columns pays
_ALONE = 1  # expressions of a shape that need no template


@dataclass(slots=True)
class Group:
    """Expressions that share a template; ``constants`` has a column per slot, of raw texts or of finished values."""

    template: Expr
    rows: list[int]
    constants: Sequence[Sequence[Any]]
    raw: bool


def group_expressions(
    sources: Sequence[str | Expr], rows: Iterable[int], errors: dict[int, GpumatchError]
) -> list[Group]:
    """Groups of one shape; the error of each text that is no expression goes to ``errors``."""
    texts: list[int] = []
    built: list[tuple[int, Expr]] = []
    for row in rows:
        source = sources[row]
        if isinstance(source, Expr):
            built.append((row, source))
        else:
            texts.append(row)
    shapes, wrong = parse_many([sources[row] for row in texts])  # type: ignore[misc]
    errors.update((texts[at], error) for at, error in wrong.items())
    return _groups(shapes, texts) + group_built(built)


def group_alike(
    sources: Sequence[str | Expr], rows: Sequence[int], errors: dict[int, GpumatchError]
) -> tuple[list[Group], list[int]]:
    """Groups of shapes that many texts have, and the rows that are in none of them."""
    texts = [row for row in rows if isinstance(sources[row], str)]
    if len(texts) < _MANY:
        return [], list(rows)
    shapes, wrong, others = parse_alike([sources[row] for row in texts], _MANY)  # type: ignore[misc]
    errors.update((texts[at], error) for at, error in wrong.items())
    built = [row for row in rows if not isinstance(sources[row], str)]
    return _groups(shapes, texts), sorted(built + [texts[at] for at in others])


def _groups(shapes: Iterable[Shape], rows: Sequence[int]) -> list[Group]:
    return [Group(shape.template, [rows[at] for at in shape.rows], shape.constants, True) for shape in shapes]


def group_built(expressions: Iterable[tuple[int, Expr]]) -> list[Group]:
    """Groups of expressions that were built, not written: the same idea on finished values."""
    found: dict[tuple[Any, ...], list[tuple[int, Expr]]] = {}
    for row, expr in expressions:
        shape = tuple(
            [
                (item.attribute, item.op, len(item.values), item.negated) if isinstance(item, Predicate) else item
                for item in expr.program
            ]
        )
        found.setdefault(shape, []).append((row, expr))
    return [_group(members) for members in found.values()]


def _group(members: list[tuple[int, Expr]]) -> Group:
    rows = [row for row, _ in members]
    if len(members) <= _ALONE:
        return Group(members[0][1], rows, [], False)
    values = [[value for item in expr.predicates() for value in item.values] for _, expr in members]
    return Group(_template(members[0][1]), rows, [list(column) for column in zip(*values, strict=True)], False)


def _template(expr: Expr) -> Expr:
    items, slots = [], 0
    for item in expr.program:
        if isinstance(item, Predicate):
            values = tuple(Slot(slots + at) for at in range(len(item.values)))
            slots += len(values)
            item = Predicate(item.attribute, item.op, values, item.negated)
        items.append(item)
    return Expr(tuple(items))


def by_pattern(group: Group) -> list[Group]:
    """The group in the operators that have a normal form, split by which LIKEs have patterns that are no prefixes."""
    template = group.template
    likes = [(at, p) for at, p in enumerate(template.program) if isinstance(p, Predicate) and p.op == "like"]
    if not likes:
        plainer = any(item.op == "is" for item in template.predicates())
        return [replace(group, template=plain(template, ())) if plainer else group]
    kinds = list(zip(*[_searching(item, group) for _, item in likes], strict=True))
    parts = []
    for kind in dict.fromkeys(kinds):
        made = plain(template, {at for (at, _), searched in zip(likes, kind, strict=True) if searched})
        chosen = [place for place, found in enumerate(kinds) if found == kind]
        if len(chosen) == len(kinds):
            return [replace(group, template=made)]
        columns = [[column[place] for place in chosen] for column in group.constants]
        parts.append(Group(made, [group.rows[place] for place in chosen], columns, group.raw))
    return parts


def _searching(item: Predicate, group: Group) -> list[bool]:
    """Of each row, whether the pattern of its LIKE is no prefix; one that is malformed is for others to report."""
    columns = [group.constants[v.index] if isinstance(v, Slot) else [v] * len(group.rows) for v in item.values]
    kinds = [v.kind if isinstance(v, Slot) and group.raw else None for v in item.values]
    known: dict[tuple[Any, ...], bool] = {}
    for given in set(zip(*columns, strict=True)):
        try:
            values = [v if kind is None else constant(v, kind) for v, kind in zip(given, kinds, strict=True)]
            known[given] = prefix(read(pattern_of(values, item.attribute))) is None
        except GpumatchError:
            known[given] = True
    return [known[given] for given in zip(*columns, strict=True)]


class GroupAdder:
    """Adds groups of expressions to a block. What it knows of constants serves all groups."""

    def __init__(self, builder: BlockBuilder, attributes: Attributes, splitting: Splitting) -> None:
        self._builder, self._attributes, self._splitting = builder, attributes, splitting
        self._multi = {
            name: type.multi for name, type in zip(attributes.schema.names, attributes.schema.types, strict=True)
        }
        self._rows = RowBinder(builder, attributes)

    def add(self, group: Group, errors: dict[int, GpumatchError]) -> None:
        """Add the group's subscriptions. Rows whose constants do not suit go to ``errors`` instead."""
        for part in by_pattern(group):
            self._add(part, errors)

    def _add(self, group: Group, errors: dict[int, GpumatchError]) -> None:
        few = len(group.rows) < _MANY
        try:
            form = normal_form(group.template, self._is_multi, self._splitting)
            for predicate in () if few else group.template.predicates():
                operands(predicate, self._attributes.schema[predicate.attribute])
        except GpumatchError as error:
            errors.update((row, error) for row in group.rows)
            return
        if few:
            self._rows.add(group.template, group.rows, group.constants, group.raw, form, errors)
            return
        binding = Binding(self._builder, self._attributes, group)
        binding.check(errors)
        if len(binding.rows) == 0:
            return
        programs = binding.programs(form.program) if form.program else None
        for clause in form.clauses:
            literals = [one for literal in clause for one in binding.literals(literal)]
            self._builder.add_clauses(binding.rows, literals, programs)

    def _is_multi(self, name: str) -> bool:
        known = self._multi.get(name)
        return self._attributes.schema[name].multi if known is None else known  # an unknown one is an error


class Binding:
    """A group's constants as ranges and sets of keys, as arrays where all are plain, else row by row.

    ``owners``: the attribute of each row, where a predicate stands for those on several attributes of one type.
    """

    def __init__(
        self, builder: BlockBuilder, attributes: Attributes, group: Group, owners: Array | None = None
    ) -> None:
        self.builder, self.attributes, self.owners = builder, attributes, owners
        self.program, self.raw = group.template.program, group.raw
        self.columns = group.constants
        self.rows: Array = np.array(group.rows, np.int32)
        self._sets: dict[int, list[Set]] = {}
        self._ranges: dict[int, tuple[Array, Array] | None] = {}

    def check(self, errors: dict[int, GpumatchError], as_arrays: bool = True) -> None:
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

    def keep(self, places: list[int]) -> None:
        """Go on with these of the rows."""
        self.rows = self.rows[places]
        self.owners = None if self.owners is None else self.owners[places]
        self.columns = [[column[at] for at in places] for column in self.columns]
        self._sets = {number: [sets[at] for at in places] for number, sets in self._sets.items()}
        self._ranges = {at: pair and (pair[0][places], pair[1][places]) for at, pair in self._ranges.items()}

    def only(self, places: list[int]) -> Binding:
        """The same of some of the rows."""
        part = copy(self)
        part.keep(places)
        return part

    def _type(self, predicate: Predicate) -> AttributeType:
        return self.attributes.schema[predicate.attribute]

    def _bind_ranges(self, predicate: Predicate) -> tuple[Array, Array] | None:
        """First and last keys as arrays, for what large sets mostly hold: exact numbers, and equal strings."""
        type, op = self._type(predicate), predicate.op
        slots = [value for value in predicate.values if isinstance(value, Slot)]
        if type.multi or op == "in" or len(slots) < len(predicate.values):
            return None
        if type.kind == "string":
            columns = [self.columns[slot.index] for slot in slots]
            if self.raw and op == "like" and len(slots) == 1:
                return prefix_ranges(columns[0], type, self.builder.range_of)
            if self.raw and all(slot.kind == "literal" for slot in slots):
                return string_ranges(op, columns, self.builder.key)
            return self._equal_strings(columns[0]) if op == "=" and slots[0].kind == "literal" else None
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
        keys = clock_keys(column, slot.kind, type) if self.raw else None
        if keys is not None:
            return keys
        known: dict[Any, int] = {}
        try:
            for value in set(column):
                below, above = around(coerce(constant(value, slot.kind) if self.raw else value, type, attribute), type)
                if not isinstance(below, int) or above != below + 1 or above > MAX:
                    return None
                known[value] = below
        except GpumatchError:
            return None
        return np.fromiter(map(known.__getitem__, column), np.int64, len(column))

    def _equal_strings(self, column: Sequence[str]) -> tuple[Array, Array] | None:
        known: dict[str, int] = {}
        for text in set(column):
            if self.raw or not isinstance(text, str):
                return None
            known[text] = self.builder.key((text.encode(), 0))
        lo = np.fromiter(map(known.__getitem__, column), np.int64, len(column))
        return lo, lo + 1

    def _bind_sets(self, predicate: Predicate, bad: dict[int, GpumatchError]) -> list[Set]:
        """The set of each row in the predicate's positive form; equal constants are bound once."""
        known: dict[tuple[Any, ...], Set | GpumatchError] = {}
        sets: list[Set] = []
        columns = [self.columns[value.index] for value in predicate.values if isinstance(value, Slot)]
        rows = zip(*columns, strict=True) if columns else [()] * len(self.rows)
        for at, given in enumerate(rows):
            key = tuple(map(distinct_constant, given))
            found = known.get(key)
            if found is None:
                found = known[key] = bound_set(predicate, self._type(predicate), given, self.raw)
            if isinstance(found, GpumatchError):
                bad.setdefault(at, found)
                found = ()
            sets.append(found)
        return sets

    def literals(self, literal: Values | Elements | Presence) -> list[Literals]:
        at = self.attributes.schema.index(literal.attribute)
        presence = int(self.attributes.presence[at])
        if isinstance(literal, Presence):
            return [self.builder.constant(presence, RANGE if literal.present else NULL, len(self.rows))]
        if isinstance(literal, Values):
            return [self._values(at, literal.formula)]
        column = self.attributes.elements(at, literal.pattern)
        kind = NONE if literal.negated else ANY
        found = self.builder.literals(column, self._row_sets(literal.predicate), kind, self.owners)
        if not literal.negated:
            return [found]
        return [found, self.builder.constant(presence, RANGE, len(self.rows))]

    def _values(self, at: int, formula: Formula) -> Literals:
        ranges = self._plain_range(at, formula)
        if ranges is not None:
            return Literals(at, np.zeros(len(self.rows), np.uint8), *ranges)
        several = self._several_ranges(at, formula)
        if several is not None:
            return self.builder.range_literals(at, *several, self.owners)
        kind = self.attributes.schema.types[at].kind
        numbers = list(numbers_in(formula))
        rows = zip(*[self._row_sets(number) for number in numbers], strict=True)
        sets = [formula_set(formula, dict(zip(numbers, row, strict=True)), kind) for row in rows]
        return self.builder.literals(at, sets, None, self.owners)

    def _plain_range(self, at: int, formula: Formula) -> tuple[Array, Array] | None:
        """The range of a formula that is a predicate, or an intersection of numeric ones, bound as arrays."""
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
        """The range of a negated comparison with one open side, which is a range again."""
        item, ranges = self.program[number], self._ranges[number]
        if ranges is None or not isinstance(item, Predicate) or item.op not in ("<", "<=", ">", ">="):
            return None
        lo, hi = ranges
        if self._type(item).kind == "string":
            if ((lo == MIN) == (hi == MIN)).any():  # nothing, or all
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
        """The points of ``IN`` as ranges, sorted in every row: arrays of two dimensions."""
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
        if any(not isinstance(text, str) or (self.raw and text[0] != "'") for text in texts):
            return None
        values = {text: (text[1:-1].replace("''", "'") if self.raw else text).encode() for text in texts}
        ordered = sorted(texts, key=values.__getitem__)
        place = {text: at for at, text in enumerate(ordered)}
        keys = np.array([self.builder.key((values[text], 0)) for text in ordered], np.int64)
        places = np.stack([np.fromiter(map(place.__getitem__, c), np.int64, len(c)) for c in columns], axis=1)
        cuts = keys[np.sort(places, axis=1)]
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

    def _step(self, step: Step) -> int | Literals:
        if isinstance(step, Op):
            return op_item(step.kind, step.arity)
        if isinstance(step, bool):
            return op_item(step, 0)
        at = self.attributes.schema.index(step.attribute)
        if isinstance(step, Presence):
            return self.builder.constant(int(self.attributes.presence[at]), NULL, len(self.rows))
        if isinstance(step, Elements):
            column = self.attributes.elements(at, step.pattern)
            return self.builder.literals(column, self._row_sets(step.predicate), ANY)
        return self._values(at, step.formula)
