"""Memory and work of the kernels of Scan and PstBloom, and of what is outside grids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.flat import FlatIndex
from gpumatch.kernels import count_lists
from gpumatch.kernels.count import WARP
from gpumatch.kernels.postings import LINE
from gpumatch.proof.roofline.cost import Cost
from gpumatch.proof.roofline.lists import Found, OnRoofline, blocks, cut, found_in
from gpumatch.proof.roofline.sample import ELEMENT, Sample, SlotWork, listing, marks_of, testing, warp_steps

_FILTER, _SECOND = 50, 44  # instructions of a thread, as in sample
_GROUP, _CUT = 200, 24  # an event in a line, and each cut that it looks at: estimated from PTX


class _Grouped(NamedTuple):
    """Entries of events, one more for each of their groups; cells in lines; and the cost of finding them."""

    entries: tuple[Array, ...]
    lines: int
    cells: Array
    costs: list[Cost]


def _grouped(sample: Sample, arrays: dict[str, Array]) -> _Grouped:
    lines = len(arrays["lines"]) // LINE
    items, per = lines * sample.events, 1 / sample.events
    cells = np.empty(items, np.uint8)
    if items == 0:
        return _Grouped(sample.entries, 0, cells, [])
    made, steps = tuple(np.empty(items, np.int32) for _ in range(3)), np.zeros(items, np.int32)
    compounds = (arrays["lines"], arrays["group_ptr"], arrays["cuts"])
    marks = (marks_of(sample.rows), marks_of(compounds[1]), marks_of(compounds[2]))
    sectors = count_lists.find_groups(sample.rows, sample.width, compounds, marks, steps, made, cells)
    touched = (
        sample.touched("rows", sectors[0], marks[0], own=True),
        sample.touched("group_ptr", sectors[1], marks[1]),
        sample.touched("cuts", sectors[2], marks[2]),
    )
    instructions = _GROUP * items + _CUT * warp_steps(steps)
    entries = tuple(np.concatenate(pair) for pair in zip(sample.entries, made, strict=True))
    moved = 12.0 * len(entries[2])
    costs = [
        Cost("postings.find_groups", 0.0, 13.0 * lines, touched=touched, instructions=instructions * per),
        Cost("joining of entries", moved * per, moved * per, instructions=3 * ELEMENT * len(entries[2]) * per),
    ]
    return _Grouped(entries, lines, cells, costs)


def postings(sample: Sample, index: FlatIndex) -> Found:
    a = index.arrays
    sample, runs, work = cut(sample, lambda it: blocks(it, a, _grouped(it, a).entries, len(a["heads"])))
    grouped = _grouped(sample, a)
    names = ("filters", "heads", "rest")
    lists, marks = tuple(a[name] for name in names), tuple(marks_of(a[name]) for name in names)
    marks = (*marks, marks_of(sample.rows), marks_of(grouped.cells))
    stamps = (sample.row_stamps(), np.full(len(marks[4]), -1, np.int64))
    in_lines = (grouped.lines, grouped.cells)
    keys, second, tiles, warps, sectors = count_lists.test_postings(
        tuple(runs), sample.rows, sample.width, a["cell_shift"], in_lines, lists, marks, stamps
    )
    touched = [sample.touched(*it) for it in zip(names, sectors, marks, strict=False)]
    touched.append(sample.touched("rows", sectors[3], marks[3], own=True))
    touched.append(sample.touched("cells", sectors[4], marks[4], own=True))
    slots = SlotWork(tiles, warps, tuple(touched), _FILTER * runs.slots + _SECOND * WARP * second)
    kernel = "postings.test_grouped" if grouped.lines else "postings.test_postings"
    items = len(grouped.entries[2])
    costs = grouped.costs + listing(sample, ("postings.count_runs", "postings.fill_runs"), items, runs, work)
    costs += testing(sample, kernel, runs, len(keys), slots)
    return found_in(sample, costs, (runs, keys))


ON_ROOFLINE = OnRoofline(postings)
