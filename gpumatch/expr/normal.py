"""Normal form: an expression as a few conjunctions, each with what could not be split left as a program.

Only what makes an expression *true* is kept, so unknown needs no place: a literal is true of some values of one
attribute and never of a missing one. Splitting stops where it would multiply the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from gpumatch.expr.tree import Connective, Expr, Op, Predicate

_LITERALS, _PER_ITEM = 64, 4  # so much may an expression grow by being split into clauses
_FOLDED = 100  # levels of connectives that a formula may have: it is evaluated by recursion
# A set of values of one attribute: the number of a predicate, or sets joined by a connective.
Formula: TypeAlias = "int | tuple[str, tuple[Formula, ...]]"


@dataclass(frozen=True, slots=True)
class Values:
    """The single value of an attribute lies in a set."""

    attribute: str
    formula: Formula
    depth: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Elements:
    """One of the values of a list satisfies a predicate, or, negated, none does and the list is there."""

    attribute: str
    predicate: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Presence:
    """The attribute is there, or is missing."""

    attribute: str
    present: bool


Literal: TypeAlias = "Values | Elements | Presence"
Clause: TypeAlias = "tuple[Literal, ...]"


@dataclass(frozen=True, slots=True)
class Residual:
    """A part of the program, ``program[start:stop]``, that must be true, or false if negated."""

    start: int
    stop: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Form:
    """True where one of the clauses is and all residuals are."""

    clauses: tuple[Clause, ...]
    residuals: tuple[Residual, ...] = ()

    def size(self) -> int:
        return sum(max(1, len(clause)) for clause in self.clauses)


@dataclass(slots=True)
class _Node:
    """A finished part of the program: what makes it true, what makes it false."""

    start: int
    stop: int
    true: Form
    false: Form
    values: Values | None = field(default=None)


def normal_form(expr: Expr, is_multi: Callable[[str], bool]) -> Form:
    """The expression's clauses; those that contradict themselves are left out."""
    splitter = _Splitter(len(expr.program), is_multi)
    stack: list[_Node] = []
    for at, item in enumerate(expr.program):
        if isinstance(item, Op):
            children = stack[len(stack) - item.arity :]
            del stack[len(stack) - item.arity :]
            stack.append(splitter.join(item.kind, children, at + 1))
        elif isinstance(item, Predicate):
            stack.append(splitter.leaf(item, at))
        else:
            stack.append(_Node(at, at + 1, Form(((),) if item else ()), Form(() if item else ((),))))
    form = stack[0].true
    merged = (_merge(clause) for clause in form.clauses)
    return Form(tuple(clause for clause in merged if clause is not None), form.residuals)


