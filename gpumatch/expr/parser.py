"""The grammar: from tokens to a template, with a stack of its own instead of recursion."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import cast

from gpumatch.errors import ParseError
from gpumatch.expr.atoms import Constant, Slot
from gpumatch.expr.constants import SlotKind
from gpumatch.expr.tokens import KEYWORDS, Token, is_keyword, tokenize
from gpumatch.expr.tree import MAX_DEPTH, PRECEDENCE, Connective, Expr, Item, Op, Predicate, PredicateOp

_COMPARISONS: dict[str, tuple[PredicateOp, bool]] = {
    "=": ("=", False),
    "==": ("=", False),
    "<>": ("=", True),
    "!=": ("=", True),
    "<": ("<", False),
    "<=": ("<=", False),
    ">": (">", False),
    ">=": (">=", False),
}
_FLIPPED: dict[PredicateOp, PredicateOp] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORDS: dict[str, Constant] = {"TRUE": True, "FALSE": False, "INFINITY": float("inf")}
_TEMPORAL: dict[str, SlotKind] = {"DATE": "date", "TIMESTAMP": "timestamp"}
_JOINS = ("AND", "OR", "XOR", "XNOR")
_op = lru_cache(maxsize=256)(Op)
_TESTS = (*_COMPARISONS, "IS", "BETWEEN", "IN", "LIKE")
_AFTER_NAMES = (*_TESTS, "NOT", *_JOINS, ")", "end")


def parse_template(text: str) -> tuple[Expr, list[Token]]:
    """The expression with a Slot for every constant of the text, and the constants with their positions."""
    tokens = tokenize(text)
    template = _Parser(text, tokens).run()
    return template, [token for token in tokens if token.kind == "constant"]


def parse_connectives(tokens: list[Token], conditions: Iterable[Predicate]) -> Expr:
    """The expression of tokens in which each one of kind ``condition`` stands for the next of the conditions."""
    return _Connectives(tokens, conditions).run()


class _Frame:
    """An operator or an open parenthesis, waiting for more tokens."""

    __slots__ = ("arity", "kind", "position")

    def __init__(self, kind: Connective | None, arity: int, position: int) -> None:
        self.kind, self.arity, self.position = kind, arity, position  # a parenthesis has no kind


class _Parser:
    """Operator precedence with an explicit stack; the output is the postfix program itself."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text, self.tokens = text, tokens
        self.token = tokens[0]
        self.at = self.slots = self.depth = 0
        self.frames: list[_Frame] = []
        self.program: list[Item] = []

    def run(self) -> Expr:
        if self.token.kind == "end":
            raise self.error("the expression is empty")
        while True:
            while self.token.kind in ("(", "NOT"):
                self.open()
            self.program.append(self.condition())
            while self.token.kind == ")":
                self.close()
            if self.token.kind == "end":
                break
            self.join()
        self.reduce(0)
        if self.frames:
            raise self.error("the parenthesis is not closed", position=self.frames[-1].position)
        return Expr(tuple(self.program))

    # Connectives

    def open(self) -> None:
        token = self.next()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} levels deep", position=token.position)
        self.frames.append(_Frame("not" if token.kind == "NOT" else None, 0, token.position))

    def close(self) -> None:
        self.reduce(0)
        if not self.frames:
            raise self.error("the parenthesis was never opened")
        self.frames.pop()
        self.depth -= 1
        self.next()

    def join(self) -> None:
        token = self.token
        if token.kind not in _JOINS:
            raise self.expected("AND, OR, XOR, XNOR or the end" + (" or )" if self.frames else ""))
        self.next()
        kind = cast(Connective, token.kind.lower())
        self.reduce(PRECEDENCE[kind], chain=kind)
        frame = self.frames[-1] if self.frames else None
        if frame is None or frame.kind != kind:
            frame = _Frame(kind, 0, token.position)
            self.frames.append(frame)
        frame.arity += self.take(kind)

    def reduce(self, precedence: int, chain: Connective | None = None) -> None:
        """Emit the waiting operators that bind at least as tightly; a chain of one operator stays open."""
        while self.frames:
            kind = self.frames[-1].kind
            if kind is None or PRECEDENCE[kind] < precedence or (kind == chain and kind != "xnor"):
                return
            frame = self.frames.pop()
            if kind == "not":
                self.depth -= 1
            self.program.append(_op(kind, frame.arity + self.take(kind)))

    def take(self, kind: Connective) -> int:
        """How many operands the expression just completed adds: a chain of the same operator is flattened."""
        last = self.program[-1]
        if kind not in ("and", "or", "xor") or not isinstance(last, Op) or last.kind != kind:
            return 1
        self.program.pop()
        return last.arity

    # Conditions

    def condition(self) -> Item:
        token = self.token
        if self.is_constant():
            return self.constant_first()
        if token.kind not in ("name", "quoted"):
            raise self.expected("a condition", self.unquoted())
        self.next()
        attribute = token.text
        if self.token.kind in _COMPARISONS:
            op, negated = _COMPARISONS[self.next().kind]
            return Predicate(attribute, op, (self.constant(),), negated)
        if self.token.kind == "IS":
            return self.known_test(attribute)
        negated = self.token.kind == "NOT"
        if negated:
            self.next()
        kind = self.token.kind
        if kind == "BETWEEN":
            return Predicate(attribute, "between", self.bounds(), negated)
        if kind == "IN":
            return Predicate(attribute, "in", self.members(), negated)
        if kind == "LIKE" or self.is_word("ILIKE"):
            self.next()
            return Predicate(attribute, "like" if kind == "LIKE" else "ilike", self.pattern(), negated)
        if negated:
            raise self.expected("BETWEEN, IN, LIKE or ILIKE after NOT")
        if kind not in (*_JOINS, ")", "end"):
            raise self.expected(f"a comparison of attribute {attribute!r}")
        return Predicate(attribute, "=", (True,))

    def constant_first(self) -> Item:
        """``TRUE`` as a condition of its own, or a comparison written as ``5 < px``."""
        token = self.token
        value = self.constant()
        if self.token.kind not in _COMPARISONS:
            if isinstance(value, bool):
                return value
            raise self.expected(f"a comparison after the constant {token.text}")
        op, negated = _COMPARISONS[self.next().kind]
        if self.token.kind not in ("name", "quoted") or self.is_constant():
            raise self.expected("an attribute", self.unquoted() or _in_quotes(token))
        return Predicate(self.next().text, _FLIPPED[op], (value,), negated)

    def known_test(self, attribute: str) -> Predicate:
        """A test after IS, which is never unknown."""
        self.next()
        negated = self.token.kind == "NOT"
        if negated:
            self.next()
        if self.is_word("DISTINCT"):
            return self.distinction(attribute, not negated)
        if self.token.kind in ("TRUE", "FALSE"):
            return Predicate(attribute, "is", (_WORDS[self.next().kind],), negated)
        self.skip("NULL", "NULL, TRUE, FALSE or DISTINCT FROM after IS" + " NOT" * negated)
        return Predicate(attribute, "null", (), negated)

    def distinction(self, attribute: str, negated: bool) -> Predicate:
        self.next()
        if not self.is_word("FROM"):
            raise self.expected("FROM after DISTINCT")
        self.next()
        if self.token.kind == "NULL":
            self.next()
            return Predicate(attribute, "null", (), negated)
        return Predicate(attribute, "is", (self.constant(),), negated)

    def bounds(self) -> tuple[Constant | Slot, ...]:
        self.next()
        low = self.constant()
        self.skip("AND", "AND and the upper bound of BETWEEN")
        return low, self.constant()

    def members(self) -> tuple[Constant | Slot, ...]:
        self.next()
        self.skip("(", "( after IN")
        values: list[Constant | Slot] = []
        while self.token.kind != ")" or values:
            values.append(self.constant())
            if self.token.kind == ")":
                break
            self.skip(",", "',' or ')' in the list of IN")
        self.next()
        return tuple(values)

    def pattern(self) -> tuple[Slot, ...]:
        if self.token.kind != "constant":
            raise self.expected(f"a pattern in single quotes after {self.tokens[self.at - 1].text.upper()}")
        pattern = self.slot("like")
        if not self.is_word("ESCAPE"):
            return (pattern,)
        self.next()
        if self.token.kind != "constant":
            raise self.expected("a character in single quotes after ESCAPE")
        return Slot(pattern.index, "pattern"), self.slot("escape")

    # Constants

    def is_constant(self) -> bool:
        kind = self.token.kind
        return kind in ("constant", "infinity", "NULL") or kind in _WORDS or self.temporal() is not None

    def temporal(self) -> SlotKind | None:
        """DATE and TIMESTAMP are keywords only before a constant: they are common names of attributes."""
        token = self.token
        if token.kind != "name" or self.tokens[self.at + 1].kind != "constant":
            return None
        return _TEMPORAL.get(token.text.upper())

    def constant(self) -> Constant | Slot:
        token = self.token
        if token.kind == "constant":
            return self.slot("literal")
        if token.kind in _WORDS:
            return _WORDS[self.next().kind]
        if token.kind == "infinity":
            return float(self.next().text)
        if token.kind == "NULL":
            raise self.error("nothing equals NULL; use IS NULL or IS NOT NULL")
        if kind := self.temporal():
            self.next()
            return self.slot(kind)
        if token.kind in ("name", "quoted"):
            hint = f"two attributes cannot be compared, and a string is written in single quotes: '{token.text}'"
            raise self.error(f"expected a constant, found attribute {token.text!r}; {hint}")
        raise self.expected("a constant")

    def slot(self, kind: SlotKind) -> Slot:
        self.next()
        self.slots += 1
        return Slot(self.slots - 1, kind)

    # Tokens

    def is_word(self, word: str) -> bool:
        """Is the token this word? Such words are special only where no name can be; elsewhere they are names."""
        return self.token.kind == "name" and self.token.text.isascii() and self.token.text.upper() == word

    def next(self) -> Token:
        """Move to the next token; returns the one before it."""
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at]
        return token

    def skip(self, kind: str, what: str) -> None:
        if self.token.kind != kind:
            raise self.expected(what)
        self.next()

    def unquoted(self) -> str:
        """A hint if the token is a keyword where a name is expected."""
        before, token = self.tokens[self.at - 1], self.token
        if self.at and before.kind == "NOT" and token.kind in _TESTS:
            return _in_quotes(before)
        named = token.kind in KEYWORDS and self.tokens[self.at + 1].kind in _AFTER_NAMES
        return _in_quotes(token) if named else ""

    def expected(self, what: str, hint: str = "") -> ParseError:
        found = "the end of the text" if self.token.kind == "end" else f"{self.token.text!r}"
        return self.error(f"expected {what}, found {found}{hint}")

    def error(self, message: str, position: int | None = None) -> ParseError:
        return ParseError(message, self.text, self.token.position if position is None else position)


def _in_quotes(token: Token) -> str:
    """A hint on how to write a name that is a keyword."""
    return f'; a name that is a keyword needs double quotes: "{token.text}"' if is_keyword(token.text) else ""


class _Connectives(_Parser):
    """Parses connectives and parentheses only."""

    def __init__(self, tokens: list[Token], conditions: Iterable[Predicate]) -> None:
        super().__init__("", tokens)
        self.conditions = iter(conditions)

    def condition(self) -> Item:
        self.skip("condition", "a condition")
        return next(self.conditions)
