"""gpumatch, mostly through its public API: one class per index."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np

import gpumatch as gm
from engines.base import Csr, Engine, Events, csr
from gpumatch.index import IndexParams
from gpumatch.workloads import RangeWorkload, SparseEvents, Workload
from measuring.clock import cpu_seconds


def loaded(workload: Workload, index: str | IndexParams = "auto", device: str = "auto") -> gm.Matcher:
    """A matcher with all subscriptions, not yet in an index."""
    matcher = gm.Matcher(workload.schema, index, device)
    workload.add_to(matcher)
    return matcher


def batch_of(events: Any) -> Any:
    """Events of a workload as a matcher accepts them."""
    return gm.EventBatch.from_csr(*events) if isinstance(events, SparseEvents) else events


class Ours(Engine):
    """A matcher; subclasses decide how subscriptions are added."""

    index: str | IndexParams = "auto"

    def build(self, workload: Any) -> None:
        gm.set_num_threads(self.threads)
        self.matcher = gm.Matcher(workload.schema, index=self.index)
        self.load(workload)
        self.index_s = cpu_seconds(self.matcher.compact)  # leaves nothing to do for the first match
        self.variant = self.chosen()

    @abstractmethod
    def load(self, workload: Any) -> None: ...

    def chosen(self) -> str:
        return "; ".join(segment["index"] for segment in self.matcher.stats()["segments"])

    def match(self, events: Any) -> Csr:
        found = self.matcher.match(batch_of(events))
        return found.offsets, found.rows

    def bytes(self) -> int | None:
        return int(self.matcher.stats()["bytes"])


class Auto(Ours):
    def load(self, workload: Workload) -> None:
        workload.add_to(self.matcher)


class Observed(Auto):
    """Observes a thousand other events before it chooses an index."""

    def load(self, workload: Workload) -> None:
        self.matcher.observe(batch_of(workload.events(1000, seed=1)))
        super().load(workload)


class MatchOne(Auto):
    """One event at a time as a dict, with ``match_one``; ids are rows here."""

    def given(self, events: Events) -> list[dict[str, float]]:
        if isinstance(events, dict):
            rows = np.column_stack(list(events.values())).tolist()
            return [dict(zip(events, row, strict=True)) for row in rows]
        ends, names = events.offsets.tolist(), [events.names[a] for a in events.attribute.tolist()]
        values = events.value.tolist()
        return [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in pairwise(ends)]

    def match(self, events: Any) -> Csr:
        return csr([np.asarray(self.matcher.match_one(event), np.int64) for event in events])


class Gem(Auto):
    index: str | IndexParams = "gem"

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return isinstance(workload, RangeWorkload)  # made for a few dimensions that most subscriptions constrain


class GemTriangles(Gem):
    """The paper's method without caches."""

    index = gm.Gem(caches=0)

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return super().suits(workload) and len(workload.ids) <= 100_000  # visits a share of them for each event


def using(index: str | IndexParams, base: type[Auto] = Auto) -> type[Auto]:
    """An engine with this index."""
    return type(base.__name__, (base,), {"index": index})


OURS: dict[str, type[Engine]] = {
    "gpumatch auto": Auto,
    "gpumatch auto, observed": Observed,
    "gpumatch gem": Gem,
    "gpumatch gem triangles": GemTriangles,
    **{f"gpumatch {name}": using(name) for name in ("tama", "pstbloom", "psthash", "ladder", "scan")},
}
SPECIAL: dict[str, type[Engine]] = {  # for single scripts; the last three as in GEM's paper
    "gpumatch match_one": MatchOne,
    "gpumatch gem, no caches": using(gm.Gem(cells=80, caches=0), Gem),
    "gpumatch gem, 20 caches": using(gm.Gem(cells=80, caches=20), Gem),
    "gpumatch tama, 13 levels": using(gm.Tama(levels=13)),
}
