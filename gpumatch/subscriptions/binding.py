"""Constants of expressions bound one expression at a time: what pays where few have the same shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpumatch.errors import GpumatchError
from gpumatch.expr import Expr, Op, Predicate, Slot, coerce, constant
from gpumatch.expr.keys import Set, combine, complement, predicate_set
from gpumatch.expr.normal import Elements, Form, Formula, Literal, Presence, Step, Values
from gpumatch.expr.typing_rules import PATTERNS, operands
from gpumatch.schema import AttributeType, Kind
from gpumatch.subscriptions.block import ANY, NONE, NULL, RANGE, Attributes, BlockBuilder, op_item
from gpumatch.subscriptions.programs import Row

_WANTED: dict[str, Callable[[int, int], bool]] = {
    "and": lambda count, sets: count == sets,
    "or": lambda count, sets: count > 0,
    "xor": lambda count, sets: count % 2 == 1,
}
_NEGATED = {"not": "and", "xnor": "xor"}  # a connective that is the complement of another
_KNOWN = 1 << 18  # sets that are remembered


class RowBinder:
    """Adds expressions to a block one by one; equal predicates are bound once."""

    def __init__(self, builder: BlockBuilder, attributes: Attributes) -> None:
        self._builder, self._attributes = builder, attributes
        self._presence: list[int] = attributes.presence.tolist()
        self._known: dict[tuple[Any, ...], Set | GpumatchError] = {}

    def add(
        self,
        template: Expr,
        rows: Sequence[int],
        columns: Sequence[Sequence[Any]],
        raw: bool,
        form: Form,
        errors: dict[int, GpumatchError],
    ) -> None:
        """Add the rows of a group, or the error of each whose constants do not suit."""
        tested = [(at, p) for at, p in enumerate(template.program) if isinstance(p, Predicate) and p.op != "null"]
        for place, row in enumerate(rows):
            sets: dict[int, Set] = {}
            for at, predicate in tested:
                given = [columns[value.index][place] for value in predicate.values if isinstance(value, Slot)]
                found = self._set(predicate, given, raw)
                if isinstance(found, GpumatchError):
                    errors[row] = found
                    break
                sets[at] = found
            else:
                self._add_row(row, form, sets)

    def _set(self, predicate: Predicate, given: Sequence[Any], raw: bool) -> Set | GpumatchError:
        shape = tuple([(v.kind,) if isinstance(v, Slot) else (type(v), v) for v in predicate.values])
        key = (predicate.attribute, predicate.op, raw, shape, *map(distinct_constant, given))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            found = bound_set(predicate, self._attributes.schema[predicate.attribute], given, raw)
            self._known[key] = found
        return found

    def _add_row(self, row: int, form: Form, sets: Mapping[int, Set]) -> None:
        program = -1
        if form.program:
            program = self._builder.programs.add([self._step(step, sets) for step in form.program])
        for clause in form.clauses:
            predicates = [one for literal in clause for one in self._literal(literal, sets)]
            self._builder.add_clause(row, predicates, program)

    def _literal(self, literal: Literal, sets: Mapping[int, Set]) -> list[Row]:
        at = self._attributes.schema.index(literal.attribute)
        if isinstance(literal, Values):
            return [self._values(at, literal, sets)]
        presence = self._presence[at]
        if isinstance(literal, Presence):
            return [self._builder.constant_predicate(presence, RANGE if literal.present else NULL)]
        column = self._attributes.elements(at, literal.pattern)
        if not literal.negated:
            return [self._builder.predicate(column, sets[literal.predicate], ANY)]
        none = self._builder.predicate(column, sets[literal.predicate], NONE)
        return [none, self._builder.constant_predicate(presence, RANGE)]

    def _step(self, step: Step, sets: Mapping[int, Set]) -> int | Row:
        if isinstance(step, Op):
            return op_item(step.kind, step.arity)
        if isinstance(step, bool):
            return op_item(step, 0)
        at = self._attributes.schema.index(step.attribute)
        if isinstance(step, Values):
            return self._values(at, step, sets)
        if isinstance(step, Elements):
            return self._builder.predicate(self._attributes.elements(at, step.pattern), sets[step.predicate], ANY)
        return self._builder.constant_predicate(self._presence[at], NULL)

    def _values(self, at: int, values: Values, sets: Mapping[int, Set]) -> Row:
        kind = self._attributes.schema.types[at].kind
        return self._builder.predicate(at, formula_set(values.formula, sets, kind))


def bound_set(predicate: Predicate, type: AttributeType, given: Sequence[Any], raw: bool) -> Set | GpumatchError:
    """The values that satisfy a predicate in its positive form, ``given`` the constants in the place of its slots."""
    waiting = iter(given)
    try:
        constants: list[Any] = []
        for value in predicate.values:
            if isinstance(value, Slot):
                filled = next(waiting)
                value = constant(filled, value.kind) if raw else filled
            constants.append(value if predicate.op in PATTERNS else coerce(value, type, predicate.attribute))
        if predicate.op in PATTERNS:
            constants = [*operands(replace(predicate, values=tuple(constants)), type)]
        return predicate_set(predicate.op, constants, type)
    except GpumatchError as error:
        return error


def formula_set(formula: Formula, sets: Mapping[int, Set], kind: Kind) -> Set:
    """The values that a formula stands for, given those of its predicates."""
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


def distinct_constant(value: Any) -> Any:
    """Python holds 1, 1.0 and True for equal keys of a dict; they are different constants."""
    return value if isinstance(value, str) else (type(value), value)
