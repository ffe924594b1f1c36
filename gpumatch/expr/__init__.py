"""The expression language: turns text or ``col()`` into flat programs, and defines what they mean."""

from gpumatch.expr.atoms import Slot, Timestamp
from gpumatch.expr.builder import col
from gpumatch.expr.constants import constant
from gpumatch.expr.evaluate import evaluate, trace
from gpumatch.expr.shapes import Shape, bind, parse, parse_alike, parse_many
from gpumatch.expr.tree import Expr, Op, Predicate, predicate_text
from gpumatch.expr.typing_rules import check, coerce

__all__ = [
    "Expr",
    "Op",
    "Predicate",
    "Shape",
    "Slot",
    "Timestamp",
    "bind",
    "check",
    "coerce",
    "col",
    "constant",
    "evaluate",
    "parse",
    "parse_alike",
    "parse_many",
    "predicate_text",
    "trace",
]
