"""Checks and conversions of ids and tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import bytes_of
from gpumatch.errors import GpumatchError, IdError, SchemaError
from gpumatch.expr.keys import MAX, MIN
from gpumatch.subscriptions.longform import LONG_FORM

LONGEST = 1 << 20  # bytes of an id
_SHOWN = 200  # characters of an id in an error


@dataclass(frozen=True, slots=True)
class Rejected:
    """A subscription that was not added."""

    id: Any
    position: int | None  # of the offending character, where the expression does not parse
    message: str

    @classmethod
    def of(cls, name: Any, error: GpumatchError) -> Rejected:
        return cls(name, error.position, error.message)


def id_array(ids: Any) -> Any:
    """Ids as an Arrow array, all int64 or all strings."""
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        found = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    elif isinstance(ids, np.ndarray) and ids.dtype.kind in "iu" and ids.ndim == 1:
        found = pa.array(ids.copy())  # the caller may write to its own
    elif isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise IdError(f"ids must be a list or an array, found {ids!r}")
    else:
        names = _python_ids(list(ids))
        found = pa.array(names, pa.large_string() if names and isinstance(names[0], str) else None)
    if isinstance(found, pa.DictionaryArray):
        found = found.dictionary_decode()
    if found.null_count:
        raise IdError(f"ids must not be null; found one at position {found.is_null().index(True).as_py()}")
    if pa.types.is_integer(found.type):
        return _cast(found, pa.int64())
    if pa.types.is_null(found.type):
        return pa.array([], pa.int64())
    if pa.types.is_string(found.type) or pa.types.is_large_string(found.type) or pa.types.is_string_view(found.type):
        return _short(_cast(found, pa.large_string()))
    raise IdError(f"ids are all strings or all integers, found {found.type}")


def _cast(array: Any, wanted: Any) -> Any:
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise IdError(f"ids are all strings or all 64-bit integers: {error}") from None


def _short(ids: Any) -> Any:
    data, offsets = bytes_of(ids)
    if len(data) > LONGEST:  # else none is longer
        for position in np.flatnonzero(np.diff(offsets) > LONGEST).tolist():
            raise IdError(f"{id_problem(ids[position].as_py(), '')} (at position {position})")
    return ids


def _python_ids(ids: list[Any]) -> list[Any]:
    if _are_plain(ids):
        return ids
    for position, name in enumerate(ids):
        if problem := id_problem(name, ids[0]):
            raise IdError(f"{problem} (at position {position})")
    return [int(name) if not isinstance(name, str) else name for name in ids]


def id_problem(name: Any, first: Any) -> str:
    """What is wrong with an id, compared with the first one; empty if nothing is."""
    if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
        return f"ids are all strings or all integers, found {name!r}"
    if isinstance(name, str) != isinstance(first, str):
        kinds = ("a string", "an integer")
        mine, others = kinds if isinstance(name, str) else kinds[::-1]
        return f"ids are all strings or all integers: {name!r} is {mine}, but {first!r} is {others}"
    if isinstance(name, str):
        if any("\ud800" <= character <= "\udfff" for character in name):
            return f"the id {name[:_SHOWN]!r} is not valid Unicode (a lone surrogate)"
        if len(name) > LONGEST // 4 and (size := len(name.encode())) > LONGEST:
            return f"the id that begins {name[:_SHOWN]!r} has {size:,} bytes, expected at most {LONGEST:,}"
    elif not MIN <= int(name) <= MAX:
        return f"the id {name} does not fit into 64 bits"
    return ""


def _are_plain(ids: list[Any]) -> bool:
    """Whether all ids are plainly valid, by a quick check."""
    kinds = set(map(type, ids))
    if kinds == {int}:
        return bool(min(ids) >= MIN and max(ids) <= MAX)
    return kinds == {str} and "".join(ids).isascii() and max(map(len, ids)) <= LONGEST


def bad_ids(ids: list[Any], existing: Any) -> dict[int, IdError]:
    """The error of each id that is neither a string nor an integer, or not of the first good one's type."""
    if _are_plain(ids):
        return {}
    good = [name for name in ids if not id_problem(name, name)]
    fitting = (name for name in good if existing is None or isinstance(name, str) == (existing != pa.int64()))
    first = next(fitting, good[0] if good else None)  # of the type of the existing ids, if any
    problems = ((at, id_problem(name, name if first is None else first)) for at, name in enumerate(ids))
    return {at: IdError(problem) for at, problem in problems if problem}


def arrow_table(table: Any, needed: list[str]) -> Any:
    """An Arrow table from Arrow, pandas, polars or the path of a Parquet file; ``needed`` columns must be there."""
    if isinstance(table, (str, os.PathLike)):
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(table)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{os.fspath(table)!r} is not a Parquet file: {error}") from None
    elif isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif not isinstance(table, pa.Table):
        if not hasattr(table, "__arrow_c_stream__") and not isinstance(table, Mapping):
            raise SchemaError(
                f"expected an Arrow table, pandas or polars DataFrame or the path of a Parquet file, "
                f"found {type(table).__name__}"
            )
        try:
            table = pa.table(table)
        except pa.ArrowException as error:
            raise SchemaError(f"cannot read the table: {error}; a column must hold values of one type") from error
    doubled = [name for name in {*needed, *LONG_FORM} if table.column_names.count(name) > 1]
    if doubled:
        raise SchemaError(f"the table has several columns named {doubled[0]!r}; drop or rename all but one")
    lacking = [name for name in needed if name not in table.column_names]
    if lacking:
        raise SchemaError(f"the table has no column {lacking[0]!r}; it has {', '.join(table.column_names)}")
    return table
