"""Every index returns what the oracle returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import evaluate
from gpumatch.index import KINDS
from tests.conformance.devices import new_matcher
from tests.conformance.strategies import events, expressions, schemas
from tests.examples import later

INDEXES = tuple(KINDS)
VARIANTS = (  # every kind, and each at its extremes
    *(kind.params() for kind in KINDS.values()),
    gm.Gem(cells=1),
    gm.Gem(cells=3),
    gm.Gem(caches=0),
    gm.Gem(cells=1, caches=0),
    gm.Gem(cells=7, caches=2),
    gm.Tama(levels=0),
    gm.Tama(levels=1),
    gm.Tama(max_fpr=0.2),
    gm.PstHash(access=1),
    gm.Ladder(order="worst"),
    gm.Ladder(order="given"),
)
each_variant = pytest.mark.parametrize("index", [*VARIANTS[: len(KINDS)], *later(*VARIANTS[len(KINDS) :])], ids=str)


@st.composite
def cases(draw: Any) -> tuple[dict[str, str], list[gm.Expr], list[dict[str, Any]]]:
    schema = draw(schemas())
    wanted = draw(st.lists(expressions(schema), max_size=12))
    return schema, wanted, draw(st.lists(events(schema), min_size=1, max_size=6))


def expected(schema: dict[str, str], wanted: list[gm.Expr], batch: list[dict[str, Any]]) -> list[list[int]]:
    typed = gm.Schema.of(schema)
    return [[at for at, expr in enumerate(wanted) if evaluate(expr, event, typed) is True] for event in batch]


LIMITS = {
    "by column": {"subscriptions.texts._MANY": 1},  # as large sets are bound
    # as large sets of texts of unlike shapes are
    "by condition": {"subscriptions.unlike._FEW": 0, "subscriptions.unlike._MANY": 1},
    "by row": {},
    "hardly split": {"expr.normal._LITERALS": 0, "expr.normal._PER_ITEM": 1, "expr.normal._FOLDED": 1},
}


@pytest.fixture(params=LIMITS, autouse=True)
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    """Answers do not depend on when constants are bound by column, sets are folded, or expressions are split."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS[request.param].items():
            patch.setattr(f"gpumatch.{name}", value)
        yield


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases(), observed=st.booleans())
def test_every_index_equals_the_oracle(case: tuple[Any, ...], observed: bool) -> None:
    schema, wanted, batch = case
    right = expected(schema, wanted, batch)
    for index in VARIANTS:
        matcher = new_matcher(schema, index=index)
        if observed:
            matcher.observe(batch)
        matcher.add(dict(enumerate(wanted)))
        assert list(matcher.match(batch)) == right, (index, [str(expr) for expr in wanted])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases())
def test_approximate_tama_loses_nothing(case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    matcher = new_matcher(schema, index=gm.Tama(levels=1, approximate=True))
    matcher.add(dict(enumerate(wanted)))
    found = list(matcher.match(batch))
    assert all(set(mine) >= set(right) for mine, right in zip(found, expected(schema, wanted, batch), strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases())
def test_text_equals_built(case: tuple[Any, ...]) -> None:
    schema, wanted, batch = case
    matcher = new_matcher(schema)
    matcher.add({f"s{at}": str(expr) for at, expr in enumerate(wanted)})
    found = [[int(name[1:]) for name in names] for names in matcher.match(batch)]
    assert found == expected(schema, wanted, batch), [str(expr) for expr in wanted]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases(), cut=st.integers(0, 12), gone=st.sets(st.integers(0, 11)))
def test_merged_segments_equal_oracle(case: tuple[Any, ...], cut: int, gone: set[int]) -> None:
    """Segments are decoded, joined without the removed rows, and encoded anew."""
    schema, wanted, batch = case
    gone = {at for at in gone if at < len(wanted)}
    matcher = new_matcher(schema)
    everything = dict(enumerate(wanted))
    matcher.add({at: everything[at] for at in range(min(cut, len(wanted)))})
    matcher.match(batch)
    matcher.add({at: everything[at] for at in range(min(cut, len(wanted)), len(wanted))})
    matcher.remove(gone)
    right = [[at for at in row if at not in gone] for row in expected(schema, wanted, batch)]
    assert list(matcher.match(batch)) == right
    matcher.compact()
    assert list(matcher.match(batch)) == right
    matcher.observe(batch)
    matcher.compact()
    assert list(matcher.match(batch)) == right
