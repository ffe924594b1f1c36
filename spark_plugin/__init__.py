"""Matching on Spark: ``match_events`` and ``count_subscriptions`` for events, ``build_index`` for subscriptions,
``update_index`` and ``compare_tables`` for their changes, ``deliver`` for events by destination,
``register`` for SQL, ``plan_match`` to see how an index with shards would be matched, ``Metrics`` to see what the tasks
did, ``pinned_versions`` to see which version of an index a stream was matched with, ``rapids_conf`` for GPUs.

Importing this package does not import PySpark.
"""

from gpumatch.spark.build import build_index
from gpumatch.spark.compare import compare_tables
from gpumatch.spark.deliver import DeliveryPlan, deliver, plan_delivery
from gpumatch.spark.following import pinned_versions
from gpumatch.spark.gpu_memory import GpuMemory, split_gpu_memory
from gpumatch.spark.match import count_subscriptions, match_events
from gpumatch.spark.metrics import Metrics
from gpumatch.spark.rapids import rapids_conf
from gpumatch.spark.shuffled import Shuffled
from gpumatch.spark.sql import register
from gpumatch.spark.strategy import plan_match
from gpumatch.spark.update import Update, update_index

__all__ = [
    "DeliveryPlan",
    "GpuMemory",
    "Metrics",
    "Shuffled",
    "Update",
    "build_index",
    "compare_tables",
    "count_subscriptions",
    "deliver",
    "match_events",
    "pinned_versions",
    "plan_delivery",
    "plan_match",
    "rapids_conf",
    "register",
    "split_gpu_memory",
    "update_index",
]
