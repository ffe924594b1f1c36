"""Which shard a subscription goes to, decided for each one alone: by a key that is close for similar ones.

The key orders subscriptions as Sieve's plan does. A sample shows where to cut it into shards of equal size. Its last
bits are a hash of the id, so that even subscriptions with equal conditions can be split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.table import encode_block
from gpumatch.routing.shards.grid import Grid
from gpumatch.routing.sieve.placing import Candidates, Ordering
from gpumatch.store.source import Source

_LEVEL, _MIDDLE, _HASH = 6, 18, 16  # bits


@dataclass(frozen=True)
class Placement:
    """``cuts`` are keys: shard ``n`` has those below cut ``n`` and not below the one before."""

    ordering: Ordering
    cuts: Array  # int64

    @classmethod
    def of(cls, grid: Grid, sample: Source, shards: int, slack: tuple[float, float]) -> Placement:
        candidates = _candidates(grid, sample)
        ordering = Ordering.of(candidates, len(sample), len(grid.attributes), shards, slack)
        keys = np.sort(_keys(ordering, candidates, sample))
        at = np.arange(1, shards) * len(keys) // shards
        return cls(ordering, keys[at] if len(keys) else np.zeros(shards - 1, np.int64))

    def shards(self, grid: Grid, source: Source) -> Array:
        """The shard of each subscription."""
        keys = _keys(self.ordering, _candidates(grid, source), source)
        return np.searchsorted(self.cuts, keys, "right").astype(np.int32)

    def tree(self, grid: Grid, source: Source) -> Array:
        """The column that each subscription is placed by; -1: none."""
        return self.ordering.keys(_candidates(grid, source), len(source))[0]


def _candidates(grid: Grid, source: Source) -> Candidates:
    attributes = grid.attributes.covering(source.block.columns)
    conditions = grid.conditions(*encode_block(source.block, attributes))
    return Candidates.of(conditions, len(source), len(grid.attributes))


def _keys(ordering: Ordering, candidates: Candidates, source: Source) -> Array:
    _, (rank, level, middle) = ordering.keys(candidates, len(source))
    return ((rank << _LEVEL | level) << _MIDDLE | middle) << _HASH | hashes(source.ids)


def hashes(ids: Any) -> Array:
    """Sixteen bits of each id, the same on every machine."""
    return np.array([crc32(str(name).encode()) & 0xFFFF for name in ids.to_pylist()], np.int64)
