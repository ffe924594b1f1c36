"""Routers of shards lose no match, send little, and are small; subscriptions alone decide where they go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.events.batch import EventBatch
from gpumatch.expr import evaluate, parse
from gpumatch.routing.shards import grid as grids
from gpumatch.routing.shards import plan as plans
from gpumatch.routing.shards import router as routers
from gpumatch.routing.shards.grid import Grid
from gpumatch.routing.shards.plan import Draft, Plan
from gpumatch.routing.shards.router import Entries, Router
from gpumatch.workloads import make
from tests.examples import examples
from tests.routing.test_shards import SCHEMA, _event, _expression


def shards_of(matcher: gm.Matcher, draft: Draft, count: int) -> tuple[np.ndarray[Any, Any], list[gm.Matcher]]:
    """The shard of each subscription, and a matcher of each shard."""
    source = matcher._source()
    placement = draft.placement
    shard = np.arange(len(source)) % count if placement is None else placement.shards(draft.grid, source)
    parts = []
    for number in range(count):
        part = gm.Matcher(matcher.schema, index="scan", device="cpu")
        ids = [id for id, own in zip(matcher.ids, shard.tolist(), strict=True) if own == number]
        part.add({id: matcher[id] for id in ids})
        parts.append(part)
    return shard, parts


@settings(max_examples=examples(80), deadline=None)
@given(
    expressions=st.lists(_expression, max_size=12),
    events=st.lists(_event, max_size=8),
    sample=st.integers(0, 12),
    count=st.integers(1, 5),
    place=st.sampled_from(["auto", "hash", "similar"]),
    seen=st.booleans(),
    cells=st.sampled_from([2, 3, 1 << 16]),
    per_list=st.sampled_from([1, 1000]),
    columns=st.sampled_from([1, 2, 0xFFFE]),
)
def test_no_match_is_lost(
    expressions: list[str],
    events: list[dict[str, Any]],
    sample: int,
    count: int,
    place: Any,
    seen: bool,
    cells: int,
    per_list: int,
    columns: int,
) -> None:
    matcher = gm.Matcher(SCHEMA, index="scan", device="cpu")
    matcher.add(dict(enumerate(expressions)))
    some = gm.Matcher(SCHEMA, device="cpu")
    some.add(dict(enumerate(expressions[:sample])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "COLUMNS", columns)
        patch.setattr(grids, "_CELLS", cells)
        patch.setattr(routers, "_PER_LIST", per_list)
        patch.setattr(routers, "_MARKS", 3)
        draft = Draft.of(some, count, 1000, events if seen else None, place)
        shard, parts = shards_of(matcher, draft, count)
        plan = draft.finished([Entries.of(draft.grid, part) for part in parts])
        sent = [set(shards) for shards in plan.router.route(events)]
    schema, trees = gm.Schema.of(SCHEMA), [parse(text) for text in expressions]
    lost = [
        (event, expressions[at])
        for number, event in enumerate(events)
        for at, tree in enumerate(trees)
        if evaluate(tree, event, schema) is True and int(shard[at]) not in sent[number]
    ]
    assert lost == []


def test_more_shards_than_a_byte_has_numbers() -> None:
    matcher = gm.Matcher({"x": "int64"}, device="cpu")
    matcher.add({n: f"x = {n}" for n in range(300)})
    draft = Draft.of(matcher, 300, 300)
    one = [gm.Matcher({"x": "int64"}, device="cpu") for _ in range(300)]
    for n, part in enumerate(one):
        part.add({n: f"x = {n}"})
    router = Router.of(draft.grid, [Entries.of(draft.grid, part) for part in one])
    assert router.entry.shape == (300, 12)
    assert [list(shards) for shards in router.route([{"x": n} for n in (0, 255, 256, 299, 300)])] == [
        [0], [255], [256], [299], []
    ]  # fmt: skip


def test_removed_subscriptions_are_not_routed_to() -> None:
    matcher = gm.Matcher({"x": "int64"}, device="cpu")
    matcher.add({n: f"x = {n}" for n in range(9)})
    matcher.match([{"x": 1}])
    matcher.remove([3])
    draft = Draft.of(matcher, 1, 9)
    router = Router.of(draft.grid, [Entries.of(draft.grid, matcher)])
    assert [len(shards) for shards in router.route([{"x": 2}, {"x": 3}, {}])] == [1, 0, 0]


def test_what_has_no_condition_goes_everywhere() -> None:
    matcher = gm.Matcher({"x": "int64", "t": "list<string>"}, device="cpu")
    matcher.add({"a": "x IS NULL", "b": "x = 5"})
    other = gm.Matcher(matcher.schema, device="cpu")
    other.add({"c": "x = 7"})
    grid = Draft.of(matcher, 2, 3).grid
    router = Router.of(grid, [Entries.of(grid, part) for part in (matcher, other)])
    assert [list(shards) for shards in router.route([{"x": 7}, {}, {"x": 5}])] == [[0, 1], [0], [0]]


@pytest.mark.parametrize(
    ("name", "most"),
    [("w2", 3.0), ("w3", 1.2), pytest.param("w4", 1.2, marks=pytest.mark.long), ("ads", 9.0)],
)
def test_few_copies_and_few_bytes(name: str, most: float) -> None:
    workload = make(name, {"w2": 0.1, "w3": 0.1, "w4": 1.0, "ads": 1 / 30}[name] / 5)
    matcher = gm.Matcher(workload.schema, device="cpu")
    workload.add_to(matcher)
    seen, others = (workload.events(500, seed) for seed in (1, 2))
    draft = Draft.of(matcher, 16, len(matcher), _batch(seen))
    assert (draft.placement is None) == (name != "ads")
    source = matcher._source()
    shard = np.arange(len(source)) % 16 if draft.placement is None else draft.placement.shards(draft.grid, source)
    relaxed = routers.Relaxed.of(draft.grid, *plans.encode_block(source.block, draft.grid.attributes))
    plan = draft.finished([relaxed.some(shard == n) for n in range(16)])
    assert plan.report.pays
    assert plan.report.copies < most
    fixed = 4 * len(draft.grid.attributes) + 9 * len(plan.router.slot_level)  # what does not grow with subscriptions
    assert plan.router.nbytes - fixed < 12.5 * len(matcher)
    routed, matches = plan.router.route(_batch(others)), matcher.match(_batch(others))
    for shards, rows in zip(routed, matches, strict=True):
        assert {int(shard[row]) for row in rows} <= set(shards)


def _batch(events: Any) -> Any:
    return EventBatch.from_csr(*events) if isinstance(events, tuple) else events


def test_equal_conditions_are_split_by_their_ids() -> None:
    matcher = gm.Matcher({"x": "int64"}, device="cpu")
    matcher.add({f"id{n}": "x = 5" for n in range(2000)})
    placement = Draft.of(matcher, 4, 2000, place="similar").placement
    assert placement is not None
    grid = Draft.of(matcher, 4, 2000, place="similar").grid
    sizes = np.bincount(placement.shards(grid, matcher._source()), minlength=4)
    assert sizes.min() > 400


def test_a_saved_plan_is_the_same(tmp_path: Path) -> None:
    matcher = gm.Matcher({"s": "string", "x": "int64"}, device="cpu")
    matcher.add({n: f"s = 's{n % 40}' AND x > {n}" for n in range(400)})
    events = [{"s": f"s{n % 50}", "x": n} for n in range(200)]
    for place in ("hash", "similar"):
        draft = Draft.of(matcher, 4, 400, events, place)  # type: ignore[arg-type]
        _, parts = shards_of(matcher, draft, 4)
        plan = draft.finished([Entries.of(draft.grid, part) for part in parts])
        plan.save(tmp_path / place)
        again = Plan.load(tmp_path / place)
        assert again.report == plan.report
        assert again.router.route(events).to_arrow() == plan.router.route(events).to_arrow()
        assert (again.draft.placement is None) == (place == "hash")
        if plan.draft.placement is not None and again.draft.placement is not None:
            where = [one.placement.shards(one.grid, matcher._source()) for one in (draft, again.draft) if one.placement]
            assert (where[0] == where[1]).all()
            assert plan.report.copies < 2  # a symbol has all its rules in a shard or two


def test_busy_shards_have_several_parts() -> None:
    assert plans.Report((0.2, 0.2, 0.2, 0.2), 0.0).parts == (1, 1, 1, 1)
    busy = plans.Report((0.9, 0.1, 0.1, 0.1), 0.0)
    assert busy.parts == (2, 1, 1, 1)
    assert str(busy) == "4 shards, 1.20 copies of an event, leak 0%, balance 3.00, 1 of them in several parts: 5 in all"
    assert plans.Report((0.0, 0.0), 0.0).parts == (1, 1)


def test_no_subscriptions_and_no_events() -> None:
    matcher = gm.Matcher({"x": "int64"}, device="cpu")
    draft = Draft.of(matcher, 3, 0, [])
    router = Router.of(draft.grid, [Entries.of(draft.grid, matcher)] * 3)
    assert router.route([]).n_pairs == 0
    assert router.route([{"x": 1}, {}]).n_pairs == 0
    assert isinstance(draft.grid, Grid)
    assert repr(router) == "Router(3 shards, 0.0 MB)"


def test_more_shards_than_a_router_can_name() -> None:
    with pytest.raises(gm.SchemaError, match="at most 65,536 shards, but 65,537 were asked for"):
        Draft.of(gm.Matcher({"x": "int64"}, device="cpu"), 65_537, 0)
