"""Arrays, and lists stored in them in sequence."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def pointers(counts: Array) -> Array:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def spans(starts: Array, lengths: Array) -> Array:
    """The numbers ``starts[i] … starts[i] + lengths[i] - 1`` of all spans, in sequence."""
    ends = np.cumsum(lengths, dtype=np.int64)
    before = np.repeat(ends - lengths, lengths)
    return np.repeat(starts.astype(np.int64), lengths) + np.arange(int(ends[-1]) if len(ends) else 0) - before


def read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def freeze(owner: Any) -> None:
    """Make its arrays read-only: nothing changes by accident, and saved and fresh ones share compiled code."""
    for one in fields(owner):
        value = getattr(owner, one.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


def bytes_of(strings: Any) -> tuple[Array, Array]:
    """Data and offsets of an Arrow array with 64-bit offsets."""
    _, offsets, data = strings.buffers()
    starts = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    if len(strings) == 0:
        starts = np.zeros(1, np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return content[starts[0] : starts[-1]], starts - starts[0] if starts[0] else starts
