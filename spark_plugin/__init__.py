"""Matching on Spark: ``build_index`` for DataFrames of subscriptions, ``match_events`` for DataFrames of events.

Importing this package does not import PySpark.
"""

from gpumatch.spark.build import build_index
from gpumatch.spark.match import match_events

__all__ = ["build_index", "match_events"]
