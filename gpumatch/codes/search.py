"""Finds which of many patterns strings satisfy. Each pattern is tried only on strings that contain its gram.

A gram is four consecutive bytes that every string satisfying the pattern contains (fewer if it has no four in a row);
of these, one that few patterns share. One pass over the bytes of the strings finds the grams of all patterns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, islice
from typing import Protocol

import numpy as np

from gpumatch.arrays import Array
from gpumatch.expr.patterns import Token, Wild, lower, read

_GRAM = 4
_WINDOWS = 64  # of a pattern, from which its gram is chosen
_AT_ONCE = 1 << 20  # characters searched for grams per chunk
_BITS = 16  # of a gram's hash
_HASH = np.uint32(0x9E3779B1)


class Patterns:
    """Patterns of one attribute, given by their names (see ``keys.pattern_name``), and the code of each."""

    def __init__(self, names: Sequence[str], codes: Array) -> None:
        self._by_case = []
        for case, fold in (("s", str), ("i", lower)):
            mine = [at for at, name in enumerate(names) if name[0] == case]
            if mine:
                self._by_case.append((fold, _Grams([read(names[at][1:]) for at in mine]), codes[mine]))

    def search(self, texts: Sequence[str]) -> tuple[Array, Array]:
        """The codes of the patterns that each text satisfies, text by text, and where those of each begin."""
        strings, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for fold, grams, code in self._by_case:
            for first, chunk in _chunks(texts):
                string, pattern = grams.search([fold(text) for text in chunk])
                strings.append(string + first)
                codes.append(code[pattern])
        string, found = np.concatenate(strings), np.concatenate(codes)
        order = np.lexsort((found, string))
        return np.searchsorted(string[order], np.arange(len(texts) + 1)), found[order]

    def search_one(self, text: str) -> list[int]:
        """The codes of the patterns that one text satisfies: arrays would take longer."""
        return sorted(int(code[at]) for fold, grams, code in self._by_case for at in grams.search_one(fold(text)))


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Chunks of texts, each with the number of its first text."""
    first = length = 0
    for at, text in enumerate(texts):
        length += len(text)
        if length >= _AT_ONCE:
            yield first, texts[first : at + 1]
            first, length = at + 1, 0
    if first < len(texts):
        yield first, texts[first:]


class _Grams:
    """Patterns and their grams, by length."""

    def __init__(self, patterns: list[list[Token]]) -> None:
        self._tests = [_Test(tokens) for tokens in patterns]
        windows = [list(islice(_windows(tokens), _WINDOWS)) for tokens in patterns]
        common = Counter(window for some in windows for window in set(some))
        by_gram: dict[int, dict[bytes, list[int]]] = {}  # patterns by the length of their gram, then by the gram
        for at, some in enumerate(windows):
            longest = max(map(len, some), default=0)
            gram = min((w for w in some if len(w) == longest), key=common.__getitem__, default=b"")
            by_gram.setdefault(longest, {}).setdefault(gram, []).append(at)
        self._always = by_gram.pop(0, {}).get(b"", [])
        self._by_gram = by_gram
        self._tables = {length: _Table(grams) for length, grams in by_gram.items()}

    def search(self, texts: Sequence[str]) -> tuple[Array, Array]:
        """Pairs of texts and patterns that they satisfy, by number."""
        encoded = [text.encode() for text in texts]
        data = np.frombuffer(b"".join(encoded), np.uint8)
        ends = np.array([0, *accumulate(map(len, encoded))], np.int64)
        pairs = [table.candidates(data, ends, length) for length, table in self._tables.items()]
        pairs += [(np.arange(len(texts)), np.full(len(texts), at)) for at in self._always]
        return self._satisfied(texts, *map(np.concatenate, zip(*pairs, strict=True)))

    def search_one(self, text: str) -> list[int]:
        """The patterns that a text satisfies."""
        encoded = text.encode()
        candidates = set(self._always)
        for length, grams in self._by_gram.items():
            for at in range(len(encoded) - length + 1):
                candidates.update(grams.get(encoded[at : at + length], ()))
        return [at for at in candidates if self._tests[at](text)]

    def _satisfied(self, texts: Sequence[str], string: Array, pattern: Array) -> tuple[Array, Array]:
        order = np.argsort(pattern, kind="stable")
        string, pattern = string[order], pattern[order]
        ends = np.flatnonzero(np.diff(pattern, append=-1)) + 1
        kept: list[bool] = []
        for end in ends.tolist():
            satisfied = self._tests[pattern[end - 1]]
            kept += [satisfied(texts[at]) for at in string[len(kept) : end].tolist()]
        mask = np.array(kept, np.bool_)
        return string[mask], pattern[mask]


