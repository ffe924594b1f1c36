"""Events in Parquet files: the columns that a schema names, all together or some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from gpumatch.errors import MissingFileError, SchemaError
from gpumatch.schema import Schema

_ROWS = 65_536  # of a batch


class Parquet:
    """A Parquet file, or a folder of them as Spark writes it."""

    def __init__(self, path: str | os.PathLike[str], schema: Schema) -> None:
        try:
            self._found = _dataset(os.fspath(path), schema)
        except FileNotFoundError:
            raise MissingFileError(f"there is no Parquet file {os.fspath(path)!r} to read events from") from None
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(f"cannot read events from {os.fspath(path)!r} as Parquet: {error}") from None
        self.schema = self._found.schema
        self.names: list[str] = self.schema.names
        self._known = [name for name in self.names if name in schema]

    def table(self) -> Any:
        """Attributes of all events; other columns are not read."""
        return self._found.to_table(columns=self._known)

    def batches(self) -> Iterator[Any]:
        """The same, some events at a time, with little read ahead: a file may be larger than memory."""
        batches: Iterator[Any] = self._found.to_batches(
            columns=self._known, batch_size=_ROWS, batch_readahead=2, fragment_readahead=1
        )
        return batches


def _dataset(path: str, schema: Schema) -> Any:
    """All columns that any file has, and those that folders name, such as ``day=7``."""
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive")
    fragments = list(found.get_fragments())
    if len(fragments) <= 1 and all(len(one.physical_schema) == len(found.schema) for one in fragments):
        return found
    columns = pa.unify_schemas([one.physical_schema for one in fragments], promote_options="permissive")
    folders = [field for field in found.schema if field.name not in columns.names]
    texts = [field.name for field in folders if field.name in schema and schema[field.name].kind == "string"]
    folders = [field.with_type(pa.string()) if field.name in texts else field for field in folders]
    partitioning = pyarrow.dataset.partitioning(pa.schema(folders), flavor="hive")
    everything = pa.schema([*columns, *folders])
    return pyarrow.dataset.dataset(path, everything, format="parquet", partitioning=partitioning)
