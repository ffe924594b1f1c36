"""Normal form: an expression as a few conjunctions, and a program for what was not split into them.

Only what makes an expression *true* is kept, so clauses need no unknown: a literal is true of some values of one
attribute and never of a missing one. A program is the rest as it was written, in three-valued logic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from typing import TypeAlias

from gpumatch.expr.tree import Connective, Expr, Item, Op, Predicate

_LITERALS, _PER_ITEM = 64, 4  # how far an expression may grow when it is multiplied out
_SMALL = 2  # most literals, as a multiple of its conditions
_FOLDED = 100  # levels of connectives in a formula, which is evaluated by recursion
# A set of values of one attribute: the number of a predicate, or sets joined by a connective.
Formula: TypeAlias = "int | tuple[str, tuple[Formula, ...]]"


class Splitting(Enum):
    """How far expressions are split into clauses. In every mode, conditions on one attribute form one set of values."""

    PRODUCTS = "products"  # anything but a conjunction is multiplied out if that stays small, else it becomes a program
    SMALL = "small"  # the same if the whole expression makes few literals, else as BRANCHES
    BRANCHES = "branches"  # an OR of conjunctions is split into these; nothing is multiplied out
    NEVER = "never"  # one clause, of the conditions that the outermost AND joins; the rest is a program


@dataclass(unsafe_hash=True, slots=True)  # never changed; frozen ones take twice as long to create
class Values:
    """The single value of an attribute lies in a set."""

    attribute: str
    formula: Formula
    depth: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Elements:
    """One of the values of a list satisfies a predicate, or, if negated, none does and the list is present.

    ``pattern``: the predicate is a pattern, and the list holds the patterns that the attribute's values satisfy.
    """

    attribute: str
    predicate: int
    negated: bool
    pattern: bool = False


@dataclass(frozen=True, slots=True)
class Presence:
    """The attribute is present, or is missing."""

    attribute: str
    present: bool


Literal: TypeAlias = "Values | Elements | Presence"
Clause: TypeAlias = "tuple[Literal, ...]"
Step: TypeAlias = "Literal | Op | bool"


@dataclass(frozen=True, slots=True)
class Form:
    """True where one of the clauses is true and so is the program, if there is one.

    The program is in postfix order, and its literals are not negated: NOT follows them.
    """

    clauses: tuple[Clause, ...]
    program: tuple[Step, ...] = ()


@dataclass(slots=True)
class _Node:
    """A sub-expression: a literal, TRUE or FALSE, or a connective with its operands."""

    item: Step
    children: Sequence[_Node] = ()
    true: _Split | None = None  # how it becomes true, and false, if products are made of it
    false: _Split | None = None


_Residual: TypeAlias = "tuple[_Node, bool]"  # must be true, or false


@dataclass(slots=True)
class _Split:
    """True where one of the clauses is true and all residuals are."""

    clauses: tuple[Clause, ...]
    residuals: tuple[_Residual, ...] = ()

    def size(self) -> int:
        return sum(max(1, len(clause)) for clause in self.clauses)


def normal_form(expr: Expr, is_multi: Callable[[str], bool], splitting: Splitting = Splitting.PRODUCTS) -> Form:
    """The expression's normal form, without clauses that contradict themselves."""
    nodes = _nodes(expr, is_multi)
    root = nodes[-1]
    if splitting is Splitting.PRODUCTS:
        split = _Splitter(_LITERALS + _PER_ITEM * len(expr.program)).split(nodes)
    else:
        found = None if splitting is Splitting.NEVER else _branches(root)
        if found is None and splitting is Splitting.SMALL:
            small = _Splitter(_SMALL * sum(not isinstance(item, Op) for item in expr.program)).split(nodes)
            found = None if small.residuals else small
        split = _conjuncts(root, True) if found is None else found
    merged = [clause for clause in map(_merge, split.clauses) if clause is not None]
    return Form(tuple(merged), _program(split.residuals) if merged else ())


def plain(expr: Expr, patterns: Collection[int]) -> Expr:
    """The expression in the operators that have a normal form: IS as a comparison and a test for null, and MATCH
    instead of LIKE where ``patterns`` has its number."""
    items: list[Item] = []
    for at, item in enumerate(expr.program):
        if isinstance(item, Predicate) and item.op == "is":
            name, negated = item.attribute, item.negated
            items += (Predicate(name, "null", (), not negated), Predicate(name, "=", item.values, negated))
            items.append(Op("or" if negated else "and", 2))
        elif isinstance(item, Predicate) and at in patterns:
            items.append(Predicate(item.attribute, "match", item.values, item.negated))
        else:
            items.append(item)
    return Expr(tuple(items))


# The expression as nodes


