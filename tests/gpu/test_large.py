"""Sets and batches as large as devices are made for, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch import workloads
from gpumatch.device import matching
from gpumatch.index import KINDS
from tests.conformance.devices import sized

pytestmark = pytest.mark.gpu
SUBSCRIPTIONS = sized(100_000, few=200)
WORKLOADS = {
    "ranges on all": workloads.gem,
    "few of a hundred": workloads.dense,
    "few of very many": workloads.sparse,
    "ten of a thousand": workloads.tama,
    "four wide": workloads.box,
    "half and half": workloads.mixed,
}


def filled(workload: workloads.Workload, index: str) -> gm.Matcher:
    matcher = gm.Matcher(workload.schema, index=index, device="cpu")
    workload.add_to(matcher)
    return matcher


def events_of(workload: workloads.Workload, count: int) -> Any:
    made = workload.events(count, seed=7)
    return made if isinstance(made, dict) else gm.EventBatch.from_csr(*made)


@pytest.mark.parametrize("index", ["auto", *KINDS])
@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads(name: str, index: str) -> None:
    workload = WORKLOADS[name](SUBSCRIPTIONS)
    right, events = filled(workload, index), events_of(workload, sized(200, few=2))
    mine = right.to("cuda:0")
    assert mine.match(events) == right.match(events)
    assert mine.any(events).tolist() == right.any(events).tolist()


def test_more_events_than_are_matched_at_once() -> None:
    """Several pieces in flight, copied and matched on two streams, in the order of events."""
    count = sized(3 * matching._EVENTS + 17, few=9)
    rng = np.random.default_rng(1)
    right = gm.Matcher({"x": "float64", "s": "string"}, index="pstbloom", device="cpu")
    right.add({at: f"x < {at / 1000} AND s = 's{at % 50}'" for at in range(sized(1000, few=40))})
    events = {"x": rng.random(count), "s": [f"s{at}" for at in rng.integers(0, 60, count)]}
    mine = right.to("cuda:0")
    for _ in range(3):
        assert mine.match(events) == right.match(events)


def test_results_larger_than_a_piece_of_memory() -> None:
    """Nearly all match: tens of millions of pairs, in ascending order."""
    right = gm.Matcher({"x": "float64"}, index="gem", device="cpu")
    count = sized(20_000, few=50)
    right.add_ranges(np.arange(count), {"x": (np.linspace(0, 0.1, count), None)})
    events = {"x": np.linspace(0.05, 1, sized(2000, few=4))}
    found = right.to("cuda:0").match(events)
    assert found == right.match(events)
    assert found.n_pairs > count * len(found) // 2


def test_random_sets_of_all_kinds() -> None:
    """Texts with OR, NOT, sets, prefixes and lists in large numbers, by every index."""
    rng = np.random.default_rng(2)
    parts = ["x > {a}", "x = {a}", "NOT (x = {a})", "y < {b}", "y BETWEEN {b} AND {c}", "s LIKE 's{a}%'", "t = {a}"]
    parts += ["t <> {a}", "s IN ('s1', 's{a}')", "x IS NULL", "NOT (t = {a})", "(x < {a} XOR y > {b})"]
    texts = {}
    for at in range(sized(20_000, few=60)):
        a, b = int(rng.integers(0, 99)), round(float(rng.random()), 3)
        some = [parts[k].format(a=a, b=b, c=b + 0.1) for k in rng.integers(0, len(parts), rng.integers(1, 5))]
        texts[at] = (" OR " if at % 5 == 0 else " AND ").join(some)
    events = []
    for _ in range(sized(300, few=3)):
        event: dict[str, Any] = {
            "x": int(rng.integers(0, 99)),
            "y": float(rng.random()),
            "s": f"s{rng.integers(0, 99)}",
        }
        event["t"] = [int(value) for value in rng.integers(0, 99, rng.integers(0, 6))]
        events.append({name: value for name, value in event.items() if rng.random() < 0.8})
    for index in KINDS:
        right = gm.Matcher({"x": "int64", "y": "float64", "s": "string", "t": "list<int64>"}, index=index, device="cpu")
        right.add(texts)
        assert right.to("cuda:0").match(events) == right.match(events)
