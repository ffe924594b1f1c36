"""Every malformed text is refused at its first offending character, with a reason."""

from __future__ import annotations

import pytest

from gpumatch.errors import ParseError
from gpumatch.expr import constant, parse, parse_many

# The caret stands below the position.
CASES = """
x =
   ^ expected a constant, found the end of the text
x = y
    ^ found attribute 'y'; two attributes cannot be compared, and a string is written in single quotes: 'y'
true = 5
       ^ a name that is a keyword needs double quotes: "true"
x = 1 AND not > 5
              ^ a name that is a keyword needs double quotes: "not"
NOT
   ^ expected a condition, found the end of the text
x = "abc"
    ^ a string is written in single quotes: 'abc'
x = date
    ^ expected a constant, found attribute 'date'
x < NULL
    ^ use IS NULL
NULL = x
^ use IS NULL
x IN (1, NULL)
         ^ use IS NULL
x BETWEEN NULL AND 1
          ^ use IS NULL
x IS 5
     ^ expected NULL, TRUE, FALSE or DISTINCT FROM after IS, found '5'
x IS NOT 5
         ^ expected NULL, TRUE, FALSE or DISTINCT FROM after IS NOT
x IS DISTINCT 5
              ^ expected FROM after DISTINCT, found '5'
x IS DISTINCT FROM y
                   ^ expected a constant, found attribute 'y'
x IS "DISTINCT" FROM 5
     ^ expected NULL, TRUE, FALSE or DISTINCT FROM
x NOT = 5
      ^ expected BETWEEN, IN, LIKE or ILIKE after NOT
x IN 5
     ^ expected ( after IN
x IN (1 2)
        ^ expected ',' or ')'
x IN (1,)
        ^ expected a constant, found ')'
x IN (
      ^ expected a constant
x IN (1, 2
          ^ expected ',' or ')'
x BETWEEN 1 OR 2
            ^ expected AND and the upper bound
x LIKE y
       ^ expected a pattern in single quotes
x ILIKE y
        ^ expected a pattern in single quotes after ILIKE
x LIKE 'a\\'
       ^ the pattern 'a\\' has its escape character \\ at the end; it must precede %, _ or \\: write \\\\
x LIKE 'a\\b%'
       ^ has its escape character \\ before 'b'
x LIKE 5
       ^ LIKE expects a string
x = 1 AND y NOT ILIKE '%\\a'
                      ^ name another character with ESCAPE
x LIKE 'a' ESCAPE '!!'
                  ^ ESCAPE expects one character, or '' for none; found '!!'
x LIKE 'a' ESCAPE 5
                  ^ ESCAPE expects a string
x LIKE 5 ESCAPE '!'
       ^ LIKE expects a string
x LIKE 'a' ESCAPE y
                  ^ expected a character in single quotes after ESCAPE
x = 'a' ESCAPE '!'
        ^ expected AND, OR, XOR, XNOR or the end, found 'ESCAPE'
x > 5 /* a /* b */
      ^ the comment is not closed
IN = 5
^ expected a condition, found 'IN'; a name that is a keyword needs double quotes: "IN"
a AND (Not = 5)
           ^ expected a condition, found '='
a OR like
     ^ found 'like'; a name that is a keyword needs double quotes: "like"
5 < between
    ^ expected an attribute, found 'between'; a name that is a keyword needs double quotes: "between"
a AND OR b
      ^ expected a condition, found 'OR'
x = DATE '2024-02-30'
         ^ '2024-02-30' is not a date
x = DATE '20240101'
         ^ is not a date
x = DATE 5
         ^ DATE expects a string
x = TIMESTAMP '2024-01-01 25:00'
              ^ is not a timestamp
x = TIMESTAMP '2024-01-01 10:00:00.1234567890'
              ^ is not a timestamp
x = TIMESTAMP '2024-01-01 10:00+25:00'
              ^ is not a timestamp
x = 1e999
    ^ too large for a float
x = -1e999 AND y = 2
    ^ too large for a float
x = 12abc
    ^ malformed number '12abc'
x = 1.2.3
    ^ malformed number
x = 1_000
    ^ malformed number
x = 1e
    ^ malformed number
x = - 5
    ^ a sign must be right before its number
x = --5
       ^ expected a constant, found the end of the text
x = +-5
    ^ a sign must be right before its number
x - 5
  ^ a sign must be right before its number
x-5
 ^ expected a comparison of attribute 'x', found '-5'
x y
  ^ expected a comparison of attribute 'x', found 'y'
5
 ^ expected a comparison after the constant 5
5 = 5
    ^ expected an attribute
5 = DATE '2024-01-01'
    ^ expected an attribute
1 < x < 5
      ^ expected AND, OR, XOR, XNOR or the end, found '<'
x = 1 y = 2
      ^ expected AND, OR, XOR, XNOR or the end, found 'y'
x = 'a' 'b'
        ^ expected AND, OR
x = 1 AND
         ^ expected a condition, found the end of the text
AND x = 1
^ expected a condition, found 'AND'
x = 1 AND OR y
          ^ expected a condition
NOT
   ^ expected a condition
(x = 1
^ not closed
((x = 1) AND (y = 2)
^ not closed
x = 1)
     ^ never opened
()
 ^ expected a condition
x = 'abc
    ^ not terminated
x = 'it''s'' AND y = 5
    ^ not terminated
x = 'a' AND y = 'b AND z = 5
                ^ not terminated
"x = 5
^ no closing "
x = 5 AND `y > 3
          ^ no closing `
"" = 5
^ cannot be empty
x = 5;
     ^ unexpected character ';'
x ! 5
  ^ unexpected character '!'
x = 5 # note
      ^ unexpected character '#'
x = .
    ^ unexpected character '.'
"""


