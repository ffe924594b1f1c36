"""A-Tree on a device: words of 64 events for every node, level by level."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from gpumatch.device.candidates import OnDevice, runs_of, tile_runs
from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded
from gpumatch.device.resident import DeviceIndex, Resident
from gpumatch.kernels.cuda import atree, postings
from gpumatch.kernels.words import EVENTS

_WORD = 64  # events that a word of a node has bits for
_ALL = (1 << _WORD) - 1


def _nodes(index: DeviceIndex) -> int:
    """How many nodes have words."""
    return len(index.flat.arrays["parent_ptr"]) - 1


def _candidates(card: Card, resident: Resident, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    """Clauses that events satisfy; nothing is left to decide."""
    a, host, xp = index.arrays, index.flat.arrays, card.xp
    value = yield from _leaves(card, index, coded)
    nodes, words = _nodes(index), -(-coded.length // _WORD)
    levels = host["level_ptr"].tolist()
    inner, programs = levels[-1], (a["unit_ptr"], a["items"], a["base"], value)
    for first, last in pairwise(levels):
        card.launch(atree.evaluate_nodes, (last - first) * words, first, last, nodes - inner, words, *programs)
    clauses = index.flat.last - index.flat.first
    step = max(card.budget // (8 * words), 1)
    keys = []
    for clause in range(0, clauses, step):
        size = min(step, clauses - clause)
        out = xp.empty(size * words, dtype=np.uint64)
        counts = xp.empty(card.tiles(len(out)), dtype=np.int64)
        units = (inner + clause, inner + clause + size)
        card.launch(atree.evaluate_clauses, len(out), *units, words, *programs, out, counts)
        ends = xp.cumsum(counts)
        listed = xp.empty((yield ends[-1:]), dtype=np.int64)
        card.launch(
            atree.list_clauses, len(out) if len(listed) else 0, out, index.flat.first + clause, words, ends, listed
        )
        keys.append(listed)
    index.work.count("evaluated", (inner + clauses) * -(-coded.length // EVENTS))
    return keys


def _leaves(card: Card, index: DeviceIndex, coded: Coded) -> Job[Any]:
    """Words of all nodes; only those of predicates are set."""
    a, host, xp = index.arrays, index.flat.arrays, card.xp
    nodes, words = _nodes(index), -(-coded.length // _WORD)
    value = xp.empty(nodes * words, dtype=np.uint64)
    value[: (nodes - int(host["level_ptr"][-1])) * words] = 0
    always = int(index.flat.meta["always"])
    if always >= 0:
        value[always * words : (always + 1) * words] = np.uint64(_ALL)
        value[(always + 1) * words - 1 : (always + 1) * words] = np.uint64(_ALL >> (-coded.length % _WORD))
    entries = xp.arange(len(coded.code), dtype=np.int32)
    args = (entries, coded.attribute, coded.code, a["directory"], a["node_ptr"])
    runs = yield from runs_of(card, len(entries), (postings.count_runs, postings.fill_runs), *args)
    if runs.slots:
        tile_run = tile_runs(card, runs.slot_ptr, 0, runs.slots)
        pieces = (a["waiting"], a["piece_node"], a["piece_lo"], a["piece_hi"])
        card.launch(
            atree.set_leaves, runs.slots, tile_run, *runs.arrays(), coded.event, coded.code, *pieces, words, value
        )
    return value


def _events(index: DeviceIndex, budget: int) -> int:
    return _WORD * max(budget // (8 * max(_nodes(index), 1)), 1)


ON_DEVICE = OnDevice(_candidates, decides=True, events=_events)
