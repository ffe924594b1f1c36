"""Memory and work of the PstHash kernels."""

from __future__ import annotations

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.flat import FlatIndex
from gpumatch.index.postings.roofline import postings
from gpumatch.kernels import count, count_lists
from gpumatch.kernels.count import WARP
from gpumatch.proof.roofline.lists import Found, OnRoofline, cut, found_in
from gpumatch.proof.roofline.sample import Runs, RunWork, Sample, SlotWork, listing, marks_of, testing, warp_steps

_PAIR, _SECOND_PAIR, _HEAD = 31, 41, 13  # instructions of a thread, as in sample


def _cells(sample: Sample, arrays: dict[str, Array]) -> tuple[Runs, RunWork]:
    names = ("grid_ptr", "grid_partner", "grid_facts", "cell_ptr")
    grids = tuple(arrays[name] for name in names)
    marks = (marks_of(grids[0]), marks_of(grids[1]), marks_of(sample.rows), marks_of(grids[2]), marks_of(grids[3]))
    items = len(sample.coded.code)
    probes, steps = np.zeros(items, np.int32), np.zeros(items, np.int32)
    *runs, sectors = count.reach_cells(
        sample.coded.ptr,
        sample.entries,
        sample.rows,
        sample.width,
        sample.attributes.multi,
        grids,
        marks,
        probes,
        steps,
    )
    named = zip(("grid_ptr", "grid_partner", "rows", "grid_facts", "cell_ptr"), sectors, marks, strict=True)
    touched = tuple(sample.touched(*it, own=it[0] == "rows") for it in named)
    found = Runs(*runs)
    asked, visited = warp_steps(probes), warp_steps(steps)
    work = 95 * items + 35 * asked + 100 * visited
    return found, RunWork(12, touched, work, work + 40 * items + 25 * visited + 20 * len(found.length))


def _count(sample: Sample, index: FlatIndex) -> Found:
    a = index.arrays
    outside = postings(sample, index)
    if len(a["pairs"]) == 0:
        return outside
    sample, runs, work = cut(outside.sample, lambda it: _cells(it, a))
    if sample.events < outside.sample.events:
        outside = postings(sample, index)
    marks = (marks_of(a["pairs"]), marks_of(sample.rows))
    keys, second, tiles, warps, sectors = count_lists.test_pairs(
        tuple(runs), sample.rows, sample.width, a["filter_shift"], a["pairs"], marks, sample.row_stamps()
    )
    touched = (sample.touched("pairs", sectors[0], marks[0]), sample.touched("rows", sectors[1], marks[1], own=True))
    instructions = _PAIR * runs.slots + WARP * (_SECOND_PAIR * second + _HEAD * warps)
    slots = SlotWork(tiles, warps, touched, instructions)
    costs = listing(sample, ("psthash.count_cells", "psthash.fill_cells"), len(sample.coded.code), runs, work)
    costs += testing(sample, "psthash.test_pairs", runs, len(keys), slots)
    inside = found_in(sample, costs, (runs, keys))
    both = np.concatenate([outside.keys, keys])
    return Found(sample, outside.costs + costs, both, outside.pieces + inside.pieces)


ON_ROOFLINE = OnRoofline(_count)
