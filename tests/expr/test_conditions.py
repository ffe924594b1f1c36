"""Texts cut into conditions mean what the parser says, or are left to it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumatch.expr import Expr, Predicate, Slot
from gpumatch.expr.conditions import Reader
from gpumatch.expr.parser import parse_template
from gpumatch.expr.tokens import divide
from tests.examples import examples
from tests.expr.test_parse_errors import cases
from tests.expr.test_parser import CONSTANTS
from tests.expr.test_properties import expressions


def rebuilt(reader: Reader) -> list[tuple[Expr, list[str]]]:
    """The template of each text that was read, and its constants."""
    found = []
    condition, constants = iter(reader.condition), iter(reader.constants)
    for skeleton, count in zip(reader.skeleton, reader.counts, strict=True):
        items, slots = [], 0
        for item in reader.skeletons[skeleton].program:
            if isinstance(item, Predicate):
                item = reader.conditions[next(condition)].predicate
                values = tuple(Slot(slots + v.index, v.kind) if isinstance(v, Slot) else v for v in item.values)
                slots += sum(isinstance(value, Slot) for value in values)
                item = Predicate(item.attribute, item.op, values, item.negated)
            items.append(item)
        assert sum(isinstance(item, Predicate) for item in items) == count
        found.append((Expr(tuple(items)), [next(constants) for _ in range(slots)]))
    assert next(condition, None) is next(constants, None) is None
    return found


def check(texts: list[str]) -> list[int]:
    """The rows that are read, which must be as they are parsed."""
    reader = Reader()
    read = [row for row, text in enumerate(texts) if reader.read(row, text)]
    assert reader.rows == read
    for row, found in zip(read, rebuilt(reader), strict=True):
        assert found == (parse_template(texts[row])[0], divide(texts[row])[1]), texts[row]
    return read


PLAIN = [
    "px > 5",
    " px>5 ",
    "px = -.5e3 AND \"a b\" <> 'it''s' or `x` == '' XOR y != +7 XNOR z <= 1.",
    "NOT (a BETWEEN 1 AND 2 AND NOT b NOT BETWEEN 'x' AND 'y')",
    "((a IN (1, 2,3)) AND b NOT IN('x')) OR c IN ()",
    "s LIKE 'a%' AND s NOT LIKE'b%'AND t is null OR u IS NOT NULL",
    "flag AND NOT other OR (third)",
    "a = TRUE AND b <> false",
    "d = DATE '2024-01-01' AND d BETWEEN date'2024-01-01' AND TIMESTAMP '2024-01-01 10:00'",
    "d IN (DATE '2024-01-01', 5)",
    "date > '2024-01-01' AND Timestamp IN ('x') AND größe = 5 AND a.b.c9 = 5",
    "x = 'a AND b = 5' AND \"y = 5 OR\" = ') AND ('",
    "a = 1\n\tAND\u00a0b = 2",
    "nothing.in = 5 AND order = 6 AND not_a = 7 AND oranges = 8",
    "x = 'DATE ''2024-01-01'''",
]
LEFT = [
    "5 < px",
    "TRUE",
    "x = INFINITY",
    "x IN (TRUE, 5)",
    "x = 5 AND 6 = y",
    "x = 1)",
    "(x = 1",
    "x = 1 AND",
    "x = 1 y = 2",
    "x BETWEEN 1 OR 2",
    "x = 5 AND 6",
    "x BETWEEN 5",
    "x IN (1 2)",
    "x IN (1,)",
    "x LİKE 'a%'",
    "x = 5--3",
    "x = 5 -- note",
    "x /* y */ = 5",
    "x IS 'a'",
    "x IS NULL'a'",
    "AND = 5",
    "x = 5 AND NOT = 5",
    '"" = 5',
    "x = 'a",
    "x = 12abc",
    "x = 1.2.3",
    "",
    " ",
    "x LIKE 5",
    "x\ud800 = 5",
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_texts_are_read(text: str) -> None:
    assert check([text]) == [0]


@pytest.mark.parametrize("text", LEFT)
def test_other_texts_are_left_to_the_parser(text: str) -> None:
    assert check([text]) == []


def test_what_is_no_text_is_left() -> None:
    reader = Reader()
    assert not any(reader.read(at, value) for at, value in enumerate([None, 5, b"x = 5"]))
    assert (reader.rows, reader.condition, reader.constants) == ([], [], [])


def test_a_text_that_is_not_read_leaves_nothing_behind() -> None:
    assert check(["a = 1", "a = 2 AND b = 3 AND c = ", "a IN (4, 5) AND (", "b BETWEEN 6 AND 7"]) == [0, 3]


def test_texts_of_other_tests() -> None:
    texts = [f"x {op} {constant}" for constant, _ in CONSTANTS for op in ("=", "<>", "<", ">=", "LIKE")]
    texts += [f"x NOT BETWEEN {constant} AND {constant} OR x in({constant},{constant}\n)" for constant, _ in CONSTANTS]
    assert len(check(texts)) > len(texts) // 2
    check([text for text, _, _ in cases()])


def test_conditions_and_skeletons_are_met_once() -> None:
    reader = Reader()
    assert all(reader.read(at, f"a > {at} AND (b = 'x{at}' OR a > {-at})") for at in range(50))
    assert (len(reader.conditions), len(reader.skeletons)) == (2, 1)
    assert reader.counts == [3] * 50


def test_deep_and_long_texts() -> None:
    assert check(["(" * 900 + "a = 1" + ")" * 900, " AND ".join(["a = 1"] * 5000)]) == [0, 1]
    assert check(["(" * 1100 + "a = 1" + ")" * 1100, "(" * 50_000, "'" * 50_001, "a = " * 50_000]) == []


# What the random texts below are made of. They are right now and then, and nearly so most of the time.
names = st.sampled_from(["x", "y.z", '"a b"', "`c`", "date", "NOT", "and", "ıs", "x5"])
constants = st.sampled_from(
    [
        "5",
        "-1.5e3",
        "'a'",
        "'it''s'",
        "DATE '2024-01-01'",
        "timestamp'x'",
        "TRUE",
        "NULL",
        "-INFINITY",
        ".",
        "+",
        "date",
    ]
)
comparisons = st.sampled_from(
    ["=", " <> ", "<", " >= ", "==", " LIKE ", " NOT LIKE", " IS NULL", " is not null ", " IS "]
)
spaces = st.sampled_from(["", " ", "  ", "\n", "\u00a0"])
conditions = st.one_of(
    st.builds("{}{}{}".format, names, comparisons, constants),
    st.builds("{} {}{}".format, constants, st.sampled_from(["<", "= "]), names),
    st.builds("{} BETWEEN {}{}AND{}{}".format, names, constants, spaces, spaces, constants),
    st.builds(
        lambda name, members, spare: f"{name} NOT IN{spare}({spare}{f'{spare},'.join(members)})",
        names,
        st.lists(constants, max_size=3),
        spaces,
    ),
    st.builds("{}{}".format, names, st.sampled_from(["", " IS NULL", " IS NOT NULL", " IS NOT TRUE"])),
)
glue = st.sampled_from([" AND ", " or ", " XOR ", " XNOR ", " AND NOT ", "AND", ") OR (", " AND (", ")", " ", ""])


@st.composite
def nearly_right(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(["", "NOT ", "(", "((", " "]))
    for _ in range(draw(st.integers(1, 4))):
        text += draw(conditions) + draw(glue)
    return text + draw(st.sampled_from(["", "x = 1", "x = 1)", ")", "))", " -- 'note", " /* ' */"]))


@given(st.lists(nearly_right(), min_size=1, max_size=4))
@settings(max_examples=examples(1000))
@example(["x = 5 AND 6"])
def test_nearly_right_texts(texts: list[str]) -> None:
    check(texts)


@given(st.lists(expressions, min_size=1, max_size=4), st.integers(0, 2**30), st.sampled_from("'\"`()-5 \n,.eN"))
@settings(max_examples=examples(500))
def test_printed_expressions_and_what_a_slip_makes_of_them(exprs: list[Expr], seed: int, slip: str) -> None:
    texts = [str(expr) for expr in exprs]
    check(texts)
    at = [seed % (len(text) + 1) for text in texts]
    check([text[:place] + slip + text[place:] for text, place in zip(texts, at, strict=True)])
    check([text[:place] + text[place + 1 :] for text, place in zip(texts, at, strict=True)])
    check([text.lower() for text in texts])
