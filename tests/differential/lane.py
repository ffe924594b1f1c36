"""The differential lane: the same subscriptions in gpumatch, every way in and under every index, and in DuckDB."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import gpumatch as gm
from gpumatch.expr import evaluate
from gpumatch.index import KINDS
from tests.differential.cases import (
    CLOSED,
    NUMERIC,
    REVERSED,
    Ends,
    Leaf,
    Node,
    Subscriptions,
    World,
    fill,
    fill_ranges,
    random_shapes,
)
from tests.differential.duck import Duck

INDEXES = ("auto", *KINDS)
_SHOWN = 3  # differences of a run that are told
_COUNTED = ("expressions", "shapes", "pairs", "differences")


@dataclass
class Case:
    """Subscriptions and events, and what DuckDB says of them."""

    name: str
    world: World
    held: Subscriptions
    events: pa.Table
    ranges: tuple[dict[str, Ends], str] | None = None  # ends of all rows, and which of them belong to them

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        return Duck(self.events).matches(self.held.theirs())

    @cached_property
    def texts(self) -> list[str]:
        return self.held.ours()


def mixed(seed: int, shapes: int, count: int, events: int) -> Case:
    """Every type and every kind of predicate."""
    world = World.of(np.random.default_rng(seed))
    return Case("mixed", world, fill(world, random_shapes(world, shapes), count), world.events(events))


def numeric(seed: int, shapes: int, count: int, events: int) -> Case:
    """Comparisons of numbers and connectives: what columns of numbers can say."""
    world = World.of(np.random.default_rng(seed))
    names = [name for name, kind in world.types.items() if kind in NUMERIC]
    for name in names:
        held = world.constants[name]
        world.constants[name] = [one for one in held if Decimal(one.bare) == Decimal(float(one.bare))]
    made = (shape for _ in itertools.count() for shape in random_shapes(world, shapes, names))
    plain = list(itertools.islice((one for one in made if _compares(one.leaves)), shapes))
    return Case("numeric", world, fill(world, plain, count), world.events(events))


def _compares(leaves: list[Leaf]) -> bool:
    return all("IN" not in leaf.op and "IS" not in leaf.op for leaf in leaves)


def ranges(seed: int, shapes: int, count: int, events: int) -> Case:
    """Conjunctions of ranges."""
    world = World.of(np.random.default_rng(seed))
    closed = str(world.rng.choice(list(CLOSED)))
    held, ends = fill_ranges(world, closed, shapes, count)
    return Case("ranges", world, held, world.events(events), (ends, closed))


# Ways in: the rows ``first:last`` of a case, with their numbers as ids


def by_text(matcher: gm.Matcher, case: Case, first: int, last: int) -> None:
    matcher.add(dict(enumerate(case.texts[first:last], first)))


def by_table(matcher: gm.Matcher, case: Case, first: int, last: int) -> None:
    matcher.add_table(pa.table({"id": np.arange(first, last), "expr": case.texts[first:last]}))


def by_building(matcher: gm.Matcher, case: Case, first: int, last: int) -> None:
    matcher.add({at: gm.parse(case.texts[at]) for at in range(first, last)})


def by_rows(matcher: gm.Matcher, case: Case, first: int, last: int) -> None:
    """A table of predicates and operators whose constants are text."""
    matcher.add_predicates(_long_form(case, first, last, lambda bare: bare))


def by_numbers(matcher: gm.Matcher, case: Case, first: int, last: int) -> None:
    """The same with columns of numbers."""
    matcher.add_predicates(_long_form(case, first, last, float))


def by_ranges(matcher: gm.Matcher, case: Case, first: int, last: int) -> None:
    assert case.ranges is not None
    ends, closed = case.ranges
    part = {name: (low[first:last], high[first:last]) for name, (low, high) in ends.items()}
    matcher.add_ranges(np.arange(first, last), part, closed=closed)


WAYS: dict[str, Callable[[gm.Matcher, Case, int, int], None]] = {
    "text": by_text,
    "table": by_table,
    "built": by_building,
    "rows": by_rows,
    "numbers": by_numbers,
    "ranges": by_ranges,
}


def _long_form(case: Case, first: int, last: int, convert: Callable[[str], Any]) -> pa.Table:
    columns: dict[str, list[Any]] = {"id": [], "attribute": [], "op": [], "value": [], "values": []}
    for row in range(first, last):
        tree = case.held.shapes[case.held.numbers[row]].tree
        given = iter([convert(constant.bare) for constant in case.held.constants[row]])
        for attribute, op, value, values in _postfix(tree, given, convert):
            for name, cell in zip(columns, (row, attribute, op, value, values), strict=True):
                columns[name].append(cell)
    return pa.table(columns)


def _postfix(tree: Leaf | Node, given: Any, convert: Callable[[str], Any]) -> list[tuple[Any, ...]]:
    if isinstance(tree, Node):
        rows = [row for part in tree.parts for row in _postfix(part, given, convert)]
        joins = len(tree.parts) > 1 or tree.kind == "NOT"
        return [*rows, (None, tree.kind, convert(str(len(tree.parts))), None)] if joins else rows
    constants = [next(given) for _ in range(tree.holes)]
    op = REVERSED.get(tree.op, tree.op)
    if op == "bare":
        return [(tree.attribute, "=", "true", None)]
    if op in ("IN", "NOT IN") or "BETWEEN" in op:
        return [(tree.attribute, op, None, constants)]
    return [(tree.attribute, op, constants[0] if constants else None, None)]


# What happens to subscriptions before they are matched; gives the matcher, and which rows are left


def added(matcher: gm.Matcher, case: Case, way: str) -> tuple[gm.Matcher, NDArray[np.bool_]]:
    WAYS[way](matcher, case, 0, len(case.held))
    return matcher, np.ones(len(case.held), np.bool_)


def in_parts(matcher: gm.Matcher, case: Case, way: str) -> tuple[gm.Matcher, NDArray[np.bool_]]:
    """Several segments, of which some are merged, and rows that are removed."""
    count, left = len(case.held), np.ones(len(case.held), np.bool_)
    for first, last in ((0, count // 2), (count // 2, count * 7 // 8), (count * 7 // 8, count)):
        WAYS[way](matcher, case, first, last)
        matcher.match(case.events.slice(0, 2))
    left[case.world.rng.random(count) < 0.2] = False
    matcher.remove(np.flatnonzero(~left))
    return matcher, left


def compacted(matcher: gm.Matcher, case: Case, way: str) -> tuple[gm.Matcher, NDArray[np.bool_]]:
    """The same as one segment, that knows of events."""
    matcher, left = in_parts(matcher, case, way)
    matcher.observe(case.events)
    matcher.compact()
    return matcher, left


def loaded(matcher: gm.Matcher, case: Case, way: str) -> tuple[gm.Matcher, NDArray[np.bool_]]:
    """From a saved index, memory-mapped, with more behind it."""
    count = len(case.held)
    WAYS[way](matcher, case, 0, count // 2)
    with tempfile.TemporaryDirectory() as folder:  # what is mapped stays when the files are gone
        matcher.save(folder)
        again = gm.load(folder, device="cpu")
    WAYS[way](again, case, count // 2, count)
    return again, np.ones(count, np.bool_)


LIVES = {"added": added, "in parts": in_parts, "compacted": compacted, "loaded": loaded}


def differences(matcher: gm.Matcher, case: Case, left: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Subscriptions and events on which gpumatch and DuckDB differ."""
    found = matcher.match(case.events)
    mine = np.zeros(case.right.shape, np.bool_)
    event = np.repeat(np.arange(len(found)), np.diff(found.offsets))
    mine[matcher.ids[found.rows], event] = True
    assert np.count_nonzero(mine) == len(found.rows), "a subscription was returned twice"
    row, event = np.nonzero(mine != (case.right & left[:, None]))
    return list(zip(row.tolist(), event.tolist(), strict=True))


