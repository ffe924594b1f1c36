"""Batches of events: rows, Arrow, pandas, polars, cuDF, CuPy or CSR in, typed columns out."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.device_memory import to_host
from gpumatch.errors import SchemaError
from gpumatch.events.arrow import from_any, of_library
from gpumatch.events.columns import NANOS, Column, Strings, from_values
from gpumatch.events.csr import Csr, Sparse
from gpumatch.events.cuda import device_table, from_device, length_of, on_device
from gpumatch.events.parquet import Parquet
from gpumatch.events.single import Single
from gpumatch.events.strangers import Strangers, refuse
from gpumatch.expr.atoms import Constant, Timestamp
from gpumatch.schema import AttributeType, Schema

__all__ = ["Column", "EventBatch", "Sparse", "Strings"]

_SUPPORTED = (
    "a list of dicts, a dict of arrays, a pandas, polars or cuDF DataFrame, an Arrow Table, RecordBatch or "
    "RecordBatchReader, anything else that exports Arrow, the path of a Parquet file, or an EventBatch"
)


class EventBatch:
    """Events bound to a schema, as columns; or wide, sparse events as CSR, bound when they are first used.

    Columns in the memory of a CUDA device stay there: those of a cuDF DataFrame, and in a dict of arrays those of cuDF
    and CuPy, of Arrow on a device, and of objects with ``__cuda_array_interface__`` or DLPack. Strings are encoded on
    the host, except those in a dictionary or categories.
    """

    __slots__ = ("_bound", "_csr", "_length")

    def __init__(
        self, length: int, bound: tuple[Schema, dict[int, Column] | Sparse | Single] | None, csr: Csr | None
    ) -> None:
        """Not for users: see ``of`` and ``from_csr``."""
        self._length, self._bound, self._csr = length, bound, csr

    @classmethod
    def of(cls, data: Any, schema: Schema, strict: bool = False) -> EventBatch:
        """A batch of any supported data. A value that does not fit the type of its attribute is a SchemaError.

        A list of dicts, a dict of arrays, a DataFrame of pandas, polars or cuDF, an Arrow Table, RecordBatch or
        RecordBatchReader, anything else that exports Arrow, or the path of a Parquet file or a folder of them. A pandas
        Series is one event, with attribute names as its index; it may also stand for a dict. Keys and columns that are
        not in the schema are ignored, or, if ``strict``, an error.
        """
        strangers: Strangers | None = {} if strict else None
        batch = cls.noting(data, schema, strangers)
        if strangers:
            refuse(strangers, schema)
        return batch

    @classmethod
    def noting(cls, data: Any, schema: Schema, strangers: Strangers | None) -> EventBatch:
        """As ``of``, but puts names that are not in the schema into ``strangers``."""
        if isinstance(data, EventBatch):
            if strangers is not None:
                data._note(schema, strangers)
            if data.single(schema) is None:
                data._binding(schema)  # raises if anything does not fit the schema
            return data
        if isinstance(data, (list, tuple)):
            if len(data) == 1 and isinstance(data[0], Mapping):
                return cls(1, (schema, Single.of(data[0], schema, strangers)), None)
            return cls(len(data), (schema, _row_columns(data, schema, strangers)), None)
        if (one := _event(data)) is not None:
            return cls.noting([one], schema, strangers)
        length, names, column = device_table(data) or _table(data, schema)
        if strangers is not None:
            strangers.update(dict.fromkeys(name for name in names if schema.find(name) is None))
        columns: dict[int, Column] = {}
        for name in _known(names, schema):
            position, given = schema.index(name), column(name)
            found = (from_device if on_device(given) else from_any)(name, schema.types[position], given)
            if found is not None:
                columns[position] = found
        return cls(length, (schema, columns), None)

    @classmethod
    def from_csr(cls, offsets: Any, attribute: Any, value: Any, names: Sequence[str]) -> EventBatch:
        """Wide, sparse events: event ``i`` has the entries from ``offsets[i]`` up to ``offsets[i + 1]``.

        Entry ``k`` gives ``value[k]`` to the attribute ``names[attribute[k]]``. All values of a batch are numbers, or
        all are booleans, strings, or times. Repeated entries of a list attribute are its values; an empty list cannot
        be written this way. NaN, NaT and null entries are missing. If any of the arrays is on a CUDA device, all are
        kept there.
        """
        csr = Csr.of(offsets, attribute, value, names)
        return cls(len(csr.offsets) - 1, None, csr)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"EventBatch({self._length} events{', CSR' if self._csr is not None else ''})"

    def columns(self, schema: Schema) -> dict[int, Column]:
        """Columns by position in the schema. Attributes that no event has are left out."""
        binding = self._binding(schema)
        if isinstance(binding, Sparse):
            raise TypeError("a CSR batch has no columns; use sparse()")
        return binding

    def sparse(self, schema: Schema) -> Sparse | None:
        """The entries of a CSR batch; None for other batches."""
        binding = self._binding(schema)
        return binding if isinstance(binding, Sparse) else None

    def single(self, schema: Schema) -> Single | None:
        """The event of a batch that was made from one dict; None for other batches."""
        if self._bound is None or self._bound[0] is not schema or not isinstance(self._bound[1], Single):
            return None
        return self._bound[1]

    @property
    def on_device(self) -> bool:
        """Whether any column, or the entries of a CSR batch, are in the memory of a CUDA device."""
        if self._csr is not None:
            return self._csr.column.on_device
        data = None if self._bound is None else self._bound[1]
        return isinstance(data, dict) and any(column.on_device for column in data.values())

    def to_host(self) -> EventBatch:
        """The events with all columns on the host: the batch itself if they are there already, else copies of them."""
        return self._moved(to_host) if self.on_device else self

    def copy(self) -> EventBatch:
        """The events in memory of their own: the caller's arrays may change."""
        return self._moved(np.copy)

    def _moved(self, move: Callable[[Any], Any]) -> EventBatch:
        csr, bound = None if self._csr is None else self._csr.moved(move), self._bound
        if bound is None:
            return EventBatch(self._length, None, csr)
        schema, data = bound[0], self._binding(bound[0])
        if isinstance(data, Sparse):
            return EventBatch(self._length, (schema, data.moved(move)), csr)
        return EventBatch(self._length, (schema, {at: column.moved(move) for at, column in data.items()}), csr)

    def slice(self, start: int, stop: int) -> EventBatch:
        """The events from ``start`` up to ``stop``, as Python slices count; shares the values."""
        events = range(self._length)[start:stop]
        if len(events) == self._length:
            return self
        start, stop = events.start, max(events.start, events.stop)
        csr = None if self._csr is None else self._csr.slice(start, stop)
        if self._bound is None:
            return EventBatch(len(events), None, csr)
        schema, data = self._bound[0], self._binding(self._bound[0])
        if isinstance(data, Sparse):
            return EventBatch(len(events), (schema, data.slice(start, stop)), csr)
        return EventBatch(len(events), (schema, {at: column.slice(start, stop) for at, column in data.items()}), None)

    def row(self, event: int) -> dict[str, Constant | list[Constant]]:
        """One event of a bound batch as a dict of its values, in the types of constants in expressions."""
        if self._bound is None:
            raise TypeError("a CSR batch has no rows before it is bound: use EventBatch.of(batch, schema)")
        try:
            event = range(self._length)[event]
        except IndexError:
            raise IndexError(f"event {event} of a batch of {self._length}") from None
        schema, data = self._bound[0], self._binding(self._bound[0])
        if isinstance(data, Sparse):
            return _sparse_row(data.slice(event, event + 1).moved(to_host), schema)
        cells = {at: column.slice(event, event + 1).to_host() for at, column in data.items()}
        values = {at: _cell(schema.types[at], cell) for at, cell in cells.items()}
        return {schema.names[at]: value for at, value in sorted(values.items()) if value is not None}

    def _note(self, schema: Schema, strangers: Strangers) -> None:
        """Put names of a CSR batch that are not in the schema into ``strangers``; other batches have lost theirs."""
        if self._csr is None:
            raise SchemaError(
                "an EventBatch drops keys and columns that are not attributes, so strict=True cannot find them; "
                "make it with EventBatch.of(data, schema, strict=True)"
            )
        strangers.update(self._csr.strangers(schema))

    def _binding(self, schema: Schema) -> dict[int, Column] | Sparse:
        bound = self._bound
        if bound is not None and (bound[0] is schema or bound[0] == schema):
            return bound[1].columns(schema) if isinstance(bound[1], Single) else bound[1]
        if self._csr is None:
            raise SchemaError("this EventBatch was made for another schema; make one with EventBatch.of(data, schema)")
        sparse = self._csr.bind(schema)
        self._bound = (schema, sparse)
        return sparse


