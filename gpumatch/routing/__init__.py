"""Where events go: shards and filters with little leak (Sieve), destination lists over overlays (D-DBR, MERC).

Names load on first use: Sieve's parts need NumPy and numba only, overlays need ``pip install 'gpumatch[routing]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumatch.routing.filters import Filters, equal_count_filters, equal_width_filters, leak, optimal_filters
    from gpumatch.routing.groups import Groups, aggregate
    from gpumatch.routing.histogram import Histogram
    from gpumatch.routing.partitioning import Partition, partition
    from gpumatch.routing.selective import CostModel, select_subscriptions
    from gpumatch.routing.shards import ShardPlan, ShardReport, plan_shards
    from gpumatch.routing.stages import Stages, multi_stage

_HOMES = {
    "filters": ("Filters", "equal_count_filters", "equal_width_filters", "leak", "optimal_filters"),
    "groups": ("Groups", "aggregate"),
    "histogram": ("Histogram",),
    "partitioning": ("Partition", "partition"),
    "selective": ("CostModel", "select_subscriptions"),
    "shards": ("ShardPlan", "ShardReport", "plan_shards"),
    "stages": ("Stages", "multi_stage"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CostModel",
    "Filters",
    "Groups",
    "Histogram",
    "Partition",
    "ShardPlan",
    "ShardReport",
    "Stages",
    "aggregate",
    "equal_count_filters",
    "equal_width_filters",
    "leak",
    "multi_stage",
    "optimal_filters",
    "partition",
    "plan_shards",
    "select_subscriptions",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gpumatch.routing' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"gpumatch.routing.{_HOME[name]}"), name)
    globals()[name] = value  # next time no call
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
