"""Which node takes which subscription, within the space and the load that each can take (Sieve, III-A)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.values import is_whole, numbered, one_line, values_of

ORDERS = ("given", "low")
MEASURES = ("ranges", "members")
GROWTHS = ("bound", "exact")


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Subscriptions on nodes."""

    node: Array  # int32, by subscription; -1 for an empty range, which nobody needs to serve
    nodes: int  # how many are in use
    space: Array  # int64, by node: how much of it is used
    load: Array  # float64, by node

    def subscriptions(self, node: int) -> Array:
        """The subscriptions of a node."""
        return np.flatnonzero(self.node == numbered(node, len(self.space), "node"))


def partition(
    low: Any,
    high: Any,
    load: Any,
    space: Any,
    capacity: Any,
    *,
    nodes: int | None = None,
    order: str = "given",
    measure: str = "ranges",
    growth: str = "bound",
) -> Partition:
    """Give each subscription ``[low, high)`` with its ``load``, the traffic in its range, to a node.

    In turn, subscriptions go to the node that grows least of those with room and capacity, the highest-numbered if
    several do, and to a new one if there is none. ``space`` and ``capacity`` are those of every node, with as many
    nodes as it takes (at most ``nodes``), or arrays: a pool of nodes, from which the first that fits is used next.

    ``order``: ``"given"``, or ``"low"`` to go along the line, so that nodes get neighbours and events go to few nodes;
    then let growth be exact, since by the bound an earlier node with some load left grows less than the current one.
    ``measure``: space is the number of ``"ranges"`` between adjacent edges of a node, each of which takes a filter, or
    of their ``"members"``, the state space. ``growth``: minimise the paper's ``"bound"``, the number of ranges that the
    subscription meets plus 2, or the ``"exact"`` growth of the space; both are counted exactly.
    """
    for name, choice, choices in zip(
        ("order", "measure", "growth"), (order, measure, growth), (ORDERS, MEASURES, GROWTHS), strict=True
    ):
        if choice not in choices:
            raise RoutingError(f"{name}: expected one of {', '.join(choices)}, found {choice!r}")
    low, high = one_line(low, high)
    loads = _loads(load, len(low))
    room, rates, limit = _pool(space, capacity, nodes, len(low))
    some = low < high
    cuts = np.unique(np.concatenate([low[some], high[some]]))
    first, last = np.searchsorted(cuts, low), np.searchsorted(cuts, high)
    turn = np.lexsort((high, low)) if order == "low" else np.arange(len(low))
    from gpumatch.kernels.partition import FULL, assign

    found, used, carried, failed = assign(
        turn[some[turn]], first, last, len(cuts), loads, room, rates, limit, measure == "members", growth == "exact"
    )
    if failed != FULL:
        raise _misfit(failed, low, high, loads, room, rates, len(used))
    return Partition(found, len(np.unique(found[some])), used, carried)


def _loads(load: Any, count: int) -> Array:
    found = values_of(load, "load").astype(np.float64)
    if len(found) != count:
        raise RoutingError(f"load: expected one for each of the {count} subscriptions, found {len(found)}")
    if not (np.isfinite(found) & (found >= 0)).all():
        raise RoutingError("load: expected finite numbers from 0")
    return found


def _pool(space: Any, capacity: Any, nodes: int | None, subscriptions: int) -> tuple[Array, Array, int]:
    """Room and capacity by node, one for all or one each, and the largest number of nodes."""
    room, rates = values_of(space, "space"), values_of(capacity, "capacity").astype(np.float64)
    if not (room >= 0).all() or not (rates >= 0).all():
        raise RoutingError("space and capacity: expected numbers from 0")
    pools = {len(found) for given, found in ((space, room), (capacity, rates)) if np.ndim(given)}
    if len(pools) > 1:
        raise RoutingError(f"space and capacity: expected equally many, or one for all, found {sorted(pools)}")
    limit = min(pools, default=nodes)
    if nodes is not None and (not is_whole(nodes) or nodes < 1 or nodes != limit):
        raise RoutingError(f"nodes: expected {limit if pools else '1 or more'}, found {nodes!r}")
    whole = np.minimum(np.floor(room), 2.0**62).astype(np.int64) if room.dtype.kind == "f" else room
    enough = max(subscriptions, 1)
    return whole, rates, limit if pools and limit is not None else min(limit or enough, enough)


def _misfit(number: int, low: Array, high: Array, load: Array, room: Array, rates: Array, nodes: int) -> RoutingError:
    """Why a subscription has no node."""
    what = f"subscription {number}, [{low[number]}, {high[number]}) with load {load[number]:g}"
    fits = (room >= 1) & (load[number] <= rates)
    if not fits.any():
        most = f"space {room.max(initial=0)} and capacity {rates.max(initial=0):g}"
        return RoutingError(f"{what}, fits no empty node: expected space 1 and that capacity, found at most {most}")
    return RoutingError(f"{what}, fits no node: all that could hold it are in use, {nodes} in all; give more nodes")