def _row_columns(rows: Sequence[Any], schema: Schema, strangers: Strangers | None) -> dict[int, Column]:
    """Columns of a list of dicts; touches only keys that occur, however wide the schema is."""
    find = schema.find
    cells: dict[int, list[object]] = {}
    for event, row in enumerate(rows):
        if not isinstance(row, Mapping):
            given, row = row, _event(row)
            if row is None:
                raise SchemaError(f"event {event} is {type(given).__name__}, expected a dict of attribute values")
        for name, value in row.items():
            position = find(name)
            if position is not None:
                column = cells.get(position)
                if column is None:
                    column = cells[position] = [None] * len(rows)
                column[event] = value
            elif strangers is not None and name not in strangers:
                strangers[name] = event
    columns: dict[int, Column] = {}
    for position, values in cells.items():
        found = from_values(schema.names[position], schema.types[position], values)
        if found is not None:
            columns[position] = found
    return columns


def _known(names: Iterable[str], schema: Schema) -> list[str]:
    """The names that are in the schema; each must occur once."""
    known = [name for name in names if schema.find(name) is not None]
    for name, times in Counter(known).items():
        if times > 1:
            raise SchemaError(f"the events have {times} columns named {name!r}; drop or rename all but one")
    return known


def _event(data: Any) -> dict[str, Any] | None:
    """The event of a pandas Series; None for anything else."""
    if not of_library(data, "pandas") or not any(base.__name__ == "Series" for base in type(data).__mro__):
        return None
    names: list[Any] = data.index.tolist()
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        hint = "pass a column as a DataFrame, df[['px']]"
        raise SchemaError(
            f"a pandas Series is one event, indexed by names of attributes, found the label {strange[0]!r}; {hint}"
        )
    for name, times in Counter(names).items():
        if times > 1:
            raise SchemaError(f"the event has {times} values of {name!r}; drop all but one")
    return dict(zip(names, data, strict=True))


