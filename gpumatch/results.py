"""Matches: which subscriptions each event satisfies."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_FEW = 16  # ids up to which looking up one after another is faster
_CHUNK = 1024  # events whose ids are looked up at once when iterating


class Matches:
    """The matches of a batch as CSR: event ``i`` has ``rows[offsets[i]:offsets[i + 1]]``, ascending.

    Rows index the ids of the snapshot that was matched, so a result stays right when the matcher changes. Of
    ``Matcher.destinations``, rows and ids are the destinations.
    """

    __slots__ = ("_column", "_ids", "offsets", "rows")

    def __init__(self, offsets: Array, rows: Array, ids: Any, column: str = "subscription") -> None:
        """``ids``: an Arrow array of the ids, int64 or string, in row order; ``column``: what they are in tables."""
        if pa.types.is_string(ids.type):
            ids = ids.cast(pa.large_string())  # the ids of many pairs outgrow 32-bit offsets
        self.offsets, self.rows, self._ids, self._column = offsets, rows, ids, column

    def __len__(self) -> int:
        """The number of events."""
        return len(self.offsets) - 1

    @property
    def counts(self) -> Array:
        """The number of matches of each event."""
        counts: Array = np.diff(self.offsets)
        return counts

    @property
    def n_pairs(self) -> int:
        """The number of matches of all events together."""
        return len(self.rows)

    def ids(self, event: int) -> list[int | str]:
        """The ids of the subscriptions that an event satisfies; a negative index counts from the end."""
        try:
            at = range(len(self))[event]
        except IndexError:
            raise IndexError(f"event {event} is out of range: the result has {len(self)} events") from None
        return self._take(at, at + 1)

    def __iter__(self) -> Iterator[list[int | str]]:
        """The list of ids of one event after another."""
        for first in range(0, len(self), _CHUNK):
            last = min(first + _CHUNK, len(self))
            ids = self._take(first, last)
            ends = (self.offsets[first : last + 1] - self.offsets[first]).tolist()
            for start, stop in pairwise(ends):
                yield ids[start:stop]

    def _take(self, first: int, last: int) -> list[int | str]:
        rows = self.rows[self.offsets[first] : self.offsets[last]]
        if len(rows) <= _FEW:
            return [self._ids[row].as_py() for row in rows.tolist()]
        ids: list[int | str] = self._ids.take(pa.array(rows)).to_pylist()
        return ids

    def to_arrow(self) -> Any:
        """A table of one row per match: ``event`` and ``subscription``, or ``event`` and ``destination``."""
        event = np.repeat(np.arange(len(self), dtype=np.int64), self.counts)
        return pa.table({"event": event, self._column: self._ids.take(pa.array(self.rows))})

    def to_pandas(self) -> Any:
        """The table of ``to_arrow`` as a pandas DataFrame."""
        _library("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table of ``to_arrow`` as a polars DataFrame."""
        return _library("polars").from_arrow(self.to_arrow())

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
        raise ImportError(f"to_{name}() needs {name}: pip install {name}; to_arrow() works without it") from error
