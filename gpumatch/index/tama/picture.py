"""TAMA: trees of all predicates, laid out in bricks of four levels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.charts import Bars, Chart
from gpumatch.index.flat import FlatIndex

_HEIGHTS = np.array([3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])  # of the nodes of a brick; the last is not used


def charts(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    """Postings by level, certain and verified ones; predicates of single codes separately."""
    arrays = index.arrays
    directory = arrays["directory"].reshape(-1, 4)
    ends = [*directory[1:, 0].tolist(), len(arrays["node_ptr"]) - 1]
    sums: dict[int, Array] = {}
    singles = np.zeros(2, np.int64)
    for (first, _, top, codes), end in zip(directory.tolist(), ends, strict=True):
        for level, found in _levels(arrays, first, top):
            sums[level] = sums.get(level, 0) + found
        if codes >= 0:
            singles += _certain(arrays, codes, end, np.zeros(end - codes, np.int64), 1)[0]
    names = [str(level) for level in sorted(sums)] + ["="] * bool(singles.any())
    certain, verified = np.array([sums[level] for level in sorted(sums)] + [singles] * bool(singles.any())).T
    series = {"certain": certain, "verified": verified} if verified.any() else {"": certain}
    return [Bars("postings of all attributes", "level: how often codes are halved", "postings", series, names)]


def _levels(arrays: dict[str, Array], first: int, top: int) -> Iterator[tuple[int, Array]]:
    """Levels of a tree whose last finest cell is ``top``: certain and verified postings of each."""
    level = top.bit_length()
    while level >= 0:
        last = first + 16 * ((top >> 3) + 1)
        heights = np.tile(_HEIGHTS, (last - first) // 16)
        for height, found in enumerate(_certain(arrays, first, last, heights, 4)[: level + 1]):
            yield level - height, found
        first, top, level = last, top >> 4, level - 4


def _certain(arrays: dict[str, Array], first: int, last: int, group: Array, groups: int) -> Array:
    """Certain and verified postings of the nodes ``first:last``, by group of nodes."""
    ptr = arrays["node_ptr"][first : last + 1].astype(np.int64)
    marks = np.concatenate([[0], np.cumsum(arrays["postings"][ptr[0] : ptr[-1]] & 1, dtype=np.int64)])
    verified = np.bincount(group, np.diff(marks[ptr - ptr[0]]), groups).astype(np.int64)
    return np.stack([np.bincount(group, np.diff(ptr), groups).astype(np.int64) - verified, verified], axis=1)
