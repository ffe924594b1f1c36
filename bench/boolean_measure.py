"""Builds, verifies and times engines on one workload of Boolean expressions, in a process of its own."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from abe import BooleanWorkload
from baselines import equal
from boolean_baselines import BitPlanes, BooleanScan
from boolean_translation import Translation, clauses_of
from engines import Csr, Engine, PerEvent, count, cut
from measure import Result
from ours import Auto

from gpumatch.expr import evaluate
from gpumatch.schema import Schema
from gpumatch.workloads import SparseEvents

ORACLE_ITEMS = 500_000  # predicates and operators that the oracle evaluates in plain Python
SAMPLE = 16  # events by which the time of an engine is guessed


class ATree(Auto):
    index = "atree"


ENGINES: dict[str, type[Engine]] = {
    "gpumatch atree": ATree,
    "gpumatch auto": Auto,
    "numpy bit planes": BitPlanes,
    "numba scan": BooleanScan,
    "translation": Translation,
}


@dataclass(frozen=True)
class BooleanJob:
    """One workload at one number of threads; ``seconds`` bounds a pass of an engine that goes event by event."""

    workload: str
    size: int
    generate: Callable[[int], BooleanWorkload]  # what pickle can send: no lambda
    threads: int
    engines: tuple[str, ...]
    events: int
    batch: int
    seconds: float
    repeats: int
    clauses: int  # over which there is no translation


@dataclass
class BooleanResult(Result):
    graph: dict[str, Any] = field(default_factory=dict)  # what stats() tells of the A-Tree


@dataclass
class Facts:
    """Of the workload itself, and how it was checked."""

    workload: str
    facts: dict[str, float]
    checked: int  # results of the oracle in plain Python, all equal
    generate_s: float


@dataclass
class _Known:
    """Answers to the first events, found once."""

    answer: Csr

    def match(self, events: Any) -> Csr:
        offsets = self.answer[0][: count(events) + 1]
        return offsets, self.answer[1][: offsets[-1]]


def results_of(job: BooleanJob) -> Iterator[Facts | BooleanResult]:
    """Run a job in a process of its own; one that dies leaves the rest of its engines as failed."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(job, sender))
    process.start()
    sender.close()
    left = list(job.engines)
    try:
        yield receiver.recv()
        while left:
            yield receiver.recv()
            del left[0]
    except EOFError:
        process.join()
        message = f"the process ended with code {process.exitcode}"
        yield from (BooleanResult(job.workload, e, job.threads, "failed", message) for e in left)
    process.join()


def run(job: BooleanJob, results: Connection) -> None:
    """Send what the workload is, then a result per engine."""
    start = time.perf_counter()
    workload = job.generate(job.size)
    seconds = time.perf_counter() - start
    events = workload.events(job.events)
    planes = BitPlanes(job.threads)
    planes.build(workload)
    known = _Known(planes.match(events))
    checked = against_oracle(workload, events, known.answer)
    del planes
    results.send(Facts(job.workload, workload.facts(), checked, seconds))
    Translation.most = job.clauses
    for name in job.engines:
        result = BooleanResult(job.workload, name, job.threads, subscriptions=len(workload.ids))
        try:
            _measure(job, ENGINES[name], workload, events, known, result)
        except Exception as error:  # one engine that fails must not end the run
            result.status, result.error = "failed", f"{type(error).__name__}: {error}"
        results.send(result)
        gc.collect()


def against_oracle(workload: BooleanWorkload, events: SparseEvents, answer: Csr, seed: int = 0) -> int:
    """Compare with plain Python: expressions and events at random, and as many pairs of those that match.

    Returns how many were compared; one that differs is an AssertionError.
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


def _measure(
    job: BooleanJob,
    kind: type[Engine],
    workload: BooleanWorkload,
    events: SparseEvents,
    known: _Known,
    result: BooleanResult,
) -> None:
    if kind is Translation and not kind.suits(workload):  # type: ignore[arg-type]
        result.status = "unsuited"
        result.error = f"{clauses_of(workload):.2g} conjunctions, and the limit is {job.clauses:,}"
        return
    small = job.generate(min(job.size, 2000))
    warm = kind(job.threads)
    warm.build(small)
    warm.match(small.events(SAMPLE))  # compiled now, and not while the real index is built
    if issubclass(kind, Auto):
        assert workload.tables  # made now: arrays of the caller

    start, cpu = time.perf_counter(), time.process_time()
    engine = kind(job.threads)
    engine.build(workload)
    result.build_s, result.build_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    result.index_cpu_s, result.bytes, result.variant = engine.index_s, engine.bytes(), engine.variant
    result.graph = graph_of(engine)

    result.events, result.batch = job.events, min(job.batch, job.events)
    if isinstance(engine, PerEvent):
        start = time.perf_counter()
        engine.match(cut(events, 0, min(SAMPLE, job.events)))
        each = (time.perf_counter() - start) / min(SAMPLE, job.events)
        result.events = min(job.events, max(SAMPLE, int(job.seconds / each)))
        result.batch = min(result.batch, result.events)
    batches = [cut(events, a, min(a + result.batch, result.events)) for a in range(0, result.events, result.batch)]
    answers = [engine.match(batch) for batch in batches]
    ends = np.concatenate([[0], *(np.diff(offsets) for offsets, _ in answers)]).cumsum()
    answer = ends, np.concatenate([rows for _, rows in answers])
    result.error = equal(answer, known, cut(events, 0, result.events))  # type: ignore[arg-type]
    if result.error:
        result.status = "wrong"
    else:
        result.matches = float(ends[-1]) / result.events
        _time(job.repeats, engine, batches, result)


def _time(repeats: int, engine: Engine, batches: list[Any], result: BooleanResult) -> None:
    """The best of several passes over all batches."""
    walls, cpus = np.empty((repeats, len(batches))), []
    for calls in walls:
        cpu = time.process_time()
        for i, batch in enumerate(batches):
            start = time.perf_counter()
            engine.match(batch)
            calls[i] = time.perf_counter() - start
        cpus.append(time.process_time() - cpu)
    result.wall_us = float(walls.sum(axis=1).min()) / result.events * 1e6
    result.cpu_us = min(cpus) / result.events * 1e6
    result.call_p50_us, result.call_p95_us = (np.percentile(walls, [50, 95]) * 1e6).tolist()


def graph_of(engine: Engine) -> dict[str, Any]:
    """Nodes, edges and cost of the A-Trees in a matcher; nothing for what has none."""
    if not isinstance(engine, Auto):
        return {}
    parts = [part for segment in engine.matcher.stats()["segments"] for part in segment["parts"]]
    of_index: dict[str, Any] = {}
    for part in parts:
        of_index[part["index"]] = of_index.get(part["index"], 0) + part["clauses"]
    trees = [part for part in parts if part["index"] == "atree"]
    sums = {key: sum(tree[key] for tree in trees) for key in ("nodes", "edges", "cost") if trees}
    return {"clauses": of_index, **sums}
