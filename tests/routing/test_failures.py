"""Failures and repairs: what is lost, what is sent again, and that all who can be reached are, once."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from routing_plain import assert_agrees, random_case, random_clusters

from gpumatch.errors import RoutingError
from gpumatch.routing.overlays.graphs import random_graph
from gpumatch.routing.overlays.topology import Topology
from gpumatch.routing.simulator.failures import Change, Failures, random_failures
from gpumatch.routing.simulator.protocols import PROTOCOLS, Costs
from gpumatch.routing.simulator.simulation import simulate
from gpumatch.routing.simulator.traffic import Workload

RING = Topology(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
FORK = Topology(4, [(0, 1), (1, 2), (1, 3), (2, 3)])
COSTS = Costs(latency=100, receive=10, match=0, subscription=0, send=0, entry=0)


def one_event(destinations: list[int], time: int = 0) -> Workload:
    return Workload(np.array([time]), np.array([0]), np.array([0, len(destinations)]), np.array(destinations))


@pytest.mark.parametrize("seed", [*range(40), 199])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_agrees_with_one_message_at_a_time(seed: int, protocol: str) -> None:
    assert_agrees(random_case(seed, protocol, failing=True))


def test_a_lost_link_is_gone_round() -> None:
    """The event is on the link 0-1 when that fails at 50; noticed at 80, it is sent the other way."""
    found = simulate(RING, one_event([1]), costs=COSTS, failures=Failures([Change(50, (1, 0))], detection=30))
    assert found.time.tolist() == [200 + 10 + 3 * 110]  # seen at 200, when it could have been passed on
    assert found.hops.tolist() == [3]
    assert (found.counts.lost, found.counts.again) == (1, 1)


def test_a_broker_that_loses_the_next_hop_sends_by_another_way() -> None:
    """The event has left 1 for 2 at 120; the source is down when 1 sees at 300 that it has to go by 3."""
    failures = Failures([Change(150, 0), Change(160, (1, 2))], detection=20)
    found = simulate(FORK, one_event([2]), costs=COSTS, failures=failures)
    assert (found.time.tolist(), found.hops.tolist()) == ([300 + 10 + 2 * 110], [3])
    assert (found.counts.lost, found.counts.again) == (1, 1)
    assert found.counts.matches.tolist() == [1, 0, 1, 0]


def test_a_broker_without_a_path_holds_what_it_has() -> None:
    """At 300 broker 1 has no path, at 1020 it has; if it fails between, the event waits for its source."""
    changes = [Change(150, 0), Change(160, 2), Change(1000, 2, up=True)]
    found = simulate(FORK, one_event([2]), costs=COSTS, failures=Failures(changes, detection=20))
    assert found.time.tolist() == [1020 + 10 + 110]
    changes += [Change(500, 1), Change(600, 1, up=True)]
    assert simulate(FORK, one_event([2]), costs=COSTS, failures=Failures(changes, detection=20)).delivered == 0
    changes += [Change(2000, 0, up=True)]
    found = simulate(FORK, one_event([2]), costs=COSTS, failures=Failures(changes, detection=20))
    assert found.time.tolist() == [2020 + 10 + 2 * 110]


def test_until_it_is_noticed_senders_go_on() -> None:
    failures = Failures([Change(5, (0, 1))], detection=10_000)
    found = simulate(RING, one_event([1], time=100), costs=COSTS, failures=failures)
    assert found.time.tolist() == [5 + 10_000 + 10 + 3 * 110]
    late = simulate(RING, one_event([1], time=10_100), costs=COSTS, failures=failures)
    assert (late.time.tolist(), late.counts.lost) == ([10_100 + 10 + 3 * 110], 0)


def test_a_queue_is_lost_with_its_broker() -> None:
    """Broker 1 fails while it works on the event, and is repaired."""
    failures = Failures([Change(115, 1), Change(1000, 1, up=True)], detection=20)
    found = simulate(RING, one_event([1, 2]), costs=COSTS, failures=failures)
    assert dict(zip(found.broker.tolist(), found.time.tolist(), strict=True)) == {
        2: 135 + 10 + 110 + 110,
        1: 1020 + 10 + 110,
    }
    assert found.counts.busy.tolist() == [30, 5 + 10, 10, 10]


def test_a_source_that_is_down_publishes_when_it_is_up() -> None:
    failures = Failures([Change(0, 0), Change(700, 0, up=True)], detection=5)
    found = simulate(RING, one_event([0, 2], time=50), costs=COSTS, failures=failures)
    assert found.time.tolist() == [705 + 10, 705 + 10 + 2 * 110]
    assert simulate(RING, one_event([2], time=50), "fbr", costs=COSTS, failures=failures).delivered == 0


def test_fbr_does_not_go_round() -> None:
    failures = Failures([Change(0, (0, 1))])
    found = simulate(RING, one_event([1, 3], time=10), "fbr", costs=COSTS, failures=failures)
    assert found.broker.tolist() == [3]
    assert found.undelivered.tolist() == [[0], [1]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("protocol", ["d-dbr", "merc"])
def test_all_who_can_be_reached_are_reached_once(seed: int, protocol: str) -> None:
    """Failures without repair, while events are under way; a path that is left is found."""
    rng = np.random.default_rng(seed)
    topology = random_graph(30, 3, seed)
    clusters = random_clusters(rng, topology) if protocol == "merc" else None
    workload = Workload.random(30, 30, 3000.0, 0.5, seed)
    losses = random_failures(topology, links=0.3, brokers=0.1, seed=seed)
    times = rng.integers(12_000_000, size=len(losses.links) + len(losses.brokers))
    times = times // 3_000_000 * 3_000_000  # four moments
    changes = [Change(int(time), it.what) for time, it in zip(times, losses.changes(0), strict=True)]
    found = simulate(clusters or topology, workload, protocol, failures=Failures(changes, 2_000_000))
    left = topology.without(losses.links, losses.brokers)
    event = np.repeat(np.arange(30), np.diff(workload.offsets))
    got = set(zip(found.event.tolist(), found.broker.tolist(), strict=True))
    assert len(got) == len(found.event)
    for e, broker in zip(event.tolist(), workload.destinations.tolist(), strict=True):
        if left.distance[workload.sources[e], broker] >= 0:
            assert (e, broker) in got
    assert got <= set(zip(event.tolist(), workload.destinations.tolist(), strict=True))
    assert len(found.event) + found.undelivered.shape[1] == len(event)
    assert found.counts.lost > 0
    assert found.topology.links.tolist() == left.links.tolist()
    assert found.delivered < found.delivered_with_path == 1


@pytest.mark.parametrize("protocol", ["d-dbr", "merc"])
def test_after_all_repairs_all_are_reached(protocol: str) -> None:
    topology = random_graph(30, 3, 5)
    clusters = random_clusters(np.random.default_rng(5), topology) if protocol == "merc" else None
    losses = random_failures(topology, links=0.6, brokers=0.4, seed=5)
    changes = losses.changes(1_000_000) + losses.changes(9_000_000, up=True)
    workload = Workload.random(30, 40, 5000.0, 0.7, 5)
    found = simulate(clusters or topology, workload, protocol, failures=Failures(changes, 500_000))
    assert found.delivered == 1
    assert found.counts.again > 0


def test_before_the_start_reachability_decides() -> None:
    """With failures known before the first event, D-DBR reaches what has a path, FBR what its old path leads to."""
    topology = random_graph(60, 4, 8)
    losses = random_failures(topology, links=0.4, brokers=0.1, seed=8)
    left = topology.without(losses.links, losses.brokers)
    n = topology.brokers
    everybody = np.tile(np.arange(n), n)
    workload = Workload(np.full(n, 10), np.arange(n), np.arange(n + 1) * n, everybody)
    failures = Failures(losses.changes(0))
    d_dbr, fbr = (simulate(topology, workload, name, failures=failures) for name in ("d-dbr", "fbr"))
    assert set(zip(d_dbr.event.tolist(), d_dbr.broker.tolist(), strict=True)) == set(
        zip(*(axis.tolist() for axis in np.nonzero(left.distance >= 0)), strict=True)
    )
    kept = set(map(tuple, left.links.tolist()))

    def intact(a: int, b: int) -> bool:
        path = topology.path(a, b)
        steps = pairwise(path)
        return bool(left.up[a]) and all((min(step), max(step)) in kept for step in steps)

    expected = {(a, b) for a in range(n) for b in range(n) if intact(a, b)}
    assert set(zip(fbr.event.tolist(), fbr.broker.tolist(), strict=True)) == expected
    assert d_dbr.delivered_with_path == 1
    assert fbr.delivered_with_path == len(expected) / np.count_nonzero(left.distance >= 0)


def test_random_failures() -> None:
    topology = random_graph(100, 6, 1)
    some = random_failures(topology, links=0.5, brokers=0.1, seed=3)
    assert (len(some.links), len(some.brokers)) == (150, 10)
    again, other = (random_failures(topology, links=0.5, brokers=0.1, seed=seed) for seed in (3, 4))
    assert some.links.tolist() == again.links.tolist() != other.links.tolist()
    assert len(random_failures(topology).changes(0)) == 0
    assert len(random_failures(topology, brokers=1.0).brokers) == 100
    for bad in ({"links": -0.1}, {"brokers": 1.5}, {"links": float("nan")}):
        with pytest.raises(RoutingError, match="expected a share from 0 to 1"):
            random_failures(topology, **bad)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([Change(5, (0, 2))], "the link 0-2 cannot fail: there is none"),
        ([Change(5, 7)], "no broker 7"),
        ([Change(-1, 0)], "times lie between"),
        ([Change(5, 1), Change(6, 1)], "broker 1 cannot fail at 6: it is already down"),
        ([Change(5, (1, 0), up=True)], "the link 0-1 cannot be repaired at 5: it is not down"),
        ([Change(5, 1), Change(5, 1, up=True)], "broker 1 cannot be repaired at 5: it is not down"),
    ],
)
def test_impossible_schedules(changes: list[Change], message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        simulate(RING, one_event([1]), failures=Failures(changes))


def test_other_impossible_failures() -> None:
    with pytest.raises(RoutingError, match="detection"):
        Failures([], -1)
    with pytest.raises(RoutingError, match="down from the start"):
        simulate(RING.without(brokers=[2]), one_event([1]), failures=Failures([Change(3, 2)]))


@pytest.mark.parametrize("bad", [1.5, 2e9, np.float64(3), "5", None])
def test_times_are_whole_nanoseconds(bad: Any) -> None:
    """Seconds given as a float are refused, and not waited for."""
    losses = random_failures(RING, links=0.5, seed=1)
    for call in (lambda: Change(bad, 3), lambda: losses.changes(bad)):
        with pytest.raises(
            RoutingError, match=r"time: expected whole nanoseconds \(a second is 1_000_000_000\), found"
        ):
            call()
    with pytest.raises(RoutingError, match="detection: expected whole nanoseconds"):
        Failures([], bad)


def test_links_and_brokers_in_any_form() -> None:
    forms: list[Any] = [(1, 0), [1, 0], np.array([1, 0]), RING.links[0][::-1], (np.int64(1), np.int16(0))]
    assert {Change(np.int64(5), what) for what in forms} == {Change(5, (1, 0))}
    assert Change(5, np.int64(3)) == Change(5, 3)
    for bad in (None, "01", 1.5, [0], [0, 1, 2], [[0, 1]], (0, 1.0), [], (0, "1")):
        with pytest.raises(RoutingError, match="what: expected a broker number or a link"):
            Change(5, bad)
    found = simulate(RING, one_event([1]), costs=COSTS, failures=Failures(iter([Change(np.int64(50), RING.links[0])])))
    assert found.hops.tolist() == [3]


def test_pairs_with_a_path() -> None:
    """A broker that is down has none; one that FBR has lost the way to still has."""
    work = one_event([1, 2, 3], time=10)
    for what, protocol, shares in (
        ([2], "d-dbr", (2 / 3, 1)),
        ([2], "fbr", (2 / 3, 1)),
        ([(0, 3)], "d-dbr", (1, 1)),
        ([(0, 3)], "fbr", (2 / 3, 2 / 3)),
        ([2, (0, 3)], "d-dbr", (1 / 3, 1)),
    ):
        found = simulate(RING, work, protocol, COSTS, Failures([Change(0, each) for each in what]))
        assert (found.delivered, found.delivered_with_path) == shares
    alone = simulate(RING, work, failures=Failures([Change(0, 0)]))
    assert alone.delivered == 0
    assert math.isnan(alone.delivered_with_path)
