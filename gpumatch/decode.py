"""Expressions back from tables, for subscriptions that were never text: conjunctions of ranges."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

from gpumatch.coded import Table
from gpumatch.codes import Codebook
from gpumatch.expr import Expr, Op, Predicate, Timestamp
from gpumatch.keys import key_float
from gpumatch.predicates import Attributes
from gpumatch.schema import AttributeType

_EPOCH = dt.date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = dt.date.min.toordinal() - _EPOCH, dt.date.max.toordinal() - _EPOCH


def expression_of(attributes: Attributes, book: Codebook, table: Table, row: int) -> Expr:
    """What a row says. An open end of a number shows as the closed one beside it."""
    clauses = np.flatnonzero(table.clause_row == row)
    if len(clauses) == 0:
        return Expr((False,))  # a range that nothing lies in
    predicates: list[Predicate] = []
    first, last = table.clause_ptr[clauses[0] : clauses[0] + 2].tolist()
    for attribute, _, lo, hi in table.predicate.reshape(-1, 4)[first:last].tolist():
        if lo > hi:
            return Expr((False,))
        predicates += _tests(attributes, book, attribute, lo, hi)
    if len(predicates) < 2:
        return Expr(tuple(predicates) or (True,))
    return Expr((*predicates, Op("and", len(predicates))))


def _tests(attributes: Attributes, book: Codebook, attribute: int, lo: int, hi: int) -> list[Predicate]:
    """The range of codes as one predicate, or as two where strings need different ends."""
    name, type = attributes.schema.names[attribute], attributes.schema.types[attribute]
    cuts = book.cuts[book.cut_ptr[attribute] : book.cut_ptr[attribute + 1]]
    low = int(cuts[lo - 1]) if lo > 0 else None
    high = int(cuts[hi]) if hi < len(cuts) else None
    if type.kind == "string":
        return _string_tests(book, name, low, high)
    if type.kind == "date" and low is not None and low > _LAST_DAY:
        return [Predicate(name, ">", (dt.date.max,))]  # there is no date above to write as a closed end
    if type.kind == "date" and high is not None and high - 1 < _FIRST_DAY:
        return [Predicate(name, "<", (dt.date.min,))]
    first = None if low is None else _value(type, low)
    if type.kind == "float" and high == 0:
        high = -1  # the key below that of 0.0 would be that of -0.0, which is 0.0
    last = None if high is None else _value(type, high - 1)
    if first is None:
        return [Predicate(name, "null", (), True) if last is None else Predicate(name, "<=", (last,))]
    if last is None:
        return [Predicate(name, ">=", (first,))]
    return [Predicate(name, "=", (first,)) if first == last else Predicate(name, "between", (first, last))]


def _string_tests(book: Codebook, name: str, low: int | None, high: int | None) -> list[Predicate]:
    if low is not None and high == low + 1 and low % 2 == 0:
        return [Predicate(name, "=", (_string(book, low),))]
    tests = []
    if low is not None:
        tests.append(Predicate(name, ">" if low % 2 else ">=", (_string(book, low),)))
    if high is not None:
        tests.append(Predicate(name, "<=" if high % 2 else "<", (_string(book, high),)))
    return tests or [Predicate(name, "null", (), True)]


def _string(book: Codebook, key: int) -> str:
    first, last = book.pool_offsets[key >> 1 : (key >> 1) + 2].tolist()
    return book.pool_data[first:last].tobytes().decode()


def _value(type: AttributeType, key: int) -> Any:
    if type.kind == "float":
        return key_float(key)
    if type.kind == "timestamp":
        return Timestamp(key * (1 if type.unit == "ns" else 1000), type.zone is not None)
    if type.kind == "date":
        return dt.date.fromordinal(_EPOCH + key)
    return bool(key) if type.kind == "bool" else key
