"""Subscriptions on their way into an index, and several of them as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.subscriptions.block import Attributes, Block
from gpumatch.subscriptions.destinations import Destinations, join_destinations
from gpumatch.subscriptions.merge import join_blocks
from gpumatch.subscriptions.weights import join_weights


@dataclass(frozen=True)
class Source:
    """Subscriptions that are not indexed yet: ids and texts as Arrow arrays (a null text: known by predicates only)."""

    ids: Any
    texts: Any
    block: Block
    destinations: Destinations | None = None
    weights: Array | None = None  # float64

    def __len__(self) -> int:
        return self.block.length


def join_sources(attributes: Attributes, sources: Sequence[Source], keeps: Sequence[Array | None]) -> Source:
    """One source of all rows that are to be kept, in order."""
    if len(sources) == 1 and keeps[0] is None:
        return sources[0]
    ids, texts, destinations, weights = [], [], [], []
    for source, keep in zip(sources, keeps, strict=True):
        mask = None if keep is None else pa.array(keep)
        ids.append(source.ids if mask is None else source.ids.filter(mask))
        held = pa.nulls(len(source), pa.large_string()) if source.texts is None else source.texts
        texts.append(held if mask is None else held.filter(mask))
        kept = None if source.destinations is None else source.destinations.filter(keep)
        destinations.append((kept, len(ids[-1])))
        held_weights = source.weights if keep is None or source.weights is None else source.weights[keep]
        weights.append((held_weights, len(ids[-1])))
    text = pa.concat_arrays(texts)
    block = join_blocks(attributes, [source.block for source in sources], keeps)
    texts_held = None if text.null_count == len(text) else text
    return Source(pa.concat_arrays(ids), texts_held, block, join_destinations(destinations), join_weights(weights))
