"""Tables in files: Parquet, CSV and JSON lines, chosen by the suffix, read and written in batches.

CSV and JSON lines carry no types. A column of the index gets its attribute's type; in CSV an empty field is a missing
value and a quoted empty one the empty string; other CSV columns stay text; other JSON fields get the type that the
first block of the file shows.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet

from gpumatch.errors import GpumatchError, nearest
from gpumatch.schema import AttributeType, Schema

Format = Literal["parquet", "csv", "json"]
Types = Mapping[str, pa.DataType]

_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_BATCH_ROWS = 65_536
_WRITE_ROWS = 65_536  # at once: small row groups make Parquet slow to read, large lists of Python rows take memory
_BLOCK_BYTES = 8 << 20  # of CSV and JSON text per batch; a JSON object must fit in it
_SCALARS = {
    **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be read once, batch by batch; ``done()`` is the share of it that was read, from 0 to 1."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    done: Callable[[], float]


def format_of(path: str | Path) -> Format:
    """The format that a file's suffix stands for."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        found = f"has the suffix {suffix!r}" if suffix else "has no suffix"
        raise GpumatchError(f"{path} {found}; expected one of {', '.join(_FORMATS)}")
    return _FORMATS[suffix]


def arrow_types(schema: Schema) -> dict[str, pa.DataType]:
    """The Arrow type of each attribute."""
    return {name: _arrow_type(kind) for name, kind in zip(schema.names, schema.types, strict=True)}


def infer_schema(path: str | Path) -> pa.Schema:
    """Names and types of a file's columns; those of text files from their first block."""
    with _explained(path):
        match format_of(_existing(path)):
            case "parquet":
                schema = pa.dataset.dataset(path, format="parquet").schema
            case "csv":
                schema = _open_csv(path, None, None)[0].schema
            case "json":
                schema = _infer_json(path)
    _check_columns(path, schema.names, schema.names)
    return schema


def read_table(path: str | Path, columns: Sequence[str]) -> pa.Table:
    """Chosen columns of a whole file. Those of CSV are text: an id such as 007 stays what it is."""
    with _explained(path):
        match format_of(_existing(path)):
            case "parquet":
                found = pa.dataset.dataset(path, format="parquet")
                _check_columns(path, columns, found.schema.names)
                return found.to_table(columns=list(columns))
            case "csv":
                names = _open_csv(path, None, None)[0].schema.names
                _check_columns(path, columns, names)
                texts = dict.fromkeys(columns, pa.string())
                return pa.csv.read_csv(path, convert_options=_csv_options(texts, columns))
            case "json":
                table = pa.json.read_json(path, pa.json.ReadOptions(block_size=_BLOCK_BYTES))
    _check_columns(path, columns, table.column_names)
    return table.select(list(columns))


def open_table(path: str | Path, types: Types, columns: Sequence[str] | None = None) -> Source:
    """A file in batches of bounded size, with ``columns`` and all that ``types`` names, where the file has them."""
    with _explained(path):
        match format_of(_existing(path)):
            case "parquet":
                source = _parquet_source(path, types, columns)
            case "csv":
                source = _csv_source(path, types, columns)
            case "json":
                source = _json_source(path, types, columns)
    return Source(source.schema, _explaining(path, source.batches), source.done)


def parse_row(text: str, types: Types) -> dict[str, Any]:
    """One event as a JSON object, with its values in the types of their attributes."""
    try:
        row = json.loads(text)
    except ValueError as error:
        raise GpumatchError(f"the event is not JSON: {error}; expected an object such as {{'px': 3.5}}") from None
    if not isinstance(row, dict):
        raise GpumatchError(f"the event is a JSON {type(row).__name__}, expected an object such as {{'px': 3.5}}")
    for name in row:
        if name not in types:
            raise GpumatchError(f"the event names {name!r}, which is no attribute of the index{nearest(name, types)}")
    if not row:
        return row
    wanted = {name: types[name] for name in row}
    with _explained("the event"):
        options = pa.json.ParseOptions(explicit_schema=pa.schema(_textual(wanted)))
        table = pa.json.read_json(io.BytesIO(json.dumps(row).encode()), parse_options=options)
        event: dict[str, Any] = _typed(table, wanted).to_pylist()[0]
    return event


