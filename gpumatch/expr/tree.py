"""Expressions as flat postfix programs: equality, printing and evaluation need no recursion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias

from gpumatch.errors import ParseError
from gpumatch.expr.atoms import Constant, Slot
from gpumatch.expr.constants import constant_text
from gpumatch.expr.tokens import is_bare_name

MAX_DEPTH = 1000  # levels of nesting that an expression may have

PredicateOp = Literal["=", "<", "<=", ">", ">=", "between", "in", "like", "ilike", "match", "is", "null"]
Connective = Literal["and", "or", "xor", "xnor", "not"]
PRECEDENCE: dict[Connective, int] = {"or": 1, "xor": 2, "xnor": 2, "and": 3, "not": 4}


@dataclass(frozen=True, slots=True, repr=False)
class Predicate:
    """A test of one attribute. ``null`` has no value, ``in`` any number of them, ``like`` and ``ilike`` a pattern
    and, if it is not the usual one, its escape character.

    ``is`` is IS NOT DISTINCT FROM: as ``=``, but false where that is unknown. ``match`` is the internal form of LIKE
    with a pattern other than a prefix. ``negated`` is how ``<>``, ``NOT IN``, ``NOT BETWEEN``, ``NOT LIKE``,
    ``IS NOT NULL`` and IS DISTINCT FROM are written; it means NOT of the positive form.
    """

    attribute: str
    op: PredicateOp
    values: tuple[Constant | Slot, ...] = ()
    negated: bool = False

    def __str__(self) -> str:
        from gpumatch.expr.tree import predicate_text

        return predicate_text(self)

    def __repr__(self) -> str:
        return f"<Predicate {self}>"


@dataclass(frozen=True, slots=True)
class Op:
    """Joins the ``arity`` results before it. ``not`` has one operand, ``xnor`` two, the others two or more."""

    kind: Connective
    arity: int


Item: TypeAlias = "Predicate | Op | bool"


@dataclass(frozen=True, slots=True, repr=False)
class Expr:
    """A Boolean expression in postfix order; ``TRUE`` and ``FALSE`` are items of their own.

    ``&``, ``|``, ``^``, ``~`` and ``xnor`` combine expressions; ``==`` compares them as written.
    """

    program: tuple[Item, ...]
    # Cached so that building a long chain operator by operator does not walk the whole program each time.
    _depth: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def depth(self) -> int:
        """Levels of parentheses and NOTs in the printed text."""
        if self._depth is None:
            object.__setattr__(self, "_depth", _measure(self))
        assert self._depth is not None
        return self._depth

    def predicates(self) -> Iterator[Predicate]:
        """The predicates in the order of the text, with repeats."""
        return (item for item in self.program if isinstance(item, Predicate))

    def operands(self) -> list[tuple[int, ...]]:
        """For each item of the program, the positions of the items that it joins (none for predicates)."""
        stack: list[int] = []
        result: list[tuple[int, ...]] = []
        for position, item in enumerate(self.program):
            joined: tuple[int, ...] = ()
            if isinstance(item, Op):
                joined = tuple(stack[-item.arity :])
                del stack[-item.arity :]
            result.append(joined)
            stack.append(position)
        return result

    def __and__(self, other: object) -> Expr:
        return _join("and", self, other) if isinstance(other, Expr) else NotImplemented

    def __or__(self, other: object) -> Expr:
        return _join("or", self, other) if isinstance(other, Expr) else NotImplemented

    def __xor__(self, other: object) -> Expr:
        return _join("xor", self, other) if isinstance(other, Expr) else NotImplemented

    def xnor(self, other: Expr) -> Expr:
        """True where both are true or both are false."""
        if not isinstance(other, Expr):
            raise TypeError(f"xnor expects an expression, found {other!r}")
        return _join("xnor", self, other)

    def __invert__(self) -> Expr:
        return _made((*self.program, Op("not", 1)), self.depth + 1 + needs_parentheses("not", 0, self.program[-1]))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "an expression has no truth value: combine expressions with & | ^ ~ instead of and, or, not, if, "
            "and write a chained comparison as between() or as two comparisons joined by &"
        )

    def __str__(self) -> str:
        from gpumatch.expr.tree import expression_text

        return expression_text(self)

    def __repr__(self) -> str:
        return f"<Expr {self}>"


def needs_parentheses(parent: Connective, number: int, child: Item) -> bool:
    """Whether an operand must be put in parentheses when it is printed as operand ``number``."""
    if not isinstance(child, Op):
        return False
    outer, inner = PRECEDENCE[parent], PRECEDENCE[child.kind]
    # XOR and XNOR share a level and bind to the left, so only the first operand may stay bare.
    return inner < outer or (inner == outer and number > 0 and parent != "not")


def _join(kind: Connective, left: Expr, right: Expr) -> Expr:
    """One n-ary operator if the operands are chains of the same operator, as the parser makes it."""
    items: list[Item] = []
    arity = depth = 0
    for number, side in enumerate((left, right)):
        root = side.program[-1]
        if kind != "xnor" and isinstance(root, Op) and root.kind == kind:
            items += side.program[:-1]
            arity += root.arity
            depth = max(depth, side.depth)
            moved = number > 0
        else:
            items += side.program
            arity += 1
            depth = max(depth, side.depth + needs_parentheses(kind, number, root))
            moved = False
    program = (*items, Op(kind, arity))
    # The first operand of a chain may need parentheses once it is no longer the first.
    return _made(program, _measure(Expr(program)) if moved and kind == "xor" else depth)


def _made(program: tuple[Item, ...], depth: int) -> Expr:
    if depth > MAX_DEPTH:
        raise ParseError(f"the expression is nested more than {MAX_DEPTH} levels deep")
    made = Expr(program)
    object.__setattr__(made, "_depth", depth)
    return made


def _measure(expr: Expr) -> int:
    depths: list[int] = []
    for item, operands in zip(expr.program, expr.operands(), strict=True):
        depth = 0
        if isinstance(item, Op):
            inner = (
                depths[at] + needs_parentheses(item.kind, nth, expr.program[at]) for nth, at in enumerate(operands)
            )
            depth = max(inner) + (item.kind == "not")
        depths.append(depth)
    return depths[-1]


# As text: parsing it gives the same expression again


def expression_text(expr: Expr) -> str:
    """The expression with no more parentheses than needed, keywords in capitals."""
    program, operands = expr.program, expr.operands()
    written: list[str] = []
    pending: list[str | int] = [len(program) - 1]  # items still to write, the next one last
    while pending:
        piece = pending.pop()
        if isinstance(piece, str):
            written.append(piece)
            continue
        item = program[piece]
        if not isinstance(item, Op):
            written.append(predicate_text(item) if isinstance(item, Predicate) else constant_text(item))
            continue
        pieces: list[str | int] = ["NOT "] if item.kind == "not" else []
        for number, operand in enumerate(operands[piece]):
            if number:
                pieces.append(f" {item.kind.upper()} ")
            bracket = needs_parentheses(item.kind, number, program[operand])
            pieces += ("(", operand, ")") if bracket else (operand,)
        pending += reversed(pieces)
    return "".join(written)


def predicate_text(predicate: Predicate) -> str:
    """One predicate, such as ``px NOT BETWEEN 1 AND 2``."""
    name, op, values = name_text(predicate.attribute), predicate.op, predicate.values
    maybe_not = "NOT " if predicate.negated else ""
    if op == "null":
        return f"{name} IS {maybe_not}NULL"
    if op == "is":
        if isinstance(values[0], bool):
            return f"{name} IS {maybe_not}{constant_text(values[0])}"
        return f"{name} IS {'' if predicate.negated else 'NOT '}DISTINCT FROM {constant_text(values[0])}"
    if op in ("like", "ilike", "match"):
        like = "ILIKE" if op == "ilike" else "LIKE"
        return f"{name} {maybe_not}{like} {' ESCAPE '.join(map(constant_text, values))}"
    if op == "in":
        return f"{name} {maybe_not}IN ({', '.join(map(constant_text, values))})"
    if op == "between":
        return f"{name} {maybe_not}BETWEEN {constant_text(values[0])} AND {constant_text(values[1])}"
    if op == "=":
        return f"{name} {'<>' if predicate.negated else '='} {constant_text(values[0])}"
    return f"{maybe_not}{name} {op} {constant_text(values[0])}"


def name_text(name: str) -> str:
    """An attribute name, quoted if necessary."""
    return name if is_bare_name(name) else '"' + name.replace('"', '""') + '"'
