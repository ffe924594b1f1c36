"""Turns tables back into expressions and blocks; codes lose nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.book import Codebook
from gpumatch.codes.table import Table
from gpumatch.expr import Expr, Op, Predicate, Timestamp
from gpumatch.expr.keys import MAX, MIN, key_float
from gpumatch.expr.times import EPOCH, FIRST_DAY, LAST_DAY
from gpumatch.expr.tree import Item
from gpumatch.opcodes import RANGE
from gpumatch.schema import AttributeType
from gpumatch.subscriptions.block import Attributes, Block, operator_of
from gpumatch.subscriptions.predicates import EMPTY, Predicates


def expression_of(attributes: Attributes, book: Codebook, table: Table, row: int) -> Expr:
    """The expression of a row. Open bounds on numbers become the adjacent closed ones."""
    clauses = np.flatnonzero(table.clause_row == row).tolist()
    if not clauses:
        return Expr((False,))  # nothing satisfies it, so its clauses were dropped
    items: list[Item] = []
    for clause in clauses:
        items += _clause(attributes, book, table, clause)
    return Expr((*items, Op("or", len(clauses))) if len(clauses) > 1 else tuple(items))


def _clause(attributes: Attributes, book: Codebook, table: Table, clause: int) -> list[Item]:
    """A clause in postfix order: its predicates and its program."""
    rows = table.predicate.reshape(-1, 4)
    items: list[Item] = []
    first, last = table.clause_ptr[clause : clause + 2].tolist()
    for attribute, _, lo, hi in rows[first:last].tolist():
        if lo > hi:
            return [False]
        items += _tests(attributes, book, attribute, lo, hi)
    operands = len(items)
    program = int(table.clause_program[clause])
    if program >= 0:
        operands += 1
        for item in table.program_item[table.program_ptr[program] : table.program_ptr[program + 1]].tolist():
            items += _program_item(attributes, book, rows[item].tolist()) if item >= 0 else [operator_of(item)]
    if operands == 0:
        return [True]
    return [*items, Op("and", operands)] if operands > 1 else items


def _program_item(attributes: Attributes, book: Codebook, predicate: list[int]) -> list[Item]:
    """A predicate in a program, where a missing value makes it unknown, whatever its range."""
    attribute, _, lo, hi = predicate
    everything = lo <= 0 and hi >= len(book.cuts[book.cut_ptr[attribute] : book.cut_ptr[attribute + 1]])
    if lo > hi or everything:
        return [Predicate(attributes.schema.names[attribute], "in", (), everything)]
    tests = _tests(attributes, book, attribute, lo, hi)
    return [*tests, Op("and", len(tests))] if len(tests) > 1 else [*tests]


def _tests(attributes: Attributes, book: Codebook, attribute: int, lo: int, hi: int) -> list[Predicate]:
    """A range of codes as one predicate, or as two if it needs two different string bounds."""
    name, type = attributes.schema.names[attribute], attributes.schema.types[attribute]
    cuts = book.cuts[book.cut_ptr[attribute] : book.cut_ptr[attribute + 1]]
    low = int(cuts[lo - 1]) if lo > 0 else None
    high = int(cuts[hi]) if hi < len(cuts) else None
    if type.kind == "string":
        return _string_tests(book, name, low, high)
    if type.kind == "date" and low is not None and low > LAST_DAY:
        return [Predicate(name, ">", (dt.date.max,))]  # no later date to write as a closed end
    if type.kind == "date" and high is not None and high - 1 < FIRST_DAY:
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
        return dt.date.fromordinal(EPOCH + key)
    return bool(key) if type.kind == "bool" else key


def decode_table(attributes: Attributes, book: Codebook, table: Table) -> Block:
    """The block that a table was encoded from."""
    pool = [
        book.pool_data[first:last].tobytes()
        for first, last in zip(book.pool_offsets[:-1].tolist(), book.pool_offsets[1:].tolist(), strict=True)
    ]
    strings = attributes.of_kind("string")
    attribute, kind, code_lo, code_hi = table.columns()
    lo, hi = range_keys(book, strings, attribute, code_lo, code_hi)
    plain = kind == RANGE
    never = plain & (code_lo > code_hi)
    lo[never], hi[never] = EMPTY
    predicates = Predicates.of(attribute, kind, np.where(plain, lo, code_lo), np.where(plain, hi, code_hi))
    own = range_keys(book, strings, table.range_attribute, table.range_lo, table.range_hi)
    return Block(
        table.length,
        table.clause_row,
        table.clause_ptr,
        table.clause_program,
        predicates,
        Predicates.of(table.range_attribute, RANGE, *own),
        table.program_ptr,
        table.program_item,
        pool,
    )


def range_keys(book: Codebook, strings: Array, owner: Array, lo: Array, hi: Array) -> tuple[Array, Array]:
    """First and last keys of ranges of codes, or lower and upper cuts where the attribute is a string."""
    if len(book.cuts) == 0:
        return np.full(len(lo), MIN), np.where(strings[owner], MIN, MAX)
    first, count = book.cut_ptr[owner], np.diff(book.cut_ptr)[owner]
    last = len(book.cuts) - 1
    low = np.where(lo > 0, book.cuts[np.clip(first + lo - 1, 0, last)], MIN)
    upper = book.cuts[np.clip(first + hi, 0, last)]
    closed = np.where(hi < count, upper - 1, MAX)
    cut = np.where(hi < count, upper, MIN)
    return low, np.where(strings[owner], cut, closed)
