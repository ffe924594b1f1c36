"""What is said of matches without listing them is what a list of them says, under every index."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from tests.conformance.test_oracle import VARIANTS, cases, expected

NAMES = st.lists(st.sampled_from([None, "d0", "d1", "d2"]), min_size=12, max_size=12)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    case=cases(),
    index=st.sampled_from(["auto", *VARIANTS]),
    cut=st.integers(0, 12),
    gone=st.sets(st.integers(0, 11)),
    names=NAMES,
)
def test_counts_equal_the_oracle(
    case: tuple[Any, ...], index: Any, cut: int, gone: set[int], names: list[str | None]
) -> None:
    """In two segments, with removed rows in both, and rows of several clauses."""
    schema, wanted, batch = case
    matcher = gm.Matcher(schema, index, "cpu", background=False)
    names, everything = names[: len(wanted)], dict(enumerate(wanted))
    for part in (range(min(cut, len(wanted))), range(min(cut, len(wanted)), len(wanted))):
        matcher.add({at: everything[at] for at in part}, destination=[names[at] for at in part])
        matcher.match(batch)
    gone &= everything.keys()
    matcher.remove(gone)
    right = [[at for at in row if at not in gone] for row in expected(schema, wanted, batch)]
    totals = [sum(at in row for row in right) for at in everything if at not in gone]
    for events in (batch, batch[:1]):
        count = len(events)
        assert matcher.count(events).tolist() == [len(row) for row in right[:count]]
        assert matcher.any(events).tolist() == [len(row) > 0 for row in right[:count]]
    assert matcher.count_subscriptions(batch).tolist() == totals
    if any(names):
        found = [sorted(row) for row in matcher.destinations(batch)]
        assert found == [sorted({name for at in row if (name := names[at])}) for row in right]
