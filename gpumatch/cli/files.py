"""Tables in files: Parquet, CSV and JSON lines, selected by suffix, read and written in batches.

CSV and JSON lines have no types, so columns of the index get the types of their attributes. Other CSV columns stay
text; other JSON fields get the type that fits all of their values. In CSV an empty field is a missing value, and a
quoted empty one is the empty string.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from gpumatch.cli import jsonlines
from gpumatch.cli.fromtext import as_text, typed
from gpumatch.errors import GpumatchError, nearest
from gpumatch.schema import AttributeType, Schema

Format = Literal["parquet", "csv", "json"]
Types = Mapping[str, pa.DataType]

STANDARD = "-"  # standard input, as CSV or JSON lines; standard output, as CSV
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_BATCH_ROWS = 65_536
_LEADING = 4_096  # bytes to look at to distinguish JSON lines from CSV
_WRITE_ROWS = 65_536  # per write: small row groups make Parquet slow to read, large lists of Python rows take memory
_BLOCK_BYTES = 8 << 20  # of CSV per batch
_SCALARS = {
    **{f"int{bits}": pa.int64() for bits in (8, 16, 32, 64)},  # events may have a 300 for an int8 attribute
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be read once, in batches; ``done()`` is the share that has been read, from 0 to 1."""

    names: Sequence[str]  # of all columns of the file
    schema: pa.Schema  # of the columns that are read
    batches: Iterator[pa.RecordBatch]
    done: Callable[[], float]


def format_of(path: str | Path) -> Format:
    """The format, from the file's suffix."""
    if path == STANDARD:
        return "csv"
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        found = f"has the suffix {suffix!r}" if suffix else "has no suffix"
        raise GpumatchError(f"{path} {found}; expected one of {', '.join(_FORMATS)}")
    return _FORMATS[suffix]


def arrow_types(schema: Schema) -> dict[str, pa.DataType]:
    """The Arrow type of each attribute."""
    return {name: _arrow_type(kind) for name, kind in zip(schema.names, schema.types, strict=True)}


def infer_schema(path: str | Path) -> pa.Schema:
    """Names and types of a file's columns; for text files, from the first block."""
    with _explained(path):
        match _input_format(path):
            case "parquet":
                schema = pa.dataset.dataset(path, format="parquet").schema
            case "csv":
                schema = _open_csv(path, None, None)[0].schema
            case "json":
                schema = _infer_json(path)
    _check_columns(path, schema.names, schema.names)
    return schema


