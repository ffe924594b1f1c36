"""Events in Parquet files: the columns that a schema names, all at once or some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from gpumatch.errors import SchemaError
from gpumatch.schema import Schema

_ROWS = 65_536  # of a batch


class Parquet:
    """A Parquet file, or a folder of them as Spark writes it."""

    def __init__(self, path: str | os.PathLike[str], schema: Schema) -> None:
        import pyarrow.dataset

        try:
            self._found = pyarrow.dataset.dataset(os.fspath(path), format="parquet")
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no Parquet file {os.fspath(path)!r} to read events from") from None
        except pa.ArrowInvalid as error:
            raise SchemaError(f"cannot read events from {os.fspath(path)!r} as Parquet: {error}") from None
        self.schema = self._found.schema
        self.names: list[str] = self.schema.names
        self._known = [name for name in self.names if name in schema]

    def table(self) -> Any:
        """Attributes of all events. Others are not read."""
        return self._found.to_table(columns=self._known)

    def batches(self) -> Iterator[Any]:
        """The same, some events at a time, and little read ahead: a file may be larger than memory."""
        batches: Iterator[Any] = self._found.to_batches(
            columns=self._known, batch_size=_ROWS, batch_readahead=2, fragment_readahead=1
        )
        return batches