class Sink:
    """A file to be written batch by batch. It appears under its name when all is written, never half of it."""

    def __init__(self, path: str | Path, schema: pa.Schema) -> None:
        self._path, self._schema = Path(path), schema
        self._waiting: list[pa.RecordBatch] = []
        self._partial = self._path.with_name(f".{self._path.name}.partial")
        kind = format_of(path)
        if kind == "csv":
            _refuse_nested(self._path, schema)
        try:
            self._writer = _WRITERS[kind](self._partial, schema)
        except OSError as error:
            raise GpumatchError(f"cannot write {path}: {error.strerror or error}") from error

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        if sum(map(len, self._waiting)) >= _WRITE_ROWS:
            self._flush()

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting.clear()
        self._writer.write_table(table, _WRITE_ROWS)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
            self._writer.close()
            if kind is None:
                os.replace(self._partial, self._path)
        finally:
            self._partial.unlink(missing_ok=True)


class _JsonWriter:
    """Times become ISO text and NaN null; infinities are written as Python and Arrow read them, ``Infinity``."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._schema = pa.schema([pa.field(field.name, _texts(field.type)) for field in schema])

    def write_table(self, table: pa.Table, rows: int) -> None:
        for batch in table.cast(self._schema).to_batches(max_chunksize=rows):
            columns = [_without_nan(column) for column in batch.columns]
            for row in pa.RecordBatch.from_arrays(columns, schema=self._schema).to_pylist():
                self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


_WRITERS: dict[Format, Callable[[Path, pa.Schema], Any]] = {
    "parquet": pa.parquet.ParquetWriter,
    "csv": pa.csv.CSVWriter,
    "json": _JsonWriter,
}


def _arrow_type(kind: AttributeType) -> pa.DataType:
    scalar = pa.timestamp(kind.unit, kind.zone) if kind.kind == "timestamp" else _SCALARS[kind.name]
    return pa.list_(scalar) if kind.multi else scalar


def _parquet_source(path: str | Path, types: Types, columns: Sequence[str] | None) -> Source:
    found = pa.dataset.dataset(path, format="parquet")  # a file, or a folder of them as Spark writes it
    chosen = _chosen(path, found.schema.names, types, columns)
    total, read = found.count_rows(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in found.to_batches(columns=chosen, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1):
            read += len(batch)
            yield batch

    schema = pa.schema([found.schema.field(name) for name in chosen])
    return Source(schema, batches(), lambda: read / total if total else 1.0)


def _csv_source(path: str | Path, types: Types, columns: Sequence[str] | None) -> Source:
    names = _open_csv(path, None, None)[0].schema.names
    chosen = _chosen(path, names, types, columns)
    for name in chosen:
        if name in types and pa.types.is_list(types[name]):
            raise GpumatchError(f"{path}: {name!r} is a list, and CSV holds no lists; use Parquet or JSON lines")
    reader, done = _open_csv(path, {name: types.get(name, pa.string()) for name in names}, chosen)
    return Source(reader.schema, iter(reader), done)


def _open_csv(
    path: str | Path, types: Types | None, columns: Sequence[str] | None
) -> tuple[pa.csv.CSVStreamingReader, Callable[[], float]]:
    file, done = _watched(path)
    options = pa.csv.ReadOptions(block_size=_BLOCK_BYTES)
    return pa.csv.open_csv(file, options, convert_options=_csv_options(types or {}, columns)), done


def _csv_options(types: Types, columns: Sequence[str] | None) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(
        column_types=types,
        include_columns=columns,
        null_values=[""],  # not "NA" and the like, which are words
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _json_source(path: str | Path, types: Types, columns: Sequence[str] | None) -> Source:
    wanted = dict(types)
    extra = columns is None or any(name not in types for name in columns)
    options = pa.json.ParseOptions(
        explicit_schema=pa.schema(_textual(wanted)), unexpected_field_behavior="infer" if extra else "ignore"
    )
    file, done = _watched(path)
    reader = pa.json.open_json(file, pa.json.ReadOptions(block_size=_BLOCK_BYTES), options)
    chosen = _chosen(path, reader.schema.names, types, columns)
    schema = pa.schema([pa.field(name, wanted.get(name, reader.schema.field(name).type)) for name in chosen])
    return Source(schema, (_typed(batch.select(chosen), wanted) for batch in reader), done)


def _infer_json(path: str | Path) -> pa.Schema:
    """As Arrow infers it, except for times: it calls dates timestamps, forgets zones, and leaves fractions as text."""
    options = pa.json.ReadOptions(block_size=_BLOCK_BYTES)
    schema = pa.json.open_json(_watched(path)[0], options).schema
    texts = pa.schema([pa.field(field.name, _texts(field.type)) for field in schema])
    batch = next(iter(pa.json.open_json(_watched(path)[0], options, pa.json.ParseOptions(explicit_schema=texts))))
    for i, field in enumerate(schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_string(field.type):
            schema = schema.set(i, pa.field(field.name, _time_type(batch.column(field.name))))
    return schema


def _time_type(texts: pa.Array) -> pa.DataType:
    for candidate in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            texts.cast(candidate)
        except pa.ArrowInvalid:
            continue
        return candidate
    return pa.string()


def _watched(path: str | Path) -> tuple[pa.NativeFile, Callable[[], float]]:
    """A file for Arrow to read, and how far it has come."""
    file = pa.OSFile(str(path))
    size = file.size()
    return file, lambda: 1.0 if file.closed or not size else file.tell() / size


def _chosen(path: object, names: Sequence[str], types: Types, columns: Sequence[str] | None) -> list[str]:
    """The columns to read, in the file's order: all by default, else the wanted ones and the attributes."""
    chosen = [name for name in names if columns is None or name in columns or name in types]
    _check_columns(path, [*(columns or ()), *chosen], names)
    return chosen