def _table(data: Any, schema: Schema) -> tuple[int, Iterable[str], Callable[[str], Any]]:
    """The number of events, the names of all columns (repeats included), and a function from a name to its column."""
    if isinstance(data, (str, os.PathLike)):
        file = Parquet(data, schema)
        table = file.table()
        return table.num_rows, file.names, table.column
    if isinstance(data, Mapping):
        return _length(data), data, data.__getitem__
    if of_library(data, "pandas") and hasattr(data, "columns"):
        return len(data), data.columns, data.__getitem__
    if of_library(data, "polars"):
        if hasattr(data, "collect"):
            raise SchemaError("the events are a polars LazyFrame; call .collect() first")
        if hasattr(data, "columns"):
            return data.height, data.columns, data.__getitem__
    try:
        if isinstance(data, pa.RecordBatchReader):
            data = data.read_all()
        elif not isinstance(data, (pa.Table, pa.RecordBatch)) and hasattr(data, "__arrow_c_stream__"):
            data = pa.RecordBatchReader.from_stream(data).read_all()
        elif not isinstance(data, (pa.Table, pa.RecordBatch)) and hasattr(data, "__arrow_c_array__"):
            data = pa.record_batch(data)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"cannot read events from {type(data).__name__}: {error}; pass {_SUPPORTED}") from error
    if not isinstance(data, (pa.Table, pa.RecordBatch)):
        raise SchemaError(f"cannot read events from {type(data).__name__}; pass {_SUPPORTED}")
    return data.num_rows, data.schema.names, data.column


def _length(arrays: Mapping[str, Any]) -> int:
    """The common length of a dict of arrays."""
    first, length = "", None
    for name, array in arrays.items():
        try:
            found = None if isinstance(array, (str, bytes, Mapping)) else length_of(array)
        except TypeError:
            found = None
        if found is None:
            raise SchemaError(
                f"column {name!r} is one {type(array).__name__}, not an array; pass a single event as a list of dicts"
            )
        if length is None:
            first, length = name, found
        elif found != length:
            raise SchemaError(f"columns differ in length: {first!r} has {length} values, {name!r} has {found}")
    return length or 0


def _cell(kind: AttributeType, column: Column) -> Constant | list[Constant] | None:
    """The value of a column of one event; None if missing."""
    if column.valid is not None and not column.valid[0]:
        return None
    if column.offsets is not None:
        return [_constant(kind, raw) for raw in _raw(column.values)]
    raw = _raw(column.values)[0]
    return None if raw is None or raw != raw else _constant(kind, raw)


def _sparse_row(entries: Sparse, schema: Schema) -> dict[str, Constant | list[Constant]]:
    row: dict[str, Constant | list[Constant]] = {}
    for position, raw in zip(entries.attribute.tolist(), _raw(entries.values), strict=True):
        name, kind = schema.names[position], schema.types[position]
        values = row.setdefault(name, []) if kind.multi else None
        if isinstance(values, list):
            values.append(_constant(kind, raw))
        else:
            row[name] = _constant(kind, raw)
    return row


def _raw(values: Array | Strings) -> list[Any]:
    if isinstance(values, Strings):
        texts: list[Any] = values.dictionary.take(pa.array(values.indices, mask=values.indices < 0)).to_pylist()
        return texts
    plain: list[Any] = values.tolist()
    return plain


def _constant(kind: AttributeType, raw: Any) -> Constant:
    if kind.kind == "timestamp":
        return Timestamp(raw * NANOS[kind.unit], kind.zone is not None)
    if kind.kind == "date":
        try:
            return dt.date(1970, 1, 1) + dt.timedelta(days=raw)
        except OverflowError:
            raise SchemaError(
                f"a date {raw} days from 1970 is outside the years 1 to 9999 and cannot be shown"
            ) from None
    convert: Callable[[Any], Constant] = {"int": int, "float": float, "bool": bool, "string": str}[kind.kind]
    return convert(raw)
