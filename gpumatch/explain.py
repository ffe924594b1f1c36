"""Why a subscription does or does not match an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpumatch.expr import Expr, Op, Predicate, predicate_text, trace
from gpumatch.expr.constants import constant_text
from gpumatch.schema import Schema

_WORDS = {True: "true", False: "false", None: "unknown"}


@dataclass(frozen=True, slots=True)
class Step:
    """One predicate: its text, the event's value, its result, and whether it decided the outcome."""

    predicate: str
    value: Any
    result: bool | None
    decided: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of one subscription on one event, predicate by predicate. True in a condition if it matches."""

    id: int | str
    expression: str
    result: bool | None
    steps: tuple[Step, ...]

    def __bool__(self) -> bool:
        return self.result is True

    @property
    def decided(self) -> list[str]:
        """The predicates that decided."""
        return [step.predicate for step in self.steps if step.decided]

    def __str__(self) -> str:
        verdict = "matches" if self.result else f"does not match: the expression is {_WORDS[self.result]}"
        lines = [f"{self.id!r} {verdict}", f"  {self.expression}"]
        width = max((len(step.predicate) for step in self.steps), default=0)
        for step in self.steps:
            shown = "missing" if step.value is None else _shown(step.value)
            mark = "  <- decided" if step.decided else ""
            lines.append(f"  {step.predicate:{width}}  {_WORDS[step.result]:7}  value: {shown}{mark}")
        return "\n".join(lines)


def explain(name: int | str, expr: Expr, event: Mapping[str, Any], schema: Schema) -> Explanation:
    """``event`` has values as returned by ``EventBatch.row``."""
    results = trace(expr, event, schema)
    decisive = _decisive(expr, results)
    steps = tuple(
        Step(predicate_text(item), event.get(item.attribute), results[at], at in decisive)
        for at, item in enumerate(expr.program)
        if isinstance(item, Predicate)
    )
    return Explanation(name, str(expr), results[-1], steps)


def _decisive(expr: Expr, results: list[bool | None]) -> set[int]:
    """Items that decided the result: for an AND that is false, the operands that are false; and so on down."""
    operands = list(expr.operands())
    found: set[int] = set()
    waiting = [len(expr.program) - 1]
    while waiting:
        at = waiting.pop()
        found.add(at)
        item = expr.program[at]
        if isinstance(item, Op):
            same = item.kind in ("and", "or") or results[at] is None
            waiting += [child for child in operands[at] if not same or results[child] == results[at]]
    return found


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(constant_text, value))}]"
    return constant_text(value)
