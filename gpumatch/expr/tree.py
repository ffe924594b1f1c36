"""Expressions as flat postfix programs: equality, printing and evaluation need no recursion."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal, TypeAlias

MAX_DEPTH = 1000  # levels of nesting that an expression may have

PredicateOp = Literal["=", "<", "<=", ">", ">=", "between", "in", "like", "null"]
Connective = Literal["and", "or", "xor", "xnor", "not"]


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time: nanoseconds since 1970, of UTC when ``zoned``, else of an unnamed wall clock."""

    nanos: int
    zoned: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for the ``index``-th constant of a text in the template that all texts of one shape share."""

    index: int
    kind: Literal["literal", "date", "timestamp", "like"] = "literal"


Constant: TypeAlias = "bool | int | float | str | dt.date | Timestamp"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A test of one attribute. ``like`` holds the bare prefix, ``null`` no value, ``in`` any number of them.

    ``negated`` is how ``<>``, ``NOT IN``, ``NOT BETWEEN``, ``NOT LIKE`` and ``IS NOT NULL`` are written; it means
    NOT of the positive form.
    """

    attribute: str
    op: PredicateOp
    values: tuple[Constant | Slot, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """Joins the ``arity`` results before it. ``not`` has one operand, ``xnor`` two, the others two or more."""

    kind: Connective
    arity: int


Item: TypeAlias = "Predicate | Op | bool"


@dataclass(frozen=True, slots=True)
class Expr:
    """A Boolean expression in postfix order; ``TRUE`` and ``FALSE`` are items of their own."""

    program: tuple[Item, ...]
