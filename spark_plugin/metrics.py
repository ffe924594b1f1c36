"""What the tasks of a job did, added up on the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from gpumatch.spark import opened
from gpumatch.spark.devices import device_of_task
from gpumatch.spark.worker import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASKED_FOR = {"match_batches", "pass_batches", "count_batches", "count_passes", "route_batches"}  # by events, once each


class Metrics:
    """Pass it to ``match_events`` or ``count_subscriptions``, run the job, and print it.

    Spark adds up what tasks report: a task that runs again, or a frame that is computed twice, counts twice.
    """

    def __init__(self, session: SparkSession) -> None:
        context: Any = getattr(session, "_sc", None)
        if context is None:
            raise TypeError("Metrics needs classic PySpark: Spark Connect has no accumulators")
        self.total = context.accumulator({}, Sums())

    def __str__(self) -> str:
        where = ", ".join(self.devices) or "none"
        parts = [f"{self.events:,} events, {self.matches:,} matches"]
        if self.copies:
            parts.append(f"{self.copies / max(self.events, 1):.2f} copies of an event")
        parts.append(f"{self.seconds / max(self.events, 1) * 1e6:.1f} µs per event on {where}")
        parts.append(f"index opened {self.opened:,} times, found open {self.reused:,} times")
        if self.refused:
            parts.append(f"{self.refused:,} batches with an old version, the new one was bad")
        return "; ".join(parts)

    @property
    def events(self) -> int:
        return int(self._of("events"))

    @property
    def matches(self) -> int:
        return int(self._of("matches"))

    @property
    def copies(self) -> int:
        """Events that were sent to shards, each once for every shard; 0 if none were."""
        return int(self._of("copies"))

    @property
    def seconds(self) -> float:
        """The time of all tasks in this package, without Spark's part."""
        return self._of("nanoseconds") / 1e9

    @property
    def opened(self) -> int:
        """How often a task had to open an index or a shard."""
        return int(self._of("opened"))

    @property
    def reused(self) -> int:
        """How often it was open already."""
        return int(self._of("reused"))

    @property
    def refused(self) -> int:
        """Batches of streams that were matched with an old version of the index, since the newest was bad."""
        return int(self._of("refused"))

    @property
    def devices(self) -> list[str]:
        """Where tasks matched."""
        return sorted(key.removeprefix("on ") for key in self.total.value if key.startswith("on "))

    def _of(self, key: str) -> float:
        return float(self.total.value.get(key, 0))


class Sums:
    """How Spark adds up dictionaries of numbers."""

    def zero(self, value: dict[str, float]) -> dict[str, float]:
        return {}

    def addInPlace(self, one: dict[str, float], other: dict[str, float]) -> dict[str, float]:  # noqa: N802
        for key, number in other.items():
            one[key] = one.get(key, 0) + number
        return one


def measured(
    run: Callable[..., Iterator[Any]], batches: Iterable[Any], total: Any, query: Query, **given: Any
) -> Iterator[Any]:
    """The output of a function of this package for batches; when it is done, its counts are added to ``total``."""
    stage, before, start = run.__name__, dict(opened.uses), time.perf_counter_ns()
    found = {"events": 0, "matches": 0, "copies": 0, "nanoseconds": 0}

    def inputs() -> Iterator[Any]:
        waiting = time.perf_counter_ns()
        for batch in batches:
            found["nanoseconds"] -= time.perf_counter_ns() - waiting
            found["events"] += len(batch) * (stage in _ASKED_FOR)
            yield batch
            waiting = time.perf_counter_ns()
        found["nanoseconds"] -= time.perf_counter_ns() - waiting

    for batch in run(inputs(), query=query, **given):
        found["nanoseconds"] += time.perf_counter_ns() - start
        if stage == "route_batches":
            found["copies"] += pc.sum(pc.list_value_length(batch.column(1))).as_py() or 0
        elif batch.schema.names == query.returned:  # else they are merged later
            found["matches"] += _matches(batch.column(batch.num_columns - 1), query)
        yield batch
        start = time.perf_counter_ns()
    found["nanoseconds"] += time.perf_counter_ns() - start
    for key, number in opened.uses.items():
        found[key] = number - before[key]
    if found["opened"] + found["reused"]:
        found[f"on {device_of_task(query.device, query.is_local)}"] = 1
    total.add(found)


def _matches(answer: Any, query: Query) -> int:
    if query.output == "pairs":
        return len(answer)
    if query.output != "count":
        answer = pc.list_value_length(answer)
    return int(pc.sum(answer).as_py() or 0)
