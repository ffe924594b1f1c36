"""Where events go: shards and filters with little leak (Sieve), destination lists over overlays (D-DBR, MERC).

Names load on first use: Sieve needs NumPy and numba only, overlays need ``pip install 'gpumatch[routing]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumatch.routing.overlays.clusters import Clusters
    from gpumatch.routing.overlays.graphs import (
        from_networkx,
        random_graph,
        to_networkx,
        transit_stub_graph,
        waxman_graph,
    )
    from gpumatch.routing.overlays.multicast import DestinationLists, destination_lists
    from gpumatch.routing.overlays.network import Delivery, Network
    from gpumatch.routing.overlays.overlap import Overlaps, overlap
    from gpumatch.routing.overlays.reconfigure import Reconfiguration, mean_hops, reconfigure
    from gpumatch.routing.overlays.tables import RoutingTable
    from gpumatch.routing.overlays.topology import Topology
    from gpumatch.routing.sieve.counting import MessageCache, OptimisticCounter
    from gpumatch.routing.sieve.filters import Filters, equal_count_filters, equal_width_filters, leak, optimal_filters
    from gpumatch.routing.sieve.groups import Groups, aggregate
    from gpumatch.routing.sieve.histogram import Histogram
    from gpumatch.routing.sieve.partition import Partition, partition
    from gpumatch.routing.sieve.routes import ShardRouter
    from gpumatch.routing.sieve.selective import CostModel, Selection, select_subscriptions
    from gpumatch.routing.sieve.shards import ShardPlan, ShardReport, plan_shards
    from gpumatch.routing.sieve.stages import Stages, multi_stage
    from gpumatch.routing.sieve.timers import TimerWheel
    from gpumatch.routing.simulator.failures import Change, Failures, random_failures
    from gpumatch.routing.simulator.protocols import Costs
    from gpumatch.routing.simulator.simulated import Simulated
    from gpumatch.routing.simulator.simulation import simulate
    from gpumatch.routing.simulator.traffic import Workload

_HOMES = {
    "overlays.clusters": ("Clusters",),
    "overlays.graphs": ("from_networkx", "random_graph", "to_networkx", "transit_stub_graph", "waxman_graph"),
    "overlays.multicast": ("DestinationLists", "destination_lists"),
    "overlays.network": ("Delivery", "Network"),
    "overlays.overlap": ("Overlaps", "overlap"),
    "overlays.reconfigure": ("Reconfiguration", "mean_hops", "reconfigure"),
    "overlays.tables": ("RoutingTable",),
    "overlays.topology": ("Topology",),
    "sieve.counting": ("MessageCache", "OptimisticCounter"),
    "sieve.filters": ("Filters", "equal_count_filters", "equal_width_filters", "leak", "optimal_filters"),
    "sieve.groups": ("Groups", "aggregate"),
    "sieve.histogram": ("Histogram",),
    "sieve.partition": ("Partition", "partition"),
    "sieve.routes": ("ShardRouter",),
    "sieve.selective": ("CostModel", "Selection", "select_subscriptions"),
    "sieve.shards": ("ShardPlan", "ShardReport", "plan_shards"),
    "sieve.stages": ("Stages", "multi_stage"),
    "sieve.timers": ("TimerWheel",),
    "simulator.failures": ("Change", "Failures", "random_failures"),
    "simulator.protocols": ("Costs",),
    "simulator.simulated": ("Simulated",),
    "simulator.simulation": ("simulate",),
    "simulator.traffic": ("Workload",),
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
    "Overlaps",
    "Partition",
    "Reconfiguration",
    "RoutingTable",
    "Selection",
    "ShardPlan",
    "ShardReport",
    "ShardRouter",
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

    try:
        value: object = getattr(import_module(f"gpumatch.routing.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpumatch"):
            raise
        raise ImportError(f"gpumatch.routing.{name} needs {error.name}: pip install 'gpumatch[routing]'") from error
    globals()[name] = value  # found directly next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
