"""Random expressions: printing and parsing is the identity, bulk equals single, the oracle equals SQLite."""

from __future__ import annotations

import datetime as dt
import functools
import math
import sqlite3

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumatch.errors import ParseError
from gpumatch.expr import Expr, Op, Predicate, Timestamp, bind, col, evaluate, parse, parse_many
from gpumatch.schema import Schema
from tests.examples import examples

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tricky = st.sampled_from(
    ["'", "''", '"', "`", "\\", "%", "_", "\n", "5", "AND", "\x00", "it's", "\\%", "-5", "🎈", "?"]
)
strings = st.lists(text | tricky, max_size=4).map("".join)
names = strings.filter(bool) | st.sampled_from(["px", "not", "Date", "INFINITY", "TIMESTAMP", "a.b", "x1", " ", "true"])
numbers = (
    st.integers() | st.floats(allow_nan=False) | st.sampled_from([2**63 - 1, -(2**63), 2**64, 10**300, 5e-324, 1e22])
)
stamps = st.builds(Timestamp, st.integers(-(10**30), 10**30) | st.integers(-(10**18), 10**18), st.booleans())
patterns = st.lists(st.sampled_from(["%", "_", "a", "é", "'", r"\%", r"\_", r"\\"]), max_size=4).map("".join)
constants = st.booleans() | numbers | strings | st.dates() | stamps | st.datetimes()


@st.composite
def predicates(draw: st.DrawFn) -> Expr:
    column, kind = col(draw(names)), draw(st.integers(0, 15))
    value, other = draw(constants), draw(constants)
    made = [
        lambda: column == value,
        lambda: column != value,
        lambda: column < value,
        lambda: column <= value,
        lambda: column > value,
        lambda: column >= value,
        lambda: column.between(value, other),
        lambda: column.is_in(draw(st.lists(constants, max_size=4))),
        lambda: column.startswith(draw(strings)),
        lambda: column.like(draw(patterns)),
        lambda: column.ilike(draw(patterns).replace("\\", "!"), "!"),
        lambda: column.like(draw(strings), ""),
        lambda: column.is_not_distinct_from(value),
        lambda: column.is_true(),
        lambda: column.is_null(),
        lambda: column.is_not_null(),
    ][kind]()
    (item,) = made.predicates()
    flip = item.op in ("=", "between", "in", "like", "ilike", "is", "null") and draw(st.booleans())
    return Expr((Predicate(item.attribute, item.op, item.values, item.negated != flip),))


def combined(leaves: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda e: ~e),
            st.tuples(inner, inner).map(lambda p: p[0] & p[1]),
            st.tuples(inner, inner).map(lambda p: p[0] | p[1]),
            st.tuples(inner, inner).map(lambda p: p[0] ^ p[1]),
            st.tuples(inner, inner).map(lambda p: p[0].xnor(p[1])),
        ),
        max_leaves=12,
    )


expressions = combined(predicates() | st.sampled_from([Expr((True,)), Expr((False,))]))


def types(expr: Expr) -> list[type]:
    return [type(value) for predicate in expr.predicates() for value in predicate.values]


@given(expressions)
@settings(max_examples=examples(400))
def test_parsing_the_text_of_an_expression_gives_it_back(expr: Expr) -> None:
    again = parse(str(expr))
    assert again == expr
    assert types(again) == types(expr)  # 1, 1.0 and TRUE are equal, but not the same constant
    assert again.depth == Expr(expr.program).depth == expr.depth
    assert repr(again) == repr(expr)


@given(st.lists(expressions, max_size=6), st.lists(constants, min_size=3, max_size=3))
@settings(max_examples=examples(150))
def test_bulk_equals_single(exprs: list[Expr], others: list[object]) -> None:
    texts = [str(expr) for expr in exprs] + [str(col("x") == other) for other in others]
    shapes, errors = parse_many(texts)
    assert not errors
    bound = {
        row: bind(shape.template, [column[at] for column in shape.constants])
        for shape in shapes
        for at, row in enumerate(shape.rows)
    }
    assert bound == {row: parse(text) for row, text in enumerate(texts)}
    assert len({shape.template for shape in shapes}) == len(shapes)


words = ["x", "'a'", "5", "-", "+", ".", "e", "'", '"', "`", "(", ")", ",", "=", "<", " ", "AND", " NOT ", "IN", "LIKE"]
words += ["''", "1e9", "DATE", "NULL", "TRUE", "%", "\\", "\n", " BETWEEN ", "INFINITY", "é", "²", "٣", "OR ", "\ud800"]
words += [" ESCAPE ", "'!'", "'!%'", " ILIKE ", " IS ", " DISTINCT FROM ", "--", "/*", "*/"]