class _Table:
    """Grams of one length as ascending numbers, and the patterns of each."""

    def __init__(self, grams: dict[bytes, list[int]]) -> None:
        ordered = sorted(grams, key=lambda gram: gram[::-1])  # little end first
        self._grams = np.array([int.from_bytes(gram, "little") for gram in ordered], np.uint32)
        self._count = np.array([len(grams[gram]) for gram in ordered])
        self._patterns = np.concatenate([grams[gram] for gram in ordered])
        self._marks = np.zeros(1 << _BITS, np.bool_)  # which hashes the grams have
        self._marks[_hashes(self._grams)] = True

    def candidates(self, data: Array, ends: Array, length: int) -> tuple[Array, Array]:
        """Pairs of strings, stored in sequence in ``data``, and patterns whose grams they contain."""
        windows = max(len(data) - length + 1, 0)
        words = np.zeros(windows, np.uint32)
        for at in range(length):
            words |= data[at : at + windows].astype(np.uint32) << np.uint32(8 * at)
        hits = np.flatnonzero(self._marks[_hashes(words)])
        gram = np.searchsorted(self._grams, words[hits])
        right = self._grams[np.minimum(gram, len(self._grams) - 1)] == words[hits]
        hits, gram = hits[right], gram[right]
        string = np.searchsorted(ends, hits, "right") - 1
        inside = hits + length <= ends[string + 1]
        string, gram = np.divmod(np.unique(string[inside] * len(self._grams) + gram[inside]), len(self._grams))
        count = self._count[gram]
        first = (np.cumsum(self._count) - self._count)[gram]
        nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(string, count), self._patterns[np.repeat(first, count) + nth]


def _hashes(words: Array) -> Array:
    hashes: Array = (words * _HASH) >> np.uint32(32 - _BITS)
    return hashes


def _windows(tokens: Sequence[Token]) -> Iterator[bytes]:
    """Bytes that a string must contain: windows of the pattern's literal text."""
    for wild, run in groupby(tokens, lambda token: isinstance(token, Wild)):
        if not wild:
            text = "".join(map(str, run)).encode()
            yield from (text[at : at + _GRAM] for at in range(max(len(text) - _GRAM + 1, 1)))


class _Piece(Protocol):
    """The piece of a pattern between two %."""

    length: int

    def fits(self, text: str, at: int) -> bool:
        """Does the text continue with it at ``at``?"""

    def find(self, text: str, start: int, stop: int) -> int:
        """The position of its first occurrence, or -1."""


class _Literal:
    def __init__(self, text: str) -> None:
        self._text, self.length = text, len(text)

    def fits(self, text: str, at: int) -> bool:
        return text.startswith(self._text, at)

    def find(self, text: str, start: int, stop: int) -> int:
        return text.find(self._text, start, stop)


class _Gapped:
    """A piece with wildcards: a regular expression of fixed length, never tried twice at one position."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        wanted = "".join("." if isinstance(token, Wild) else re.escape(token) for token in tokens)
        self._wanted, self.length = re.compile(wanted, re.DOTALL), len(tokens)

    def fits(self, text: str, at: int) -> bool:
        return self._wanted.match(text, at) is not None

    def find(self, text: str, start: int, stop: int) -> int:
        found = self._wanted.search(text, start, stop)
        return -1 if found is None else found.start()


class _Test:
    """A compiled pattern: its ends match in place, and each piece between them where it is first found."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        pieces = [list(run) for wild, run in groupby(tokens, lambda token: token is Wild.ANY) if not wild]
        self._least = sum(map(len, pieces))
        self._open = Wild.ANY in tokens
        self._head = _piece(pieces.pop(0)) if pieces and tokens[0] is not Wild.ANY else None
        self._tail = _piece(pieces.pop()) if pieces and tokens[-1] is not Wild.ANY else None
        self._between = [_piece(piece) for piece in pieces]

    def __call__(self, text: str) -> bool:
        at, end = 0, len(text)
        if end < self._least or (end > self._least and not self._open):
            return False
        if self._head is not None:
            if not self._head.fits(text, 0):
                return False
            at = self._head.length
        if self._tail is not None:
            end -= self._tail.length
            if not self._tail.fits(text, end):
                return False
        for piece in self._between:
            found = piece.find(text, at, end)
            if found < 0:
                return False
            at = found + piece.length
        return True


def _piece(tokens: Sequence[Token]) -> _Piece:
    literal = [token for token in tokens if isinstance(token, str)]
    return _Literal("".join(literal)) if len(literal) == len(tokens) else _Gapped(tokens)
