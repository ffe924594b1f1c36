"""Matches: which subscriptions each event satisfies."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, SupportsIndex, overload

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.device_memory import is_device_array, library, simulated, to_host, use_device_of

_FEW = 16  # ids up to which looking up one after another is faster
_INT32 = np.iinfo(np.int32).max
_CHUNK = 1024  # events whose ids are looked up together when iterating
_EXTRAS = {"cupy": "'gpumatch[gpu13]' or 'gpumatch[gpu12]'", "cudf": "'gpumatch[cudf13]' or 'gpumatch[cudf12]'"}


class Matches:
    """The matches of a batch as CSR: event ``i`` has ``rows[offsets[i]:offsets[i + 1]]``.

    They ascend; those of ``top`` are the heaviest first. Rows index the ids of the snapshot that was matched, so a
    result stays right when the matcher changes. For ``Matcher.destinations``, rows and ids are those of destinations.
    Results from a CUDA device stay there, and are copied to the host once if they are used there; ``to_cupy`` and
    ``to_cudf`` do not copy them.
    """

    __slots__ = ("_column", "_ids", "_made", "_offsets", "_rows")

    def __init__(self, offsets: Array, rows: Array, ids: Any, column: str = "subscription") -> None:
        """``ids``: the ids, int64 or string, in row order: an Arrow array, or what looks up those of some rows by
        ``take``, and makes them all if need be (``array``). ``column``: their name in tables.

        ``offsets`` and ``rows`` are both on the host or both on a device.
        """
        if pa.types.is_string(ids.type):
            ids = ids.cast(pa.large_string())  # the ids of many pairs outgrow 32-bit offsets
        self._made, self._column = (offsets, rows), column
        self._ids = ids if isinstance(ids, pa.Array) or not ids.is_plain else ids.array
        self._offsets: Array | None = None
        self._rows: Array | None = None

    @property
    def offsets(self) -> Array:
        """Where the rows of each event start, and where the last ones end; int64, on the host."""
        if self._offsets is None:
            self._offsets = to_host(self._made[0])
        return self._offsets

    @property
    def rows(self) -> Array:
        """The rows of all events in sequence, on the host."""
        if self._rows is None:
            self._rows = to_host(self._made[1])
        return self._rows

    @property
    def names(self) -> Any:
        """The ids that rows index: an Arrow array."""
        return self._ids if isinstance(self._ids, pa.Array) else self._ids.array

    def __len__(self) -> int:
        """The number of events."""
        return len(self._made[0]) - 1

    @property
    def counts(self) -> Array:
        """The number of matches of each event."""
        counts: Array = np.diff(self.offsets)
        return counts

    @property
    def n_pairs(self) -> int:
        """The number of matches of all events together."""
        return len(self._made[1])

    def ids(self, event: SupportsIndex) -> list[int | str]:
        """The ids of the subscriptions that an event satisfies; a negative index counts from the end."""
        try:
            at = range(len(self))[event]
        except TypeError:
            raise TypeError(f"an event is given by its position, a whole number, found {event!r}") from None
        except IndexError:
            raise IndexError(f"event {event} is out of range: the result has {len(self)} events") from None
        return self._take(at, at + 1)

    @overload
    def __getitem__(self, event: SupportsIndex) -> list[int | str]: ...
    @overload
    def __getitem__(self, event: slice) -> Matches: ...
    def __getitem__(self, event: SupportsIndex | slice) -> list[int | str] | Matches:
        """The ids of an event, as from ``ids``; for a slice, the matches of its events."""
        if not isinstance(event, slice):
            return self.ids(event)
        chosen = range(len(self))[event]
        events = np.arange(chosen.start, chosen.stop, chosen.step)
        first, counts = self.offsets[events], self.offsets[events + 1] - self.offsets[events]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        at = np.repeat(first - offsets[:-1], counts) + np.arange(offsets[-1])
        return Matches(offsets, self.rows[at], self._ids, self._column)

    def __iter__(self) -> Iterator[list[int | str]]:
        """The list of ids of each event in turn."""
        for first in range(0, len(self), _CHUNK):
            last = min(first + _CHUNK, len(self))
            ids = self._take(first, last)
            ends = (self.offsets[first : last + 1] - self.offsets[first]).tolist()
            for start, stop in pairwise(ends):
                yield ids[start:stop]

    def _take(self, first: int, last: int) -> list[int | str]:
        rows = self.rows[self.offsets[first] : self.offsets[last]]
        if len(rows) <= _FEW and isinstance(self._ids, pa.Array):
            return [self._ids[row].as_py() for row in rows.tolist()]
        ids: list[int | str] = self._ids.take(pa.array(rows)).to_pylist()
        return ids

    def to_arrow(self) -> Any:
        """A table of one row per match: ``event`` and ``subscription``, or ``event`` and ``destination``."""
        event = np.repeat(np.arange(len(self), dtype=np.int64), self.counts)
        return pa.table({"event": event, self._column: self._ids.take(pa.array(self.rows))})

    def to_lists(self) -> Any:
        """An Arrow array with the list of ids of each event."""
        ids = self._ids.take(pa.array(self.rows))
        if self.n_pairs > _INT32:
            return pa.LargeListArray.from_arrays(pa.array(self.offsets), ids)
        return pa.ListArray.from_arrays(pa.array(self.offsets.astype(np.int32)), ids)

    def to_pandas(self) -> Any:
        """The table of ``to_arrow`` as a pandas DataFrame."""
        _library("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table of ``to_arrow`` as a polars DataFrame."""
        return _library("polars").from_arrow(self.to_arrow())

    def to_cupy(self) -> tuple[Any, Any]:
        """Offsets and rows as CuPy arrays: as they are if made on a device, else copied to the current one."""
        offsets, rows = self._made
        if is_device_array(offsets):
            return offsets, rows
        upload = (library() if simulated() else _library("cupy")).asarray
        return upload(offsets), upload(rows)

    def to_cudf(self) -> Any:
        """The table of ``to_arrow`` as a cuDF DataFrame. Pairs are made on the device; ids are copied there."""
        cudf = _library("cudf")
        offsets, rows = self.to_cupy()
        with use_device_of(rows):
            xp = library()
            event = xp.searchsorted(offsets, xp.arange(len(rows), dtype=np.int64), "right") - 1
            ids = cudf.Series.from_arrow(self.names).take(rows).reset_index(drop=True)
            return cudf.DataFrame({"event": event, self._column: ids})

    def __eq__(self, other: object) -> bool:
        """Whether the same ids match the same events."""
        if not isinstance(other, Matches):
            return NotImplemented
        if self._column != other._column or not np.array_equal(self.offsets, other.offsets):
            return False
        if self._ids is other._ids and np.array_equal(self.rows, other.rows):
            return True
        mine, others = self._ids.take(pa.array(self.rows)), other._ids.take(pa.array(other.rows))
        return bool(mine.equals(others))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Matches({len(self)} events, {self.n_pairs} matches)"


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        install = _EXTRAS.get(name, name)
        raise ImportError(f"to_{name}() needs {name}: pip install {install}; to_arrow() works without it") from error
