"""gpumatch through its public face, one class per index."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from engines import Csr, Engine, Events, csr

from gpumatch.workloads import RangeWorkload, Workload


class Auto(Engine):
    index = "auto"
    options: ClassVar[dict[str, Any]] = {}  # parameters of the index, where they are not the defaults

    def build(self, workload: Workload) -> None:
        import gpumatch as gm

        gm.set_num_threads(self.threads)
        self.matcher: Any = gm.Matcher(workload.schema, index=self.params())
        self.from_csr = gm.EventBatch.from_csr
        self.load(workload)
        start = time.process_time()
        self.matcher.compact()  # everything into the index, nothing left to do for the first match
        self.index_s = time.process_time() - start
        self.variant = "; ".join(segment["index"] for segment in self.matcher.stats()["segments"])

    def load(self, workload: Workload) -> None:
        workload.add_to(self.matcher)

    def params(self) -> Any:
        """What ``index=`` gets."""
        import gpumatch as gm

        return {"gem": gm.Gem, "tama": gm.Tama}[self.index](**self.options) if self.options else self.index

    def batch(self, events: Any) -> Any:
        return events if isinstance(events, dict) else self.from_csr(*events)

    def match(self, events: Any) -> Csr:
        found = self.matcher.match(self.batch(events))
        return found.offsets, found.rows

    def bytes(self) -> int | None:
        return int(self.matcher.stats()["bytes"])


class Observed(Auto):
    """Has seen a thousand other events before it chooses an index."""

    def load(self, workload: Workload) -> None:
        self.matcher.observe(self.batch(workload.events(1000, seed=1)))
        super().load(workload)


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

    options: ClassVar[dict[str, Any]] = {"caches": 0}

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return super().suits(workload) and len(workload.ids) <= 100_000  # traverses a share of them for each event


class GemOfPaper(Gem):
    """With the paper's 80 cells and no caches."""

    options: ClassVar[dict[str, Any]] = {"cells": 80, "caches": 0}


class GemOfPaper20(Gem):
    """With the paper's 80 cells and 20 caches."""

    options: ClassVar[dict[str, Any]] = {"cells": 80, "caches": 20}


class Tama(Auto):
    index = "tama"


class TamaOfPaper(Tama):
    """With the 13 levels that GEM's authors gave it."""

    options: ClassVar[dict[str, Any]] = {"levels": 13}


class PstBloom(Auto):
    index = "pstbloom"


class PstHash(Auto):
    index = "psthash"


class Ladder(Auto):
    index = "ladder"


class Scan(Auto):
    index = "scan"


OURS: dict[str, type[Engine]] = {
    "gpumatch auto": Auto,
    "gpumatch auto, observed": Observed,
    "gpumatch gem": Gem,
    "gpumatch gem triangles": GemTriangles,
    "gpumatch tama": Tama,
    "gpumatch pstbloom": PstBloom,
    "gpumatch psthash": PstHash,
    "gpumatch ladder": Ladder,
    "gpumatch scan": Scan,
}
SPECIAL: dict[str, type[Engine]] = {  # for single scripts
    "gpumatch match_one": MatchOne,
    "gpumatch gem, no caches": GemOfPaper,
    "gpumatch gem, 20 caches": GemOfPaper20,
    "gpumatch tama, 13 levels": TamaOfPaper,
}
