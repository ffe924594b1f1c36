"""Rows by their ids, and the ids of the rows that live, without a Python object for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array, bytes_of, read_only
from gpumatch.kernels import ids as kernels
from gpumatch.store.lazy import lazy
from gpumatch.store.removed import Removed

_FEW = 4096  # ids up to which a dict is made faster than a table, and takes little room
_SHARE = 8  # with one in so many live rows to look up, the ids of all are put together, and kept


class Lookup:
    """Rows by id, for an Arrow array of distinct ids, int64 or large_string."""

    def __init__(self, ids: Any) -> None:
        self._ids = ids

    def rows(self, names: Any) -> Array:
        """The row of each name, -1 if there is none. ``names`` is an Arrow array of the same type."""
        if len(self._ids) <= _FEW:
            return np.array([self._few.get(name, -1) for name in names.to_pylist()], np.int64)
        rows = np.empty(len(names), np.int64)
        kernels.look_up(*self._bytes, self._slots, *_bytes(names), rows)
        return rows

    def fill(self) -> None:
        """Make now what looking up needs."""
        self.rows(self._ids.slice(0, 1))

    @lazy
    def _few(self) -> dict[int | str, int]:
        return {name: row for row, name in enumerate(self._ids.to_pylist())}

    @lazy
    def _bytes(self) -> tuple[Array, Array]:
        return _bytes(self._ids)

    @lazy
    def _slots(self) -> Array:
        slots = np.full(1 << (2 * len(self._ids) - 1).bit_length(), kernels.EMPTY, np.int32)
        kernels.fill(*self._bytes, slots)
        return slots


def _bytes(ids: Any) -> tuple[Array, Array]:
    """Data and offsets; eight bytes for each integer. Both read-only, so that kernels are compiled once."""
    integers = ids.type == pa.int64()
    data, offsets = (ids.to_numpy().view(np.uint8), np.arange(0, 8 * len(ids) + 1, 8)) if integers else bytes_of(ids)
    return read_only(data), read_only(offsets)


def has_repeats(ids: Any) -> bool:
    """Does any id occur twice? ``ids`` is an Arrow array as above."""
    if ids.type != pa.int64():
        return bool(pc.count_distinct(ids).as_py() < len(ids))
    numbers = ids.to_numpy()
    if (numbers[1:] > numbers[:-1]).all():
        return False
    numbers = np.sort(numbers)  # far faster than hashing, in an eighth of the memory
    return bool((numbers[1:] == numbers[:-1]).any())


class LiveIds:
    """The ids of live rows by their numbers: those of the first piece, then of the second, and so on."""

    def __init__(self, kind: Any, ids: Sequence[Any], removed: Sequence[Removed | None], bases: Array) -> None:
        """``bases``: the number of the first live row of each piece; the last one is the number of all."""
        self.type, self._ids, self._removed, self._bases = kind, ids, removed, bases

    def __len__(self) -> int:
        return int(self._bases[-1])

    def __getitem__(self, number: int) -> Any:
        return self._ids[0][number] if self.is_plain else self.take(pa.array([number]))[0]

    def take(self, numbers: Any) -> Any:
        """The ids of an Arrow array of numbers, as an Arrow array."""
        if self.is_plain or "array" in self.__dict__ or len(numbers) > len(self) // _SHARE:
            return self.array.take(numbers)
        piece, rows = self.places(numbers.to_numpy())
        order = np.argsort(piece, kind="stable")
        starts = np.searchsorted(piece[order], np.arange(len(self._ids) + 1))
        found = [
            ids.take(pa.array(rows[order[a:b]])) for ids, a, b in zip(self._ids, starts[:-1], starts[1:], strict=True)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays([pa.array([], self.type), *found]).take(pa.array(back))

    def listed(self, numbers: Array) -> list[int | str]:
        """The ids of an array of numbers."""
        if not self.is_plain:
            found: list[int | str] = self.take(pa.array(numbers)).to_pylist()
            return found
        if self.type == pa.int64():
            whole: list[int | str] = self._plain[0][numbers].tolist()
            return whole
        data, offsets = self._plain
        starts, ends = offsets[numbers].tolist(), offsets[numbers + 1].tolist()
        return [str(data[a:b], "utf-8") for a, b in zip(starts, ends, strict=True)]

    @lazy
    def _plain(self) -> tuple[Any, Array]:
        """Of the only piece: its integers, or the bytes of its strings and where they start."""
        if self.type == pa.int64():
            return self._ids[0].to_numpy(), np.zeros(0, np.int64)
        data, offsets = bytes_of(self._ids[0])
        return data.data, offsets

    def places(self, numbers: Array) -> tuple[Array, Array]:
        """Piece and row of each number."""
        piece = np.searchsorted(self._bases, numbers, side="right") - 1
        rows = numbers - self._bases[piece]
        for at, removed in enumerate(self._removed):
            mine = piece == at
            if removed is not None and mine.any():
                rows[mine] = removed.rows(rows[mine])
        return piece, rows

    @property
    def is_plain(self) -> bool:
        return len(self._ids) == 1 and self._removed[0] is None

    @lazy
    def array(self) -> Any:
        """All of them."""
        if self.is_plain:
            return self._ids[0]
        kept = [
            ids if gone is None else ids.filter(pa.array(~gone.mask))
            for ids, gone in zip(self._ids, self._removed, strict=True)
        ]
        return pa.concat_arrays([pa.array([], self.type), *kept])
