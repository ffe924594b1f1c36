"""Overlays for experiments: random, Waxman and transit-stub graphs, connected and with an exact number of links.

Every pair of brokers draws a number and the pairs with the lowest become links: a uniform draw among the graphs with
that many links. If the graph is not connected, it is repaired: the links of a minimum spanning tree over the same
numbers replace the highest of the others. Compared with graphs redrawn until one is connected, mean distances are the
same to 0.1 % at degree 6 (100 and 700 brokers, where one draw in three and four in five are repaired), and 1.5 %
shorter for 70 brokers of degree 3, where one draw in fifty is connected.
"""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.checks import expect, whole
from gpumatch.routing.overlays.clusters import Clusters
from gpumatch.routing.overlays.topology import Topology

_MOST = 10_000  # brokers: pairs of them take about 2 GB


def random_graph(brokers: int, degree: float, seed: int = 0) -> Topology:
    """Any two brokers are equally likely to be linked; there are ``round(brokers * degree / 2)`` links."""
    rng = np.random.default_rng(seed)
    links = _link_count(brokers, degree)
    return Topology(brokers, _lowest(rng.random(_pair_count(brokers)), brokers, links))


def waxman_graph(brokers: int, degree: float, seed: int = 0, alpha: float = 0.2) -> Topology:
    """Brokers lie at random in a square, and nearby ones are linked more often.

    Two brokers at distance d are linked with probability ``beta * exp(-d / (alpha * L))``, L the longest distance: the
    smaller ``alpha``, the more links are short. ``beta`` is such that there are ``round(brokers * degree / 2)`` links.
    """
    expect("alpha", alpha, Real)
    if not alpha > 0:
        raise RoutingError(f"alpha: expected a number above 0, found {alpha}")
    rng = np.random.default_rng(seed)
    links = _link_count(brokers, degree)
    where = rng.random((brokers, 2))
    a, b = np.triu_indices(brokers, 1)
    away = np.linalg.norm(where[a] - where[b], axis=1)
    drawn = np.log1p(-rng.random(len(away)))  # linked if drawn * exp(d / (alpha * L)) <= beta, here in logarithms
    return Topology(brokers, _lowest(drawn + away / (alpha * away.max(initial=1e-300)), brokers, links))


def transit_stub_graph(brokers: int, size: int, degree: float, seed: int = 0) -> Clusters:
    """Clusters of ``size`` brokers, one of each a transit node; the transit nodes are linked in a backbone.

    Transit nodes are the brokers 0, 1, ... by cluster. Together they are the last cluster, the backbone, and so edge
    brokers; with one cluster there is no backbone. Clusters and backbone are random graphs. The mean degree inside the
    backbone is ``degree`` or as near as possible, and the clusters share the other links: there are
    ``round(brokers * degree / 2)`` in all. If ``brokers`` is not a multiple of ``size``, clusters differ by one broker.
    """
    if not 1 <= whole("size", size) <= whole("brokers", brokers):
        raise RoutingError(f"size: expected 1 to {brokers} brokers in a cluster, found {size}")
    count = round(brokers / size)
    stubs = np.array_split(np.arange(count, brokers), count)
    members = [np.append(cluster, stub) for cluster, stub in enumerate(stubs)]
    links = _link_count(brokers, degree)
    least = np.array([len(group) - 1 for group in members])  # links that connect a cluster; it has room for more
    room = np.array([_pair_count(len(group)) for group in members]) - least
    spare = links - int(least.sum())
    across = min(max(count - 1, round(count * degree / 2)), _pair_count(count), spare)
    if spare - across > room.sum():
        raise RoutingError(
            f"degree {degree:g} leaves {links - across} links to {count} clusters of about {size} brokers, which hold "
            f"{int((least + room).sum())} at most: take larger clusters or a lower degree"
        )
    own = least + _shares(spare - across, room)
    rng = np.random.default_rng(seed)
    backbone = np.arange(count)
    inner = [_among(group, int(share), rng) for group, share in zip(members, own, strict=True)]
    topology = Topology(brokers, np.concatenate((*inner, _among(backbone, across, rng))))
    return Clusters(topology, [*members, backbone] if count > 1 else members)


def from_networkx(graph: Any) -> Topology:
    """Any undirected networkx graph; loops are left out.

    A topology has no names: broker ``i`` is ``list(graph.nodes)[i]``, the nodes in the graph's own order.
    """
    if not hasattr(graph, "is_directed"):
        raise RoutingError(f"graph: expected a graph of networkx, found {type(graph).__name__}")
    if graph.is_directed():
        raise RoutingError("expected an undirected graph, found a directed one; see its to_undirected()")
    number = {node: at for at, node in enumerate(graph.nodes)}
    return Topology(len(number), [(number[a], number[b]) for a, b in graph.edges() if a != b])


def to_networkx(topology: Topology) -> Any:
    """The brokers that are up and their links as ``networkx.Graph``, for drawing or for its measures."""
    expect("topology", topology, Topology)
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(np.flatnonzero(topology.up).tolist())
    graph.add_edges_from(topology.links.tolist())
    return graph


def _link_count(brokers: int, degree: float) -> int:
    brokers = whole("brokers", brokers)
    expect("degree", degree, Real)
    least, most = max(brokers - 1, 0), _pair_count(brokers)
    links = round(brokers * degree / 2) if isfinite(degree) else -1
    if brokers > _MOST:
        raise RoutingError(f"brokers: expected at most {_MOST:,}, since every pair takes a draw, found {brokers:,}")
    if brokers < 1 or not least <= links <= most:
        raise RoutingError(
            f"no connected graph has {brokers} brokers of mean degree {degree:g}: "
            f"expected at least one broker, and {least} to {most} links"
        )
    return links


def _pair_count(brokers: int) -> int:
    return brokers * (brokers - 1) // 2


def _lowest(drawn: Array, brokers: int, links: int) -> Array:
    """The pairs with the lowest numbers, but connected. Numbers are in the order of ``np.triu_indices``."""
    a, b = np.triu_indices(brokers, 1)
    rank = np.empty(len(drawn), np.int64)
    rank[np.argsort(drawn)] = np.arange(1, len(drawn) + 1)
    kept = rank <= links
    if connected_components(_graph(a[kept], b[kept], brokers), directed=False)[0] > 1:
        tree = minimum_spanning_tree(_graph(a, b, brokers, rank)).tocoo()
        rank[np.isin(a * brokers + b, tree.row.astype(np.int64) * brokers + tree.col)] = 0
        kept = np.zeros(len(rank), bool)
        kept[np.argsort(rank, kind="stable")[:links]] = True
    return np.stack((a[kept], b[kept]), axis=1)


def _graph(a: Array, b: Array, brokers: int, weight: Array | None = None) -> Any:
    return csr_array((np.ones(len(a)) if weight is None else weight, (a, b)), shape=(brokers, brokers))


def _among(brokers: Array, links: int, rng: np.random.Generator) -> Array:
    """A random graph over these brokers."""
    return brokers[_lowest(rng.random(_pair_count(len(brokers))), len(brokers), links)]


def _shares(links: int, room: Array) -> Array:
    """Whole numbers that add up to the links, in proportion to the room of each and never above it."""
    exact = links * room / max(int(room.sum()), 1)
    shares = exact.astype(np.int64)
    rest = links - int(shares.sum())
    shares[np.argsort(shares - exact, kind="stable")[:rest]] += 1
    return shares