def _texts(kind: pa.DataType) -> pa.DataType:
    """The type with text in the place of dates and times, which JSON does not have."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_texts(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _textual(types: Types) -> list[tuple[str, pa.DataType]]:
    return [(name, _texts(kind)) for name, kind in types.items()]


def _typed(batch: Any, types: Types) -> Any:
    """A table or batch whose texts have become the dates and times that ``types`` asks for."""
    names, columns = batch.schema.names, []
    for name in names:
        column = batch.column(name)
        try:
            columns.append(column.cast(types.get(name, column.type)))
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"column {name!r}: {error}") from None
    return type(batch).from_arrays(columns, names=names)


def _without_nan(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _refuse_nested(path: Path, schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise GpumatchError(
                f"cannot write {path}: column {field.name!r} is {field.type}, and CSV holds no lists; "
                "choose other columns, Parquet or JSON lines"
            )


def _check_columns(path: object, columns: Sequence[str], found: Sequence[str]) -> None:
    for name in columns:
        if name not in found:
            raise GpumatchError(f"{path} has no column {name!r}{nearest(name, found)}; it has {', '.join(found)}")
        if found.count(name) > 1:
            raise GpumatchError(f"{path} has {found.count(name)} columns named {name!r}; drop or rename all but one")


def _existing(path: str | Path) -> str | Path:
    format_of(path)
    if not Path(path).exists():
        raise GpumatchError(f"{path} does not exist")
    return path


@contextmanager
def _explained(path: object) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        hint = (
            "; name the columns you need if others differ from line to line" if "unexpected field" in str(error) else ""
        )
        raise GpumatchError(f"cannot read {path}: {error}{hint}") from error


def _explaining(path: object, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _explained(path):
        yield from batches
