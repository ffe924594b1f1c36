"""Where events go: shards and filters with little leak (Sieve), destination lists over overlays (D-DBR, MERC).

Names load on first use: Sieve's parts need NumPy and numba only, overlays need ``pip install 'gpumatch[routing]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumatch.routing.clusters import Clusters
    from gpumatch.routing.counting import MessageCache, OptimisticCounter
    from gpumatch.routing.failures import Change, Failures, random_failures
    from gpumatch.routing.filters import Filters, equal_count_filters, equal_width_filters, leak, optimal_filters
    from gpumatch.routing.graphs import from_networkx, random_graph, to_networkx, transit_stub_graph, waxman_graph
    from gpumatch.routing.groups import Groups, aggregate
    from gpumatch.routing.histogram import Histogram
    from gpumatch.routing.multicast import DestinationLists, destination_lists
    from gpumatch.routing.network import Delivery, Network
    from gpumatch.routing.overlap import overlap
    from gpumatch.routing.partitioning import Partition, partition
    from gpumatch.routing.protocols import Costs
    from gpumatch.routing.reconfigure import Reconfiguration, mean_hops, reconfigure
    from gpumatch.routing.selective import CostModel, Selection, select_subscriptions
    from gpumatch.routing.shards import ShardPlan, ShardReport, plan_shards
    from gpumatch.routing.simulated import Simulated
    from gpumatch.routing.simulation import simulate
    from gpumatch.routing.stages import Stages, multi_stage
    from gpumatch.routing.tables import RoutingTable
    from gpumatch.routing.timers import TimerWheel
    from gpumatch.routing.topology import Topology
    from gpumatch.routing.traffic import Workload

_HOMES = {
    "clusters": ("Clusters",),
    "counting": ("MessageCache", "OptimisticCounter"),
    "failures": ("Change", "Failures", "random_failures"),
    "filters": ("Filters", "equal_count_filters", "equal_width_filters", "leak", "optimal_filters"),
    "graphs": ("from_networkx", "random_graph", "to_networkx", "transit_stub_graph", "waxman_graph"),
    "groups": ("Groups", "aggregate"),
    "histogram": ("Histogram",),
    "multicast": ("DestinationLists", "destination_lists"),
    "network": ("Delivery", "Network"),
    "overlap": ("overlap",),
    "partitioning": ("Partition", "partition"),
    "protocols": ("Costs",),
    "reconfigure": ("Reconfiguration", "mean_hops", "reconfigure"),
    "selective": ("CostModel", "Selection", "select_subscriptions"),
    "shards": ("ShardPlan", "ShardReport", "plan_shards"),
    "simulated": ("Simulated",),
    "simulation": ("simulate",),
    "stages": ("Stages", "multi_stage"),
    "tables": ("RoutingTable",),
    "timers": ("TimerWheel",),
    "topology": ("Topology",),
    "traffic": ("Workload",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Change",
    "Clusters",
    "CostModel",
    "Costs",
    "Delivery",
    "DestinationLists",
    "Failures",
    "Filters",
    "Groups",
    "Histogram",
    "MessageCache",
    "Network",
    "OptimisticCounter",
    "Partition",
    "Reconfiguration",
    "RoutingTable",
    "Selection",
    "ShardPlan",
    "ShardReport",
    "Simulated",
    "Stages",
    "TimerWheel",
    "Topology",
    "Workload",
    "aggregate",
    "destination_lists",
    "equal_count_filters",
    "equal_width_filters",
    "from_networkx",
    "leak",
    "mean_hops",
    "multi_stage",
    "optimal_filters",
    "overlap",
    "partition",
    "plan_shards",
    "random_failures",
    "random_graph",
    "reconfigure",
    "select_subscriptions",
    "simulate",
    "to_networkx",
    "transit_stub_graph",
    "waxman_graph",
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
