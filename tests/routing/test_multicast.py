"""DestinationLists counted for many events at once, against messages followed one by one."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumatch.errors import RoutingError
from gpumatch.routing.overlays import multicast as module
from gpumatch.routing.overlays.graphs import random_graph
from gpumatch.routing.overlays.multicast import DestinationLists, destination_lists
from gpumatch.routing.overlays.topology import Topology

Row = tuple[int, int, int, int, int]


def followed(topology: Topology, sources: list[int], wanted: list[set[int]]) -> list[Row]:
    """Event, sender, receiver, size, hop: every broker splits what it gets."""
    sent = []
    for event, (source, brokers) in enumerate(zip(sources, wanted, strict=True)):
        waiting = [(source, {to for to in brokers if topology.distance[source, to] >= 0}, 1)]
        for at, lists, hop in waiting:
            for to, part in topology.split(at, lists - {at}).items():
                sent.append((event, at, to, len(part), hop))
                waiting.append((to, set(part.tolist()), hop + 1))
    return sorted(sent)


def rows(messages: DestinationLists) -> list[Row]:
    columns = (messages.event, messages.sender, messages.receiver, messages.size, messages.hop)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, list[int], list[set[int]]]:
    brokers = draw(st.integers(1, 9))
    pairs = list(combinations(range(brokers), 2))
    links = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    up = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=brokers, max_size=brokers))
    broker = st.integers(0, brokers - 1)
    events = draw(st.lists(st.tuples(broker, st.sets(broker)), max_size=6))
    return Topology(brokers, links, np.array(up)), [event[0] for event in events], [event[1] for event in events]


@pytest.mark.parametrize("cells", [1, 20, module.CELLS])
@given(cases())
def test_messages_are_those_of_brokers_that_split(cells: int, case: tuple[Topology, list[int], list[set[int]]]) -> None:
    topology, sources, wanted = case
    matrix = np.zeros((len(sources), topology.brokers), bool)
    for event, brokers in enumerate(wanted):
        matrix[event, list(brokers)] = True
    lines = [sorted(brokers) for brokers in wanted]
    offsets = np.cumsum([0, *map(len, lines)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CELLS", cells)
        found = [
            destination_lists(topology, sources, matrix),
            destination_lists(topology, sources, (offsets, list(chain(*lines)))),
        ]
    parted = [
        (event, to)
        for event, (source, line) in enumerate(zip(sources, lines, strict=True))
        for to in line
        if topology.distance[source, to] < 0
    ]
    expected = sorted(followed(topology, sources, wanted), key=lambda row: (row[0], row[2]))
    for messages in found:
        assert rows(messages) == expected
        assert len(messages) == len(expected)
        assert list(zip(messages.unreachable_event, messages.unreachable, strict=True)) == parted


def test_a_line() -> None:
    line = Topology(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    messages = destination_lists(line, [1, 4], (np.array([0, 4, 4]), np.array([0, 1, 3, 4])))
    assert rows(messages) == [(0, 1, 0, 1, 1), (0, 1, 2, 2, 1), (0, 2, 3, 2, 2), (0, 3, 4, 1, 3)]
    assert messages.mean_list == 1.5
    assert messages.mean_source_list == 1.5
    assert len(messages.unreachable) == 0


def test_a_destination_named_twice_is_one() -> None:
    messages = destination_lists(Topology(2, [(0, 1)]), [0], ([0, 3], [1, 1, 0]))
    assert rows(messages) == [(0, 0, 1, 1, 1)]


def test_a_source_that_is_down_reaches_nobody() -> None:
    topology = Topology(3, [(0, 1), (1, 2)]).without(brokers=[0])
    messages = destination_lists(topology, [0, 1], np.ones((2, 3), bool))
    assert rows(messages) == [(1, 1, 2, 1, 1)]
    assert messages.unreachable_event.tolist() == [0, 0, 0, 1]
    assert messages.unreachable.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("degree", [3, 6])
def test_if_all_are_interested_the_mean_list_is_the_mean_distance(degree: int) -> None:
    """Each broker gets one message, and stands in as many lists as it is hops away."""
    overlay = random_graph(100, degree, seed=7)
    messages = destination_lists(overlay, np.arange(100), np.ones((100, 100), bool))
    assert len(messages) == 100 * 99
    assert messages.mean_list == pytest.approx(overlay.distance.sum() / (100 * 99))
    assert messages.mean_source_list == pytest.approx(100 * 99 / overlay.degrees.sum())


def test_the_lists_of_700_brokers_have_the_papers_length() -> None:
    overlay = random_graph(700, 6, seed=1)
    sources = np.random.default_rng(1).integers(0, 700, 300)
    assert destination_lists(overlay, sources, np.ones((300, 700), bool)).mean_list == pytest.approx(3.8, rel=0.05)


@pytest.mark.parametrize("topology", [Topology(0, []), Topology(3, [(0, 1)])])
def test_without_messages(topology: Topology) -> None:
    messages = destination_lists(topology, [], np.empty((0, topology.brokers), bool))
    assert len(messages) == 0
    assert np.isnan(messages.mean_list)
    assert np.isnan(messages.mean_source_list)
    assert len(destination_lists(topology, [], (np.array([0]), np.array([], np.int64)))) == 0


@pytest.mark.parametrize(
    ("sources", "destinations", "message"),
    [
        ([3], np.ones((1, 3), bool), "sources: there is no broker 3: they are numbered 0 to 2"),
        ([-1], np.ones((1, 3), bool), "sources: there is no broker -1"),
        ([0.5], np.ones((1, 3), bool), "sources: expected a broker per event, found float64"),
        (0, np.ones((1, 3), bool), "sources: expected a broker per event"),
        ([0], np.ones((2, 3), bool), r"expected bools of shape \(1, 3\) or a tuple"),
        ([0], np.ones((1, 3)), "found float64"),
        ([0], ([0, 1],), "expected a tuple"),
        ([0], ([0], [1]), "expected 2 offsets"),
        ([0], ([0, 2], [1]), "must rise from 0 to the number of brokers, 1"),
        ([0], ([1, 1], [1]), "must rise from 0"),
        ([0, 0], ([0, 2, 1], [1]), "must rise from 0"),
        ([0], ([0, 1], [3]), "destinations: there is no broker 3"),
    ],
)
def test_errors(sources: object, destinations: object, message: str) -> None:
    with pytest.raises(RoutingError, match=message):
        destination_lists(Topology(3, [(0, 1)]), sources, destinations)


def test_repr_is_short() -> None:
    found = destination_lists(Topology(4, [(0, 1), (1, 2)]), [0], np.ones((1, 4), bool))
    assert repr(found) == "<DestinationLists: 2 messages, 1.50 destinations each, 1 destinations unreachable>"
