"""MERC's destination lists, counted for many events together and without time."""

from __future__ import annotations

import numpy as np

from gpumatch.arrays import Array, spans
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.multicast import destination_lists
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator.protocols import ClusterRoutes
from gpumatch.routing.simulator.traffic import Workload

_PAIRS = 1 << 21  # of events and interested brokers that are processed together, times the clusters


def merc_lists(clusters: Clusters, workload: Workload) -> tuple[Array, Array]:
    """The length of each message's list, and whether the source sent it.

    Edge brokers open their other clusters in rounds. One that two clusters reach in the same round takes the event from
    the lower-numbered one; in real time it would be the faster one.
    """
    workload.check(clusters.topology.brokers)
    routes = ClusterRoutes(clusters.topology, clusters.members)
    inner = [routes.inside(cluster) for cluster in range(len(clusters))]
    sizes, firsts = [np.empty(0, np.int64)], [np.empty(0, bool)]
    per_event = max(len(workload.destinations) // max(len(workload), 1) * len(clusters), 1)
    step = max(1, _PAIRS // per_event)
    for first in range(0, len(workload), step):
        events = np.arange(first, min(first + step, len(workload)))
        at = workload.sources[events]
        events, at = events[clusters.topology.up[at]], at[clusters.topology.up[at]]
        came = np.full(len(events), -1)
        seen = np.unique(events * clusters.topology.brokers + at)
        source = True
        while len(events):
            opening, entry, event, broker, cluster = _open(routes, workload, events, at, came)
            for size, hop in _count(inner, routes, opening, entry, broker, cluster):
                sizes.append(size)
                firsts.append((hop == 1) & source)
            events, at, came, seen = _reached(clusters, event[opening], entry, cluster[opening], seen)
            source = False
    return np.concatenate(sizes), np.concatenate(firsts)


def _open(
    routes: ClusterRoutes, workload: Workload, events: Array, at: Array, came: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The lists in the clusters that these events open, and the event, broker and cluster of each opening."""
    row, cluster = np.nonzero(routes.cell[:, at].T >= 0)
    other = cluster != came[row]
    row, cluster = row[other], cluster[other]
    event, broker = events[row], at[row]
    starts = workload.offsets[event]
    counts = workload.offsets[event + 1] - starts
    wanted = workload.destinations[spans(starts, counts)]
    opening, entry = routes.lists(routes.cell[cluster, broker], np.repeat(np.arange(len(event)), counts), wanted)
    away = entry != broker[opening]
    return opening[away], entry[away], event, broker, cluster


def _count(
    inner: list[Topology], routes: ClusterRoutes, opening: Array, entry: Array, broker: Array, cluster: Array
) -> list[tuple[Array, Array]]:
    """Sizes and hops of the messages, cluster by cluster: inside each they are those of D-DBR."""
    found = []
    sizes = np.bincount(opening, minlength=len(broker))
    for one in np.unique(cluster).tolist():
        mine = np.flatnonzero(cluster == one)
        offsets = np.concatenate(([0], np.cumsum(sizes[mine])))
        entries = routes.position[one, entry[cluster[opening] == one]]
        lists = destination_lists(inner[one], routes.position[one, broker[mine]], (offsets, entries))
        found.append((lists.size.astype(np.int64), lists.hop))
    return found


def _reached(
    clusters: Clusters, event: Array, entry: Array, cluster: Array, seen: Array
) -> tuple[Array, Array, Array, Array]:
    """The edge brokers that get an event for the first time: event, broker, the cluster it came in; and all seen."""
    n = clusters.topology.brokers
    edge = np.isin(entry, clusters.edge_brokers)
    key, first = np.unique(event[edge] * n + entry[edge], return_index=True)
    new = ~np.isin(key, seen)
    key, first = key[new], first[new]
    events, brokers = np.divmod(key, n)
    return events, brokers, cluster[edge][first], np.union1d(seen, key)
