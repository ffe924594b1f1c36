"""``register``: matching as functions of SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from gpumatch.errors import SchemaError
from gpumatch.spark.arguments import check_session
from gpumatch.spark.frames import own_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(session: SparkSession, *, columns: str = "", ids: Literal["string", "bigint"] = "string") -> None:
    """Add two functions to the SQL of a session; they need PySpark 4.1 or newer.

    - ``match_ids('/shared/idx', 'px, sym', price, symbol)``: the ids of the subscriptions that a row satisfies, as an
      array; the names of attributes, then their columns, or one struct of them: ``match_ids('/shared/idx', struct(*))``
    - ``match_events(TABLE(events), '/shared/idx')``: a table with one row per match, of ``columns`` and
      ``subscription``. SQL needs their types: ``columns="trade_id bigint, symbol string"``

    ``ids`` is the type of the ids.
    """
    try:
        from pyspark.sql.functions import arrow_udf, arrow_udtf
    except ImportError as error:
        import pyspark

        raise ImportError(
            f"SQL functions need PySpark 4.1 or newer, found {pyspark.__version__}; use match_events() with a DataFrame"
        ) from error
    check_session(session)
    if not isinstance(columns, str):
        raise TypeError(f"columns= is text such as 'trade_id bigint, symbol string', found {type(columns).__name__}")
    if ids not in ("string", "bigint"):
        raise ValueError(f"ids must be 'string' or 'bigint', found {ids!r}")
    from pyspark.sql.types import StructType

    returned = StructType.fromDDL(columns).names if columns else []
    if "subscription" in (name.lower() for name in returned):
        raise SchemaError("columns= names 'subscription', the name of the column of matches: leave it out")
    integers = ids == "bigint"

    def match_ids(index: Any, *attributes: Any) -> Any:
        from gpumatch.spark import worker

        return worker.ids_of_rows(index, attributes, integers)

    class MatchEvents:
        def eval(self, events: Any, index: Any) -> Iterator[Any]:
            from gpumatch.spark import worker

            return worker.pairs_of_rows(events, index, returned, integers)

    # Spark reads annotations: none for arrays, this one for whole batches.
    match_ids.__annotations__.clear()
    MatchEvents.eval.__annotations__ = {"events": pa.RecordBatch}
    schema = f"{columns}, subscription {ids}" if columns else f"subscription {ids}"
    with own_python(session):
        session.udf.register("match_ids", arrow_udf(match_ids, returnType=f"array<{ids}>"))
        session.udtf.register("match_events", arrow_udtf(MatchEvents, returnType=schema))
