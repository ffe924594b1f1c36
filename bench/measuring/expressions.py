"""Builds, verifies and times engines on a workload of Boolean expressions.

The bit planes answer all events, and plain Python checks a sample. Every engine must give the bit planes' answers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from engines import BOOLEAN
from engines.base import Csr, Engine, PerEvent, batches, count, cut, difference, joined
from engines.expressions import BitPlanes
from engines.ours import Auto
from engines.translation import Translation, clauses_of
from generators.programs import BooleanWorkload
from gpumatch.expr import evaluate
from gpumatch.schema import Schema
from gpumatch.workloads import SparseEvents
from measuring.jobs import WARM, Job, Result

ORACLE_ITEMS = 500_000  # predicates and operators evaluated in plain Python


@dataclass
class BooleanResult(Result):
    graph: dict[str, Any] = field(default_factory=dict)  # from stats() of the A-Tree


@dataclass
class Facts:
    """Properties of the workload, and how it was checked."""

    workload: str
    facts: dict[str, float]
    checked: int  # results compared with plain Python, all equal
    generate_s: float


@dataclass(frozen=True, kw_only=True)
class BooleanJob(Job):
    """Engines that work event by event get fewer events if they would take too long."""

    kinds, result = BOOLEAN, BooleanResult
    clauses: int  # limit for translation

    def run(self, results: Connection) -> None:
        """Send the facts of the workload, then a result per engine."""
        start = time.perf_counter()
        workload = self.generate(self.size)
        seconds = time.perf_counter() - start
        events, planes = workload.events(self.events), BitPlanes(self.threads)
        planes.build(workload)
        known = planes.match(events)
        del planes
        checked = against_oracle(workload, events, known)
        results.send(Facts(self.workload, workload.facts(), checked, seconds))
        Translation.most = self.clauses
        self.send_each(results, workload, partial(self._measure, workload, events, known))

    def _measure(
        self, workload: BooleanWorkload, events: SparseEvents, known: Csr, kind: type[Engine], result: BooleanResult
    ) -> None:
        if not kind.suits(workload):
            result.status = "unsuited"
            result.error = f"{clauses_of(workload):.2g} conjunctions, the limit is {self.clauses:,}"
            return
        if issubclass(kind, Auto):
            assert workload.tables  # make the caller's arrays now, untimed
        engine = self.built(kind, workload, result)
        result.graph = graph_of(engine)
        if isinstance(engine, PerEvent):
            self.fit(engine, cut(events, 0, min(WARM, self.events)), result)
        parts = batches(cut(events, 0, result.events), result.batch)
        offsets = known[0][: result.events + 1]
        result.error = difference(joined([engine.match(part) for part in parts]), (offsets, known[1][: offsets[-1]]))
        if result.error:
            result.status = "wrong"
        else:
            self.timed(engine, events, result)


def against_oracle(workload: BooleanWorkload, events: SparseEvents, answer: Csr, seed: int = 0) -> int:
    """Compare with plain Python: random pairs of expression and event, and as many that match.

    Returns the number of pairs; a difference raises an AssertionError.
    """
    rng = np.random.default_rng(seed)
    mean = len(workload.programs.kind) / len(workload.programs)
    pairs = min(10_000, max(20, int(ORACLE_ITEMS / mean / 2)))
    offsets, rows = answer
    event, row = rng.integers(0, count(events), pairs), rng.integers(0, len(workload.programs), pairs)
    if len(rows):
        found = rng.integers(0, len(rows), pairs)
        event = np.concatenate([event, np.searchsorted(offsets, found, "right") - 1])
        row = np.concatenate([row, rows[found]])
    schema, sides = Schema.of(workload.schema), list(pairwise(events.offsets.tolist()))
    for e, r in zip(event.tolist(), row.tolist(), strict=True):
        inside = slice(*sides[e])
        names = [events.names[a] for a in events.attribute[inside].tolist()]
        values = dict(zip(names, events.value[inside].tolist(), strict=True))
        right = evaluate(workload.expression(r), values, schema) is True
        at = offsets[e] + np.searchsorted(rows[offsets[e] : offsets[e + 1]], r)
        said = bool(at < offsets[e + 1] and rows[at] == r)
        if said != right:
            raise AssertionError(f"{workload.expression(r)} on {values} is {right}, the answer says {said}")
    return len(event)


def graph_of(engine: Engine) -> dict[str, Any]:
    """Nodes, edges and cost of the A-Trees in a matcher; empty for other engines."""
    if not isinstance(engine, Auto):
        return {}
    parts = [part for segment in engine.matcher.stats()["segments"] for part in segment["parts"]]
    of_index: dict[str, Any] = {}
    for part in parts:
        of_index[part["index"]] = of_index.get(part["index"], 0) + part["clauses"]
    trees = [part for part in parts if part["index"] == "atree"]
    sums = {key: sum(tree[key] for tree in trees) for key in ("nodes", "edges", "cost") if trees}
    return {"clauses": of_index, **sums}