def cases() -> list[tuple[str, int, str]]:
    lines = CASES.strip("\n").split("\n")
    return [(text, below.index("^"), below.split("^", 1)[1].strip()) for text, below in zip(lines[::2], lines[1::2])]  # noqa: B905


@pytest.mark.parametrize(("text", "position", "reason"), cases())
def test_position_and_reason(text: str, position: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert reason in error.message
    assert (error.text, error.position) == (text, position)
    assert str(error).endswith(f"\n  {text}\n  {' ' * position}^")
    shapes, errors = parse_many(["ok = 1", text])
    assert [shape.rows for shape in shapes] == [[0]]
    assert (errors[1].message, errors[1].text, errors[1].position) == (error.message, text, position)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_empty(text: str) -> None:
    with pytest.raises(ParseError, match="the expression is empty"):
        parse(text)


def test_second_line() -> None:
    with pytest.raises(ParseError) as caught:
        parse("x = 1\nAND y = NULL")
    assert caught.value.position == 14
    assert str(caught.value).endswith("\n  AND y = NULL\n          ^")


def test_lone_surrogate() -> None:
    for text in ("x = 'a\ud800'", '"x\udfff" = 5'):
        with pytest.raises(ParseError, match="lone surrogate") as caught:
            parse(text)
        assert caught.value.position == next(at for at, letter in enumerate(text) if "\ud800" <= letter <= "\udfff")
        assert str(caught.value).encode()


def test_huge_integers() -> None:
    with pytest.raises(ParseError, match="5000 digits"):
        parse("x = " + "7" * 5000)


def test_not_a_text() -> None:
    shapes, errors = parse_many([None, "x = 1", 5])  # type: ignore[list-item]
    assert shapes[0].rows == [1]
    assert errors[0].message == "an expression is text, found None"
    assert list(errors) == [0, 2]


def test_error_of_a_constant_by_itself() -> None:
    with pytest.raises(ParseError, match="escape character"):
        constant(r"'a\'", "like")
