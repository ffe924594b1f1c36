"""Subscriptions from a table of predicates and operators, a row each; what an id's operators leave is joined by AND.

Comparisons with numbers are taken as whole columns; ids with any other predicate go through expressions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array
from gpumatch.errors import GpumatchError, IdError, ParseError, SchemaError
from gpumatch.events.arrow import is_list
from gpumatch.expr import Expr, Op
from gpumatch.expr.normal import Splitting
from gpumatch.expr.tree import MAX_DEPTH, Item
from gpumatch.subscriptions.block import OPERATORS, Attributes, Block, BlockBuilder
from gpumatch.subscriptions.operators import Postfix, add_branches, add_conjunctions, add_programs
from gpumatch.subscriptions.predicate_rows import Rows, plain
from gpumatch.subscriptions.texts import add_texts

LONG_FORM = ("id", "attribute", "op", "value", "values")  # the columns of a table of predicates
_AT_ONCE = 1 << 20  # rows per chunk, plus the remaining rows of its last id


def predicate_block(
    attributes: Attributes, table: Any, splitting: Splitting
) -> tuple[Any, Any, Block, dict[int, GpumatchError]]:
    """Ids in the order of first appearance, texts of those that are more than ranges, block, and errors by number."""
    lacking = sorted({"id", "attribute", "op"} - set(table.column_names))
    if not {"value", "values"} & set(table.column_names):
        lacking.append("value")
    if lacking:
        raise SchemaError(
            f"a table of predicates needs columns id, attribute, op and value or values; it lacks {', '.join(lacking)}"
        )
    table = table.select([name for name in LONG_FORM if name in table.column_names])
    table = table.cast(pa.schema([field.with_type(_takeable(field.type)) for field in table.schema]))
    ids, owner, position = _owners(table)
    if position is not None:  # the rows of an id need not be adjacent
        table = table.take(pa.array(position))
    reader = _Reader(attributes, splitting)
    first = 0
    while first < len(owner):
        last = min(first + _AT_ONCE, len(owner))
        last = int(np.searchsorted(owner, owner[last - 1], "right"))
        here = np.arange(first, last) if position is None else position[first:last]
        reader.add(Rows(attributes, table.slice(first, last - first)), owner[first:last], here)
        first = last
    texts = pa.array(map(reader.texts.get, range(len(ids))), pa.large_string()) if reader.texts else None
    return ids, texts, reader.builder.build(len(ids)), dict(sorted(reader.errors.items()))


def _takeable(kind: Any) -> Any:
    """The type with strings instead of the string views of polars, from which Arrow cannot take rows."""
    if is_list(kind):
        return pa.large_list(_takeable(kind.value_type))
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _owners(table: Any) -> tuple[Any, Array, Array | None]:
    """Ids in order of appearance, the id number of each row, ascending, and the rows' positions if reordered."""
    column = plain(table["id"])
    if column.null_count:
        raise IdError(f"column 'id' has a null at position {pc.index(column.is_null(), True).as_py()}")
    changes = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False) if len(column) else np.zeros(0, bool)
    starts = np.flatnonzero(np.append(len(column) > 0, changes))
    encoded = column.take(pa.array(starts)).dictionary_encode()
    number = encoded.indices.to_numpy(zero_copy_only=False)
    owner = np.repeat(number, np.diff(np.append(starts, len(column))))
    if len(encoded.dictionary) == len(starts):
        return encoded.dictionary, owner, None
    position = np.argsort(owner, kind="stable")
    return encoded.dictionary, owner[position], position


