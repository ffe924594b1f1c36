"""TAMA on a device: hits are counted in hash tables of events and clauses."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumatch.device.candidates import OnDevice, found_in, one_each, runs_of
from gpumatch.device.card import Card, Job, OverBudget
from gpumatch.device.encode import Coded
from gpumatch.device.resident import DeviceIndex, Resident
from gpumatch.device.verify import distinct, rows_of, verified
from gpumatch.index.tama import Tama, count_false, weights
from gpumatch.kernels.cuda import postings, tama, work


def _candidates(card: Card, resident: Resident, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    a, xp = index.arrays, card.xp
    entries = (coded.event, coded.attribute, coded.code, resident.multi)
    lines = (a["directory"], a["cell_ptr"], a["cells"], a["node_ptr"])
    runs = yield from runs_of(card, len(coded.code), (tama.count_nodes, tama.fill_nodes), *entries, *lines)
    room = 4 if len(a["owner"]) else 2
    buckets = room * runs.slots
    if 8 * buckets > card.budget and coded.length > 1:
        raise OverBudget(f"counters of {coded.length} events need {8 * buckets} bytes")
    table, hits = xp.zeros(buckets, dtype=np.uint32), xp.zeros(buckets, dtype=np.uint32)
    event_slot = runs.slot_ptr[xp.concatenate([xp.zeros(1, dtype=np.int64), runs.ends])[coded.ptr]]
    lists = (index.flat.first, a["postings"], a["needed"], a["owner"])
    keys = yield from found_in(card, runs, tama.count_hits, *lists, event_slot, room, table, hits)
    rest = one_each(card, coded.length, len(a["rest"]))
    nothing = (xp.empty(0, dtype=np.uint8), xp.empty(0, dtype=np.uint32), xp.empty(0, dtype=np.uint64))
    keys += yield from found_in(card, rest, postings.test_postings, coded.rows, coded.width, *nothing, a["rest"])
    return keys


def _count_false(
    card: Card, resident: Resident, rows_held: Any, index: DeviceIndex, coded: Coded, answers: list[Any]
) -> Job[None]:
    """Count the false answers to some of the events, which an approximate index may give."""
    params, xp = index.flat.params, card.xp
    if not (isinstance(params, Tama) and params.approximate):
        return
    weight = card.upload(weights(index.work, coded.length))
    keys = xp.concatenate([*answers, xp.empty(0, dtype=np.int64)])
    keys = keys[xp.flatnonzero(weight[keys >> 32])]
    true = yield from verified(card, resident, coded, keys | work.UNDECIDED)
    checked, weighed = [], []
    for some in (keys, true):
        rows = yield from rows_of(card, rows_held, some)
        rows = yield from distinct(card, xp.sort(rows))
        checked.append(len(rows))
        weighed.append((yield weight[rows >> 32].sum(keepdims=True)))
    count_false(index.work, checked[0], weighed[0], weighed[0] - weighed[1])


ON_DEVICE = OnDevice(_candidates, afterwards=_count_false)
