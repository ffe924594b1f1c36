"""gpumatch through its public face, one class per index."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from engines import Csr, Engine, Events, csr

from gpumatch.workloads import RangeWorkload, Workload


class Auto(Engine):
    index = "auto"

    def build(self, workload: Workload) -> None:
        import gpumatch as gm

        gm.set_num_threads(self.threads)
        self.matcher: Any = gm.Matcher(workload.schema, index=self.params())
        workload.add_to(self.matcher)
        self.matcher.compact()  # everything into the index, nothing left to do for the first match
        self.from_csr = gm.EventBatch.from_csr
        self.variant = "; ".join(segment["index"] for segment in self.matcher.stats()["segments"])

    def params(self) -> Any:
        """What ``index=`` gets."""
        return self.index

    def match(self, events: Any) -> Csr:
        found = self.matcher.match(events if isinstance(events, dict) else self.from_csr(*events))
        return found.offsets, found.rows

    def bytes(self) -> int | None:
        return int(self.matcher.stats()["bytes"])


class MatchOne(Auto):
    """One event after the other as a dict, through ``match_one``; ids are rows here."""

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
    index = "gem"

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return isinstance(workload, RangeWorkload)  # it is for a few dimensions that most subscriptions constrain


class GemTriangles(Gem):
    """The paper's method without caches."""

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return super().suits(workload) and len(workload.ids) <= 100_000  # traverses a share of them for each event

    def params(self) -> Any:
        import gpumatch as gm

        return gm.Gem(caches=0)


class Tama(Auto):
    index = "tama"


class TamaOfPaper(Tama):
    """With the 13 levels that GEM's authors gave it."""

    def params(self) -> Any:
        import gpumatch as gm

        return gm.Tama(levels=13)


class PstBloom(Auto):
    index = "pstbloom"


class PstHash(Auto):
    index = "psthash"


class Ladder(Auto):
    index = "ladder"


class Scan(Auto):
    index = "scan"
