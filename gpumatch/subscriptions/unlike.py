"""Turns expressions of unlike shapes into blocks: conditions are bound in columns, skeletons are normalised once.

Such texts do not share shapes, but they share conditions, each with a small shape of its own, and the skeletons that
connect them. The conditions of a text are numbered consecutively. Normal form may join several on one attribute into
one set of values; such *joins* are numbered after all conditions. A *test* asks whether a condition or join ``n`` is
true, and has number ``2 * n``, or false, ``2 * n + 1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from gpumatch.arrays import Array, pointers, spans
from gpumatch.errors import GpumatchError
from gpumatch.expr import Expr, Op, Predicate, Shape
from gpumatch.expr.conditions import Condition, Reader
from gpumatch.expr.keys import Set, complement
from gpumatch.expr.normal import Elements, Form, Formula, Literal, Splitting, Values, normal_form
from gpumatch.expr.shapes import malformed
from gpumatch.expr.typing_rules import operands
from gpumatch.opcodes import NULL, RANGE
from gpumatch.subscriptions.binding import Binding, bound_set, formula_set, numbers_in
from gpumatch.subscriptions.block import Attributes, BlockBuilder, op_item
from gpumatch.subscriptions.predicates import Predicates

_FEW = 256  # up to this many texts the parser is as fast
_MANY = 16  # from this many conditions of one kind on, binding whole columns pays
_JOIN = 1 << 40  # in forms, the number of the first join: above all numbers of conditions
_VALUES, _LIST, _NULL, _NOT_NULL = 0, 1, 2, 3  # kinds of conditions: all that others on the same attribute depend on
_WHATS = 4
# For each condition of a text: the first one on its attribute, times _WHATS, plus its kind.
_Leaves: TypeAlias = "tuple[int, ...]"


def add_unlike(
    builder: BlockBuilder, attributes: Attributes, splitting: Splitting, texts: Any, rows: Sequence[int]
) -> Sequence[int]:
    """Add the rows whose texts are plain, valid expressions; returns the others."""
    if len(rows) < _FEW:
        return rows
    reader = Reader()
    left = [row for row in rows if not reader.read(row, texts[row])]
    if reader.rows:
        tests = _Tests(builder, attributes, reader)
        right = np.flatnonzero(~tests.wrong)
        uses = _Uses(tests, _Forms(splitting, reader.skeletons), right)
        tests.bind(uses)
        uses.add_to(builder, np.array(reader.rows, np.int32)[right])
        left += [reader.rows[at] for at in np.flatnonzero(tests.wrong).tolist()]
    return left


class _Forms:
    """Normal forms, in sequence.

    A literal is twice the number of a condition within its text, or of a join, plus 1 if it must be false. The
    operators of programs are negative.
    """

    def __init__(self, splitting: Splitting, skeletons: Sequence[Expr]) -> None:
        self._splitting, self._skeletons = splitting, skeletons
        self._numbers: dict[tuple[int, _Leaves], int] = {}
        self.clause_ptr, self.literal_ptr, self.item_ptr, self.join_ptr = [0], [0], [0], [0]
        self.literals: list[int] = []
        self.items: list[int] = []
        self.joins: list[Formula] = []

    def number(self, skeleton: int, leaves: _Leaves = ()) -> int:
        """The form of a skeleton; ``leaves`` are needed where conditions share an attribute."""
        found = self._numbers.get((skeleton, leaves))
        if found is None:
            found = self._numbers[skeleton, leaves] = len(self._numbers)
            self._add(self._skeletons[skeleton], leaves)
        return found

    def _add(self, skeleton: Expr, leaves: _Leaves) -> None:
        positions = [at for at, item in enumerate(skeleton.program) if not isinstance(item, Op)]
        lists: set[str] = set()
        if leaves:
            program = list(skeleton.program)
            for at, leaf in zip(positions, leaves, strict=True):
                program[at] = _leaf(leaf)
            skeleton = Expr(tuple(program))
            lists = {str(leaf // _WHATS) for leaf in leaves if leaf % _WHATS == _LIST}
        form = normal_form(skeleton, lists.__contains__, self._splitting)
        self._write(form, {at: number for number, at in enumerate(positions)}, leaves)

    def _write(self, form: Form, numbers: dict[int, int], leaves: _Leaves) -> None:
        joins: dict[Formula, int] = {}
        for clause in form.clauses:
            self.literals += [_literal(one, numbers, leaves, joins) for one in clause]
            self.literal_ptr.append(len(self.literals))
        for step in form.program:
            if isinstance(step, Op) and step.kind == "not" and self.items[-1] >= 0:
                self.items[-1] ^= 1
            elif isinstance(step, Op):
                self.items.append(op_item(step.kind, step.arity))
            else:
                assert not isinstance(step, bool), "skeletons hold conditions only"
                self.items.append(_literal(step, numbers, leaves, joins))
        self.joins += joins
        self.clause_ptr.append(len(self.literal_ptr) - 1)
        self.item_ptr.append(len(self.items))
        self.join_ptr.append(len(self.joins))


@lru_cache(maxsize=1 << 10)
def _leaf(leaf: int) -> Predicate:
    first, what = divmod(leaf, _WHATS)
    return Predicate(str(first), "null" if what >= _NULL else "=", (), what == _NOT_NULL)


def _literal(literal: Literal, numbers: dict[int, int], leaves: _Leaves, joins: dict[Formula, int]) -> int:
    if isinstance(literal, Values):
        formula, negated = _stripped(literal.formula)
        if isinstance(formula, int):
            return 2 * numbers[formula] + negated
        return 2 * (_JOIN + joins.setdefault(_renumbered(formula, numbers), len(joins))) + negated
    if isinstance(literal, Elements):
        return 2 * numbers[literal.predicate] + literal.negated
    first = _WHATS * int(literal.attribute)
    number = next(at for at, leaf in enumerate(leaves) if leaf in (first + _NULL, first + _NOT_NULL))
    return 2 * number + (literal.present != (leaves[number] == first + _NOT_NULL))


def _stripped(formula: Formula) -> tuple[Formula, bool]:
    """A formula without its outermost NOT, and whether it had one."""
    return (formula[1][0], True) if isinstance(formula, tuple) and formula[0] == "not" else (formula, False)


def _renumbered(formula: Formula, numbers: dict[int, int]) -> Formula:
    if isinstance(formula, int):
        return numbers[formula]
    return formula[0], tuple(_renumbered(part, numbers) for part in formula[1])


class _Tests:
    """The conditions of texts, and the predicates that test them."""

    def __init__(self, builder: BlockBuilder, attributes: Attributes, reader: Reader) -> None:
        self.builder, self.attributes, self.reader = builder, attributes, reader
        self.counts = np.array(reader.counts, np.int64)
        self.starts = pointers(self.counts)[:-1]
        self.text = np.repeat(np.arange(len(self.counts)), self.counts)
        self.condition = np.array(reader.condition, np.int32)
        self.constants = np.array([*reader.constants, None], object)[:-1]  # with None it is never an array of strings
        width = np.array([len(one.slots) for one in reader.conditions], np.int64)
        self.first_constant = pointers(width[self.condition])[:-1]
        self.wrong = np.zeros(len(self.counts), np.bool_)  # texts with a condition that does not suit the schema
        described = [_described(one.predicate, attributes) for one in reader.conditions]
        table = np.array([one[:3] for one in described], np.int64)
        self.attribute, self.negated, self.what = table[self.condition].T
        self.wrong[self.text[self.attribute < 0]] = True
        groups: dict[Any, list[int]] = {}
        for at, (attribute, _, what, key) in enumerate(described):
            if attribute >= 0 and what < _NULL:
                groups.setdefault(key, []).append(at)
        self.bindings = self._bindings(list(groups.values()))

    def _bindings(self, groups: list[list[int]]) -> list[tuple[Predicate, Binding]]:
        """A predicate and a binding for conditions that differ only in constants, or in attributes of one type."""
        group_of = np.full(len(self.reader.conditions), len(groups))
        for number, members in enumerate(groups):
            group_of[members] = number
        group = np.where(self.wrong[self.text], len(groups), group_of[self.condition])
        order = np.argsort(group, kind="stable")
        ends = pointers(np.bincount(group, minlength=len(groups) + 1))
        found = []
        for number, members in enumerate(groups):
            numbers = order[ends[number] : ends[number + 1]]
            if len(numbers):
                found.append(self._binding(self.reader.conditions[members[0]], numbers))
        return found

    def _binding(self, condition: Condition, numbers: Array) -> tuple[Predicate, Binding]:
        predicate, first = condition.predicate, self.first_constant[numbers]
        columns = [self.constants[first + slot.index].tolist() for slot in condition.slots]
        shape = Shape(Expr((predicate,)), numbers.tolist(), columns)
        binding = Binding(self.builder, self.attributes, shape, self.attribute[numbers])
        is_number = self.attributes.schema[predicate.attribute].kind in ("int", "float")
        doubtful = is_number and any(malformed(column, "literal") for column in columns)
        bad: dict[int, GpumatchError] = {}
        binding.check(bad, len(numbers) >= _MANY and not doubtful)
        self.wrong[self.text[list(bad)]] = True
        return predicate, binding

    def bind(self, uses: _Uses) -> None:
        """The predicates of the tests that are used."""
        count = len(uses.used)
        self.predicates = Predicates.of(np.zeros(count), RANGE, np.zeros(count), np.zeros(count))
        self.presence = np.full(count, -1, np.int32)  # a column that must be present too
        for predicate, binding in self.bindings:
            for negated in (False, True):
                self._bind(predicate, binding, negated, uses.used)
        self._bind_nulls()
        self._bind_joins(uses)

    def _bind(self, predicate: Predicate, binding: Binding, negated: bool, used: Array) -> None:
        tests = 2 * binding.rows.astype(np.int64) + negated
        wanted = used[tests]
        count = np.count_nonzero(wanted)
        if count == 0:
            return
        if 2 * count < len(tests):  # else it is faster to bind them all
            tests, binding = tests[wanted], binding.only(np.flatnonzero(wanted).tolist())
        name = predicate.attribute
        is_list = self.attributes.schema[name].multi
        found = binding.literals(
            Elements(name, 0, negated) if is_list else Values(name, ("not", (0,)) if negated else 0)
        )[0]
        self.predicates.put(tests, found)
        if is_list and negated:
            self.presence[tests] = self.attributes.presence[found.attribute]

    def _bind_nulls(self) -> None:
        """IS NULL, on the presence column: NULL if it must be true, RANGE if it must be false."""
        numbers = np.flatnonzero(self.what >= _NULL)
        columns = self.attributes.presence[self.attribute[numbers]]
        for at, kind in ((2 * numbers, NULL), (2 * numbers + 1, RANGE)):
            self.predicates.put(at, self.builder.constant(columns, kind))

    def _bind_joins(self, uses: _Uses) -> None:
        """Most joins are intersections of ranges, computed on arrays; the others are combined one by one."""
        attribute, kind, lo, hi = self.predicates.columns()
        strings = self.attributes.of_kind("string")
        plain = uses.are_all((kind == RANGE) & ~strings[attribute])
        at = np.flatnonzero(plain)
        parts, starts = uses.parts_of(at)
        if len(at):
            low, high = np.maximum.reduceat(lo[parts], starts), np.minimum.reduceat(hi[parts], starts)
            self.predicates.put(
                2 * (len(self.condition) + at), Predicates.of(attribute[parts[starts]], RANGE, low, high)
            )
        tests: list[int] = []
        columns: list[int] = []
        sets: list[Set] = []
        for number in np.flatnonzero(~plain).tolist():
            first, formula = int(uses.join_start[number]), uses.formulas[number]
            column = int(self.attribute[first + next(numbers_in(formula))])
            kind_of = self.attributes.schema.types[column].kind
            values = formula_set(formula, {leaf: self._set(first + leaf) for leaf in numbers_in(formula)}, kind_of)
            for test, wanted in enumerate((values, complement(values, kind_of)), 2 * (len(self.condition) + number)):
                if uses.used[test]:
                    tests.append(test)
                    columns.append(column)
                    sets.append(wanted)
        self.predicates.put(np.array(tests, np.int64), self.builder.sets(np.array(columns, np.int64), sets))

    def _set(self, number: int) -> Set:
        """The values for which a condition is true."""
        condition = self.reader.conditions[self.condition[number]]
        predicate, first = condition.predicate, self.first_constant[number]
        type = self.attributes.schema[predicate.attribute]
        found = bound_set(predicate, type, self.constants[first : first + len(condition.slots)].tolist())
        assert not isinstance(found, GpumatchError), "texts with a wrong constant are left out"
        return complement(found, type.kind) if predicate.negated else found


def _described(predicate: Predicate, attributes: Attributes) -> tuple[int, bool, int, Any]:
    """Attribute number (-1 if the predicate does not suit it), whether it is negated, its kind, and a key shared by
    conditions whose constants are bound together."""
    try:
        type = attributes.schema[predicate.attribute]
        operands(predicate, type)
    except GpumatchError:
        return -1, False, _VALUES, None
    what = _NULL + predicate.negated if predicate.op == "null" else _LIST if type.multi else _VALUES
    key = type, predicate.op, tuple(map(_distinct, predicate.values))
    return attributes.schema.index(predicate.attribute), predicate.negated, what, key


class _Uses:
    """The tests that the texts' clauses and programs use."""

    def __init__(self, tests: _Tests, forms: _Forms, texts: Array) -> None:
        self._tests, self._texts = tests, texts
        form = _form_of(tests, forms, texts)
        joins, joined = _expanded(forms.join_ptr, form)
        self.join_start = tests.starts[texts][joined]
        self.formulas = [forms.joins[at] for at in joins.tolist()]
        self._first_join = len(tests.condition) + pointers(np.bincount(joined, minlength=len(texts)))[:-1]
        self._negated = np.append(tests.negated, np.zeros(len(joins), np.int64))
        clauses, self.clause_text = _expanded(forms.clause_ptr, form)
        literals, self.clause_of = _expanded(forms.literal_ptr, clauses)
        self.literals = self._test(np.array(forms.literals, np.int64)[literals], self.clause_text[self.clause_of])
        items, self.item_text = _expanded(forms.item_ptr, form)
        self.items = np.array(forms.items, np.int64)[items]
        leaf = self.items >= 0
        self.items[leaf] = self._test(self.items[leaf], self.item_text[leaf])
        self.used = np.zeros(2 * len(self._negated), np.bool_)
        self.used[self.literals] = True
        self.used[self.items[leaf] & ~1] = True  # in programs NOT follows what must be false
        self._find_parts(forms, joins)

    def _test(self, literals: Array, text: Array) -> Array:
        """The test numbers of literals."""
        number = literals >> 1
        number = np.where(
            number < _JOIN, self._tests.starts[self._texts][text] + number, self._first_join[text] + number - _JOIN
        )
        tests: Array = 2 * number + ((literals & 1) ^ self._negated[number])
        return tests

    def _find_parts(self, forms: _Forms, joins: Array) -> None:
        """Find the tests that pure intersections consist of."""
        found = [_intersected(formula) for formula in forms.joins]
        ptr = pointers(np.array([len(parts) for parts in found], np.int64))
        part, self._part_of = _expanded(ptr, joins)
        only_true = ~self.used[2 * (len(self._tests.condition) + np.arange(len(joins))) + 1]
        kept = only_true[self._part_of]
        part, self._part_of = part[kept], self._part_of[kept]
        literals = np.array([one for parts in found for one in parts], np.int64)[part]
        number = (literals >> 1) + self.join_start[self._part_of]
        self._parts = 2 * number + ((literals & 1) ^ self._negated[number])
        self.used[self._parts] = True

    def are_all(self, marks: Array) -> Array:
        """Which joins intersect only marked tests."""
        count = len(self.formulas)
        every = np.bincount(self._part_of, minlength=count)
        found: Array = (every > 0) & (every == np.bincount(self._part_of, marks[self._parts], minlength=count))
        return found

    def parts_of(self, joins: Array) -> tuple[Array, Array]:
        """The tests that joins intersect, and where those of each begin."""
        mask = np.zeros(len(self.formulas), np.bool_)
        mask[joins] = True
        owner = self._part_of[mask[self._part_of]]
        return self._parts[mask[self._part_of]], np.flatnonzero(np.diff(owner, prepend=-1))

    def add_to(self, builder: BlockBuilder, rows: Array) -> None:
        """Add the clauses and programs; ``rows`` are the subscriptions of the texts."""
        presence = self._tests.presence[self.literals]
        paired = np.flatnonzero(presence >= 0)
        width = 1 + (presence >= 0)
        predicates = self._tests.predicates.take(self.literals).repeat(width)
        predicates.put(np.cumsum(width)[paired] - 1, builder.constant(presence[paired], RANGE))
        counts = np.bincount(self.clause_of, width, minlength=len(self.clause_text)).astype(np.int64)
        programs = self._add_programs(builder)[self.clause_text]
        builder.add(rows[self.clause_text], counts, predicates, programs)

    def _add_programs(self, builder: BlockBuilder) -> Array:
        """The number of each text's program, or -1."""
        numbers = np.full(len(self._texts), -1, np.int32)
        leaf = self.items >= 0
        negated = leaf & (self.items & 1 == 1)
        width = 1 + negated
        item = np.repeat(np.where(leaf, 0, self.items), width).astype(np.int32)
        ends = np.cumsum(width)
        item[(ends - width)[leaf]] = np.arange(np.count_nonzero(leaf))
        item[(ends - 1)[negated]] = op_item("not", 1)
        lengths = np.bincount(self.item_text, width, minlength=len(numbers)).astype(np.int64)
        nonempty = np.flatnonzero(lengths)
        if len(nonempty):
            leaves = self._tests.predicates.take(self.items[leaf] & ~1)
            numbers[nonempty] = builder.programs.add(lengths[nonempty], item, leaves)
        return numbers


