"""Can some event satisfy two expressions together? This decides which subscriptions an advertisement matches.

An advertisement is an expression too: its publisher promises that all its events satisfy it. It and a subscription
overlap if ``advertisement AND subscription`` can be true. The answer is exact if both consist of clauses alone. What an
expression keeps as a program, because it would grow too large when multiplied out, is assumed to be satisfiable: then a
subscription may be sent to a publisher needlessly, but is never withheld. The same goes for patterns other than
prefixes, and for strings at the upper end of a prefix that only bytes outside UTF-8 could fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gpumatch.errors import GpumatchError
from gpumatch.expr import Expr, Predicate, check, parse
from gpumatch.expr.keys import INF_KEY, MIN, STRING_TOP, TOP, Set, combine, complement, float_key, key_float
from gpumatch.expr.normal import Clause, Elements, Presence, Values, normal_form, plain
from gpumatch.expr.patterns import prefix, read
from gpumatch.expr.tree import Item
from gpumatch.expr.typing_rules import operands
from gpumatch.routing.overlays.checks import expect
from gpumatch.schema import AttributeType, Schema, SchemaLike
from gpumatch.subscriptions.binding import bound_set, formula_set

# Half-open ranges in sequence: low, high, low, high … Between two different cuts there is always a value.
Cuts: TypeAlias = "tuple[Any, ...]"

_REMEMBERED = 1 << 16  # prepared expressions that are kept


@dataclass(frozen=True, slots=True)
class ListTest:
    """A test of a list: it needs an element in each of the ``wanted`` sets, and all elements in ``allowed``."""

    wanted: tuple[Cuts, ...]
    allowed: Cuts


@dataclass(frozen=True, slots=True)
class ClauseTest:
    """A conjunction that can be true: tests by attribute."""

    values: Mapping[str, Cuts]
    lists: Mapping[str, ListTest]
    present: frozenset[str]
    missing: frozenset[str]

    def meets(self, other: ClauseTest) -> bool:
        """Can both be true?"""
        if not (self.missing.isdisjoint(other.present) and other.missing.isdisjoint(self.present)):
            return False
        theirs = other.values
        for name, cuts in self.values.items():
            against = theirs.get(name)
            if against is not None and not _meet(cuts, against):
                return False
        return not self.lists or all(
            _lists_meet(test, other.lists[name]) for name, test in self.lists.items() if name in other.lists
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """An expression ready for comparison: one of the clauses must be true. Without any, it never is."""

    expression: Expr
    clauses: tuple[ClauseTest, ...]

    def overlaps(self, other: Prepared) -> bool:
        """Can some event satisfy both?"""
        return any(mine.meets(theirs) for mine in self.clauses for theirs in other.clauses)


class Overlaps:
    """Compares expressions over one schema; each is prepared once, a comparison then costs microseconds."""

    def __init__(self, schema: SchemaLike) -> None:
        self.schema = Schema.of(schema)
        self._prepared: dict[str, Prepared] = {}

    def prepare(self, expression: Expr | str) -> Prepared:
        """Parse and check an expression, and find the sets of values that its clauses ask for."""
        expect("expression", expression, str, Expr, hint='such as "px > 3"')
        # Equal expressions may differ in the types of their constants, such as 1 and TRUE; their texts do not.
        key = str(expression)
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= _REMEMBERED:
                self._prepared.clear()
            found = self._prepared[key] = self._prepare(
                parse(expression) if isinstance(expression, str) else expression
            )
        return found

    def satisfiable(self, expression: Expr | str) -> bool:
        """Can some event satisfy it?"""
        return bool(self.prepare(expression).clauses)

    def overlap(self, one: Expr | str, other: Expr | str) -> bool:
        """Can some event satisfy both?"""
        return self.prepare(one).overlaps(self.prepare(other))

    def _prepare(self, expr: Expr) -> Prepared:
        check(expr, self.schema)
        given = expr
        expr = plain(expr, [at for at, item in enumerate(expr.program) if self._is_search(item)])
        form = normal_form(expr, lambda name: self.schema[name].multi)
        sets: dict[int, Set] = {}
        for at, item in enumerate(expr.program):
            if isinstance(item, Predicate) and item.op != "null":
                found = bound_set(item, self.schema[item.attribute])
                if isinstance(found, GpumatchError):
                    raise found
                sets[at] = found
        made = (self._clause(clause, sets) for clause in form.clauses)
        return Prepared(given, tuple(clause for clause in made if clause is not None))

    def _is_search(self, item: Item) -> bool:
        """Is it a LIKE whose pattern is not a prefix?"""
        if not isinstance(item, Predicate) or item.op != "like":
            return False
        [pattern] = operands(item, self.schema[item.attribute])
        return prefix(read(str(pattern))) is None

    def _clause(self, clause: Clause, sets: Mapping[int, Set]) -> ClauseTest | None:
        """None if a required set is empty."""
        values: dict[str, Cuts] = {}
        present: set[str] = set()
        missing: set[str] = set()
        wanted: dict[str, list[Set]] = {}
        banned: dict[str, list[Set]] = {}
        for literal in clause:
            if isinstance(literal, Presence) and not literal.present:
                missing.add(literal.attribute)
                continue
            present.add(literal.attribute)
            type = self.schema[literal.attribute]
            if isinstance(literal, Values):
                values[literal.attribute] = _cuts(formula_set(literal.formula, sets, type.kind), type)
            elif isinstance(literal, Elements) and not literal.pattern:
                chosen = banned if literal.negated else wanted
                chosen.setdefault(literal.attribute, []).append(sets[literal.predicate])
        names = [*wanted, *(name for name in banned if name not in wanted)]
        lists = {name: _list_test(wanted.get(name, ()), banned.get(name, ()), self.schema[name]) for name in names}
        if not all(values.values()) or not all(all(test.wanted) for test in lists.values()):
            return None
        return ClauseTest(values, lists, frozenset(present), frozenset(missing))


def overlap(one: Expr | str, other: Expr | str, schema: SchemaLike) -> bool:
    """Can some event satisfy both expressions? To compare many, make one ``Overlaps``."""
    return Overlaps(schema).overlap(one, other)


def _list_test(wanted: Iterable[Set], banned: Iterable[Set], type: AttributeType) -> ListTest:
    union = combine([(), *banned], lambda count: count > 0)
    allowed = complement(union, type.kind)
    return ListTest(tuple(_cuts(_both(one, allowed), type) for one in wanted), _cuts(allowed, type))


def _both(one: Set, other: Set) -> Set:
    return combine([one, other], lambda count: count == 2)


def _lists_meet(one: ListTest, other: ListTest) -> bool:
    # Different elements may be in different sets; each must be allowed by both. An empty list satisfies the bans.
    return all(_meet(cuts, other.allowed) for cuts in one.wanted) and all(
        _meet(cuts, one.allowed) for cuts in other.wanted
    )


def _meet(one: Cuts, other: Cuts) -> bool:
    """Do two sorted sequences of ranges have a value in common?"""
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = one[i], one[i + 1]
        if (other[j] if other[j] > low else low) < (other[j + 1] if other[j + 1] < high else high):
            return True
        if high < other[j + 1]:
            i += 2
        else:
            j += 2
    return False


# Sets of keys as ranges between cuts that the type can tell apart


def _cuts(values: Set, type: AttributeType) -> Cuts:
    """The set's cuts moved up to the next value of the type, without ranges that contain no value."""
    closed = values if len(values) % 2 == 0 else (*values, STRING_TOP if type.kind == "string" else TOP)
    moved = [_next_value(cut, type) for cut in closed]
    out: list[Any] = []
    for low, high in zip(moved[::2], moved[1::2], strict=True):
        if low < high:
            out += (low, high)
    return tuple(out)


def _next_value(cut: Any, type: AttributeType) -> Any:
    """The least value, as a key, that lies above a cut; the end of the type's range if there is none.

    Integers of any width may have any value of 64 bits in an event.
    """
    if type.kind == "string":
        text, side = cut
        return text + b"\0" if side else text  # no string lies between a text and the same text followed by a zero
    if type.kind == "bool":
        return min(max(cut, 0), 2)
    if type.kind == "float" and MIN < cut < TOP:
        return _next_float(cut, type.name == "float32")
    return cut


def _next_float(cut: int, single: bool) -> int:
    if cut == -1:  # the key that -0.0 would have
        return 0
    if not single or cut >= INF_KEY:
        return cut
    value = key_float(cut)
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
        # Compared as a Python float: numpy would round the other side, too.
        return float_key(float(rounded if float(rounded) >= value else np.nextafter(rounded, np.float32(np.inf))))
