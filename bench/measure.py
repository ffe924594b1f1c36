"""Builds, verifies and times engines on one workload, in a process of its own."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
from baselines import AccessLists, Bitmaps, BruteForce, NumbaScan, equal
from engines import Engine, Events, count, cut
from frames import DuckDB, Polars
from ours import OURS, SPECIAL

from gpumatch.workloads import Workload

ENGINES: dict[str, type[Engine]] = {
    **OURS,
    "numpy bitmaps": Bitmaps,
    "numpy access lists": AccessLists,
    "numba scan": NumbaScan,
    "polars": Polars,
    "duckdb": DuckDB,
    "numpy brute force": BruteForce,
}
NUMPY_INDEXES = ("numpy bitmaps", "numpy access lists")  # the better one is what the others are compared with


@dataclass(frozen=True)
class Job:
    """One workload at one number of threads; ``seconds`` bounds a pass over the events."""

    workload: str
    size: int
    generate: Callable[[int], Workload]  # what pickle can send: no lambda
    threads: int
    engines: tuple[str, ...]
    events: int
    batch: int
    seconds: float
    repeats: int
    verify: int


@dataclass
class Result:
    workload: str
    engine: str
    threads: int
    status: str = "ok"  # or "unsuited", "failed", "wrong"
    error: str = ""
    variant: str = ""  # the way an engine chose, where it has several
    subscriptions: int = 0
    events: int = 0
    batch: int = 0
    matches: float = 0.0  # per event
    wall_us: float = 0.0  # per event, the best pass
    cpu_us: float = 0.0
    call_p50_us: float = 0.0  # wall time of a call with a batch of events, over all passes
    call_p95_us: float = 0.0
    build_s: float = 0.0
    build_cpu_s: float = 0.0
    index_cpu_s: float = 0.0  # of these, without loading, where that is a step of its own
    bytes: int | None = None

    @property
    def us(self) -> float:
        """On one thread CPU time, which other processes disturb least and which charges hidden threads; else wall."""
        return self.cpu_us if self.threads == 1 else self.wall_us


def run(job: Job, results: Connection) -> None:
    """Send one ``Result`` per engine. Called in a fresh process, so that Polars reads its number of threads."""
    os.environ["POLARS_MAX_THREADS"] = str(job.threads)
    workload = job.generate(job.size)
    events = workload.events(job.events)
    oracle = BruteForce(1)
    oracle.build(workload)
    for name in job.engines:
        result = Result(job.workload, name, job.threads, subscriptions=len(workload.ids))
        kind = (ENGINES | SPECIAL)[name]
        try:
            if kind.suits(workload):
                _measure(job, kind, workload, events, oracle, result)
            else:
                result.status = "unsuited"
        except Exception as error:  # one engine that fails must not end the run
            result.status, result.error = "failed", f"{type(error).__name__}: {error}"
        results.send(result)
        gc.collect()


def _measure(
    job: Job, kind: type[Engine], workload: Workload, events: Events, oracle: BruteForce, result: Result
) -> None:
    small = job.generate(min(job.size, 2000))
    warm = kind(job.threads)
    warm.build(small)
    warm.match(warm.given(small.events(2)))  # compiled now, and not while the real index is built

    start, cpu = time.perf_counter(), time.process_time()
    engine = kind(job.threads)
    engine.build(workload)
    result.build_s, result.build_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    result.index_cpu_s, result.bytes, result.variant = engine.index_s, engine.bytes(), engine.variant

    sample = cut(events, 0, min(job.verify, job.events))
    _verify(engine, sample, count(sample), oracle, result)
    start = time.perf_counter()
    engine.match(engine.given(sample))
    each = (time.perf_counter() - start) / count(sample)
    result.events = min(job.events, max(count(sample), int(job.seconds / each)))
    result.batch = min(job.batch, result.events)
    # A batch of the size that is timed may take another path than a few events do.
    _verify(engine, cut(events, 0, result.batch), min(job.verify, result.batch), oracle, result)
    if result.status == "ok":
        _time(job, engine, cut(events, 0, result.events), result)


def _verify(engine: Engine, events: Events, last: int, oracle: BruteForce, result: Result) -> None:
    """Match all ``events`` in one call and compare the answers to the ``last`` ones with brute force."""
    n = count(events)
    offsets, rows = engine.match(engine.given(events))
    start = offsets[n - last]
    error = equal((offsets[n - last :] - start, rows[start:]), oracle, cut(events, n - last, n))
    if error:
        result.status, result.error = "wrong", error


def _time(job: Job, engine: Engine, events: Events, result: Result) -> None:
    n = result.events
    batches = [engine.given(cut(events, a, min(a + result.batch, n))) for a in range(0, n, result.batch)]
    walls, cpus = np.empty((job.repeats, len(batches))), []
    for calls in walls:
        cpu, matches = time.process_time(), 0
        for i, batch in enumerate(batches):
            start = time.perf_counter()
            matches += len(engine.match(batch)[1])
            calls[i] = time.perf_counter() - start
        cpus.append(time.process_time() - cpu)
    result.wall_us, result.cpu_us = float(walls.sum(axis=1).min()) / n * 1e6, min(cpus) / n * 1e6
    result.call_p50_us, result.call_p95_us = (np.percentile(walls, [50, 95]) * 1e6).tolist()
    result.matches = matches / n
