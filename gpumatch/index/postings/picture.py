"""Scan: lists by attribute; PstBloom: the blocks of a tree over its codes."""

from __future__ import annotations

import math

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.charts import Bars, Chart, Heat, by_attribute, resized
from gpumatch.index.flat import FlatIndex
from gpumatch.index.postings import Scan
from gpumatch.kernels.postings import LINE

_COLUMNS = 256  # of a line of codes; longer ones are averaged


def charts(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    return (_lists if isinstance(index.params, Scan) else tree)(index, names, counts)


def roots(arrays: dict[str, Array]) -> Array:
    """The first node of each attribute, then of each group, and the end of all nodes."""
    return np.append(arrays["directory"][::2].astype(np.int64), len(arrays["node_ptr"]) - 1)


def _lists(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    sizes = np.diff(index.arrays["node_ptr"][roots(index.arrays)]).tolist()
    rest = len(index.arrays["rest"])
    return [by_attribute("postings that an event with the attribute meets", "postings", names, sizes, rest)]


def tree(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    """The tree with the most postings, and the postings that an event meets on the way to each of its leaves."""
    arrays = index.arrays
    own = len(counts)
    counts = np.concatenate([counts, np.diff(arrays["group_ptr"])])  # of attributes, then of groups
    root = roots(arrays)
    sizes = np.diff(arrays["node_ptr"][root])
    a = int(sizes.argmax())
    levels = int(root[a + 1] - root[a]).bit_length() - 1
    starts = [int(root[a]) + (1 << level) - 1 for level in range(levels + 1)]
    lists = [np.diff(arrays["node_ptr"][at : at + (1 << level) + 1]) for level, at in enumerate(starts)]
    shift = int(arrays["directory"][2 * a + 1]) & 0xFFFF
    width = min(1 << levels, _COLUMNS)
    codes = (1 << (levels + shift)) / width  # of a column
    used = math.ceil(int(counts[a]) / codes)
    values = np.stack([resized(blocks, width)[:used] for blocks in lists])
    title, trees = "the tree", f"{own:,} attributes"
    if len(sizes) > own:
        title += f" ({sizes[own:].sum():,} of {sizes.sum():,} postings are in groups)"
        trees += f" and {np.count_nonzero(counts[own:]):,} groups"
    x = f"code of {_named(names, arrays, a)}, the fullest of {trees}"
    return [
        Heat(title, x, "level", "postings per block", values, used * codes, levels + 1),
        Bars("postings that an event meets", x, "postings", {"": values.sum(axis=0)}, width=codes),
    ]


def _named(names: list[str], arrays: dict[str, Array], a: int) -> str:
    """An attribute, or a group, which is numbered after all attributes."""
    if a < len(names):
        return names[a]
    owners, partners, starts = arrays["lines"].reshape(-1, LINE).T
    line = int(np.searchsorted(starts, a - len(names), side="right")) - 1
    return f"{names[partners[line]]} for one {names[owners[line]]}"
