"""Patterns and the strings that satisfy them: what they mean, by hand and against the plain reading of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.codes import search
from gpumatch.codes.search import Patterns
from gpumatch.errors import ParseError
from gpumatch.expr import evaluate, parse
from gpumatch.expr.keys import pattern_name
from gpumatch.expr.patterns import Wild, lower, lowered, matches, prefix, read, usual, written

# pattern, strings that satisfy it, strings that do not
BY_HAND: list[tuple[str, list[str], list[str]]] = [
    ("", [""], ["a", "\n", "\0"]),
    ("%", ["", "a", "\0\n", "😀"], []),
    ("%%", ["", "abc"], []),
    ("_", ["a", "é", "😀", "\n", "\0", "\U0010ffff"], ["", "ab", "e\u0301"]),
    ("__", ["ab", "e\u0301", "😀😀"], ["", "a", "😀", "abc"]),
    ("_%", ["a", "😀b"], [""]),
    ("%_%_%", ["ab", "abc", "é😀"], ["", "a", "😀"]),
    ("a", ["a"], ["", "A", "ab", "ba"]),
    ("%a", ["a", "ba", "\na", "aa"], ["", "ab", "A"]),
    ("%ab%", ["ab", "xaby", "aab", "a\nab"], ["", "a\nb", "ba", "AB"]),
    ("a%a", ["aa", "aba", "aaa"], ["a", "ab", "ba"]),
    ("ab%ba", ["abba", "abxba"], ["aba", "ab", "ba"]),
    ("a_c", ["abc", "a\nc", "a😀c", "a.c"], ["ac", "abbc"]),
    ("%a_b%c", ["axbc", "aaxbxc", "a\0b\0c"], ["abc", "axb", "axbcx"]),
    ("_b%", ["ab", "😀bc"], ["b", "aab"]),
    ("%.*[a]%", ["x.*[a]y", ".*[a]"], ["a", "bba"]),
    (r"100\%", ["100%"], ["1000", "100\\%"]),
    (r"%\_%", ["_", "a_b"], ["", "ab"]),
    (r"%\\%", ["\\", "a\\b"], ["", "%"]),
    ("%日本%", ["日本", "x日本語"], ["日", "本日"]),
    ("%\0%", ["\0", "a\0b"], ["", "a"]),
    ("%aab%", ["aaab", "aabaab"], ["abab"]),
    ("%ab%ab%", ["abab", "xabyabz"], ["ab", "aab"]),
]
FOLDED: list[tuple[str, list[str], list[str]]] = [
    ("abc", ["abc", "ABC", "aBc"], ["ab", "abd"]),
    ("%É_", ["xéa", "ÉÉ", "É😀"], ["e\u0301", "é"]),
    ("%ΣΑ%", ["σα", "xΣα"], ["ςα"]),
    ("ΟΔΟΣ", ["οδοσ", "ΟΔΟΣ"], ["οδος"]),  # the last letter has another form at the end of words
    ("ß", ["ß", "ẞ"], ["ss", "SS"]),
    ("i", ["i", "I", "İ"], ["ı"]),
    ("K", ["k", "K", "\u212a"], ["x"]),
    (r"A\%", ["a%", "A%"], ["ab"]),
]


@pytest.mark.parametrize(("pattern", "right", "wrong"), BY_HAND)
@pytest.mark.parametrize("case", ["s", "i"])
def test_by_hand(pattern: str, right: list[str], wrong: list[str], case: str) -> None:
    fold = lower if case == "i" else str
    wrong = [text for text in wrong if case == "s" or not text.isupper()]
    for tokens in (read(pattern), read(written(read(pattern)))):
        assert [matches(fold(text), tokens) for text in (*right, *wrong)] == [True] * len(right) + [False] * len(wrong)
    assert found([case + pattern], [*right, *wrong]) == [[0]] * len(right) + [[]] * len(wrong)


@pytest.mark.parametrize(("pattern", "right", "wrong"), FOLDED)
def test_any_case(pattern: str, right: list[str], wrong: list[str]) -> None:
    schema = gm.Schema.of({"s": "string"})
    expr = gm.col("s").ilike(pattern)
    assert [evaluate(expr, {"s": text}, schema) for text in right] == [True] * len(right)
    assert [evaluate(expr, {"s": text}, schema) for text in wrong] == [False] * len(wrong)
    assert found([pattern_name(read(pattern), True)], [*right, *wrong]) == [[0]] * len(right) + [[]] * len(wrong)


def found(names: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
    patterns = Patterns(names, np.arange(len(names), dtype=np.int32))
    ptr, codes = patterns.search(texts)
    assert codes.dtype == np.int32
    batch = [codes[first:last].tolist() for first, last in pairwise(ptr.tolist())]
    assert [sorted(patterns.search_one(text)) for text in texts] == batch
    return batch


tokens = st.lists(st.sampled_from([Wild.ANY, Wild.ONE, *"aabBé😀\n\0%_\\"]), max_size=9)
words = st.text("aabBé😀\n\0%_\\", max_size=12)


@given(st.lists(st.tuples(tokens, st.booleans()), min_size=1, max_size=12), st.lists(words, max_size=8), st.data())
def test_all_at_once(patterns: list[Any], texts: list[str], data: st.DataObject) -> None:
    """One pass over all strings finds what reading each pattern against each string does."""
    held = {pattern_name(given, fold): (given, fold) for given, fold in patterns}
    right = [
        [
            at
            for at, (given, fold) in enumerate(held.values())
            if matches(lower(text) if fold else text, lowered(given) if fold else given)
        ]
        for text in texts
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_AT_ONCE", data.draw(st.sampled_from([1, 9, 1 << 20])))
        assert found(list(held), texts) == right


@given(tokens, words)
def test_one_text_for_all_patterns_that_mean_the_same(given: Any, text: str) -> None:
    again = read(written(given))
    assert written(again) == written(given)
    assert matches(text, again) == matches(text, given)
    plain = "".join(one.value if isinstance(one, Wild) else "!" * (one in "!%_") + one for one in given)
    assert read(plain, "!") == given
    assert read(usual(plain, "!")) == given


def test_prefixes() -> None:
    assert prefix(read("")) == ("", False)
    assert prefix(read("ab")) == ("ab", False)
    assert prefix(read(r"a\%%%")) == ("a%", True)
    assert prefix(read("%")) == ("", True)
    for pattern in ("_", "a_", "%a", "a%b", "a%_"):
        assert prefix(read(pattern)) is None


def test_lower_case_is_that_of_single_characters() -> None:
    everything = [chr(number) for number in range(0x110000) if chr(number) != "İ"]
    assert lower("".join(everything)) == "".join(map(str.lower, everything))
    assert lower("İ") == "i"


@pytest.mark.parametrize(
    ("pattern", "escape", "message"),
    [
        ("a\\", "\\", r"the pattern 'a\' has its escape character \ at the end; it must precede %, _ or \: write"),
        ("\\a", "\\", r"before 'a'; it must precede %, _ or \: write \\ for the character itself, or name"),
        ("a!", "!", "the pattern 'a!' has its escape character ! at the end"),
        ("a%", "%", "has its escape character % at the end; it must precede % or _: write %%"),
        ("x" * 10_000 + "\\", "\\", f"the pattern '{'x' * 40}…' has"),
    ],
)
def test_malformed(pattern: str, escape: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        read(pattern, escape)
    assert message in caught.value.message


def test_wildcards_as_escape_characters() -> None:
    assert read("a%%b%_", "%") == ["a", "%", "b", "_"]
    assert read("_%%", "_") == ["%", Wild.ANY]
    assert read("\\", "") == ["\\"]


def test_long_patterns_and_strings() -> None:
    """No pattern takes time that grows beyond the product of lengths: these would never end."""
    long = "a" * 10_000
    names = [
        "s%a%a%a%a%a%a%a%a%b",
        f"s%{long}%b",
        f"s{'%a' * 5000}%",
        f"s%{'a_' * 2000}b%",
        f"s%{'_' * 10_000}%",
        "s%a_%_b",
    ]
    assert found(names, [long, long * 2, long + "b", ""]) == [[2, 4], [2, 4], [0, 1, 2, 3, 4, 5], []]


def test_patterns_of_10_000_characters() -> None:
    pattern = "ab%_" * 2500
    matcher = gm.Matcher({"s": "string"})
    matcher.add({"long": f"s LIKE '{pattern}'", "literal": f"s LIKE '%{'x' * 10_000}'"})
    assert matcher.match_one({"s": "abc" * 2500}) == ["long"]
    assert matcher.match_one({"s": "abc" * 2499}) == []
    assert matcher.match_one({"s": "y" + "x" * 10_000}) == ["literal"]
    assert parse(str(parse(f"s LIKE '{pattern}'"))) == parse(f"s LIKE '{pattern}'")


@pytest.mark.long
@pytest.mark.parametrize("index", ["auto", "tama"])
def test_many_subscriptions_with_many_patterns(index: str) -> None:
    rng = np.random.default_rng(0)
    words = ["".join(row) for row in rng.choice(list("abcdeé"), (5000, 5))]
    patterns = [
        f"%{word[:3]}%" if at % 5 == 0 else f"%{word}%" if at % 2 else f"%{word[:4]}_%" for at, word in enumerate(words)
    ]
    chosen = rng.integers(0, len(patterns), 100_000).tolist()
    matcher = gm.Matcher({"s": "string", "x": "int64"}, index=index, device="cpu")
    matcher.add({at: f"s LIKE '{patterns[number]}' AND x > {at % 7}" for at, number in enumerate(chosen)})
    texts = ["", "abc", *("".join(row) for row in rng.choice(list("abcdeé"), (20, 40)))]
    right = []
    for at, text in enumerate(texts):
        held = {pattern for pattern in set(patterns) if matches(text, read(pattern))}
        right.append([row for row, number in enumerate(chosen) if at % 8 > row % 7 and patterns[number] in held])
    events = [{"s": text, "x": at % 8} for at, text in enumerate(texts)]
    assert sum(map(len, right)) > 1000
    assert list(matcher.match(events)) == right
    assert [matcher.match_one(event) for event in events[-3:]] == right[-3:]
