"""Codes of predicates, against counting the cuts below each end one by one; however many threads share the work."""

from __future__ import annotations

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.codes import ends
from gpumatch.codes.table import encode_block
from gpumatch.expr.keys import INF_KEY, MAX, MIN
from gpumatch.opcodes import NULL, RANGE, SET
from gpumatch.parallel import threads
from gpumatch.subscriptions.block import Attributes, Block
from gpumatch.subscriptions.predicates import EMPTY, Predicates

SCHEMA = {"i": "int64", "f": "float64", "unused": "int64", "j": "int64"}
ATTRIBUTES = Attributes.of(gm.Matcher(SCHEMA).schema)
KEYS = np.array([MIN, MIN + 1, ~INF_KEY - 1, ~INF_KEY, -7, -1, 0, 1, 3, 900, INF_KEY, INF_KEY + 1, MAX - 1, MAX])


@pytest.fixture(autouse=True, params=[1, 3])
def _number_of_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", request.param)
    monkeypatch.setattr(threads, "_SHARE", 1)
    monkeypatch.setattr(ends, "_AT_ONCE", 5)


def drawn(rng: np.random.Generator, count: int) -> Predicates:
    """Ranges on all attributes but one; some are open, some hold no key."""
    lo, hi = rng.choice(KEYS, count), rng.choice(KEYS, count)
    return Predicates.of(rng.choice(np.array([0, 1, 3]), count), RANGE, lo, hi)


def block_of(rng: np.random.Generator, count: int) -> Block:
    """Ranges, sets and tests for missing values, a predicate per clause."""
    predicates, listed = drawn(rng, count), drawn(rng, 12)
    kind = rng.choice(np.array([RANGE, RANGE, RANGE, SET, NULL]), count)
    sets = kind == SET
    predicates.lo[sets], predicates.hi[sets] = 3, 5
    whole = Predicates.of(predicates.attribute, kind, predicates.lo, predicates.hi)
    none = np.full(count, -1, np.int32)
    rows = np.arange(count, dtype=np.int32)
    return Block(
        count, rows, np.arange(count + 1), none, whole, listed, np.zeros(1, np.int64), np.zeros(0, np.int32), []
    )


def within(attribute: int, lo: int, hi: int) -> tuple[int, int]:
    """Keys of floats beyond the infinities are not numbers."""
    if SCHEMA[list(SCHEMA)[attribute]] == "float64":
        if lo > INF_KEY:
            return EMPTY
        return MIN if lo <= ~INF_KEY else lo, MAX if hi >= INF_KEY else hi
    return lo, hi


def cuts_of(ranges: list[tuple[int, int, int]]) -> list[list[int]]:
    """The cuts of each attribute."""
    found: list[set[int]] = [set() for _ in SCHEMA]
    for attribute, lo, hi in ranges:
        found[attribute] |= ({lo} if lo != MIN else set()) | ({hi + 1} if hi != MAX else set())
    return [sorted(own) for own in found]


def code(cuts: list[int], key: int) -> int:
    return len(cuts) if key == MAX else sum(cut <= key for cut in cuts)


@pytest.mark.parametrize("count", [0, 1, 2, 200])
def test_codes_count_the_cuts_below(count: int) -> None:
    block = block_of(np.random.default_rng(count), count)
    book, table = encode_block(block, ATTRIBUTES)
    given = list(zip(*(column.tolist() for column in block.predicates.columns()), strict=True))
    plain = [(a, *within(a, lo, hi)) for a, kind, lo, hi in given if kind == RANGE]
    listed = [(a, lo, hi) for a, _, lo, hi in zip(*(it.tolist() for it in block.ranges.columns()), strict=True)]
    cuts = cuts_of([one for one in plain if one[1] <= one[2]] + listed)
    assert [book.cuts[a:b].tolist() for a, b in zip(book.cut_ptr[:-1], book.cut_ptr[1:], strict=True)] == cuts
    for (attribute, kind, lo, hi), row in zip(given, table.predicate.reshape(-1, 4).tolist(), strict=True):
        expected = (lo, hi) if kind == SET else (-1, -1)
        if kind == RANGE:
            first, last = within(attribute, lo, hi)
            own = cuts[attribute]
            expected = (code(own, first), code(own, last)) if first <= last else EMPTY
        assert row == [attribute, kind, *expected]
    assert table.range_lo.tolist() == [code(cuts[a], lo) for a, lo, _ in listed]
    assert table.range_hi.tolist() == [code(cuts[a], hi) for a, _, hi in listed]


def test_buckets_of_many_and_of_few_cuts() -> None:
    """Most of the cuts are close together, so that they share a bucket; the others have several."""
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.random(3000), 1e6 + rng.random(9000) * 1e9])
    keys = np.sort(values.view(np.int64))  # of floats above zero
    lo, hi = rng.permutation(keys), rng.permutation(keys)
    lo, hi = np.minimum(lo, hi), np.maximum(lo, hi)
    count = len(lo)
    rows = np.arange(count, dtype=np.int32)
    given, none = Predicates.of(1, RANGE, lo, hi), Predicates.join([])
    nothing = np.zeros(1, np.int64), np.zeros(0, np.int32)
    block = Block(count, rows, np.arange(count + 1), np.full(count, -1, np.int32), given, none, *nothing, [])
    book, table = encode_block(block, ATTRIBUTES)
    cuts = np.unique(np.concatenate([lo, hi + 1]))
    assert (book.cuts == cuts).all()
    assert (table.columns()[2] == np.searchsorted(cuts, lo, "right")).all()
    assert (table.columns()[3] == np.searchsorted(cuts, hi, "right")).all()
