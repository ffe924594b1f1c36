"""Jobs: engines on one workload, in a separate process, with the common steps of measuring."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from rich.console import Console
from rich.progress import Progress

from engines.base import Engine, batches, count, cut
from gpumatch.workloads import WORKLOADS, Workload

WARM = 16  # events for a small index, so that everything is compiled


class Source(NamedTuple):
    """A named workload, and its size before scaling."""

    name: str
    size: int
    generate: Callable[..., Workload]  # takes the size; must be picklable, so no lambda

    @classmethod
    def of(cls, name: str) -> Self:
        """One of the published workloads."""
        return cls(name, WORKLOADS[name][0], partial(_published, name))


def _published(name: str, n: int) -> Workload:
    return WORKLOADS[name][1](n)


@dataclass
class Result:
    workload: str
    engine: str
    threads: int
    status: str = "ok"  # or "unsuited", "failed", "wrong"
    error: str = ""
    variant: str = ""  # the method that the engine chose, if it has several
    subscriptions: int = 0
    events: int = 0
    batch: int = 0
    matches: float = 0.0  # per event
    wall_us: float = 0.0  # per event, the best pass
    cpu_us: float = 0.0
    call_p50_us: float = 0.0  # wall time of a call with one batch, over all passes
    call_p95_us: float = 0.0
    build_s: float = 0.0
    build_cpu_s: float = 0.0
    index_cpu_s: float = 0.0  # the same without loading, if that is a separate step
    bytes: int | None = None

    @property
    def us(self) -> float:
        """CPU time on one thread (least disturbed by others, includes hidden threads), otherwise wall time."""
        return self.cpu_us if self.threads == 1 else self.wall_us


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """One workload with one number of threads; ``seconds`` limits a pass over the events."""

    result: ClassVar[type[Result]] = Result
    kinds: ClassVar[Mapping[str, type[Engine]]]

    workload: str
    size: int
    generate: Callable[[int], Any]
    threads: int = 1
    engines: tuple[str, ...]
    events: int
    batch: int = 1000
    seconds: float
    repeats: int

    @classmethod
    def of(cls, options: argparse.Namespace, source: Source, **given: Any) -> Self:
        """A job with the size and settings of the options, overridden by ``given``."""
        names = {field.name for field in fields(cls)}
        asked = {name: value for name, value in vars(options).items() if name in names}
        size = max(1, round(source.size * options.scale))
        return cls(**{**asked, "workload": source.name, "size": size, "generate": source.generate, **given})

    @abstractmethod
    def run(self, results: Connection) -> None:
        """Send a result per engine. Runs in a separate process."""

    def send_each(self, results: Connection, workload: Workload, measure: Callable[[type[Engine], Any], None]) -> None:
        """Send a result per engine that ``measure`` has filled in."""
        for name in self.engines:
            result = self.result(self.workload, name, self.threads, subscriptions=len(workload.ids))
            try:
                measure(self.kinds[name], result)
            except Exception as error:  # a failing engine must not end the run
                result.status, result.error = "failed", f"{type(error).__name__}: {error}"
            results.send(result)
            gc.collect()

    def built(self, kind: type[Engine], workload: Workload, result: Result) -> Engine:
        """Build the engine with the workload; the times go into the result."""
        small, warm = self.generate(min(self.size, 2000)), kind(self.threads)
        warm.build(small)
        warm.match(warm.given(small.events(WARM)))  # compile now, not while the real index is built
        start, cpu = time.perf_counter(), time.process_time()
        engine = kind(self.threads)
        engine.build(workload)
        result.build_s, result.build_cpu_s = time.perf_counter() - start, time.process_time() - cpu
        result.index_cpu_s, result.bytes, result.variant = engine.index_s, engine.bytes(), engine.variant
        result.events, result.batch = self.events, min(self.batch, self.events)
        return engine

    def fit(self, engine: Engine, sample: Any, result: Result) -> None:
        """Choose the number of events that fits into a pass, from the time of a sample."""
        start = time.perf_counter()
        engine.match(engine.given(sample))
        each = (time.perf_counter() - start) / count(sample)
        result.events = min(self.events, max(count(sample), int(self.seconds / each)))
        result.batch = min(self.batch, result.events)

    def timed(self, engine: Engine, events: Any, result: Result) -> None:
        """The best of several passes over the engine's events."""
        n = result.events
        given = [engine.given(batch) for batch in batches(cut(events, 0, n), result.batch)]
        walls, cpus = np.empty((self.repeats, len(given))), []
        for calls in walls:
            cpu, matches = time.process_time(), 0
            for i, batch in enumerate(given):
                start = time.perf_counter()
                matches += len(engine.match(batch)[1])
                calls[i] = time.perf_counter() - start
            cpus.append(time.process_time() - cpu)
        result.wall_us, result.cpu_us = float(walls.sum(axis=1).min()) / n * 1e6, min(cpus) / n * 1e6
        result.call_p50_us, result.call_p95_us = (np.percentile(walls, [50, 95]) * 1e6).tolist()
        result.matches = matches / n


def run_all(jobs: Sequence[Job], console: Console) -> list[Any]:
    """All results of the jobs. If a job's process dies, its remaining engines count as failed."""
    found: list[Any] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=sum(len(job.engines) for job in jobs))
        for job in jobs:
            progress.update(task, description=f"{job.workload}, {job.threads} threads")
            left = list(job.engines)
            try:
                for one in sent_by(job.run):
                    found.append(one)
                    if isinstance(one, Result):
                        left.remove(one.engine)
                        progress.advance(task)
            except ChildProcessError as error:
                found += [job.result(job.workload, name, job.threads, "failed", str(error)) for name in left]
    return found


def sent_by(run: Callable[..., None], *args: Any) -> Iterator[Any]:
    """Run a call in a separate process, and yield what it sends to the connection, its last argument."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(*args, sender))
    process.start()
    sender.close()
    with suppress(EOFError):
        while True:
            yield receiver.recv()
    process.join()
    if process.exitcode:
        raise ChildProcessError(f"the process ended with code {process.exitcode}")
