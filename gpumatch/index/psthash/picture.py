"""PstHash: grids of two attributes."""

from __future__ import annotations

import math

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.charts import Bars, Chart, Heat, resized, shares
from gpumatch.index.flat import FlatIndex
from gpumatch.index.postings.picture import tree

_SIDE = 64  # of a grid; larger ones are averaged


def charts(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    """The fullest grid, and how many postings the cells of all grids have; the tree if there are no grids."""
    arrays = index.arrays
    if len(arrays["grid_facts"]) == 0:
        return tree(index, names, counts)
    facts, cell_ptr = arrays["grid_facts"].astype(np.int64), arrays["cell_ptr"].astype(np.int64)
    starts = np.append(facts >> 24, len(cell_ptr) - 1)
    g = int(np.diff(cell_ptr[starts]).argmax())
    sizes = np.diff(cell_ptr)
    grid = sizes[starts[g] : starts[g + 1]].reshape(-1, 1 << (int(facts[g]) & 0xFF))
    sides = (int(np.searchsorted(arrays["grid_ptr"], g, side="right")) - 1, int(arrays["grid_partner"][g]))
    used = []
    for attribute, shift in zip(sides, (16, 8), strict=True):
        used.append(((int(counts[attribute]) - 1) >> (int(facts[g]) >> shift & 0xFF)) + 1)
        side = min(len(grid), _SIDE)  # rows are done first, then columns
        grid = resized(grid, side)[: math.ceil(used[-1] * side / len(grid))].T
    y, x = (f"block of {names[attribute]}" for attribute in sides)
    title = f"the fullest of {len(facts):,} grids, {used[0]} × {used[1]} cells"
    kept = f"{cell_ptr[-1]:,} postings in grids, {len(arrays['heads']):,} outside"
    return [
        Heat(title, x, y, "postings per cell", grid, used[1], used[0]),
        Bars(kept, "postings of a cell", "share of all cells", *shares(sizes)),
    ]
