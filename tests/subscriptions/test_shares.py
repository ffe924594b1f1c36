"""Expressions that several processes read: the same block and the same errors as of one."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.parallel import threads
from gpumatch.subscriptions import shares

SCHEMA = {"s": "string", "n": "int64", "l": "list<string>"}
TEXTS: list[Any] = [
    "s = 'x' AND n > 1",
    "s = 'y' AND n > 2",
    "n IN (1, 5, 9) OR s LIKE '%z_'",
    "n >",
    "NOT l = 'x' XOR (n = 1 AND s < 'ü')",
    gm.col("n").between(1, 3) & ~gm.col("s").like("a%"),
    "unknown = 1",
    "l IS NULL",
    "s ILIKE 'Z%'",
    5,
    "NOT (n = 1 AND (s = 'x' OR NOT (l = 'a' XOR n < 3)))",
]
EVENTS: list[dict[str, Any]] = [
    {"s": "x", "n": 5, "l": ["a"]},
    {"s": "zzz", "n": 2},
    {"n": 1, "l": []},
    {"s": "aé", "n": 3, "l": ["x", "y"]},
    {},
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_SHARE", 3)
    monkeypatch.setattr(threads, "_count", 3)


def matcher(threads_in_use: int) -> tuple[gm.Matcher, list[Any]]:
    gm.set_num_threads(threads_in_use)
    found = gm.Matcher(SCHEMA, "scan", "cpu")
    return found, found.add(dict(enumerate(TEXTS)), on_error="collect")


def test_shares_are_joined() -> None:
    alone, refused = matcher(1)
    shared, wrong = matcher(3)
    assert wrong == refused
    assert [one.id for one in wrong] == [3, 6, 9]
    assert list(shared.match(EVENTS)) == list(alone.match(EVENTS))
    assert {name: shared[name] for name in shared} == {name: alone[name] for name in alone}


def test_the_first_error_is_the_first_of_all_shares() -> None:
    texts = ["n = 1"] * 7 + ["n >"] + ["n = 2"] * 3 + ["s = 5"]
    with pytest.raises(gm.ParseError, match="subscription 7") as found:
        gm.Matcher(SCHEMA).add(dict(enumerate(texts)))
    assert (found.value.id, found.value.position, found.value.text) == (7, 3, "n >")


def test_a_process_that_fails_leaves_its_share_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with caplog.at_level(logging.WARNING, "gpumatch"):
        shared, wrong = matcher(3)
    assert len(caplog.messages) == 2
    assert "read in this process" in caplog.messages[0]
    assert [one.id for one in wrong] == [3, 6, 9]
    assert list(shared.match(EVENTS)) == list(matcher(1)[0].match(EVENTS))


def test_what_cannot_be_sent_is_read_here() -> None:
    wrong = gm.Matcher(SCHEMA).add({0: "n = 1", 1: "n = 2", 2: "n = 3", 3: len, 4: len, 5: (lambda: 0)}, "collect")
    assert [one.id for one in wrong] == [3, 4, 5]


def test_few_expressions_need_no_process(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(shares, "_SHARE", 6)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert len(matcher(3)[1]) == 3
    assert not caplog.messages
