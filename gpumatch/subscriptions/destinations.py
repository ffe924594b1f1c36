"""Destinations: an event goes to those of the subscriptions that it satisfies, once to each (TAMA's interfaces)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch.arrays import Array, bytes_of
from gpumatch.errors import IdError
from gpumatch.expr.values import is_missing

_KINDS = "destinations are all strings or all 64-bit integers"


@dataclass(frozen=True, slots=True)
class Destinations:
    """The destinations of some subscriptions, at least one of which has one."""

    names: Any  # Arrow array of int64 or large_string, distinct
    number: Array  # int32, by subscription: the position of its destination in ``names``, or -1 for none

    @classmethod
    def of(cls, given: Any, count: int) -> Destinations | None:
        """From ``destination=``: one for all ``count`` subscriptions or one each; None if there is none."""
        if given is None:
            return None
        if isinstance(given, (str, int, np.integer)):
            return cls(_array([given]), np.zeros(count, np.int32)) if count else None
        values = _array(given)
        if len(values) != count:
            raise IdError(f"expected a destination for each of the {count} subscriptions, found {len(values)}")
        coded = values.dictionary_encode()
        number = coded.indices.fill_null(-1).to_numpy()
        return cls(coded.dictionary, number) if len(coded.dictionary) else None

    def __getitem__(self, row: int) -> int | str | None:
        number = int(self.number[row])
        name: int | str | None = None if number < 0 else self.names[number].as_py()
        return name

    @property
    def nbytes(self) -> int:
        return int(self.names.nbytes) + self.number.nbytes

    def filter(self, keep: Array | None) -> Destinations:
        """Those of the kept subscriptions; None keeps all."""
        return self if keep is None else Destinations(self.names, self.number[keep])

    def arrays(self) -> dict[str, Array]:
        """For storage; ``from_arrays`` reads them back."""
        if self.names.type == pa.int64():
            return {"number": self.number, "names": self.names.to_numpy()}
        data, offsets = bytes_of(self.names)
        return {"number": self.number, "data": data, "offsets": offsets}


def join_destinations(parts: Sequence[tuple[Destinations | None, int]]) -> Destinations | None:
    """The destinations of several groups of subscriptions, each given with its size.

    Only names in use are kept, in the order of their first subscriptions.
    """
    given = [part.names for part, _ in parts if part is not None]
    if not given:
        return None
    names = pc.unique(pa.concat_arrays(given))
    numbers = []
    for part, length in parts:
        if part is None:
            numbers.append(np.full(length, -1, np.int32))
        else:
            moved = pc.index_in(part.names, names).to_numpy()
            numbers.append(np.append(moved, np.int32(-1))[part.number])
    number = np.concatenate(numbers)
    rows = np.flatnonzero(number >= 0)[::-1]
    if not len(rows):
        return None
    first = np.full(len(names), len(number))
    first[number[rows]] = rows  # of equal indices the last one wins: the first row
    order = np.argsort(first)[: np.count_nonzero(first < len(number))]
    rank = np.full(len(names) + 1, -1, np.int32)
    rank[order] = np.arange(len(order))
    return Destinations(names.take(pa.array(order)), rank[number])


def check_kind(new: Destinations | None, existing: Iterable[Destinations | None]) -> None:
    """New destinations must have the type of the existing ones."""
    old = next((part for part in existing if part is not None), None)
    if new is not None and old is not None and new.names.type != old.names.type:
        kinds = ("strings", "integers")
        mine, others = (kinds[one.names.type == pa.int64()] for one in (new, old))
        raise IdError(f"{_KINDS}: the new ones are {mine}, those added before {others}")


def _array(given: Any) -> Any:
    """Destinations as an Arrow array of int64 or large_string; null is none."""
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if not isinstance(given, pa.Array) and not (isinstance(given, np.ndarray) and given.dtype.kind in "iu"):
        if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
            raise IdError(f"destination= takes a string, an integer, or a list or array of them, found {given!r}")
        given = _plain(given)
    try:
        found = given if isinstance(given, pa.Array) else pa.array(given)
        if isinstance(found, pa.DictionaryArray):
            found = found.dictionary_decode()
        is_text = pa.types.is_string(found.type) or pa.types.is_large_string(found.type)
        if is_text or pa.types.is_string_view(found.type):
            return found.cast(pa.large_string())
        if pa.types.is_integer(found.type) or pa.types.is_null(found.type):
            return found.cast(pa.int64())
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise IdError(f"{_KINDS}: {error}") from None
    raise IdError(f"{_KINDS}, found {found.type}")


def _plain(given: Iterable[Any]) -> list[int | str | None]:
    plain: list[int | str | None] = []
    first: Any = None
    for position, name in enumerate(given):
        if is_missing(name):
            plain.append(None)
            continue
        if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
            raise IdError(f"{_KINDS}, found {name!r} (at position {position})")
        first = name if first is None else first
        if isinstance(name, str) != isinstance(first, str):
            raise IdError(f"{_KINDS}, found {first!r} and {name!r} (at position {position})")
        plain.append(str(name) if isinstance(name, str) else int(name))
    return plain
