"""GEM: clauses as points in a triangle of low and high cells."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.charts import Bars, Chart, Heat
from gpumatch.index.flat import FlatIndex


def charts(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    """Clauses by low and high cell of the first dimension, and how many clauses each cell of any dimension leaves."""
    arrays, clauses = index.arrays, max(index.last - index.first, 1)
    dims = arrays["dims"].tolist()
    if not dims:
        return [Bars("no attribute is indexed", "", "clauses", {"": np.array([clauses])}, ["every event"])]
    if len(arrays["cell_ptr"]):
        triangle = _from_bits(arrays)
        left = [arrays["count"][first : last - 1] for first, last in pairwise(arrays["cell_ptr"].tolist())]
    else:
        triangles = [_from_cells(arrays, d) for d in range(len(dims))]
        triangle = triangles[0][0]
        left = [_touching(*it) for it in triangles]
    width = max(map(len, left))
    shares = np.stack([np.pad(row, (0, width - len(row))) for row in left]) / clauses
    of, low, high = f"clauses by their bounds on {names[dims[0]]}", "cell of the low bound", "of the high one"
    what, value = "clauses that a value leaves", "cell of the value"
    return [
        Heat(of, low, high, "clauses", triangle, len(triangle), len(triangle), upward=True),
        Heat(what, value, "dimension", "share of clauses", shares, width, len(dims)),
    ]


def _from_bits(arrays: dict[str, Array]) -> Array:
    """Clauses by last (rows) and first cell that they touch in the first dimension, without those it does not bind."""
    missing = int(arrays["cell_ptr"][1]) - 1  # after the cells of values
    words = len(arrays["bits"]) // max(len(arrays["summary"]), 1)
    found = np.zeros(missing * missing, np.int64)
    for tile in arrays["bits"].reshape(-1, int(arrays["cell_ptr"][-1]), max(words, 1)):
        touched = np.unpackbits(tile[: missing + 1].view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
        bound = touched[:missing, touched[:missing].any(axis=0) & ~touched[missing]]
        low, high = bound.argmax(axis=0), missing - 1 - bound[::-1].argmax(axis=0)
        found += np.bincount(high * missing + low, minlength=len(found))
    return found.reshape(missing, missing)


def _from_cells(arrays: dict[str, Array], d: int) -> tuple[Array, int]:
    """The same from one of the paper's triangles, and how many clauses its dimension does not bind."""
    cells = len(arrays["triangle_starts"]) // len(arrays["triangle_dims"])
    lists = cells * (cells + 1) // 2 + 1
    sizes = np.diff(arrays["triangle_ptr"][d * lists : (d + 1) * lists + 1])
    found = np.zeros((cells, cells), np.int64)
    found[np.tril_indices(cells)] = sizes[:-1]
    return found, int(sizes[-1])


def _touching(triangle: Array, free: int) -> Array:
    """How many clauses touch each cell: low bound at or before it, high bound at or after it."""
    touching: Array = triangle.cumsum(axis=1)[::-1].cumsum(axis=0)[::-1].diagonal() + free
    return touching
