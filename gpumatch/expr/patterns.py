"""Patterns of LIKE and ILIKE: syntax, meaning, and one common text for patterns that mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from gpumatch.errors import ParseError

ESCAPE = "\\"  # unless another is named


class Wild(Enum):
    """Wildcards, for characters that a pattern leaves open."""

    ONE = "_"
    ANY = "%"  # any number of them, including none


Token: TypeAlias = "str | Wild"  # a character that stands for itself, or a wildcard


def read(pattern: str, escape: str = ESCAPE) -> list[Token]:
    """The tokens of a pattern; ``escape`` is one character, or empty for none. Raises ParseError if it is malformed."""
    if not escape or escape not in pattern:
        return [_WILD.get(character, character) for character in pattern]
    tokens: list[Token] = []
    characters = iter(pattern)
    for character in characters:
        if character != escape:
            tokens.append(_WILD.get(character, character))
            continue
        escaped = next(characters, None)
        if escaped is None or (escaped not in _WILD and escaped != escape):
            raise ParseError(_misused(pattern, escape, escaped))
        tokens.append(escaped)
    return tokens


_WILD = {wild.value: wild for wild in Wild}


def _misused(pattern: str, escape: str, escaped: str | None) -> str:
    shown = pattern if len(pattern) <= 60 else pattern[:40] + "…"
    found = "at the end" if escaped is None else f"before {escaped!r}"
    before = "% or _" if escape in _WILD else f"%, _ or {escape}"
    other = "name another character with ESCAPE" if escape == ESCAPE else "name another one"
    return (
        f"the pattern '{shown}' has its escape character {escape} {found}; it must precede {before}: "
        f"write {escape * 2} for the character itself, or {other}"
    )


def written(tokens: Sequence[Token]) -> str:
    """The pattern of tokens, with the usual escape character, and adjacent wildcards in one order."""
    out: list[str] = []
    open_end = False
    for token in tokens:
        if token is Wild.ANY:
            open_end = True
        elif token is Wild.ONE:
            out.append("_")
        else:
            assert isinstance(token, str)
            out += ("%" * open_end, ESCAPE * (token == ESCAPE or token in _WILD), token)
            open_end = False
    return "".join(out) + "%" * open_end


def escaped(text: str) -> str:
    """The pattern that only this text satisfies."""
    return written(list(text))


def usual(pattern: str, escape: str) -> str:
    """The same pattern with the usual escape character, otherwise as written."""
    return "".join(token.value if isinstance(token, Wild) else escaped(token) for token in read(pattern, escape))


def prefix(tokens: Sequence[Token]) -> tuple[str, bool] | None:
    """The text that strings must equal or, if True, start with; None if the pattern asks for something else."""
    text = [token for token in tokens if isinstance(token, str)]
    rest = tokens[len(text) :]
    if text != list(tokens[: len(text)]) or any(token is not Wild.ANY for token in rest):
        return None
    return "".join(text), bool(rest)


def lower(text: str) -> str:
    """Unicode's simple lower case: character by character, so the length stays."""
    # str.lower() does more: this letter becomes two, and a sigma at the end of a word becomes another letter.
    return text.replace("İ", "i").replace("Σ", "σ").lower()


def lowered(tokens: Sequence[Token]) -> list[Token]:
    return [token if isinstance(token, Wild) else lower(token) for token in tokens]


def matches(text: str, tokens: Sequence[Token]) -> bool:
    """Does the whole text satisfy the pattern? Only the last % is ever retried, so time is bounded."""
    at = token = begun = 0
    last = -1  # the % whose match grows, from ``begun`` on
    while at < len(text):
        wanted = tokens[token] if token < len(tokens) else None
        if wanted is Wild.ANY:
            last, begun = token, at
            token += 1
        elif wanted is Wild.ONE or wanted == text[at]:
            at += 1
            token += 1
        elif last >= 0:
            begun += 1
            at, token = begun, last + 1
        else:
            return False
    return all(one is Wild.ANY for one in tokens[token:])