def _nodes(expr: Expr, is_multi: Callable[[str], bool]) -> list[_Node]:
    """Nodes in postfix order, the last one for the whole expression; a set of values is one literal."""
    stack: list[_Node] = []
    found: list[_Node] = []
    for at, item in enumerate(expr.program):
        if isinstance(item, Op):
            children = stack[len(stack) - item.arity :]
            del stack[len(stack) - item.arity :]
            node = _join(item, children)
        else:
            node = _Node(_leaf(item, at, is_multi(item.attribute)) if isinstance(item, Predicate) else item)
        stack.append(node)
        found.append(node)
    return found


def _leaf(predicate: Predicate, at: int, multi: bool) -> Literal:
    name, negated = predicate.attribute, predicate.negated
    if predicate.op == "null":
        return Presence(name, negated)
    if multi or predicate.op in ("match", "ilike"):
        return Elements(name, at, negated, predicate.op in ("match", "ilike"))
    return Values(name, _negate(at) if negated else at)


def _join(op: Op, children: Sequence[_Node]) -> _Node:
    first = children[0]
    if op.kind == "not":
        return _Node(op, children) if isinstance(first.item, Op) else _Node(_wanted(first.item, False))
    if op.kind in ("and", "or"):
        children = _gather(op.kind, children)
        if len(children) == 1:
            return children[0]
        return _Node(op if len(children) == op.arity else Op(op.kind, len(children)), children)
    fold = _fold(op.kind, [child.item for child in children])
    return _Node(op, children) if fold is None else _Node(fold)


def _wanted(item: Literal | bool, wanted: bool) -> Literal | bool:
    """The item, or its opposite, which is true where it is false."""
    if isinstance(item, bool):
        return item == wanted
    return item if wanted else _opposite(item)


def _opposite(literal: Literal) -> Literal:
    if isinstance(literal, Values):
        return Values(literal.attribute, _negate(literal.formula), literal.depth + 1)
    if isinstance(literal, Elements):
        return replace(literal, negated=not literal.negated)
    return Presence(literal.attribute, not literal.present)


def _negate(formula: Formula) -> Formula:
    if isinstance(formula, tuple) and formula[0] == "not":
        return formula[1][0]
    return ("not", (formula,))


def _fold(kind: Connective, items: Sequence[Step]) -> Values | None:
    """A connective over one single-valued attribute as a set of its values: where it is missing, all are unknown."""
    sets = [item for item in items if isinstance(item, Values)]
    if len(sets) < len(items) or len({one.attribute for one in sets}) > 1:
        return None
    depth = 1 + max(one.depth for one in sets)
    return None if depth > _FOLDED else Values(sets[0].attribute, (kind, tuple(one.formula for one in sets)), depth)


def _gather(kind: Connective, children: Sequence[_Node]) -> Sequence[_Node]:
    """Fold the children of AND or OR that are sets of values of the same attribute."""
    names = [child.item.attribute for child in children if isinstance(child.item, Values)]
    if len(set(names)) == len(names):
        return children
    groups: dict[str, list[_Node]] = {}
    others: list[_Node] = []
    for child in children:
        if isinstance(child.item, Values):
            groups.setdefault(child.item.attribute, []).append(child)
        else:
            others.append(child)
    for group in groups.values():
        fold = _fold(kind, [child.item for child in group]) if len(group) > 1 else None
        others += group if fold is None else [_Node(fold)]
    return others


# Without products


def _conjuncts(node: _Node, wanted: bool) -> _Split:
    """How a node becomes true (or false): one clause, or none, and the residuals that go with it."""
    literals: list[Literal] = []
    residuals: list[_Residual] = []
    waiting = [(node, wanted)]
    while waiting:
        node, wanted = waiting.pop()
        item = node.item
        if isinstance(item, bool):
            if item != wanted:
                return _Split(())
        elif not isinstance(item, Op):
            literals.append(item if wanted else _opposite(item))
        elif item.kind == "not":
            waiting.append((node.children[0], not wanted))
        elif item.kind == ("and" if wanted else "or"):
            waiting += [(child, wanted) for child in reversed(node.children)]
        else:
            residuals.append((node, wanted))
    return _Split((tuple(literals),), tuple(residuals))


def _branches(node: _Node) -> _Split | None:
    """The conjunctions of literals that an OR joins, or None if there is anything else."""
    clauses: list[Clause] = []
    waiting = [(node, True)]
    while waiting:
        node, wanted = waiting.pop()
        kind = node.item.kind if isinstance(node.item, Op) else None
        if kind == "not":
            waiting.append((node.children[0], not wanted))
        elif kind == ("or" if wanted else "and"):
            waiting += [(child, wanted) for child in reversed(node.children)]
        else:
            split = _conjuncts(node, wanted)
            if split.residuals:
                return None
            clauses += split.clauses
    return _Split(tuple(clauses))


