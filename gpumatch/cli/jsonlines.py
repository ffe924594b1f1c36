"""JSON lines, one object per line: first the fields and types of the whole file, then its rows block by block.

Arrow parses the blocks. A field whose values have no common type is read as JSON text.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json

from gpumatch.cli.fromtext import EXACT, as_text, typed
from gpumatch.errors import GpumatchError

Fields = dict[str, pa.DataType | None]  # None: values of several types

_BLOCK_BYTES = 8 << 20
_EXPECTED = "expected JSON lines, one object per line"
_NUMBERS = {pa.int64(), pa.float64()}
_CHANGED = re.compile(r"JSON parse error: Column\(/(.*)\) changed from (\w+) to (\w+) in row (\d+)")


def fields(path: str | Path) -> Fields:
    """Field names in order of appearance, and a common type for the values of each. Times are text."""
    found: Fields = {}
    lines = 0
    for block in _blocks(path)[0]:
        for name, kind in _block_fields(block, lines).items():
            found[name] = _common(found.get(name, pa.null()), kind)
        lines += block.count(b"\n")
    return found


def read(path: str | Path, types: Mapping[str, pa.DataType | None]) -> tuple[Iterator[Any], Callable[[], float]]:
    """Batches of these fields in these types (None: JSON text), and a function for the share of the file read."""
    blocks, done = _blocks(path)
    return _read(blocks, types), done


def parse(block: bytes, types: Mapping[str, pa.DataType | None], first: int = 0) -> pa.Table:
    """The rows of some lines, in these types; ``first`` is the number of rows of the file before them."""
    mixed = [name for name, kind in types.items() if kind is None]
    if mixed:
        block = _with_text(block, mixed)
    wanted = {name: kind or pa.string() for name, kind in types.items()}
    texts = {name: as_text(kind) for name, kind in wanted.items()}
    try:
        table = _arrow(block, texts, "ignore")
    except pa.ArrowInvalid as error:
        changed = _CHANGED.match(str(error))
        if changed:
            name, expected, found, row = changed.groups()
            raise GpumatchError(
                f"column {name!r}, row {first + int(row) + 1:,}: expected a JSON {expected}, found {found}"
            ) from None
        table = _arrow(block, {name: _exact(kind) for name, kind in texts.items()}, "ignore")  # 2.0 for an integer
    return typed(table, wanted, first)


def _read(blocks: Iterator[bytes], types: Mapping[str, pa.DataType | None]) -> Iterator[Any]:
    rows = 0
    for block in blocks:
        table = parse(block, types or {"": pa.null()}, rows)  # a table without columns would have no rows
        rows += len(table)
        yield from table.combine_chunks().to_batches()


def _blocks(path: str | Path) -> tuple[Iterator[bytes], Callable[[], float]]:
    """Blocks of whole lines."""
    size, read = Path(path).stat().st_size, 0

    def blocks() -> Iterator[bytes]:
        nonlocal read
        with open(path, "rb") as file:
            while lines := file.readlines(_BLOCK_BYTES):
                block = b"".join(lines)
                read += len(block)
                yield block

    return blocks(), lambda: read / size if size else 1.0


def _arrow(block: bytes, types: Mapping[str, pa.DataType], others: str) -> pa.Table:
    options = pa.json.ParseOptions(explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior=others)
    whole = pa.json.ReadOptions(block_size=len(block) + 1, use_threads=False)
    return pa.json.read_json(io.BytesIO(block), whole, options)


def _block_fields(block: bytes, lines: int) -> Fields:
    try:
        block.decode()  # Arrow accepts any bytes between quotes
    except UnicodeDecodeError as error:
        line = lines + block[: error.start].count(b"\n") + 1
        raise GpumatchError(f"line {line:,} is not UTF-8") from None
    try:
        return {field.name: as_text(field.type) for field in _arrow(block, {}, "infer").schema}
    except pa.ArrowInvalid:
        columns: dict[str, list[Any]] = {}
    for row in _rows(block, lines):
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: _type_of(values) for name, values in columns.items()}


def _type_of(values: list[Any]) -> pa.DataType | None:
    try:
        return pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return None


def _common(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one == other or other == pa.null():
        return one
    if one == pa.null():
        return other
    return pa.float64() if {one, other} == _NUMBERS else None


def _rows(block: bytes, lines: int, number_type: type = float) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(block.split(b"\n"), lines + 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_float=number_type)
        except ValueError as error:
            array = number == 1 and line.lstrip().startswith(b"[")
            why = "begins a JSON array" if array else f"is not JSON ({error})"
            raise GpumatchError(f"line {number:,} {why}; {_EXPECTED}") from None
        if not isinstance(row, dict):
            found = {"list": "array", "str": "string", "NoneType": "null"}.get(type(row).__name__, "number")
            raise GpumatchError(f"line {number:,} is a JSON {found}; {_EXPECTED}")
        yield row


def _with_text(block: bytes, names: list[str]) -> bytes:
    """The lines with the values of these fields replaced by their JSON text."""
    lines = []
    for row in _rows(block, 0, Decimal):
        for name in names:
            value = row.get(name)
            if value is not None and not isinstance(value, str):
                row[name] = written(value)
        lines.append(written(row))
    return "\n".join(lines).encode()


def written(value: Any) -> str:
    """JSON of a value; decimals keep all digits, which floats would not."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {written(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _exact(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_exact(kind.value_type))
    return EXACT if pa.types.is_integer(kind) else kind
