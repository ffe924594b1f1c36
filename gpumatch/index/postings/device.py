"""Scan and PstBloom on a device: postings by block, and what they leave to be verified."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumatch.device.candidates import OnDevice, found_in, waiting_runs
from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded
from gpumatch.device.resident import DeviceIndex, Resident
from gpumatch.kernels.cuda import postings
from gpumatch.kernels.postings import LINE


def candidates(card: Card, resident: Resident, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    a, xp = index.arrays, card.xp
    entries = (coded.event, coded.attribute, coded.code)
    lists: tuple[Any, ...] = (a["cell_shift"], a["filters"], a["heads"], a["rest"])
    kernel = postings.test_postings
    lines = len(a["lines"]) // LINE
    if lines:
        items = [xp.empty(lines * coded.length, dtype=np.int32) for _ in entries]
        cells = xp.empty(lines * coded.length, dtype=np.uint8)
        compounds = (a["lines"], a["group_ptr"], a["cuts"])
        card.launch(postings.find_groups, len(cells), coded.rows, coded.width, *compounds, *items, cells)
        entries = tuple(xp.concatenate(pair) for pair in zip(entries, items, strict=True))
        lists, kernel = (*lists, lines, cells), postings.test_grouped
    runs = yield from waiting_runs(card, index, entries, coded.length, len(a["heads"]))
    keys = yield from found_in(card, runs, kernel, coded.rows, coded.width, *lists)
    return keys


ON_DEVICE = OnDevice(candidates)
