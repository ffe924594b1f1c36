"""Subscriptions on their way into an index, and how several sets of them are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.store.ids import Lookup
from gpumatch.store.lazy import lazy
from gpumatch.subscriptions.block import Attributes, Block
from gpumatch.subscriptions.destinations import Destinations, join_destinations
from gpumatch.subscriptions.merge import join_blocks
from gpumatch.subscriptions.weights import join_weights


@dataclass(frozen=True)
class Source:
    """Subscriptions that are not indexed yet: ids and texts as Arrow arrays (null text: only predicates are known)."""

    ids: Any
    texts: Any
    block: Block
    destinations: Destinations | None = None
    weights: Array | None = None  # float64

    def __len__(self) -> int:
        return self.block.length

    @lazy
    def lookup(self) -> Lookup:
        return Lookup(self.ids)


def join_sources(attributes: Attributes, sources: Sequence[Source], keeps: Sequence[Array | None]) -> Source:
    """One source of all rows to keep, in order."""
    if len(sources) == 1 and keeps[0] is None:
        return sources[0]
    ids, texts, destinations, weights = [], [], [], []
    for source, keep in zip(sources, keeps, strict=True):
        mask = None if keep is None else pa.array(keep)
        ids.append(source.ids if mask is None else source.ids.filter(mask))
        own = pa.nulls(len(source), pa.large_string()) if source.texts is None else source.texts
        texts.append(own if mask is None else own.filter(mask))
        kept = None if source.destinations is None else source.destinations.filter(keep)
        destinations.append((kept, len(ids[-1])))
        weighed = source.weights if keep is None or source.weights is None else source.weights[keep]
        weights.append((weighed, len(ids[-1])))
    text = pa.concat_arrays(texts)
    block = join_blocks(attributes, [source.block for source in sources], keeps)
    known = None if text.null_count == len(text) else text
    return Source(pa.concat_arrays(ids), known, block, join_destinations(destinations), join_weights(weights))
