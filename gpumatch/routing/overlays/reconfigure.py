"""An overlay that follows its traffic: busy pairs of brokers get links, in exchange for those that matter least.

The gain of a missing link is the hops it saves its two ends, times their messages; the loss of an existing one, the
extra hops without it. In turn every broker picks its best gain, and the link is made if that exceeds what both ends
lose if they must drop a link for it. Only the traffic of the two ends counts, as in the thesis: an exchange may
lengthen the paths of others, and two may be exchanged back and forth for ever. Hence the bound on rounds, and
``only_better``, which makes an exchange only if all traffic together takes fewer hops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.checks import expect, whole
from gpumatch.routing.overlays.topology import Topology


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """A new topology and what led to it.

    ``added`` and ``dropped``: new links (m, 2), and lost ones. ``exchanges``: links made on the way, including
    those that were dropped again later. ``rounds``: how often every broker had its turn. ``settled``: the last round
    changed nothing, so more rounds would not either; False if ``rounds`` ran out before.
    ``hops_before``, ``hops_after``: mean per message.
    """

    topology: Topology
    added: Array
    dropped: Array
    exchanges: int
    rounds: int
    settled: bool
    hops_before: float
    hops_after: float

    def __repr__(self) -> str:
        links = f"{len(self.added)} links added, {len(self.dropped)} dropped in {self.rounds} rounds"
        return f"<Reconfiguration: {links}, {self.hops_before:.2f} -> {self.hops_after:.2f} hops>"


def reconfigure(
    topology: Topology,
    rates: Any,
    max_degree: int,
    rounds: int = 10,
    seed: int | None = None,
    only_better: bool = False,
) -> Reconfiguration:
    """Give busy pairs of brokers a link of their own, in exchange for others if they already have ``max_degree``.

    ``rates``: messages (n, n), from each broker to each; what two brokers send each other adds up. They take turns by
    number or, with a ``seed``, in a random order for each round, until a round changes nothing or ``rounds`` are over.
    Brokers that could reach each other still can: a link whose loss would separate them is never dropped, nor are two
    links whose loss together would.

    ``only_better``: make an exchange only if it shortens the way of all messages together. Without it, as in the
    thesis, the two ends consider only their own messages, and others may lose more, so look at ``hops_after``: on
    a ring of six, ``rates[0, 3] = 100``, ``rates[1, 4] = 5`` and ``max_degree=1`` lead from 3 hops to 4.8.

    ``max_degree`` limits new links, not existing ones: a broker with more links drops one for each that it makes, so
    it keeps their number, and no link is dropped only to come down to ``max_degree``.
    """
    expect("topology", topology, Topology)
    max_degree, rounds = whole("max_degree", max_degree), whole("rounds", rounds)
    weight = _weights(rates, topology)
    if max_degree < 1 or rounds < 0:
        raise RoutingError(f"expected max_degree of at least 1 and rounds of at least 0, found {max_degree}, {rounds}")
    overlay = _Overlay(topology, weight, max_degree, only_better)
    rng = None if seed is None else np.random.default_rng(seed)
    brokers = np.flatnonzero(topology.up)
    exchanges = done = 0
    settled = False
    while done < rounds and not settled:
        order = brokers if rng is None else rng.permutation(brokers)
        made = sum(overlay.turn(broker) for broker in order.tolist())
        exchanges, done, settled = exchanges + made, done + 1, made == 0
    after = overlay.topology()
    old, new = (set(map(tuple, each.links.tolist())) for each in (topology, after))
    return Reconfiguration(
        after,
        _sorted_links(new - old),
        _sorted_links(old - new),
        exchanges,
        done,
        settled,
        mean_hops(topology, weight),
        mean_hops(after, weight),
    )


def mean_hops(topology: Topology, rates: Any = None) -> float:
    """Hops per message, or per pair of brokers without ``rates``. Pairs without a path are left out; NaN if all are."""
    expect("topology", topology, Topology)
    distance = topology.distance
    weight = np.ones(distance.shape) if rates is None else _weights(rates, topology)
    weight = np.where(distance > 0, weight, 0)
    total = weight.sum()
    return float((weight * distance).sum() / total) if total > 0 else float("nan")


class _Overlay:
    """Links that change. Distances are searched from one broker at a time, so that a change itself costs nothing."""

    def __init__(self, topology: Topology, weight: Array, max_degree: int, only_better: bool) -> None:
        self.brokers, self.up, self.weight, self.max_degree = topology.brokers, topology.up, weight, max_degree
        self.near: list[set[int]] = [set(topology.neighbours(at).tolist()) for at in range(topology.brokers)]
        self.hops = self._total() if only_better else None

    def topology(self) -> Topology:
        links = [(at, to) for at, near in enumerate(self.near) for to in near if at < to]
        return Topology(self.brokers, links, self.up)

    def turn(self, broker: int) -> bool:
        """A broker tries to make its best link. Did it?"""
        other, gain = self._best(broker)
        own, own_loss = self._least(broker)
        if not gain > own_loss:
            return False
        its, its_loss = self._least(other)
        if not gain > own_loss + its_loss:
            return False
        freed = [(at, gone) for at, gone in ((broker, own), (other, its)) if gone is not None]
        self._change([(broker, other)], freed)
        worse = any(self._distance(at, gone) == inf for at, gone in freed)
        if not worse and self.hops is not None:
            hops = self._total()
            worse = not hops < self.hops
            self.hops = min(hops, self.hops)
        if worse:
            self._change(freed, [(broker, other)])
        return not worse

    def _best(self, broker: int) -> tuple[int, float]:
        """The broker to which a link gains most, the lowest-numbered of equals, and the gain; 0 if none gains."""
        distance = np.zeros(self.brokers)
        for hops, reached in enumerate(self._levels(broker)):
            distance[list(reached)] = hops
        gains = self.weight[broker] * np.maximum(distance - 1, 0)
        best = int(gains.argmax())
        return best, float(gains[best])

    def _least(self, broker: int) -> tuple[int | None, float]:
        """The neighbour whose link matters least, and its loss; None and 0 if the broker may have one more link."""
        near = self.near[broker]
        if len(near) < self.max_degree:
            return None, 0.0
        losses = [(self._loss(broker, other), other) for other in near]
        loss, other = min(losses)
        return other, loss

    def _loss(self, broker: int, other: int) -> float:
        """Infinite, whatever the rate, if the link is the only way."""
        around = self._distance(broker, other, without_link=True)
        return inf if around == inf else float(self.weight[broker, other]) * (around - 1)

    def _distance(self, start: int, end: int, without_link: bool = False) -> float:
        for hops, reached in enumerate(self._levels(start, end if without_link else None)):
            if end in reached:
                return hops
        return inf

    def _levels(self, start: int, shut: int | None = None) -> Iterator[set[int]]:
        """The brokers at 0, 1, 2, ... hops, without the link from the start to ``shut``."""
        seen = {start}
        yield seen
        reached = {at for at in self.near[start] if at != shut}
        while reached:
            yield reached
            seen = seen | reached
            reached = set().union(*(self.near[at] for at in reached)) - seen

    def _change(self, add: list[tuple[int, int]], drop: list[tuple[int, int]]) -> None:
        for a, b in drop:
            self.near[a].discard(b)
            self.near[b].discard(a)
        for a, b in add:
            self.near[a].add(b)
            self.near[b].add(a)

    def _total(self) -> float:
        """Hops of all messages; nobody is cut off, so those without a path (-1) never change."""
        return float((self.weight * self.topology().distance).sum())


def _weights(rates: Any, topology: Topology) -> Array:
    """Messages between each two brokers, in both directions together."""
    given = np.asarray(rates, dtype=np.float64)
    n = topology.brokers
    if given.shape != (n, n):
        raise RoutingError(f"rates: expected a matrix of shape ({n}, {n}), found {given.shape}")
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise RoutingError("rates: expected numbers from 0 up, found one below 0, NaN or infinite")
    both: Array = given + given.T
    return both


def _sorted_links(links: set[tuple[int, ...]]) -> Array:
    return np.array(sorted(links), np.int64).reshape(-1, 2)
