"""Matching as a query: DuckDB and Polars, the way a competent user of each would write it.

If every attribute is constrained, there are two queries: a filter per event, and a join with the whole batch. The one
that is faster on a few events is used. If subscriptions name few of many attributes, the event's values are joined to
each subscription's predicates in turn, the narrowest first. (One join and a count per pair of event and subscription is
a shorter query, but takes 5 to 20 times as long.)
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engines.base import Csr, Engine, Events, Predicates, Rows, batches, count
from gpumatch.workloads import PredicateWorkload, SparseEvents, Workload

Pairs: TypeAlias = tuple[Rows, Rows]  # events, subscriptions


class Frame(Engine):
    """The subscriptions as one table: row, and for each predicate j the columns lo{j}, hi{j} and optionally a{j}."""

    batch = 1_000_000  # events per query, at most

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        some_have_fewer = isinstance(workload, PredicateWorkload) and bool((workload.sub_attr < 0).any())
        return not some_have_fewer  # the chain has one join per predicate

    def build(self, workload: Workload) -> None:
        attr, lo, hi, dims = Predicates.of(workload)
        self.names, (self.size, self.k) = list(workload.schema), lo.shape
        sides = {"lo": lo, "hi": hi}
        if isinstance(workload, PredicateWorkload):
            narrow = np.argsort(hi - lo, axis=1, kind="stable")
            sides = {name: np.take_along_axis(side, narrow, axis=1) for name, side in (sides | {"a": attr}).items()}
        columns = {f"{name}{j}": np.ascontiguousarray(x[:, j]) for j in range(self.k) for name, x in sides.items()}
        self.load({"row": workload.ids, **columns})
        self.query: Callable[[Any], Pairs] = self.chain
        self.variant = "join"
        if isinstance(workload, PredicateWorkload):
            self.batch = self.chain_batch(len(lo) * workload.present / dims)
        else:
            ways = {"filter": self.filter, "join": self.join}
            self.variant = min(ways, key=lambda name: _seconds(ways[name], workload.events(8, seed=1)))
            self.query = ways[self.variant]

    def match(self, events: Events) -> Csr:
        n = count(events)
        found = [self.query(part) for part in batches(events, self.batch)]
        event = np.concatenate([event + at * self.batch for at, (event, _) in enumerate(found)])
        row = np.concatenate([row for _, row in found])
        key = event * self.size + row
        if not (key[1:] > key[:-1]).all():  # filters mostly return rows in order, joins do not
            key.sort()
            event, row = np.divmod(key, self.size)
        return np.searchsorted(event, np.arange(n + 1)), row

    def chain_batch(self, pairs: float) -> int:
        """Events per query, given the pairs per event of the first join."""
        return self.batch

    @abstractmethod
    def load(self, columns: dict[str, NDArray[Any]]) -> None: ...

    @abstractmethod
    def filter(self, events: dict[str, NDArray[Any]]) -> Pairs: ...

    @abstractmethod
    def join(self, events: dict[str, NDArray[Any]]) -> Pairs: ...

    @abstractmethod
    def chain(self, events: SparseEvents) -> Pairs: ...

    def stacked(self, rows: list[Rows]) -> Pairs:
        return np.repeat(np.arange(len(rows)), [len(r) for r in rows]), np.concatenate(rows)

    def wide(self, events: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"event": np.arange(count(events))} | {f"v{j}": events[name] for j, name in enumerate(self.names)}


def _seconds(query: Callable[[Any], Pairs], events: Events) -> float:
    query(events)  # warm up: caches and compilation
    start = time.perf_counter()
    query(events)
    return time.perf_counter() - start


def long(events: SparseEvents) -> dict[str, NDArray[Any]]:
    event = np.repeat(np.arange(len(events.offsets) - 1), np.diff(events.offsets))
    return {"event": event, "attr": events.attribute, "v": events.value}


class DuckDB(Frame):
    def load(self, columns: dict[str, NDArray[Any]]) -> None:
        import duckdb
        import pyarrow as pa

        self.arrow = pa.table
        self.connection = duckdb.connect()
        # No spilling: a query that would write gigabytes should fail, not fill the disk. Joins keep their written
        # order: the optimiser has no statistics on the events and would start with a cross product.
        self.connection.execute(
            f"SET threads={self.threads}; SET temp_directory=''; SET memory_limit='50%';"
            "SET preserve_insertion_order=false; SET disabled_optimizers='join_order'"
        )
        self.connection.register("source", pa.table(columns))
        self.connection.execute("CREATE TABLE s AS SELECT * FROM source")
        self.connection.unregister("source")

    def bytes(self) -> int | None:
        query = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        return int(self.connection.execute(query).fetchall()[0][0])

    def filter(self, events: dict[str, NDArray[Any]]) -> Pairs:
        query = "SELECT row FROM s WHERE " + " AND ".join(f"${j + 1} BETWEEN lo{j} AND hi{j}" for j in range(self.k))
        points = np.column_stack([events[name] for name in self.names]).tolist()
        return self.stacked([self.connection.execute(query, point).fetchnumpy()["row"] for point in points])

    def join(self, events: dict[str, NDArray[Any]]) -> Pairs:
        conditions = " AND ".join(f"v{j} BETWEEN lo{j} AND hi{j}" for j in range(self.k))
        return self._run(f"SELECT event, row FROM s JOIN e ON {conditions}", self.wide(events))

    def chain(self, events: SparseEvents) -> Pairs:
        joins = (
            f"JOIN e e{j} ON e{j}.attr = a{j} AND e{j}.v BETWEEN lo{j} AND hi{j}"
            + (f" AND e{j}.event = e0.event" if j else "")
            for j in range(self.k)
        )
        return self._run(f"SELECT e0.event, row FROM s {' '.join(joins)}", long(events))

    def _run(self, query: str, events: dict[str, NDArray[Any]]) -> Pairs:
        self.connection.register("e", self.arrow(events))
        found = self.connection.execute(query).fetchnumpy()
        return found["event"], found["row"]


class Polars(Frame):
    """POLARS_MAX_THREADS fixes the number of threads at import."""

    def load(self, columns: dict[str, NDArray[Any]]) -> None:
        import polars

        if polars.thread_pool_size() != self.threads:
            raise RuntimeError(f"Polars has {polars.thread_pool_size()} threads, expected {self.threads}")
        self.pl = polars
        self.table = polars.DataFrame(columns)

    def bytes(self) -> int | None:
        return int(self.table.estimated_size())

    def chain_batch(self, pairs: float) -> int:
        return max(1, int(4e6 / pairs))  # the first join is in memory with all its columns

    def filter(self, events: dict[str, NDArray[Any]]) -> Pairs:
        points = np.column_stack([events[name] for name in self.names]).tolist()
        col, table = self.pl.col, self.table.lazy()
        tests = [[p for j, v in enumerate(point) for p in (col(f"lo{j}") <= v, col(f"hi{j}") >= v)] for point in points]
        return self.stacked([table.filter(*t).select("row").collect()["row"].to_numpy() for t in tests])

    def join(self, events: dict[str, NDArray[Any]]) -> Pairs:
        col, e = self.pl.col, self.pl.LazyFrame(self.wide(events))
        tests = [p for j in range(self.k) for p in (col(f"lo{j}") <= col(f"v{j}"), col(f"hi{j}") >= col(f"v{j}"))]
        return self._collect(e.join_where(self.table.lazy(), *tests))

    def chain(self, events: SparseEvents) -> Pairs:
        col, e, query = self.pl.col, self.pl.LazyFrame(long(events)), self.table.lazy()
        for j in range(self.k):
            keys = ["event"] if j else []
            query = query.join(e, left_on=[*keys, f"a{j}"], right_on=[*keys, "attr"])
            query = query.filter(col("v").is_between(f"lo{j}", f"hi{j}")).drop("v")
        return self._collect(query)

    def _collect(self, query: Any) -> Pairs:
        found = query.select("event", "row").collect()
        return found["event"].to_numpy(), found["row"].to_numpy()
