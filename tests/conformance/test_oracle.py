"""Every index returns what the oracle returns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import evaluate
from tests.conformance.strategies import events, expressions, schemas

INDEXES = ("scan", "pstbloom")


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[gm.Expr], list[dict[str, Any]]]:
    schema = draw(schemas())
    wanted = draw(st.lists(expressions(schema), max_size=12))
    return schema, wanted, draw(st.lists(events(schema), min_size=1, max_size=6))


def expected(schema: dict[str, str], wanted: list[gm.Expr], batch: list[dict[str, Any]]) -> list[list[int]]:
    typed = gm.Schema.of(schema)
    return [[at for at, expr in enumerate(wanted) if evaluate(expr, event, typed) is True] for event in batch]


@pytest.mark.parametrize("index", INDEXES)
@given(case=cases())
def test_index_equals_oracle(index: str, case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    matcher = gm.Matcher(schema, index=index)
    matcher.add(dict(enumerate(wanted)))
    assert list(matcher.match(batch)) == expected(schema, wanted, batch), [str(expr) for expr in wanted]
