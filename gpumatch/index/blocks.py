"""Postings at the blocks of codes that a predicate covers: one tree per attribute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpumatch.arrays import Array, pointers
from gpumatch.arrayspec import Problem, between
from gpumatch.kernels.ladder import fill_firsts
from gpumatch.kernels.postings import count_postings, pack_directory


def by_block(access: Array, predicates: tuple[Array, ...], depth: Array, levels: Array) -> tuple[Array, Array, Array]:
    """Directory, ends of blocks, and for each block the indexes ``i`` whose predicate at ``access[i]`` covers it.

    ``depth``: bits of each attribute's codes; ``levels``: levels of its tree.
    """
    base = pointers((2 << levels.astype(np.int64)) - 1)
    directory = (base[:-1].copy(), levels, depth - levels)
    node_ptr = np.zeros(base[-1] + 1, np.int64)
    count_postings(access, predicates, directory, node_ptr)
    np.cumsum(node_ptr, out=node_ptr)
    waiting = np.empty(node_ptr[-1], np.int32)
    fill_firsts(access, predicates, directory, node_ptr[:-1].copy(), waiting)
    packed = np.empty(2 * len(depth), np.uint64)
    pack_directory(directory, node_ptr, packed)
    return packed, node_ptr, waiting


def tree_problems(directory: Array, counts: Array, nodes: int) -> Iterator[Problem]:
    """What is wrong with a packed directory of trees over ``counts`` codes each, with ``nodes`` nodes in all."""
    base, facts = directory.view(np.int64).reshape(-1, 2).T
    mask, levels, shift = (facts >> 32) & 0xFFFF_FFFF, (facts >> 16) & 0xFFFF, facts & 0xFFFF
    yield from between("directory", shift, 0, 31)
    yield from between("directory", levels, 0, 31)
    used = np.flatnonzero(mask)
    base, mask, levels = base[used], mask[used], levels[used]
    yield from between("directory", base, 0, nodes - ((2 << levels) - 1))
    yield from between("directory", mask, 0, (2 << levels) - 1)
    yield from between("directory", (counts[used] - 1) >> shift[used], 0, (1 << levels) - 1)
