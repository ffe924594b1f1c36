"""Match-Ladder on a device: clauses that wait at blocks, tested up to the first predicate that fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumatch.device.candidates import OnDevice, found_in, waiting_runs
from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded
from gpumatch.device.resident import DeviceIndex, Resident
from gpumatch.kernels.cuda import ladder


def _candidates(card: Card, resident: Resident, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    a = index.arrays
    entries = (coded.event, coded.attribute, coded.code)
    runs = yield from waiting_runs(card, index, entries, coded.length, len(a["waiting"]))
    tests = card.xp.zeros(1, dtype=np.int64)
    events = (*coded.entries(), coded.rows, coded.width)
    clauses = (resident.clause_ptr, resident.clause_program, *resident.predicates)
    lists = (a["waiting"], a["rest"], tests)
    keys = yield from found_in(card, runs, ladder.test_waiting, *events, *clauses, *lists)
    index.work.count("tests", (yield tests))
    return keys


ON_DEVICE = OnDevice(_candidates)
