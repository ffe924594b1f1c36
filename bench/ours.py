"""gpumatch through its public face, one class per index."""

from __future__ import annotations

from typing import Any

from engines import Csr, Engine, Events

from gpumatch.workloads import Workload


class Auto(Engine):
    index = "auto"

    def build(self, workload: Workload) -> None:
        import gpumatch as gm

        gm.set_num_threads(self.threads)
        self.matcher: Any = gm.Matcher(workload.schema, index=self.index)
        workload.add_to(self.matcher)
        self.matcher.compact()  # everything into the index, nothing left to do for the first match
        self.from_csr = gm.EventBatch.from_csr

    def match(self, events: Events) -> Csr:
        found = self.matcher.match(events if isinstance(events, dict) else self.from_csr(*events))
        return found.offsets, found.rows

    def bytes(self) -> int | None:
        return int(self.matcher.stats()["bytes"])


class Scan(Auto):
    index = "scan"


class PstBloom(Auto):
    index = "pstbloom"
