"""Canonical text: parsing it gives the same expression again."""

from __future__ import annotations

from gpumatch.expr.constants import constant_text
from gpumatch.expr.tokens import is_bare_name
from gpumatch.expr.tree import Expr, Op, Predicate, needs_parentheses


def expression_text(expr: Expr) -> str:
    """The expression with no more parentheses than needed, keywords in capitals."""
    program, operands = expr.program, expr.operands()
    written: list[str] = []
    pending: list[str | int] = [len(program) - 1]  # items still to write, the next one last
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            written.append(part)
            continue
        item = program[part]
        if not isinstance(item, Op):
            written.append(predicate_text(item) if isinstance(item, Predicate) else constant_text(item))
            continue
        parts: list[str | int] = ["NOT "] if item.kind == "not" else []
        for place, operand in enumerate(operands[part]):
            if place:
                parts.append(f" {item.kind.upper()} ")
            bracket = needs_parentheses(item.kind, place, program[operand])
            parts += ("(", operand, ")") if bracket else (operand,)
        pending += reversed(parts)
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
    """An attribute name, quoted where it has to be."""
    return name if is_bare_name(name) else '"' + name.replace('"', '""') + '"'
