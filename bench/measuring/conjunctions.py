"""Builds, verifies and times engines on a workload of conjunctions; the oracle is brute force."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from engines import ENGINES
from engines.base import Engine, count, cut, difference
from engines.conjunctions import BruteForce
from engines.ours import SPECIAL
from gpumatch.workloads import Workload
from measuring.jobs import Job, Result


@dataclass(frozen=True, kw_only=True)
class ConjunctionJob(Job):
    kinds = ENGINES | SPECIAL
    verify: int  # events to compare with brute force

    def run(self, results: Connection) -> None:
        os.environ["POLARS_MAX_THREADS"] = str(self.threads)  # Polars reads it when it is imported
        workload, oracle = self.generate(self.size), BruteForce(1)
        events = workload.events(self.events)
        oracle.build(workload)
        self.send_each(results, workload, partial(self._measure, workload, events, oracle))

    def _measure(self, workload: Workload, events: Any, oracle: BruteForce, kind: type[Engine], result: Result) -> None:
        if not kind.suits(workload):
            result.status = "unsuited"
            return
        engine, sample = self.built(kind, workload, result), cut(events, 0, min(self.verify, self.events))
        self._verify(engine, sample, oracle, result)
        self.fit(engine, sample, result)
        # A batch of the timed size may take another code path than a few events.
        self._verify(engine, cut(events, 0, result.batch), oracle, result)
        if result.status == "ok":
            self.timed(engine, events, result)

    def _verify(self, engine: Engine, events: Any, oracle: BruteForce, result: Result) -> None:
        """Match all events in one call and compare the answers to the last ``verify`` with brute force."""
        n = count(events)
        first = n - min(self.verify, n)
        offsets, rows = engine.match(engine.given(events))
        answer = offsets[first:] - offsets[first], rows[offsets[first] :]
        error = difference(answer, oracle.match(cut(events, first, n)))
        if error:
            result.status, result.error = "wrong", error