def _expanded(ptr: Sequence[int] | Array, owners: Array) -> tuple[Array, Array]:
    """Everything that the owners have, in sequence, and the index of the owner of each."""
    ends = np.asarray(ptr, np.int64)
    counts = np.diff(ends)[owners]
    return spans(ends[owners], counts), np.repeat(np.arange(len(owners)), counts)


def _intersected(formula: Formula) -> list[int]:
    """The literals that a formula intersects; empty if it is not an intersection."""
    parts = [_stripped(part) for part in formula[1]] if isinstance(formula, tuple) and formula[0] == "and" else []
    literals = [2 * part + negated for part, negated in parts if isinstance(part, int)]
    return literals if len(literals) == len(parts) else []


def _form_of(tests: _Tests, forms: _Forms, texts: Array) -> Array:
    """The number of the form of each text."""
    width = len(tests.attributes)
    pairs = np.sort(tests.text * width + tests.attribute)
    shared = np.zeros(len(tests.counts), np.bool_)
    shared[pairs[1:][pairs[1:] == pairs[:-1]] // width] = True
    skeleton = np.array(tests.reader.skeleton, np.int64)[texts]
    used, which = np.unique(skeleton[~shared[texts]], return_inverse=True)
    form = np.zeros(len(texts), np.int64)
    form[~shared[texts]] = np.array([forms.number(one) for one in used.tolist()], np.int64)[which]
    for at in np.flatnonzero(shared[texts]).tolist():
        start, count = int(tests.starts[texts[at]]), int(tests.counts[texts[at]])
        names, whats = (column[start : start + count].tolist() for column in (tests.attribute, tests.what))
        leaves = tuple([_WHATS * names.index(name) + what for name, what in zip(names, whats, strict=True)])
        form[at] = forms.number(int(skeleton[at]), leaves)
    return form


def _distinct(value: Any) -> Any:
    """A key for a constant: in a dict, 1, 1.0 and True would be the same key."""
    return value if isinstance(value, str) else (type(value), value)
