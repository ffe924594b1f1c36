"""Memory and work of the TAMA kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.index.flat import FlatIndex
from gpumatch.kernels import count, count_lists
from gpumatch.kernels.count import SECTOR, WARP
from gpumatch.proof.roofline.cost import Cost
from gpumatch.proof.roofline.lists import Found, OnRoofline, cut, found_in
from gpumatch.proof.roofline.sample import (
    BUDGET,
    ELEMENT,
    Runs,
    RunWork,
    Sample,
    SlotWork,
    listing,
    marks_of,
    testing,
    warp_steps,
)

_HIT, _PROBE = 28, 29  # instructions of a thread, as in sample


def _nodes(sample: Sample, arrays: dict[str, Array]) -> tuple[Runs, RunWork]:
    line = (arrays["cell_ptr"], arrays["cells"])
    names = ("directory", "cells", "node_ptr")
    marks, steps = tuple(marks_of(arrays[name]) for name in names), np.zeros(len(sample.coded.code), np.int32)
    *runs, sectors = count.reach_nodes(
        sample.entries,
        sample.attributes.multi,
        arrays["directory"],
        line,
        arrays["node_ptr"],
        count_lists.LIST,
        marks,
        steps,
    )
    touched = tuple(sample.touched(*it) for it in zip(names, sectors, marks, strict=True))
    found, levels, items = Runs(*runs), warp_steps(steps), len(steps)
    work = RunWork(8, touched, 90 * items + 48 * levels, 130 * items + 74 * levels + 20 * len(found.length))
    return found, work


def _count(sample: Sample, index: FlatIndex) -> Found:
    a = index.arrays
    sample, runs, work = cut(sample, lambda it: _nodes(it, a))
    room = 4 if len(a["owner"]) else 2
    batch = sample.batch
    while 8 * room * runs.slots * batch > BUDGET * sample.events and batch > 1:
        batch //= 2  # as the device does where tables are too large
    sample = replace(sample, batch=batch)
    event_slot = pointers(np.bincount(runs.event, runs.length, sample.events).astype(np.int64))
    names = ("postings", "needed", "owner")
    marks = tuple(marks_of(a[name]) for name in names)
    buckets = np.zeros(room * runs.slots, np.uint32)
    tables = (marks_of(buckets), marks_of(buckets))
    keys, atomics, steps, tiles, warps, sectors = count_lists.count_hits(
        tuple(runs), event_slot, index.first, room, a["postings"], a["needed"], a["owner"], (*marks, *tables)
    )
    touched = [sample.touched(*it) for it in zip(names, sectors, marks, strict=False)]
    touched.append(sample.touched("tables", sectors[3], np.concatenate(tables), own=True))
    work_of_hits = _HIT * runs.slots + _PROBE * WARP * steps
    filled = SECTOR * touched[-1].distinct
    slots = SlotWork(tiles, warps, tuple(touched), work_of_hits, written=filled, atomics=atomics)
    costs = listing(sample, ("tama.count_nodes", "tama.fill_nodes"), len(sample.coded.code), runs, work)
    zeros = 2 * buckets.nbytes / sample.events
    costs.append(Cost("zeroing of tables", written=zeros, instructions=ELEMENT * zeros / 16))
    costs += testing(sample, "tama.count_hits", runs, len(keys), slots)
    rest = Runs(*(np.zeros(0, np.int64),) * 3).with_rest(sample.events, 0, len(a["rest"]))
    every = np.repeat(np.arange(sample.events), len(a["rest"])) << 32
    rest_keys = every | np.tile(a["rest"].astype(np.int64), sample.events) | count.UNDECIDED
    every_slot = SlotWork(-(-rest.slots // count.BLOCK), -(-rest.slots // WARP), (), 0.0)
    costs += testing(sample, "postings.test_postings", rest, rest.slots, every_slot)
    return found_in(sample, costs, (runs, keys), (rest, rest_keys))


ON_ROOFLINE = OnRoofline(_count)
