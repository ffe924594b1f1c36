"""Hashes of the contents of events, the same wherever and however often they are computed.

What several shards find for an event is brought together by such a hash, not by a number: after a failure Spark runs
tasks again, perhaps with their rows in another order, and numbers would then be other events'.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array, bytes_of

_STEP = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x5851F42D4C957F2D)
_LARGE = pa.large_binary()


def hashes(batch: Any) -> tuple[Array, Array]:
    """Two hashes of 64 bits of each row: with 128 bits no two events are ever mistaken for one."""
    first, second = (_rows(batch.columns, len(batch), np.uint64(seed)).view(np.int64) for seed in (1, 2))
    return first, second


def _rows(columns: list[Any], length: int, seed: Any) -> Array:
    total = np.full(length, seed, np.uint64)
    for column in columns:
        total = _mixed(total + _values(column, seed))
    return total


def _values(array: Any, seed: Any) -> Array:
    """The hash of each value."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_struct(kind):
        found = _rows(array.flatten(), len(array), seed)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy()
        inside = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        found = _sums(_values(inside, seed), offsets - offsets[0], seed)
    elif pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
        found = _mixed(_fixed(array) + seed)
    else:
        data, offsets = bytes_of((array if _is_bytes(kind) else array.cast(pa.string())).cast(_LARGE))
        found = _sums(data[offsets[0] :].astype(np.uint64), offsets - offsets[0], seed)
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _fixed(array: Any) -> Array:
    """Values of fixed width as numbers, bit by bit."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    return data.view(f"u{width}").astype(np.uint64)


def _sums(items: Array, offsets: Array, seed: Any) -> Array:
    """The hash of each list of numbers; it depends on their order and on how many there are."""
    counts = np.diff(offsets)
    place = np.arange(len(items)) - np.repeat(offsets[:-1], counts)
    below = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(_mixed(items + _STEP * (place.astype(np.uint64) + seed)))]
    )
    total = below[offsets[1:]] - below[offsets[:-1]]
    return _mixed(total + _STEP * counts.astype(np.uint64) + seed)


def _mixed(numbers: Array) -> Array:
    """Each bit of the result depends on all bits of the number."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Array = numbers ^ numbers >> np.uint64(31)
    return mixed