class _Reader:
    """Puts rows of the table into a block; all rows of an id come in the same call."""

    def __init__(self, attributes: Attributes, splitting: Splitting) -> None:
        self.builder = BlockBuilder(attributes.schema)
        self.errors: dict[int, GpumatchError] = {}
        self.texts: dict[int, str] = {}
        self._attributes, self._splitting = attributes, splitting

    def add(self, rows: Rows, owner: Array, position: Array) -> None:
        """Add rows of some ids; ``position`` is where they were in the table."""
        number = owner - owner[0]
        joining = rows.connective >= 0
        arity = self._arities(rows, owner, position)
        given = Postfix(owner, rows.connective, arity)
        operators = np.bincount(number, weights=joining)
        logical = operators > 0
        # Alone, NOT of a comparison is a literal with two ranges; among operators it is a comparison and NOT.
        among = logical | (self._splitting is Splitting.NEVER)
        known = joining | rows.fast & (~rows.negated | among[number])
        slow = np.bincount(number, weights=~known) > 0
        slow |= operators > MAX_DEPTH  # they may be nested too deeply
        if self._splitting is Splitting.PRODUCTS:
            slow |= logical
        self._check_operands(rows, given, position, np.bincount(number, weights=~rows.known) == 0)
        bad = np.zeros(len(logical), np.bool_)
        bad[[at - int(owner[0]) for at in self.errors if at >= owner[0]]] = True
        self._add_slow(rows, given, (slow & ~bad)[number])
        self._add_fast(rows, given, ~(slow | bad)[number])

    def _arities(self, rows: Rows, owner: Array, position: Array) -> Array:
        """The number of operands of each operator; bad ones go to ``errors``."""
        arity = rows.arities()
        usual = np.where(rows.connective == OPERATORS["not"], 1, 2)
        arity = np.where(arity == 0, usual, arity)
        exact = (rows.connective == OPERATORS["not"]) | (rows.connective == OPERATORS["xnor"])
        wrong = np.where(exact, arity != usual, arity < usual)
        named = np.array([name is not None for name in rows.names], np.bool_)[rows.name]
        for row in np.flatnonzero((rows.connective >= 0) & (wrong | named | rows.several)).tolist():
            self.errors.setdefault(int(owner[row]), rows.misuse(row, f" at position {position[row]}"))
        return np.maximum(arity, 1)

    def _check_operands(self, rows: Rows, given: Postfix, position: Array, known: Array) -> None:
        """Ids with an operator that lacks operands go to ``errors``, unless one of their rows cannot be read at all."""
        for row in given.lacking().tolist():
            number, arity = int(given.row[row]), int(given.arity[row])
            if not known[number - int(given.row[0])]:
                continue
            found = int(given.height[row]) + arity - 1
            operands = "1 operand" if arity == 1 else f"{arity} operands"
            error = SchemaError(
                f"{rows.shown(row)} at position {position[row]} takes {operands}, found {found} before it; "
                "operators come after their operands, and 'value' is their number"
            )
            self.errors.setdefault(number, error)

    def _add_fast(self, rows: Rows, given: Postfix, chosen: Array) -> None:
        """Numeric comparisons and operators on them, as whole columns."""
        given, tests = given.take(chosen), rows.tests().take(chosen)
        if not tests.negated.any() and (given.operator < 0).all():
            add_conjunctions(self.builder, given.row[given.starts], given.number, tests.predicates)
            return
        if self._splitting is not Splitting.NEVER:
            split = add_branches(self.builder, given, tests)
            given, tests = given.take(~split), tests.take(~split)
        add_programs(self.builder, given, tests)

    def _add_slow(self, rows: Rows, given: Postfix, chosen: Array) -> None:
        """Ids with a predicate other than a numeric comparison, through text."""
        at = np.flatnonzero(chosen)
        programs: dict[int, list[Item]] = {}
        items = rows.items(self._attributes.schema, at, given.arity)
        for owner, item in zip(given.row[at].tolist(), items, strict=True):
            if isinstance(item, GpumatchError):
                self.errors.setdefault(owner, item)
            else:
                programs.setdefault(owner, []).append(item)
        good = ((number, _expression(program)) for number, program in programs.items() if number not in self.errors)
        texts = {number: str(expr) for number, expr in good if self._is_shallow(number, expr)}
        add_texts(self.builder, self._attributes, self._splitting, texts, list(texts), self.errors)
        self.texts |= texts

    def _is_shallow(self, number: int, expr: Expr) -> bool:
        if len(expr.program) <= MAX_DEPTH or expr.depth <= MAX_DEPTH:
            return True
        self.errors[number] = ParseError(
            f"the expression is nested more than {MAX_DEPTH} levels deep; give operators more operands at once"
        )
        return False


def _expression(items: list[Item]) -> Expr:
    """The expression of an id; what its operators leave is joined by AND."""
    left = sum(1 - item.arity if isinstance(item, Op) else 1 for item in items)
    return Expr((*items, Op("and", left)) if left > 1 else tuple(items))
