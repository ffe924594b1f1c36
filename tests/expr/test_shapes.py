"""Bulk parsing: shapes, their constants, and rows that fail alone."""

from __future__ import annotations

import pytest

from gpumatch.expr import Expr, Predicate, Shape, Slot, bind, constant, parse, parse_many, shapes


def rebuilt(found: list[Shape]) -> dict[int, Expr]:
    """Every row's expression, bound from its shape's columns."""
    return {
        row: bind(shape.template, [column[at] for column in shape.constants])
        for shape in found
        for at, row in enumerate(shape.rows)
    }


def test_one_shape_for_texts_that_differ_in_constants() -> None:
    texts = ["px > 5 AND sym = 'A'", "px > -2.5e3 AND sym = 'it''s'", "px > 'x' AND sym = +7"]
    found, errors = parse_many(texts)
    assert not errors
    assert len(found) == 1
    assert found[0].rows == [0, 1, 2]
    assert found[0].constants == [["5", "-2.5e3", "'x'"], ["'A'", "'it''s'", "+7"]]
    assert list(found[0].template.predicates()) == [Predicate("px", ">", (Slot(0),)), Predicate("sym", "=", (Slot(1),))]
    assert str(found[0].template) == "px > ?0 AND sym = ?1"
    assert rebuilt(found) == {row: parse(text) for row, text in enumerate(texts)}


def test_layout_and_case_share_a_shape() -> None:
    found, _ = parse_many(["px>5 and qty=1", "PX > 5", "px > 6 AND qty = 2", "(px > 7) AND 3 = qty"])
    assert [shape.rows for shape in found] == [[0, 2, 3], [1]]
    assert found[0].constants == [["5", "6", "7"], ["1", "2", "3"]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x IN (1, 2)", "x IN (1)"),
        ("x = TRUE", "x = FALSE"),
        ("x = TRUE", "x = 1"),
        ("x < INFINITY", "x < 1"),
        ("x = '2024-01-01'", "x = DATE '2024-01-01'"),
        ("x = 5", "x <> 5"),
        ("x1 = 5", "x2 = 5"),
        ('"x 1" = 5', '"x 2" = 5'),
        ("\"x'1'\" = 5", "\"x'2'\" = 5"),
        ("`1` = 5", "`2` = 5"),
        ("a.5 = 5", "a.6 = 5"),
    ],
)
def test_texts_that_differ_in_more_than_constants(one: str, other: str) -> None:
    found, errors = parse_many([one, other])
    assert not errors
    assert [shape.rows for shape in found] == [[0], [1]]
    assert rebuilt(found) == {0: parse(one), 1: parse(other)}


def test_kinds_of_slots() -> None:
    text = "a LIKE 'x%' AND b = DATE '2024-01-01' AND c BETWEEN TIMESTAMP '2024-01-01 00:00' AND 5 AND d IN (-1, TRUE)"
    found, _ = parse_many([text])
    values = [value for predicate in found[0].template.predicates() for value in predicate.values]
    assert values == [Slot(0, "like"), Slot(1, "date"), Slot(2, "timestamp"), Slot(3), Slot(4), True]
    assert found[0].constants == [["'x%'"], ["'2024-01-01'"], ["'2024-01-01 00:00'"], ["5"], ["-1"]]
    assert constant("'x%'", "like") == "x%"
    found, _ = parse_many(["a LIKE 'x!%' ESCAPE '!'", "a LIKE 'x\\' ESCAPE ''"])
    assert next(found[0].template.predicates()).values == (Slot(0, "pattern"), Slot(1, "escape"))
    assert found[0].constants == [["'x!%'", "'x\\'"], ["'!'", "''"]]


def test_a_bad_constant_costs_its_own_row_only() -> None:
    texts = [
        "d = DATE '2024-01-01' AND s LIKE 'a%' AND x < 1",
        "d = DATE '2024-13-01' AND s LIKE 'a%' AND x < 1",
        "d = DATE '2024-01-01' AND s LIKE 'a\\' AND x < 1",
        "d = DATE '2024-01-01' AND s LIKE 'a%' AND x < 1e400",
        "d = DATE 5 AND s LIKE 5 AND x < 1e400",
        "d = DATE '2024-01-03' AND s LIKE 'b%' AND x < 'e'",
    ]
    found, errors = parse_many(texts)
    assert {row: error.position for row, error in errors.items()} == {1: 9, 2: 33, 3: 46, 4: 9}
    assert all(error.text == texts[row] for row, error in errors.items())
    assert found[0].rows == [0, 5]
    assert found[0].constants == [["'2024-01-01'", "'2024-01-03'"], ["'a%'", "'b%'"], ["1", "'e'"]]


def test_numbers_too_long() -> None:
    found, errors = parse_many(["x = " + number for number in ("9" * 400, "9" * 400 + ".5", "9" * 5000, "1.5")])
    assert found[0].rows == [0, 3]
    assert "too large for a float" in errors[1].message
    assert "5000 digits" in errors[2].message


def test_a_shape_without_good_rows_is_no_shape() -> None:
    found, errors = parse_many(["x LIKE '\\a'", "x LIKE '\\b'"])
    assert found == []
    assert list(errors) == [0, 1]


def test_the_same_mistake_has_its_own_position_in_each_text() -> None:
    _, errors = parse_many(["x = 1 AND y = NULL", "x = 12345 AND y = NULL"])
    assert [error.position for error in errors.values()] == [14, 18]


def test_no_texts() -> None:
    assert parse_many([]) == ([], {})


def test_the_cache_of_templates_is_bounded() -> None:
    for i in range(3000):
        parse(f"x{i} = 5")
    parse("y" * 10_000 + " = 5")
    assert len(shapes._cache) <= 1024
    assert all(sum(map(len, key)) <= 4096 for key in shapes._cache)
