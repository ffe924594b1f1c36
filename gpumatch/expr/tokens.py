"""Turns text into tokens, and divides it into its constants and the rest."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumatch.errors import ParseError

KEYWORDS = frozenset(
    ("AND", "OR", "NOT", "XOR", "XNOR", "BETWEEN", "IN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "INFINITY")
)

# Splits a text at its constants, and at quoted names so that nothing inside them is taken for one. The leading set
# lets the regex engine jump to the next candidate; the branches look back to see which character that was.
_CONSTANT = re.compile(
    r"""(['"`.0-9+-](?:
        (?<=')(?:[^']++|'')*+'
      | (?<=")(?:[^"]++|"")*+"
      | (?<=`)(?:[^`]++|``)*+`
      | (?: (?<=[0-9])(?<![\w.].)[0-9]*+(?:\.[0-9]*+)?+
          | (?<=\.)(?<![\w.].)[0-9]++
          | (?<=[+-])(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++) )
        (?:[eE][+-]?[0-9]++)?+(?![\w.])
    ))""",
    re.VERBOSE,
)
_TOKEN = re.compile(
    r"""\s*+(?:
        (?P<name>[^\W\d][\w.]*+)
      | (?P<quoted>"(?:[^"]++|"")*+"|`(?:[^`]++|``)*+`)
      | (?P<symbol><=|>=|<>|!=|==|[=<>(),])
      | (?P<infinity>[+-](?ai:infinity)(?![\w.]))
      | (?P<end>\Z)
      | (?P<bad>[.0-9][\w.]*+|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
# Quotes, which may hide comments, unclosed ones included, and starts of comments.
_COMMENT = re.compile(r"""'(?:[^']++|'')*+'?+|"(?:[^"]++|"")*+"?+|`(?:[^`]++|``)*+`?+|--[^\n\r]*+|/\*""")
_NESTED = re.compile(r"/\*|\*/")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BARE_NAME = re.compile(r"[^\W\d][\w.]*+")


class Token(NamedTuple):
    """``kind`` is a keyword in capitals, a symbol, ``name``, ``quoted``, ``constant`` or ``end``."""

    kind: str
    text: str
    position: int


def divide(text: str) -> tuple[tuple[str, ...], list[str]]:
    """The text between the constants, which all texts of one shape have in common, and the constants.

    Comments become blanks in it, so that all positions stay the same.
    """
    if "--" in text or "/*" in text:
        text = _without_comments(text)
    pieces = _CONSTANT.split(text)
    if '"' in text or "`" in text:
        pieces = _without_names(pieces)
    return tuple(pieces[::2]), pieces[1::2]


def _without_names(pieces: list[str]) -> list[str]:
    """Quoted names were split off like constants: put them back into the text around them."""
    kept = [pieces[0]]
    for separator, following in zip(pieces[1::2], pieces[2::2], strict=True):
        if separator[0] in '"`':
            kept[-1] += separator + following
        else:
            kept += (separator, following)
    return kept


def _without_comments(text: str) -> str:
    """The text with blanks instead of comments. Comments between ``/*`` and ``*/`` nest."""
    kept: list[str] = []
    at = 0
    while match := _COMMENT.search(text, at):
        begin, end = match.span()
        if text[begin] in "'\"`":
            kept.append(text[at:end])
        else:
            end = _end_of_comment(text, begin) if text[begin] == "/" else end
            kept += (text[at:begin], " " * (end - begin))
        at = end
    return "".join((*kept, text[at:]))


def _end_of_comment(text: str, begin: int) -> int:
    depth, at = 1, begin + 2
    while depth:
        match = _NESTED.search(text, at)
        if match is None:
            raise ParseError("the comment is not closed; it ends with */, and so does each one inside it", text, begin)
        depth += 1 if match[0] == "/*" else -1
        at = match.end()
    return at


def find_surrogate(text: str) -> int | None:
    """Position of a lone surrogate, which no encoding can store."""
    match = None if text.isascii() else _SURROGATE.search(text)
    return match.start() if match else None


def tokenize(text: str) -> list[Token]:
    """All tokens, the last of kind ``end``; raises at the first character that no token starts with."""
    tokens: list[Token] = []
    start = 0
    pieces, constants = divide(text)
    for piece, constant in zip(pieces, [*constants, None], strict=True):
        _tokenize_piece(text, piece, start, tokens)
        start += len(piece)
        if constant is not None:
            tokens.append(Token("constant", constant, start))
            start += len(constant)
    tokens.append(Token("end", "", len(text)))
    return tokens


def _tokenize_piece(text: str, piece: str, start: int, tokens: list[Token]) -> None:
    at = 0
    while match := _TOKEN.match(piece, at):
        kind, at = match.lastgroup or "", match.end()
        written, position = match[kind], start + match.start(kind)
        if kind == "end":
            return
        if kind == "bad":
            raise _bad(text, written, position)
        if kind == "quoted":
            quote = written[0]
            written = written[1:-1].replace(quote * 2, quote)
            if not written:
                raise ParseError("an attribute name cannot be empty", text, position)
        elif kind == "name" and is_keyword(written):
            kind = written.upper()
        elif kind == "symbol":
            kind = written
        tokens.append(Token(kind, written, position))


def is_keyword(name: str) -> bool:
    # upper() turns letters such as the dotless i into ASCII ones.
    return name.isascii() and name.upper() in KEYWORDS


def is_bare_name(name: str) -> bool:
    """Whether a name can be written without quotes."""
    return _BARE_NAME.fullmatch(name) is not None and not is_keyword(name)


def _bad(text: str, found: str, position: int) -> ParseError:
    if found == "'":
        return ParseError("the string is not terminated; a quote inside a string is written twice", text, position)
    if found in '"`':
        return ParseError(f"the quoted attribute name has no closing {found}", text, position)
    if found[0] in "0123456789":
        return ParseError(f"malformed number {found!r}", text, position)
    if found in "+-":
        hint = "there is no arithmetic, and a sign must be right before its number"
        return ParseError(f"unexpected {found!r}; {hint}", text, position)
    return ParseError(f"unexpected character {found[0]!r}", text, position)
