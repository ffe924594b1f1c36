"""What DuckDB says: the subscriptions that each event satisfies."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_AT_ONCE = 100  # expressions of one query


class Duck:
    """Events in a database. float32 is widened first: DuckDB would round constants to it instead."""

    def __init__(self, events: pa.Table) -> None:
        self._db = duckdb.connect()
        self._db.execute("PRAGMA threads=1")
        self._db.execute("SET TimeZone='Europe/Berlin'")
        self._db.execute(
            "PRAGMA disable_optimizer"
        )  # many expressions of one query would be weighed against each other
        types = [pa.float64() if kind == pa.float32() else kind for kind in events.schema.types]
        wide = events.cast(pa.schema(list(zip(events.schema.names, types, strict=True))))
        self._db.register("given", wide)
        self._db.execute("CREATE TABLE events AS SELECT *, CAST('infinity' AS DOUBLE) AS INFINITY FROM given")
        self._count = len(events)

    def matches(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """A row per expression, a column per event: is it true?"""
        found = np.zeros((len(texts), self._count), np.bool_)
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            query = ", ".join(f"({text}) AS c{at}" for at, text in enumerate(part))
            table = self._db.sql(f"SELECT {query} FROM events").to_arrow_table()
            for at, column in enumerate(table.columns):
                found[start + at] = column.fill_null(False).to_numpy()
        return found
