"""TAMA: the paper's example, exactness at any number of levels, supersets without, and what stats() tells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import gpumatch as gm
from tests.conformance.test_oracle import cases, expected

EXACT = (gm.Tama(levels=0), gm.Tama(levels=1), gm.Tama(levels=3), gm.Tama(max_fpr=0.3), gm.Tama())
SLOW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)


def matcher_of(schema: dict[str, str], index: gm.Tama, wanted: list[Any]) -> gm.Matcher:
    matcher = gm.Matcher(schema, index=index)
    matcher.add(dict(enumerate(wanted)))
    return matcher


@pytest.mark.parametrize("index", EXACT, ids=repr)
@SLOW
@given(case=cases())
def test_equals_oracle(index: gm.Tama, case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    found = list(matcher_of(schema, index, wanted).match(batch))
    assert found == expected(schema, wanted, batch), [str(expr) for expr in wanted]


@pytest.mark.parametrize("levels", [0, 1, 3, None])
@SLOW
@given(case=cases())
def test_approximate_results_hold_every_match(levels: int | None, case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    found = list(matcher_of(schema, gm.Tama(levels=levels, approximate=True), wanted).match(batch))
    right = expected(schema, wanted, batch)
    assert all(set(some) >= set(needed) for some, needed in zip(found, right, strict=True))
    if levels is None:
        assert found == right, "codes of few constants are all told apart"
