"""Weights: a number for each subscription, to find the heaviest of those that an event satisfies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array, pointers
from gpumatch.errors import SchemaError


def weight_array(given: Any, count: int) -> Array | None:
    """One weight for all, or one for each of ``count`` subscriptions; NaN where one has none, None if all have none."""
    if given is None:
        return None
    if isinstance(given, (int, float, np.number)) and not isinstance(given, bool):
        return np.full(count, given, np.float64)
    try:
        found = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given, from_pandas=True)
        if pa.types.is_boolean(found.type) or isinstance(given, (str, bytes)):
            raise pa.ArrowTypeError("truth values and text are not weights")
        weights: Array = pc.cast(found, pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # 2**53 + 1, too
    except (pa.ArrowException, TypeError) as error:
        shown = f"a column of {given.type}" if isinstance(given, (pa.Array, pa.ChunkedArray)) else f"{given!r:.80}"
        raise SchemaError(f"weight= takes a number, or a list or array of numbers, found {shown}") from error
    if len(weights) != count:
        raise SchemaError(f"expected a weight for each of the {count} subscriptions, found {len(weights)}")
    return weights


def join_weights(pieces: Sequence[tuple[Array | None, int]]) -> Array | None:
    """The weights of several groups of subscriptions, in sequence; each group comes with its size."""
    if all(weights is None for weights, _ in pieces):
        return None
    return np.concatenate([np.full(count, np.nan) if weights is None else weights for weights, count in pieces])


def heaviest_first(ids: Any, weights: Array) -> Array:
    """The rank of each subscription: the heaviest first, equal weights by id, those without a weight last."""
    table = pa.table({"weight": pa.array(weights, from_pandas=True), "id": ids})
    keys = [("weight", "descending", "at_end"), ("id", "ascending", "at_end")]
    order = pc.sort_indices(table, sort_keys=keys).to_numpy()
    rank = np.empty(len(weights), np.int64)
    rank[order] = np.arange(len(weights))
    return rank


def top_rows(offsets: Array, rows: Array, ranks: Array, most: int) -> tuple[Array, Array]:
    """The ``most`` rows of each event with the lowest ranks, in the order of their ranks."""
    counts = np.diff(offsets)
    event = np.repeat(np.arange(len(counts)), counts)
    ranked = np.lexsort((ranks, event))
    within = np.arange(len(rows)) - np.repeat(offsets[:-1] - offsets[0], counts)
    return pointers(np.minimum(counts, most)), rows[ranked[within < most]]
