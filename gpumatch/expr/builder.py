"""``col("px") > 5``: expressions written in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from gpumatch.errors import SchemaError
from gpumatch.expr.patterns import ESCAPE, escaped
from gpumatch.expr.tokens import find_surrogate
from gpumatch.expr.tree import Expr, Predicate, PredicateOp
from gpumatch.expr.typing_rules import pattern_of
from gpumatch.expr.values import as_constant, is_missing


def col(name: str) -> Column:
    """An attribute, to be compared with constants."""
    if not isinstance(name, str) or not name or find_surrogate(name) is not None:
        raise SchemaError(f"attribute names are non-empty strings, found {name!r}")
    return Column(name)


class Column:
    """An attribute by name; each comparison gives an expression."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]  # == makes an expression

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> Expr:  # type: ignore[override]
        return self._test("=", value)

    def __ne__(self, value: object) -> Expr:  # type: ignore[override]
        return self._test("=", value, negated=True)

    def __lt__(self, value: object) -> Expr:
        return self._test("<", value)

    def __le__(self, value: object) -> Expr:
        return self._test("<=", value)

    def __gt__(self, value: object) -> Expr:
        return self._test(">", value)

    def __ge__(self, value: object) -> Expr:
        return self._test(">=", value)

    def between(self, low: object, high: object) -> Expr:
        """Both bounds included."""
        return self._test("between", low, high)

    def is_in(self, values: Iterable[object]) -> Expr:
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise SchemaError(f"attribute {self.name!r}: is_in() expects a list of constants, found {values!r}")
        return self._test("in", *values)

    def startswith(self, prefix: str) -> Expr:
        if not isinstance(prefix, str):
            raise SchemaError(f"attribute {self.name!r}: startswith() expects a string, found {prefix!r}")
        return self._test("like", escaped(prefix) + "%")

    def like(self, pattern: str, escape: str = ESCAPE) -> Expr:
        """``%`` stands for any characters, ``_`` for one; after ``escape`` both stand for themselves."""
        return self._pattern("like", pattern, escape)

    def ilike(self, pattern: str, escape: str = ESCAPE) -> Expr:
        """As ``like``, but ignores case."""
        return self._pattern("ilike", pattern, escape)

    def is_distinct_from(self, value: object) -> Expr:
        """As ``!=``, but true of a missing value; any value that is present is distinct from None."""
        return self._test("null", negated=True) if is_missing(value) else self._test("is", value, negated=True)

    def is_not_distinct_from(self, value: object) -> Expr:
        """As ``==``, but false of a missing value, unless the constant is missing, too."""
        return self._test("null") if is_missing(value) else self._test("is", value)

    def is_true(self) -> Expr:
        """True, and not missing; ``~`` of it is true of a missing value."""
        return self._test("is", True)

    def is_false(self) -> Expr:
        return self._test("is", False)

    def is_null(self) -> Expr:
        return self._test("null")

    def is_not_null(self) -> Expr:
        return self._test("null", negated=True)

    def _pattern(self, op: PredicateOp, pattern: str, escape: str) -> Expr:
        for what, given in (("a pattern", pattern), ("an escape character", escape)):
            if not isinstance(given, str):
                raise SchemaError(f"attribute {self.name!r}: {op}() expects {what}, a string, found {given!r}")
        made = self._test(op, pattern) if escape == ESCAPE else self._test(op, pattern, escape)
        pattern_of((pattern, escape), self.name)  # raises if it is malformed
        return made

    def _test(self, op: PredicateOp, *values: object, negated: bool = False) -> Expr:
        for value in values:
            if isinstance(value, Column):
                raise SchemaError(f"attribute {self.name!r}: expected a constant, found attribute {value.name!r}")
        constants = tuple(as_constant(value, self.name) for value in values)
        return Expr((Predicate(self.name, op, constants, negated),))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"attribute {self.name!r} has no truth value; compare it, for instance with == True")

    def _bare(self, other: object = None) -> NoReturn:
        raise TypeError(
            f"attribute {self.name!r} must be compared before it is combined, and comparisons must be in "
            "parentheses: (col('a') > 5) & (col('b') == True)"
        )

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _bare

    def __repr__(self) -> str:
        return f"col({self.name!r})"
