"""What each piece of the language becomes."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import pytest

from gpumatch.errors import ParseError
from gpumatch.expr import Expr, Op, Predicate, Timestamp, col, parse, parse_many, predicate_text
from gpumatch.expr.tree import MAX_DEPTH

CONSTANTS = [
    ("5", 5),
    ("-5", -5),
    ("+5", 5),
    ("0", 0),
    ("-9223372036854775808", -(2**63)),
    ("18446744073709551617", 2**64 + 1),
    ("9" * 400, int("9" * 400)),
    ("2.5", 2.5),
    ("5.", 5.0),
    (".5", 0.5),
    ("-.5e-3", -0.0005),
    ("1E3", 1000.0),
    ("-0.0", 0.0),
    ("1e-999", Decimal("1e-999")),
    ("INFINITY", float("inf")),
    ("-infinity", float("-inf")),
    ("+Infinity", float("inf")),
    ("TRUE", True),
    ("false", False),
    ("''", ""),
    ("'it''s'", "it's"),
    ("''''", "'"),
    ("'a\nb\\'", "a\nb\\"),
    ("'\"x\" `y` 5'", '"x" `y` 5'),
    ("'日本 🎈'", "日本 🎈"),
    ("'NULL'", "NULL"),
    ("DATE '2024-01-31'", dt.date(2024, 1, 31)),
    ("date'0001-01-01'", dt.date(1, 1, 1)),
    ("TIMESTAMP '1970-01-01 00:00'", Timestamp(0)),
    ("TIMESTAMP '1970-01-01'", Timestamp(0)),
    ("timestamp '1970-01-01T00:00:01.5'", Timestamp(1_500_000_000)),
    ("TIMESTAMP '1969-12-31 23:59:59.999999999Z'", Timestamp(-1, True)),
    ("TIMESTAMP '1970-01-01 02:00:00+02:00'", Timestamp(0, True)),
    ("TIMESTAMP '1969-12-31 19:30:00.000000001-04:30'", Timestamp(1, True)),
    ("TIMESTAMP '+12000-01-01 00:00'", Timestamp(316516204800 * 10**9)),
]


@pytest.mark.parametrize(("text", "value"), CONSTANTS)
@pytest.mark.parametrize(
    ("written", "op", "negated", "flipped"),
    [
        ("=", "=", False, "="),
        ("==", "=", False, "="),
        ("<>", "=", True, "="),
        ("!=", "=", True, "="),
        ("<", "<", False, ">"),
        ("<=", "<=", False, ">="),
        (">", ">", False, "<"),
        (">=", ">=", False, "<="),
    ],
)
def test_comparison(text: str, value: object, written: str, op: str, negated: bool, flipped: str) -> None:
    assert exact(parse(f"x {written} {text}")) == [("x", op, [(type(value), value)], negated)]
    assert exact(parse(f"{text} {written} x")) == [("x", flipped, [(type(value), value)], negated)]


@pytest.mark.parametrize(("text", "value"), CONSTANTS)
@pytest.mark.parametrize("negated", [False, True])
def test_between_and_in(text: str, value: object, negated: bool) -> None:
    word, one = "NOT " * negated, (type(value), value)
    assert exact(parse(f"x {word}BETWEEN {text} AND {text}")) == [("x", "between", [one, one], negated)]
    assert exact(parse(f"x {word}in({text},{text}\n,{text})")) == [("x", "in", [one] * 3, negated)]


def exact(expr: Expr) -> list[tuple[object, ...]]:
    """Predicates with the types of their constants, since 1, 1.0 and True are equal in Python."""
    return [(p.attribute, p.op, [(type(v), v) for v in p.values], p.negated) for p in expr.predicates()]


@pytest.mark.parametrize("pattern", ["", "%", "ab", "ab%", r"a\%b\_c\\%", "it''s_", "%a\n%", "%a%%_b", r"\\"])
@pytest.mark.parametrize("op", ["like", "ilike"])
def test_like(pattern: str, op: str) -> None:
    held = pattern.replace("''", "'")
    assert parse(f"x {op} '{pattern}'") == Expr((Predicate("x", op, (held,)),))
    assert parse(f"x NOT {op.upper()} '{pattern}'") == Expr((Predicate("x", op, (held,), True),))
    other, written = held.replace("\\", "!"), pattern.replace("\\", "!")
    assert parse(f"x {op} '{written}' Escape '!'") == Expr((Predicate("x", op, (other, "!")),))
    assert parse(f"x {op} '{pattern}'\nESCAPE''") == Expr((Predicate("x", op, (held, "")),))


def test_tests_that_are_never_unknown() -> None:
    for negated in (False, True):
        word = "not " * negated
        assert parse(f"x IS {word}TRUE") == Expr((Predicate("x", "is", (True,), negated),))
        assert parse(f"x is {word}false") == Expr((Predicate("x", "is", (False,), negated),))
        assert parse(f"x IS {word}DISTINCT FROM 5") == Expr((Predicate("x", "is", (5,), not negated),))
        assert parse(f"x IS {word}distinct FROM DATE '2024-01-31'") == Expr(
            (Predicate("x", "is", (dt.date(2024, 1, 31),), not negated),)
        )
        assert parse(f"x IS {word}DISTINCT from NULL") == Expr((Predicate("x", "null", (), not negated),))


@pytest.mark.parametrize("name", ["ilike", "ESCAPE", "distinct", "From", "date", "TimeStamp"])
def test_words_that_are_names_elsewhere(name: str) -> None:
    text = f"{name} = 1 AND {name} ILIKE 'a' ESCAPE '!' AND NOT {name} AND {name} IS DISTINCT FROM 'b' OR 5 < {name}"
    assert {item.attribute for item in parse(text).predicates()} == {name}
    assert parse(str(parse(text))) == parse(text)
    assert str(parse(f"{name} = 1")) == f"{name} = 1"


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("x > 5--3", "x > 5"),
        ("x > 5 -- it's\n AND y", "x > 5 AND y"),
        ("x > 5 -- \r AND y", "x > 5 AND y"),
        ("--\nx--", "x"),
        ("/**/x/*'*/>/* \" */5/* -- */", "x > 5"),
        ("x /* a /* b */ /* c\n */ */ > /*/**/*/ 5", "x > 5"),
        ("x > 5 -- /*", "x > 5"),
        ("x > 5 /* -- */ AND y", "x > 5 AND y"),
        ("x = '--' AND y = '/*'", "x = '--' AND y = '/*'"),
        ("x = 'it''s--' -- '", "x = 'it''s--'"),
        ('"a--b" = 1 AND `/*` = 2', '"a--b" = 1 AND "/*" = 2'),
        ("x LIKE 'a' -- b\n ESCAPE '!'", "x LIKE 'a' ESCAPE '!'"),
        ("x >-- 1\n-5", "x > -5"),
    ],
)
def test_comments(text: str, bare: str) -> None:
    assert parse(text) == parse(bare)
    shapes, errors = parse_many([text, bare])
    assert not errors
    assert [shape.rows for shape in shapes] == [[0, 1]]


def test_null_empty_list_and_bare_attributes() -> None:
    assert parse("x IS NULL") == Expr((Predicate("x", "null"),))
    assert parse("x is not null") == Expr((Predicate("x", "null", (), True),))
    assert parse("x IN ()") == Expr((Predicate("x", "in"),))
    assert parse("active AND px > 5") == (col("active") == True) & (col("px") > 5)  # noqa: E712
    assert parse("NOT (active)") == ~(col("active") == True)  # noqa: E712
    assert parse("TRUE") == Expr((True,))
    assert parse("FALSE or TRUE = x") == Expr((False, Predicate("x", "=", (True,)), Op("or", 2)))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("px", "px"),
        ("_a.b.c9", "_a.b.c9"),
        ("größe", "größe"),
        ("価格2", "価格2"),
        ('"a ""b"" 5 \'c"', 'a "b" 5 \'c'),
        ("`a\"5``'`", "a\"5`'"),
        ('"and"', "and"),
        ("date", "date"),
        ("Timestamp", "Timestamp"),
        ('" "', " "),
        ("ıs", "ıs"),
    ],
)
def test_names(written: str, name: str) -> None:
    assert parse(f"{written}=5") == Expr((Predicate(name, "=", (5,)),))
    assert parse(f"5<{written}") == Expr((Predicate(name, ">", (5,)),))
    assert parse(written) == Expr((Predicate(name, "=", (True,)),))


def test_a_date_attribute_and_a_date_constant_in_one_text() -> None:
    assert parse("Date >= DATE '2024-01-01' AND timestamp < TIMESTAMP '2024-01-01 00:00'") == (
        col("Date") >= dt.date(2024, 1, 1)
    ) & (col("timestamp") < dt.datetime(2024, 1, 1))


a, b, c, d = (Expr((Predicate(name, "=", (True,)),)) for name in "abcd")


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("a OR b AND c", a | (b & c)),
        ("a XOR b OR c XOR d", (a ^ b) | (c ^ d)),
        ("a AND b XOR c AND d", (a & b) ^ (c & d)),
        ("(a OR b) AND c", (a | b) & c),
        ("NOT a AND b", ~a & b),
        ("NOT (a AND b)", ~(a & b)),
        ("a AND NOT b OR c", (a & ~b) | c),
        ("NOT NOT a", ~~a),
        ("a XOR b XNOR c XOR d", (a ^ b).xnor(c) ^ d),
        ("a XNOR b XNOR c", a.xnor(b).xnor(c)),
        ("a XNOR (b XNOR c)", a.xnor(b.xnor(c))),
        ("a XNOR (b XOR c)", a.xnor(b ^ c)),
        ("a XOR (b XNOR c)", a ^ b.xnor(c)),
        ("a XOR (b XNOR c) XOR d", a ^ (b.xnor(c) ^ d)),
        ("a XOR (b XNOR c XOR d)", a ^ (b.xnor(c) ^ d)),
        ("((a)) OR ((b) OR (c))", a | b | c),
    ],
)
def test_precedence(text: str, expr: Expr) -> None:
    assert parse(text) == expr
    assert parse(text).depth == expr.depth == printed_depth(str(expr))


def printed_depth(text: str) -> int:
    """Levels of parentheses and NOTs, for texts in which a NOT ends with its operand."""
    depth = deepest = nots = 0
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        nots = nots + 1 if word == "NOT" else nots
        depth += {"(": 1, ")": -1}.get(word, 0)
        deepest = max(deepest, depth + nots)
        nots = 0 if depth == 0 and word not in ("NOT", "(") else nots
    return deepest


def test_chains_are_one_operator() -> None:
    for kind in ("and", "or", "xor"):
        nested = f"a {kind} (b {kind} c) {kind} ((d {kind} e))"
        assert parse(nested).program[-1] == Op(kind, 5)
        assert sum(isinstance(item, Op) for item in parse(nested).program) == 1
    assert [item for item in parse("a xnor b xnor c").program if isinstance(item, Op)] == [Op("xnor", 2)] * 2


def test_layout_and_case_do_not_matter() -> None:
    assert parse("px>5 and qty<>3") == parse("  px\t>\n5 And\u00a0qty != 3 ")
    assert parse("x BETWEEN 1 AND-5") == parse("x between 1 and -5")


def test_thousand_levels_are_the_limit() -> None:
    for deep in (
        "(" * MAX_DEPTH + "x = 1" + ")" * MAX_DEPTH,
        "NOT " * MAX_DEPTH + "x = 1",
        "NOT (" * (MAX_DEPTH // 2) + "x = 1 OR y" + ")" * (MAX_DEPTH // 2),
        "(x OR y AND " * MAX_DEPTH + "z" + ")" * MAX_DEPTH,
    ):
        expr = parse(deep)
        assert parse(str(expr)) == expr
        assert hash(expr) == hash(parse(deep))
        assert str(expr) in repr(expr)
        assert expr.depth <= MAX_DEPTH
    for deep in ("(" * (MAX_DEPTH + 1) + "x = 1" + ")" * (MAX_DEPTH + 1), "NOT " * (MAX_DEPTH + 1) + "x = 1"):
        with pytest.raises(ParseError, match="1000 levels") as caught:
            parse(deep)
        assert caught.value.position == MAX_DEPTH * (1 if deep[0] == "(" else 4)
    with pytest.raises(ParseError, match="1000 levels"):
        parse("(" * 50_000)


def test_ten_thousand_terms() -> None:
    expr = parse(" OR ".join(f"x = {i}" for i in range(10_000)))
    assert expr.program[-1] == Op("or", 10_000)
    assert len(expr.program) == 10_001
    assert expr.depth == 0
    assert parse(str(expr)) == expr


def test_long_lists() -> None:
    expr = parse(f"x IN ({', '.join(map(str, range(50_000)))})")
    assert next(expr.predicates()).values == tuple(range(50_000))


def test_predicate_text_and_repr() -> None:
    assert predicate_text(Predicate("odd name", "between", (1, 2.5), True)) == '"odd name" NOT BETWEEN 1 AND 2.5'
    assert predicate_text(Predicate("x", "<", (1,), True)) == "NOT x < 1"
    assert repr(parse("x=1 and y")) == "<Expr x = 1 AND y = TRUE>"
    assert repr(Predicate("x", "null")) == "<Predicate x IS NULL>"


def test_import_is_light() -> None:
    code = "import sys, gpumatch.expr; print({'numpy', 'pyarrow', 'numba', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