def read_table(path: str | Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of a whole file. CSV columns are text: an id such as 007 stays as it is."""
    with _explained(path):
        match _input_format(path):
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
                return _read_json(path, columns)


def open_table(path: str | Path, types: Types, columns: Sequence[str] | None = None) -> Source:
    """A file in batches of bounded size: ``columns``, and those columns of ``types`` that the file has."""
    with _explained(path):
        match _input_format(path):
            case "parquet":
                source = _parquet_source(path, types, columns)
            case "csv":
                source = _csv_source(path, types, columns)
            case "json":
                source = _json_source(path, types, columns)
    return replace(source, batches=_explaining(path, source.batches))


@contextmanager
def as_file(path: str | Path) -> Iterator[str | Path]:
    """The file itself, or a temporary copy of standard input, since files are read more than once."""
    if path != STANDARD:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gpumatch-") as folder:
        copy = Path(folder) / "stdin"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with copy.open("rb") as file:
            suffix = ".jsonl" if file.read(_LEADING).lstrip()[:1] in (b"{", b"[") else ".csv"
        named = copy.rename(copy.with_suffix(suffix))
        try:
            yield named
        except GpumatchError as error:
            raise GpumatchError(str(error).replace(str(named), "standard input")) from None


def parse_row(text: str, types: Types) -> dict[str, Any]:
    """One event from a JSON object, with values in the types of their attributes."""
    try:
        row = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise GpumatchError(f'the event is not JSON: {error}; expected an object such as {{"px": 3.5}}') from None
    if not isinstance(row, dict):
        raise GpumatchError(f'the event is a JSON {type(row).__name__}, expected an object such as {{"px": 3.5}}')
    for name in row:
        if name not in types:
            raise GpumatchError(f"the event names {name!r}, which is no attribute of the index{nearest(name, types)}")
    if not row:
        return row
    wanted = {name: types[name] for name in row}
    with _explained("the event"):
        event: dict[str, Any] = jsonlines.parse(jsonlines.written(row).encode(), wanted).to_pylist()[0]
    return event


class Sink:
    """A file to be written in batches. It gets its name when it is complete, so it never appears half written.

    Standard output gets the batches as they arrive.
    """

    def __init__(self, path: str | Path, schema: pa.Schema) -> None:
        self._path, self._schema = Path(path), schema
        self._waiting: list[pa.RecordBatch] = []
        self._partial = None if path == STANDARD else self._path.with_name(f".{self._path.name}.partial")
        kind = format_of(path)
        if kind == "csv":
            _refuse_nested(path, schema)
        try:
            self._writer = _WRITERS[kind](sys.stdout.buffer if self._partial is None else self._partial, schema)
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
            if kind is None and self._partial is not None:
                os.replace(self._partial, self._path)
        finally:
            if self._partial is not None:
                self._partial.unlink(missing_ok=True)


class _JsonWriter:
    """Times become ISO text, NaN becomes null, infinities become ``Infinity``, which Python and Arrow can read."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._schema = pa.schema([pa.field(field.name, as_text(field.type)) for field in schema])

    def write_table(self, table: pa.Table, rows: int) -> None:
        for batch in table.cast(self._schema).to_batches(max_chunksize=rows):
            columns = [_without_nan(column) for column in batch.columns]
            for row in pa.RecordBatch.from_arrays(columns, schema=self._schema).to_pylist():
                self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


_WRITERS: dict[Format, Callable[[Any, pa.Schema], Any]] = {
    "parquet": pa.parquet.ParquetWriter,
    "csv": pa.csv.CSVWriter,
    "json": _JsonWriter,
}


def _arrow_type(kind: AttributeType) -> pa.DataType:
    scalar = pa.timestamp(kind.unit, kind.zone) if kind.kind == "timestamp" else _SCALARS[kind.name]
    return pa.list_(scalar) if kind.multi else scalar


def _parquet_source(path: str | Path, types: Types, columns: Sequence[str] | None) -> Source:
    found = pa.dataset.dataset(path, format="parquet")  # a file, or a folder of files as Spark writes it
    chosen = _chosen(path, found.schema.names, types, columns)
    total, read = found.count_rows(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in found.to_batches(columns=chosen, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1):
            read += len(batch)
            yield batch

    schema = pa.schema([found.schema.field(name) for name in chosen])
    return Source(found.schema.names, schema, batches(), lambda: read / total if total else 1.0)


def _csv_source(path: str | Path, types: Types, columns: Sequence[str] | None) -> Source:
    names = _open_csv(path, None, None)[0].schema.names
    chosen = _chosen(path, names, types, columns)
    for name in chosen:
        if name in types and pa.types.is_list(types[name]):
            raise GpumatchError(f"{path}: {name!r} is a list, and CSV cannot contain lists; use Parquet or JSON lines")
    reader, done = _open_csv(path, dict.fromkeys(names, pa.string()), chosen)
    wanted = {name: types.get(name, pa.string()) for name in chosen}
    return Source(names, pa.schema(list(wanted.items())), _typed_rows(reader, wanted), done)


def _typed_rows(batches: Iterator[pa.RecordBatch], types: Types) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield typed(batch, types, rows)
        rows += len(batch)


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
    fields = jsonlines.fields(path)
    names = list(fields)
    wanted = {name: types.get(name, fields[name]) for name in _chosen(path, names, types, columns)}
    batches, done = jsonlines.read(path, wanted)
    schema = pa.schema([(name, kind or pa.string()) for name, kind in wanted.items()])
    return Source(names, schema, batches, done)


def _read_json(path: str | Path, columns: Sequence[str]) -> pa.Table:
    fields = jsonlines.fields(path)
    _check_columns(path, columns, list(fields))
    for name in columns:
        if fields[name] is None:
            raise GpumatchError(f"{path}: column {name!r} has values of several types, expected one type")
    wanted = {name: fields[name] for name in columns}
    return pa.Table.from_batches(jsonlines.read(path, wanted)[0], pa.schema(list(wanted.items())))


def _infer_json(path: str | Path) -> pa.Schema:
    """The types that fit all values. Text columns become dates or times if the first block parses as such."""
    fields = jsonlines.fields(path)
    for name, kind in fields.items():
        if kind is None:
            raise GpumatchError(f"column {name!r} has values of several types; use --schema")
    schema = pa.schema(list(fields.items()))
    batch = next(jsonlines.read(path, fields)[0], None)
    for i, field in enumerate(schema):
        if batch is not None and pa.types.is_string(field.type):
            schema = schema.set(i, pa.field(field.name, _time_type(batch.column(field.name))))
    return schema


def _time_type(texts: pa.Array) -> pa.DataType:
    if texts.null_count == len(texts):
        return pa.string()
    for candidate in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            texts.cast(candidate)
        except pa.ArrowInvalid:
            continue
        return candidate
    return pa.string()


def _watched(path: str | Path) -> tuple[pa.NativeFile, Callable[[], float]]:
    """A file for Arrow to read, and a function for the share that has been read."""
    file = pa.OSFile(str(path))
    size = file.size()
    return file, lambda: 1.0 if file.closed or not size else file.tell() / size


def _chosen(path: object, names: Sequence[str], types: Types, columns: Sequence[str] | None) -> list[str]:
    """The columns to read, in the file's order: all by default, otherwise ``columns`` and the attributes."""
    chosen = [name for name in names if columns is None or name in columns or name in types]
    _check_columns(path, [*(columns or ()), *chosen], names)
    return chosen


def _without_nan(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _refuse_nested(path: str | Path, schema: pa.Schema) -> None:
    shown = "standard output" if path == STANDARD else path
    for field in schema:
        if pa.types.is_nested(field.type):
            raise GpumatchError(
                f"cannot write {shown}: column {field.name!r} is {field.type}, and CSV cannot contain lists; "
                "choose other columns, or a Parquet or JSON lines file"
            )


def _check_columns(path: object, columns: Sequence[str], found: Sequence[str]) -> None:
    for name in columns:
        if name not in found:
            raise GpumatchError(f"{path} has no column {name!r}{nearest(name, found)}; it has {', '.join(found)}")
        if found.count(name) > 1:
            raise GpumatchError(f"{path} has {found.count(name)} columns named {name!r}; drop or rename all but one")


def _input_format(path: str | Path) -> Format:
    """The format of an existing path; a folder contains Parquet files, as Spark writes it."""
    if Path(path).is_dir():
        return "parquet"
    kind = format_of(path)
    if not Path(path).exists():
        raise GpumatchError(f"{path} does not exist")
    return kind


@contextmanager
def _explained(path: object) -> Iterator[None]:
    try:
        yield
    except GpumatchError as error:
        raise error if str(path) in str(error) else GpumatchError(f"cannot read {path}: {error}") from None
    except (pa.ArrowException, OSError) as error:
        raise GpumatchError(f"cannot read {path}: {error}") from error


def _explaining(path: object, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _explained(path):
        yield from batches