@given(st.lists(st.lists(st.sampled_from(words), max_size=12).map("".join), min_size=1, max_size=4))
@settings(max_examples=examples(600))
def test_any_text_is_an_expression_or_a_parse_error(texts: list[str]) -> None:
    _, errors = parse_many(texts)
    for row, one in enumerate(texts):
        found = outcome(one)
        if isinstance(found, Expr):
            assert row not in errors
            assert parse(str(found)) == found
        else:
            assert (errors[row].message, errors[row].position) == (found.message, found.position)
            assert 0 <= found.position <= len(one)
            assert str(found).encode()


def outcome(text: str) -> Expr | ParseError:
    try:
        return parse(text)
    except ParseError as error:
        return error


# The oracle against SQLite

SCHEMA = Schema.of({"i": "int64", "f": "float64", "s": "string", "b": "bool", "d": "date"})
small_ints = st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
small_floats = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 2.0**53, 1e300, math.inf, -math.inf])
small_strings = st.text("abAB%_é\U00010000\uffff", max_size=3)
days = st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 4))
VALUES: dict[str, st.SearchStrategy[object]] = {
    "i": small_ints,
    "f": small_floats,
    "s": small_strings,
    "b": st.booleans(),
    "d": days,
}
CONSTANTS = {**VALUES, "i": small_ints | small_floats, "f": small_ints | small_floats}


@st.composite
def scalar_predicates(draw: st.DrawFn) -> Expr:
    name = draw(st.sampled_from("ifsbd"))
    op = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "between", "in", "null", "is"] + ["like"] * (name == "s")))
    if op == "like":
        return Expr((Predicate(name, op, (draw(patterns),), draw(st.booleans())),))
    count = {"between": 2, "null": 0, "in": draw(st.integers(1, 3))}.get(op, 1)
    values = tuple(draw(CONSTANTS[name]) for _ in range(count))
    return Expr((Predicate(name, op, values, draw(st.booleans())),))  # type: ignore[arg-type]


def to_sqlite(expr: Expr) -> tuple[str, list[object]]:
    """The expression as SQL with parameters, written without the printer under test."""
    stack: list[str] = []
    parameters: list[object] = []
    for item in expr.program:
        if isinstance(item, Op):
            joined = stack[-item.arity :]
            del stack[-item.arity :]
            sign = {"and": "AND", "or": "OR", "xor": "<>", "xnor": "=", "not": ""}[item.kind]
            stack.append(
                f"(NOT {joined[0]})"
                if item.kind == "not"
                else functools.reduce(lambda a, b, sign=sign: f"({a} {sign} {b})", joined)  # type: ignore[misc]
            )
        elif isinstance(item, Predicate):
            parameters += map(plain, item.values)
            stack.append(f"({'NOT ' * item.negated}{positive(item, parameters)})")
        else:
            stack.append(str(int(item)))
    return stack[0], parameters


def positive(item: Predicate, parameters: list[object]) -> str:
    if item.op == "null":
        return f"({item.attribute} IS NULL)"
    if item.op == "like":
        return f"({item.attribute} LIKE ? ESCAPE '\\')"
    if item.op == "is":
        return f"({item.attribute} IS NOT DISTINCT FROM ?)"
    marks = {"between": "BETWEEN ? AND ?", "in": f"IN ({', '.join('?' * len(item.values))})"}
    return f"({item.attribute} {marks.get(item.op, item.op + ' ?')})"


def plain(value: object) -> object:
    return value.isoformat() if isinstance(value, dt.date) else value


events = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


@given(
    combined(scalar_predicates() | st.sampled_from([Expr((True,)), Expr((False,))])),
    st.lists(events, min_size=1, max_size=8),
)
@settings(max_examples=examples(400))
def test_oracle_equals_sqlite(expr: Expr, rows: list[dict[str, object]]) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute("CREATE TABLE events (i INTEGER, f REAL, s TEXT, b INTEGER, d TEXT)")
    database.executemany(
        "INSERT INTO events VALUES (:i, :f, :s, :b, :d)", [{k: plain(v) for k, v in r.items()} for r in rows]
    )
    sql, parameters = to_sqlite(expr)
    found = [row[0] for row in database.execute(f"SELECT {sql} FROM events ORDER BY rowid", parameters)]
    database.close()
    expected = [None if one is None else bool(one) for one in found]
    assert [evaluate(expr, row, SCHEMA) for row in rows] == expected
    assert [evaluate(parse(str(expr)), row, SCHEMA) for row in rows] == expected