def _program(residuals: Sequence[_Residual]) -> tuple[Step, ...]:
    """Residuals, joined by AND, in postfix order."""
    steps: list[Step] = []
    waiting: list[_Node | Op] = [Op("and", len(residuals))] if len(residuals) > 1 else []
    for node, wanted in reversed(residuals):
        waiting += [node] if wanted else [Op("not", 1), node]
    while waiting:
        node_or_op = waiting.pop()
        if isinstance(node_or_op, Op):
            steps.append(node_or_op)
        elif isinstance(node_or_op.item, Op):
            waiting.append(node_or_op.item)
            waiting += reversed(node_or_op.children)
        else:
            steps += _positive(node_or_op.item)
    return tuple(steps)


def _positive(item: Literal | bool) -> Iterable[Step]:
    """The item, or its opposite and NOT, which lets programs share more predicates."""
    if isinstance(item, bool):
        return (item,)
    if isinstance(item, Values):
        negated = isinstance(item.formula, tuple) and item.formula[0] == "not"
    else:
        negated = item.negated if isinstance(item, Elements) else item.present
    return (_opposite(item), Op("not", 1)) if negated else (item,)


# With products


class _Splitter:
    """Makes a node's clauses from those of its operands, as long as they stay few."""

    def __init__(self, limit: int) -> None:
        self.limit = limit  # of literals in all clauses together

    def split(self, nodes: Sequence[_Node]) -> _Split:
        """How the last node becomes true; nodes come after their operands."""
        for node in nodes:
            if isinstance(node.item, Op):
                self._join(node, node.item.kind)
        return _split(nodes[-1], True)

    def _join(self, node: _Node, kind: Connective) -> None:
        children = node.children
        true: _Split | None
        false: _Split | None
        if kind == "not":
            true, false = _split(children[0], False), _split(children[0], True)
        elif kind == "and":
            true, false = self._all(children, True), self._any(children, False)
        elif kind == "or":
            true, false = self._any(children, True), self._all(children, False)
        else:
            odd, even = self._xor(children)
            true, false = (odd, even) if kind == "xor" else (even, odd)
        node.true = true or _Split(((),), ((node, True),))
        node.false = false or _Split(((),), ((node, False),))

    def _any(self, children: Sequence[_Node], wanted: bool) -> _Split | None:
        """One of the children is as wanted; None if clauses cannot express that."""
        splits = [_split(child, wanted) for child in children]
        if any(split.residuals for split in splits) or sum(split.size() for split in splits) > self.limit:
            return None
        return _Split(tuple(chain.from_iterable(split.clauses for split in splits)))

    def _all(self, children: Sequence[_Node], wanted: bool) -> _Split:
        """All children are as wanted; those that would multiply the clauses too much become residuals."""
        splits = [_split(child, wanted) for child in children]
        single = [split for split in splits if len(split.clauses) == 1]
        clauses: tuple[Clause, ...] = (tuple(chain.from_iterable(split.clauses[0] for split in single)),)
        residuals = list(chain.from_iterable(split.residuals for split in single))
        several = [(split, child) for split, child in zip(splits, children, strict=True) if len(split.clauses) != 1]
        for split, child in sorted(several, key=lambda pair: len(pair[0].clauses)):
            product = self._product(clauses, split.clauses)
            if product is None:
                residuals.append((child, wanted))
            else:
                clauses = product
                residuals += split.residuals
        return _Split(clauses, tuple(residuals))

    def _product(self, left: Sequence[Clause], right: Sequence[Clause]) -> tuple[Clause, ...] | None:
        literals = sum(map(len, left)) * len(right) + sum(map(len, right)) * len(left)
        if max(literals, len(left) * len(right)) > self.limit:
            return None
        return tuple(a + b for a in left for b in right)

    def _xor(self, children: Sequence[_Node]) -> tuple[_Split | None, _Split | None]:
        """How an odd, and an even, number of the children become true, if all are known."""
        pairs = [(_split(child, True), _split(child, False)) for child in children]
        if any(true.residuals or false.residuals for true, false in pairs):
            return None, None
        odd, even = pairs[0][0].clauses, pairs[0][1].clauses
        for one, other in pairs[1:]:
            true, false = one.clauses, other.clauses
            products = [self._product(a, b) for a, b in ((odd, false), (even, true), (odd, true), (even, false))]
            if any(product is None for product in products):
                return None, None
            odd, even = (products[0] or ()) + (products[1] or ()), (products[2] or ()) + (products[3] or ())
            if max(_Split(odd).size(), _Split(even).size()) > self.limit:
                return None, None
        return _Split(odd), _Split(even)


def _split(node: _Node, wanted: bool) -> _Split:
    """How a node becomes true, or false; its operands come before it."""
    if isinstance(node.item, Op):
        known = node.true if wanted else node.false
        assert known is not None
        return known
    item = _wanted(node.item, wanted)
    if isinstance(item, bool):
        return _Split(((),) if item else ())
    return _Split(((item,),))


def _merge(clause: Clause) -> Clause | None:
    """One literal per single-valued attribute; None if the clause contradicts itself."""
    if len({literal.attribute for literal in clause}) == len(clause):
        return clause
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