class _Splitter:
    def __init__(self, length: int, is_multi: Callable[[str], bool]) -> None:
        self.limit = _LITERALS + _PER_ITEM * length  # literals in all clauses together
        self.is_multi = is_multi

    def leaf(self, predicate: Predicate, at: int) -> _Node:
        name, negated = predicate.attribute, predicate.negated
        if predicate.op == "null":
            true, false = (Form(((Presence(name, present),),)) for present in (negated, not negated))
            return _Node(at, at + 1, true, false)
        if self.is_multi(name):
            true, false = (Form(((Elements(name, at, flag),),)) for flag in (negated, not negated))
            return _Node(at, at + 1, true, false)
        return _folded(at, at + 1, Values(name, _negate(at) if negated else at))

    def join(self, kind: Connective, children: Sequence[_Node], stop: int) -> _Node:
        start = children[0].start
        if kind == "not":
            child = children[0]
            values = child.values
            if values is not None:
                values = Values(values.attribute, _negate(values.formula), values.depth + 1)
            return _Node(start, stop, child.false, child.true, values)
        fold = _fold(kind, children)
        if fold is not None:
            return _folded(start, stop, fold)
        whole = (Residual(start, stop, False), Residual(start, stop, True))
        if kind in ("xor", "xnor"):
            odd, even = self._xor(children)
            true, false = (odd, even) if kind == "xor" else (even, odd)
            return _Node(start, stop, true or Form(((),), whole[:1]), false or Form(((),), whole[1:]))
        children = _gather(kind, children)
        trues, falses = [child.true for child in children], [child.false for child in children]
        if kind == "and":
            true, false = self._all(children, trues, False), self._any(falses)
            return _Node(start, stop, true, false or Form(((),), whole[1:]))
        true_or_none = self._any(trues)
        return _Node(start, stop, true_or_none or Form(((),), whole[:1]), self._all(children, falses, True))

    def _any(self, forms: Sequence[Form]) -> Form | None:
        """The union of forms, or None if it cannot be had in clauses."""
        if any(form.residuals for form in forms) or sum(form.size() for form in forms) > self.limit:
            return None
        return Form(tuple(chain.from_iterable(form.clauses for form in forms)))

    def _all(self, children: Sequence[_Node], forms: Sequence[Form], negated: bool) -> Form:
        """The conjunction of the children's forms; children that would multiply it too much become residuals."""
        single = [form for form in forms if len(form.clauses) == 1]
        clauses: tuple[Clause, ...] = (tuple(chain.from_iterable(form.clauses[0] for form in single)),)
        residuals = list(chain.from_iterable(form.residuals for form in single))
        several = [(form, child) for form, child in zip(forms, children, strict=True) if len(form.clauses) != 1]
        for form, child in sorted(several, key=lambda pair: len(pair[0].clauses)):
            product = self._product(clauses, form.clauses)
            if product is None:
                residuals.append(Residual(child.start, child.stop, negated))
            else:
                clauses = product
                residuals += form.residuals
        return Form(clauses, tuple(residuals))

    def _product(self, left: Sequence[Clause], right: Sequence[Clause]) -> tuple[Clause, ...] | None:
        literals = sum(map(len, left)) * len(right) + sum(map(len, right)) * len(left)
        if max(literals, len(left) * len(right)) > self.limit:
            return None
        return tuple(a + b for a in left for b in right)

    def _xor(self, children: Sequence[_Node]) -> tuple[Form | None, Form | None]:
        """What makes an odd, and an even, number of the children true, all being known."""
        odd, even = children[0].true.clauses, children[0].false.clauses
        if any(child.true.residuals or child.false.residuals for child in children):
            return None, None
        for child in children[1:]:
            true, false = child.true.clauses, child.false.clauses
            parts = [self._product(a, b) for a, b in ((odd, false), (even, true), (odd, true), (even, false))]
            if any(part is None for part in parts):
                return None, None
            odd, even = (parts[0] or ()) + (parts[1] or ()), (parts[2] or ()) + (parts[3] or ())
            if max(Form(odd).size(), Form(even).size()) > self.limit:
                return None, None
        return Form(odd), Form(even)


def _folded(start: int, stop: int, values: Values) -> _Node:
    false = Values(values.attribute, _negate(values.formula), values.depth + 1)
    return _Node(start, stop, Form(((values,),)), Form(((false,),)), values)


def _negate(formula: Formula) -> Formula:
    if isinstance(formula, tuple) and formula[0] == "not":
        return formula[1][0]
    return ("not", (formula,))


def _fold(kind: str, children: Sequence[_Node]) -> Values | None:
    """Connectives over one single-valued attribute make a set of its values: missing, they are all unknown."""
    sets = [child.values for child in children if child.values is not None]
    depth = 1 + max((one.depth for one in sets), default=0)
    if len(sets) < len(children) or len({one.attribute for one in sets}) > 1 or depth > _FOLDED:
        return None
    return Values(sets[0].attribute, (kind, tuple(one.formula for one in sets)), depth)


def _gather(kind: str, children: Sequence[_Node]) -> list[_Node]:
    """Fold those children of AND or OR that are sets of values of the same attribute."""
    groups: dict[str, list[_Node]] = {}
    out: list[_Node] = []
    for child in children:
        if child.values is None:
            out.append(child)
        else:
            groups.setdefault(child.values.attribute, []).append(child)
    for group in groups.values():
        fold = _fold(kind, group) if len(group) > 1 else None
        # A gathered node has no span of its own: it is one clause either way, so it never becomes a residual.
        out += group if fold is None else [_folded(group[0].start, group[0].stop, fold)]
    return out


def _merge(clause: Clause) -> Clause | None:
    """One literal per single-valued attribute; None if the clause contradicts itself."""
    formulas: dict[str, list[Formula]] = {}
    present: dict[str, bool] = {}
    others: list[Literal] = []
    for literal in dict.fromkeys(clause):
        if isinstance(literal, Values):
            formulas.setdefault(literal.attribute, []).append(literal.formula)
        elif isinstance(literal, Elements):
            others.append(literal)
        elif present.setdefault(literal.attribute, literal.present) != literal.present:
            return None
    needed = {*formulas, *(other.attribute for other in others)}
    if any(not present.get(name, True) for name in needed):
        return None
    merged: list[Literal] = [
        Values(name, found[0] if len(found) == 1 else ("and", tuple(found))) for name, found in formulas.items()
    ]
    tests = [Presence(name, flag) for name, flag in present.items() if name not in needed]
    return (*merged, *others, *tests)
