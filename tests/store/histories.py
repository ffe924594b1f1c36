"""What tests of lasting indexes share: random calls, what a plain dict says of them, and what a matcher says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.expr import evaluate, parse
from gpumatch.store import merging, store
from gpumatch.store.folder import durable, log

SCHEMA = {"x": "int64", "s": "string", "tags": "list<string>"}
TYPED = gm.Schema.of(SCHEMA)
EVENTS: list[dict[str, Any]] = [
    *({"x": at, "s": "abc"[at % 3], "tags": ["t"] * (at % 2)} for at in range(16)),
    {"s": "b"},
    {"x": -5, "tags": ["u", "t"]},
    {},
]
IDS = 40  # that calls choose from

Model: TypeAlias = "dict[int, str]"  # texts by id, in the order that ids should have
Call: TypeAlias = "tuple[str, Any]"
State: TypeAlias = "list[tuple[int, tuple[bool, ...]]]"  # ids, and which events each matches


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments, merges, files and versions with few subscriptions."""
    lower(monkeypatch)


def lower(patch: pytest.MonkeyPatch) -> None:
    for module in (merging, store):
        patch.setattr(module, "SCANNED", 6)
    patch.setattr(merging, "WORTH", 2)
    patch.setattr(merging, "_FRESH", 2)
    patch.setattr(merging, "_TIER", 2)
    patch.setattr(store, "_BEHIND", 12)
    patch.setattr(store, "_JOINED", 3)
    patch.setattr(durable, "_ROWS", 12)
    patch.setattr(durable, "_RECORDS", 7)
    patch.setattr(log, "_AT_ONCE", 50)


def random_text(rng: np.random.Generator) -> str:
    at = int(rng.integers(16))
    shapes = (f"x = {at}", f"x >= {at} AND s = 'a'", f"x < {at} OR tags = 't'", f"s LIKE '%b' AND x <> {at}")
    return str(rng.choice(shapes))


def random_call(rng: np.random.Generator, model: Model) -> Call:
    """A call that succeeds, if the matcher holds what the model does."""
    free = [name for name in range(IDS) if name not in model]
    held = list(model)

    def some(names: list[int], most: int) -> list[int]:
        count = int(rng.integers(1, most + 1))
        return [int(name) for name in rng.permutation(names)[:count]]

    kind = rng.choice(["add", "ranges", "remove", "upsert", "replace", "compact"], p=[0.25, 0.15, 0.2, 0.2, 0.1, 0.1])
    if kind == "compact":
        return "compact", None
    if kind in ("remove", "replace") and held:
        names = some(held, 10 if rng.random() < 0.2 else 3)
        return str(kind), names if kind == "remove" else {name: random_text(rng) for name in names}
    if kind == "ranges" and free:
        return "ranges", [(name, int(rng.integers(16))) for name in some(free, 12)]
    if kind == "add" and free:
        return "add", {name: random_text(rng) for name in some(free, 15 if rng.random() < 0.2 else 4)}
    return "upsert", {name: random_text(rng) for name in some(list(range(IDS)), 5)}


def after(model: Model, call: Call) -> Model:
    """What the dict should be after a call."""
    kind, given = call
    model = dict(model)
    if kind == "remove":
        for name in given:
            del model[name]
    elif kind == "ranges":
        model |= {name: f"x BETWEEN {low} AND {low + 3}" for name, low in given}
    elif kind != "compact":
        for name, text in given.items():
            model.pop(name, None)
            model[name] = text
    return model


def make(matcher: gm.Matcher, call: Call) -> None:
    kind, given = call
    if kind == "compact":
        matcher.compact()
    elif kind == "ranges":
        low = np.array([low for _, low in given])
        matcher.add_ranges([name for name, _ in given], {"x": (low, low + 3)})
    else:
        getattr(matcher, kind)(given)


def random_calls(rng: np.random.Generator, model: Model) -> Iterator[tuple[Call, Model]]:
    """Calls without end, each with what the dict should be after it."""
    while True:
        call = random_call(rng, model)
        model = after(model, call)
        yield call, model


@cache
def _right(text: str) -> tuple[bool, ...]:
    expr = parse(text)
    return tuple(evaluate(expr, event, TYPED) is True for event in EVENTS)


def state_of(model: Model) -> State:
    return [(name, _right(text)) for name, text in model.items()]


def state(matcher: gm.Matcher) -> State:
    """All that a matcher answers, by subscription."""
    ids = [int(name) for name in matcher]
    found = np.zeros((len(EVENTS), len(ids)), bool)
    place = {name: at for at, name in enumerate(ids)}
    for at, names in enumerate(matcher.match(EVENTS)):
        assert names == sorted(names, key=place.__getitem__)
        found[at, [place[int(name)] for name in names]] = True
    assert len(place) == len(ids) == len(matcher)
    return [(name, tuple(column.tolist())) for name, column in zip(ids, found.T, strict=True)]


def crash(matcher: gm.Matcher) -> None:
    """Leave the folder as a process does that ends at once; the matcher is of no use any more."""
    folder = matcher._folder
    assert isinstance(folder, durable.Durable)
    with folder._folding, folder._logging:
        folder._give_up("it has crashed")
