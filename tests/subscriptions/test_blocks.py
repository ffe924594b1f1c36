"""Blocks: what programs share, and what is left of it when rows go and blocks are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.codes.decode import decode_table
from gpumatch.codes.table import encode_block
from gpumatch.expr import Expr, evaluate
from gpumatch.expr.keys import MIN
from gpumatch.expr.normal import Splitting
from gpumatch.index import KINDS
from gpumatch.index.planner import splitting_for
from gpumatch.opcodes import RANGE
from gpumatch.subscriptions import texts as subscriptions
from gpumatch.subscriptions.block import Attributes, Block
from gpumatch.subscriptions.merge import join_blocks
from gpumatch.subscriptions.texts import text_block
from tests.conformance.strategies import events, expressions, schemas

SCHEMA = {"a": "int64", "b": "float64", "s": "string", "t": "list<int64>", "u": "list<string>"}
ATTRIBUTES = Attributes.of(gm.Schema.of(SCHEMA))
SHARED = [
    "a = 1 OR b > 2.5 XOR s LIKE 'ab%'",
    "b > 2.5 XOR a = 1",
    "a IN (1, 5, 9) OR t IN (1, 3)",
    "t IN (3, 1) XOR a IN (9, 1, 5)",
    "u = 'x' XOR a IS NULL",
    "(a IS NULL OR u = 'x') AND b = 1",
    "s NOT LIKE 'ab%' XOR a <> 1",
]
# 1: RANGE a, RANGE b, RANGE s; 3: SET a, ANY t; 5: ANY u, NULL a
DISTINCT = 7


@pytest.fixture(params=[1, 16], ids=["by column", "by row"])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_MANY", request.param)


def block_of(texts: list[str], splitting: Splitting = Splitting.NEVER) -> Block:
    block, errors = text_block(ATTRIBUTES, texts, splitting)
    assert not errors
    return block


def leaves(block: Block) -> int:
    """How many predicates programs have, which must all be used."""
    own = int(block.clause_ptr[-1])
    used = np.unique(block.program_item[block.program_item >= 0])
    assert used.tolist() == list(range(own, len(block.predicates)))
    return len(used)


def filled(schema: dict[str, str], splitting: Splitting, index: str = "scan") -> gm.Matcher:
    matcher = gm.Matcher(schema, index=index)
    matcher._splitting = splitting
    return matcher


@pytest.mark.usefixtures("many")
def test_programs_share_equal_predicates() -> None:
    block = block_of(SHARED * 20)
    assert leaves(block) == DISTINCT
    assert len(block.ranges) == 3 + 2 + 1  # of IN (1, 5, 9), of IN (1, 3), of 'x'
    assert len(block.program_ptr) - 1 == len(SHARED)  # programs that are equal are one, too
    assert np.bincount(block.clause_program).tolist() == [20] * len(SHARED)


@pytest.mark.usefixtures("many")
def test_sharing_outlives_kept_rows_joins_and_codes() -> None:
    block = block_of(SHARED * 20)
    keep = np.zeros(block.length, np.bool_)
    keep[::3] = True
    kept = join_blocks(ATTRIBUTES, [block], [keep])
    assert (leaves(kept), len(kept.ranges)) == (DISTINCT, 6)
    only = join_blocks(ATTRIBUTES, [block], [np.arange(block.length) % 7 == 2])
    assert (leaves(only), len(only.ranges)) == (2, 5)
    joined = join_blocks(ATTRIBUTES, [kept, block, only], [None, keep, None])
    assert (leaves(joined), len(joined.ranges)) == (DISTINCT, 6)
    book, table = encode_block(joined, ATTRIBUTES)
    back = decode_table(ATTRIBUTES, book, table)
    assert leaves(back) == DISTINCT
    ends = [sorted(held.lo[held.kind == RANGE].tolist()) for held in (back.predicates, joined.predicates)]
    assert ends[0] == ends[1]


def test_large_groups_share_as_small_ones_do() -> None:
    texts = [f"a = {i % 50} OR b < {i % 3}.5 XOR a > {i % 7}" for i in range(6000)]
    assert leaves(block_of(texts)) == 50 + 3 + 7
    assert leaves(block_of(texts[:100])) == 50 + 3 + 7


def test_ranges_with_the_same_numbers_on_other_attributes_are_others() -> None:
    block = block_of(["t IN (1, 3, 5) XOR b IN (1, 3, 5)", "a IN (1, 3, 5) XOR t IN (1, 3, 5)"])
    assert leaves(block) == 3
    assert sorted(block.ranges.attribute.tolist()) == [0] * 3 + [1] * 3 + [3] * 3


@pytest.mark.usefixtures("many")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), splitting=st.sampled_from(Splitting))
def test_every_splitting_equals_the_oracle(data: Any, splitting: Splitting) -> None:
    schema = data.draw(schemas())
    wanted: list[Expr] = data.draw(st.lists(expressions(schema, 10), max_size=10))
    batch = data.draw(st.lists(events(schema), min_size=1, max_size=6))
    gone = [at for at in data.draw(st.lists(st.integers(0, 9), unique=True, max_size=3)) if at < len(wanted)]
    typed = gm.Schema.of(schema)
    matcher = filled(schema, splitting, data.draw(st.sampled_from(["scan", "pstbloom"])))
    matcher.add(dict(enumerate(wanted)))
    right = [[at for at, expr in enumerate(wanted) if evaluate(expr, event, typed) is True] for event in batch]
    assert list(matcher.match(batch)) == right, [str(expr) for expr in wanted]
    matcher.remove(gone)
    matcher.compact()
    left = [[at for at in found if at not in gone] for found in right]
    assert list(matcher.match(batch)) == left, [str(expr) for expr in wanted]


@pytest.mark.long
@pytest.mark.parametrize("splitting", Splitting)
def test_depth_12_and_ten_thousand_predicates(splitting: Splitting) -> None:
    deep = "a = 1"
    for level in range(12):
        deep = (
            f"({deep} {('AND', 'OR', 'XOR', 'XNOR')[level % 4]} b < {level}) {('OR', 'AND')[level % 2]} s = 'k{level}'"
        )
    long = " OR ".join(f"(a = {i} XOR b = {i + 1})" for i in range(5000))
    matcher = filled(SCHEMA, splitting)
    matcher.add({"deep": f"NOT ({deep})", "long": long})
    batch = [{"a": 7, "b": 7.0}, {"a": 4, "b": 5.0}, {"a": 1, "b": 3.0, "s": "k3"}, {"b": -1.0}, {}]
    for text, name in ((f"NOT ({deep})", "deep"), (long, "long")):
        expr = gm.parse(text)
        right = [evaluate(expr, event, matcher.schema) is True for event in batch]
        assert [name in ids for ids in matcher.match(batch)] == right


def test_replace_splits_as_add_does() -> None:
    matcher = filled(SCHEMA, Splitting.PRODUCTS, "pstbloom")
    matcher.add({1: "a = 1"})
    matcher.replace({1: "a = 1 OR b = 2"})
    assert matcher.stats()["clauses"] == 2


def test_the_index_says_how_far_to_split() -> None:
    assert splitting_for(None) is Splitting.SMALL
    assert splitting_for(gm.ATree()) is Splitting.NEVER
    assert {splitting_for(kind.params()) for name, kind in KINDS.items() if name != "atree"} == {Splitting.PRODUCTS}


def test_what_is_not_true_is_false() -> None:
    attributes = Attributes.of(gm.Schema.of({"k": "bool"}))
    texts = ["k = FALSE", "NOT k", "k <> TRUE", "k < TRUE", "k IS NOT TRUE AND k IS NOT NULL"]
    block, errors = text_block(attributes, texts, Splitting.PRODUCTS)
    assert not errors
    assert {found[1:] for found in zip(*block.predicates.columns(), strict=True)} == {(RANGE, MIN, 0)}