def told(case: Case, row: int, event: int) -> str:
    """A difference in words, with what the oracle says."""
    text, values = case.texts[row], case.events.slice(event, 1).to_pylist()[0]
    expr = gm.parse(text)
    oracle = evaluate(expr, values, gm.Schema.of(case.world.types)) is True
    used = {item.attribute: values[item.attribute] for item in expr.predicates()}
    return f"row {row}, event {event}: DuckDB {bool(case.right[row, event])}, oracle {oracle}: {text}\n  {used}"


@dataclass
class Report:
    """What was compared: every run, and sums by kind of predicate and connective."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)

    def run(self, case: Case, way: str, index: str, life: str) -> list[str]:
        """Compare one way in; returns some of the differences in words, none if there are none."""
        start = time.perf_counter()
        matcher, left = LIVES[life](gm.Matcher(case.world.types, index=index, device="cpu"), case, way)
        wrong = differences(matcher, case, left)
        held, events = case.held, case.events.num_rows
        sums = {"expressions": len(held), "shapes": len(held.shapes), "pairs": len(held) * events}
        facts = {"case": case.name, "way in": way, "index": index, "life": life, **sums, "differences": len(wrong)}
        self.runs.append({**facts, "seconds": round(time.perf_counter() - start, 1)})
        rows, bad = Counter(held.numbers), Counter(held.numbers[row] for row, _ in wrong)
        for at, shape in enumerate(held.shapes):
            for kind in shape.kinds:
                tally = self.kinds.setdefault(kind, Counter())
                tally.update(expressions=rows[at], shapes=1, pairs=rows[at] * events, differences=bad[at])
        return [told(case, *pair) for pair in wrong[:_SHOWN]]

    def sums(self) -> dict[str, dict[str, Counter[str]]]:
        """Expressions, shapes, pairs and differences by way in, index, what happened to them, and kind."""
        found: dict[str, dict[str, Counter[str]]] = {"way in": {}, "index": {}, "life": {}, "kind": self.kinds}
        for run in self.runs:
            for by in ("way in", "index", "life"):
                found[by].setdefault(run[by], Counter()).update({name: run[name] for name in _COUNTED})
        return found

    def __str__(self) -> str:
        tables = []
        for by, tallies in self.sums().items():
            lines = [f"{by:<22}" + "".join(f"{name:>16}" for name in _COUNTED)]
            for name, tally in sorted(tallies.items()):
                lines.append(f"{name:<22}" + "".join(f"{tally[column]:>16,}" for column in _COUNTED))
            tables.append("\n".join(lines))
        return "\n\n".join(tables)
