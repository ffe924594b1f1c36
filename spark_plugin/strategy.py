"""How events meet the subscriptions: the whole index in each task, or shards, reached by routing or in turn."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import gpumatch as gm
from gpumatch.errors import SchemaError
from gpumatch.routing.shards.plan import Report
from gpumatch.spark.arguments import check_index, check_session
from gpumatch.spark.frames import absolute, is_local
from gpumatch.spark.gpu_memory import index_bytes
from gpumatch.spark.opened import open_plan, plan_of, shards_of
from gpumatch.store.folder.place import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Index: TypeAlias = "str | os.PathLike[str] | gm.Matcher"
Name: TypeAlias = Literal["replicated", "routed", "passes"]
Asked: TypeAlias = Literal["auto", "replicated", "routed", "passes"]

SHARE = 0.5  # of a machine's memory, which an index may take as page cache
GPU_BYTES = 8 << 30  # that an index may take on a GPU by default
_NAMES: tuple[Name, ...] = ("replicated", "routed", "passes")
_LOG = logging.getLogger("gpumatch")


@dataclass(frozen=True)
class Strategy:
    """One of three ways to match on Spark, and the reason for it."""

    name: Name
    reason: str
    shards: tuple[str, ...] = ()  # their paths, if the index has any
    plan: str = ""  # likewise
    report: Report | None = None  # what the plan does

    def __str__(self) -> str:
        known = "" if self.report is None else f"; {self.report}"
        return f"{self.name}: {self.reason}{known}"


def plan_match(session: SparkSession, index: Index, *, strategy: Asked = "auto", memory: int | None = None) -> Strategy:
    """How ``match_events`` with these arguments would match, and why; and how events reach shards, if there are any."""
    check_session(session)
    check_index(index)
    return choose(session, index, strategy, memory)


def choose(session: SparkSession, index: Index, strategy: Asked, memory: int | None, whole: str = "") -> Strategy:
    """``whole``: why the index is opened as a whole, whether it has shards or not; empty if that is to be decided."""
    if strategy not in ("auto", *_NAMES):
        raise ValueError(f"strategy must be one of auto, {', '.join(_NAMES)}, found {strategy!r}")
    if memory is not None and (type(memory) is not int or memory < 1):
        raise ValueError(f"memory must be a number of bytes, found {memory!r}")
    if isinstance(index, gm.Matcher) or whole:
        return _only_replicated(strategy, whole or "a matcher is shipped as a whole")
    path = absolute(index)
    shards = shards_of(path)
    if not shards:
        return _only_replicated(strategy, f"the index at {shown(path)} has no shards")
    plan = plan_of(path)
    report = open_plan(plan).report
    if strategy != "auto":
        return Strategy(strategy, "as asked", shards, plan, report)
    if len(shards) == 1:
        return Strategy("replicated", "the index has one shard", shards, plan, report)
    chosen = Strategy(*_by_size(session, index_bytes(path), memory, report), shards, plan, report)
    _LOG.info("%s", chosen)
    return chosen


def _only_replicated(strategy: Asked, why: str) -> Strategy:
    if strategy in ("routed", "passes"):
        raise SchemaError(f"strategy={strategy!r} needs an index with shards, but {why}; see build_index(shards=…)")
    return Strategy("replicated", why)


def _by_size(session: SparkSession, size: int, memory: int | None, report: Report) -> tuple[Name, str]:
    room, whose = (memory, "memory=") if memory is not None else _room(session)
    sizes = f"the index takes {size / 1e6:,.1f} MB, and {room / 1e6:,.1f} MB are there ({whose})"
    if size <= room:
        return "replicated", sizes
    if report.pays:
        return "routed", sizes
    return "passes", f"{sizes}; routing would send an event to more than half of the shards"


def _room(session: SparkSession) -> tuple[int, str]:
    """Bytes for an index on a machine or GPU of the cluster, and how we know."""
    if session.conf.get("spark.task.resource.gpu.amount", None):
        return GPU_BYTES, "a guess for GPUs; pass memory= if it is wrong"
    here = int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    known = "of this machine" if is_local(session) else "if executors have as much as the driver; else pass memory="
    return here, f"half of the memory {known}"
