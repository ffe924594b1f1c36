"""Cuts texts into conditions, which repeat even where no two texts have the same shape.

This is a fast path for plain texts, not a second grammar. One regular expression cuts a text; what a kind of condition
or a skeleton of connectives means is left to the parser, once for each. A text that is not cut completely, or has a
piece that the parser rejects, is not read here at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from gpumatch.errors import ParseError
from gpumatch.expr.atoms import Slot
from gpumatch.expr.constants import constant
from gpumatch.expr.parser import parse_connectives, parse_template
from gpumatch.expr.patterns import prefix, read
from gpumatch.expr.tokens import Token, divide, find_surrogate, tokenize
from gpumatch.expr.tree import Expr, Predicate

# Words are followed by neither a letter nor a point, so they are whole tokens.
_NAME = r"""(?:[^\W\d][\w.]*+|"(?:[^"]++|"")*+"|`(?:[^`]++|``)*+`)"""
_NUMBER = r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+(?![\w.])"
_CONSTANT = rf"(?:'(?:[^']++|'')*+'|{_NUMBER})"
_TEMPORAL = r"(?:(?ai:DATE|TIMESTAMP)\s*+(?='))?+"
_CUT = re.compile(
    rf"""
    (\s*+(?:(?:[()]|(?ai:AND|OR|NOT|XOR|XNOR)(?![\w.]))\s*+)*+)  # connectives and parentheses before a condition
    (?: ({_NAME}\s*+  # the condition up to its first constant
          (?: (?:<=|>=|<>|!=|==|[=<>])\s*+(?:{_TEMPORAL}(?=['+.0-9-])|(?ai:TRUE|FALSE)(?![\w.]))
            | (?ai:NOT(?![\w.])\s*+)?+
              (?: (?ai:LIKE)\s*+(?=') | (?ai:BETWEEN)(?![\w.])\s*+{_TEMPORAL} | (?ai:IN)\s*+\( )
            | (?ai:IS)(?:\s++(?ai:NOT|NULL|TRUE|FALSE)(?![\w.]))++
            | (?=\)|\Z|(?ai:AND|OR|XOR|XNOR)(?![\w.])) ))
        (?: (?<=\()((?:[\s,]++|{_TEMPORAL}{_CONSTANT})*+\))  # all of a list
          | ({_CONSTANT})(?:(\s*+(?ai:AND)(?![\w.])\s*+{_TEMPORAL})({_CONSTANT}))?+  # a constant, or two bounds
          | )
      | \Z
      | (.++) )  # what is not understood, and all that follows
    """,
    re.VERBOSE | re.DOTALL,
)
_LETTERS = {"AND": "&", "OR": "|", "NOT": "!", "XOR": "^", "XNOR": "~", "(": "(", ")": ")"}
_CONDITION = "c"
_TOKENS = {letter: Token(kind, kind, 0) for kind, letter in _LETTERS.items()}
_TOKENS |= {_CONDITION: Token("condition", "", 0), "": Token("end", "", 0)}
_OPS = frozenset(("=", "<", "<=", ">", ">=", "between", "in", "like", "null"))  # others are left to the parser


@lru_cache(maxsize=1 << 10)
def hole(number: int) -> Predicate:
    """A placeholder for a condition in a skeleton, each on an attribute of its own."""
    return Predicate(str(number), "=")


@lru_cache(maxsize=1 << 10)
def _is_prefix(raw: str) -> bool:
    """Whether a pattern is a prefix; other LIKE patterns are not ranges."""
    return prefix(read(str(constant(raw, "like")))) is not None


class UnreadableError(Exception):
    """A text that only the parser can read, or reject."""


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """The common form of conditions that differ only in their constants."""

    predicate: Predicate  # its slots are numbered from 0 on
    slots: tuple[Slot, ...]


class _Conditions(dict[tuple[str, ...], int]):
    """Numbers of conditions by the text between their constants."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Condition] = []
        self.likes: set[int] = set()

    def __missing__(self, pieces: tuple[str, ...]) -> int:
        template, _ = parse_template("'0'".join(pieces))
        item = template.program[0]
        if len(template.program) > 1 or not isinstance(item, Predicate) or item.op not in _OPS:
            raise UnreadableError
        slots = tuple(value for value in item.values if isinstance(value, Slot))
        if [slot.index for slot in slots] != list(range(len(pieces) - 1)):
            raise UnreadableError
        self.made.append(Condition(item, slots))
        number = self[pieces] = len(self.made) - 1
        if item.op == "like":
            self.likes.add(number)
        return number


class _Connectives(dict[str, str]):
    """The letters of the connectives in the text between conditions."""

    def __missing__(self, text: str) -> str:
        kinds = [token.kind for token in tokenize(text)[:-1]]
        if any(kind not in _LETTERS for kind in kinds):
            raise UnreadableError
        made = self[text] = "".join(map(_LETTERS.__getitem__, kinds))
        return made


class _Skeletons(dict[str, int]):
    """Numbers of skeletons by their letters."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Expr] = []

    def __missing__(self, letters: str) -> int:
        tokens = [*map(_TOKENS.__getitem__, letters), _TOKENS[""]]
        self.made.append(parse_connectives(tokens, map(hole, count())))
        number = self[letters] = len(self.made) - 1
        return number


class Reader:
    """Reads texts one by one. A *skeleton* is a text without its conditions."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # of each text that was read
        self.skeleton: list[int] = []  # per text, an index into ``skeletons``
        self.counts: list[int] = []  # per text, the number of its conditions
        self.condition: list[int] = []  # of all texts in sequence, indexes into ``conditions``
        self.constants: list[str] = []  # of all conditions in sequence
        self._conditions, self._connectives, self._skeletons = _Conditions(), _Connectives(), _Skeletons()

    @property
    def conditions(self) -> list[Condition]:
        return self._conditions.made

    @property
    def skeletons(self) -> list[Expr]:
        """Expressions with a hole instead of each condition."""
        return self._skeletons.made

    def read(self, row: int, text: object) -> bool:
        """Read a text, or leave it to the parser."""
        if not isinstance(text, str) or find_surrogate(text) is not None:
            return False
        before, used = len(self.condition), len(self.constants)
        try:
            self.skeleton.append(self._skeletons[self._cut(text)])
        except (UnreadableError, ParseError):
            del self.condition[before:], self.constants[used:]
            return False
        self.rows.append(row)
        self.counts.append(len(self.condition) - before)
        return True

    def _cut(self, text: str) -> str:
        """Record the text's conditions and their constants; returns the letters of its skeleton."""
        known, connectives, condition, constants = self._conditions, self._connectives, self.condition, self.constants
        letters: list[str] = []
        for between, head, members, first, middle, second, rest in _CUT.findall(text):
            letters.append(connectives[between])
            if middle:
                condition.append(known[head, middle, ""])
                constants += (first, second)
            elif first:
                number = known[head, ""]
                if number in known.likes and not _is_prefix(first):
                    raise UnreadableError
                condition.append(number)
                constants.append(first)
            elif members:
                pieces, found = divide(members)
                condition.append(known[(head + pieces[0], *pieces[1:])])
                constants += found
            elif head:
                condition.append(known[(head,)])
            elif rest:
                raise UnreadableError
            else:
                break
        return _CONDITION.join(letters)
