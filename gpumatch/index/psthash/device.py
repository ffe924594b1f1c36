"""PstHash on a device: cells of grids, and postings of the clauses outside them."""

from __future__ import annotations

from typing import Any

from gpumatch.device.candidates import OnDevice, found_in, runs_of
from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded
from gpumatch.device.resident import DeviceIndex, Resident
from gpumatch.index.postings.device import candidates as outside
from gpumatch.kernels.cuda import psthash


def _candidates(card: Card, resident: Resident, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    a = index.arrays
    keys = yield from outside(card, resident, index, coded)
    if len(a["pairs"]) == 0:
        return keys
    entries = (coded.ptr, coded.event, coded.attribute, coded.code, coded.rows, coded.width, resident.multi)
    grids = (a["grid_ptr"], a["grid_partner"], a["grid_facts"], a["cell_ptr"])
    runs = yield from runs_of(card, len(coded.code), (psthash.count_cells, psthash.fill_cells), *entries, *grids)
    lists = (a["filter_shift"], a["pairs"])
    keys += yield from found_in(card, runs, psthash.test_pairs, coded.rows, coded.width, *lists)
    return keys


ON_DEVICE = OnDevice(_candidates)
