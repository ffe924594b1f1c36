"""Matching on Spark: ``match_events`` and ``count_subscriptions`` for events, ``build_index`` for subscriptions,
``register`` for SQL.

Importing this package does not import PySpark.
"""

from gpumatch.spark.build import build_index
from gpumatch.spark.match import count_subscriptions, match_events
from gpumatch.spark.sql import register

__all__ = ["build_index", "count_subscriptions", "match_events", "register"]
