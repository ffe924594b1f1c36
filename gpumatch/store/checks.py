"""What a saved segment consists of, and whether it is safe to use: types and lengths, then values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array, bytes_of
from gpumatch.arrayspec import (
    ANYTHING,
    ArraySpec,
    Numbers,
    Pointers,
    Sizes,
    check_types,
    check_values,
    raise_first,
    whole,
)
from gpumatch.codes import book as books
from gpumatch.codes import table as tables
from gpumatch.codes.book import BOOK_TYPES, Codebook
from gpumatch.codes.table import TABLE_TYPES, Table
from gpumatch.errors import StorageError
from gpumatch.index import FlatIndex, kind_of
from gpumatch.subscriptions.block import Attributes

REMOVED = "dead"  # the column of removed rows, the only one that changes
_OWNER = "saved index"


def _text(name: str, length: str) -> dict[str, ArraySpec]:
    return {
        f"{name}.data": ArraySpec("uint8", f"{name}_bytes", "of UTF-8", ANYTHING),
        f"{name}.offsets": ArraySpec("int64", f"{length} + 1", "where each begins", Pointers(f"{name}_bytes")),
    }


COLUMNS = {
    "ids": ArraySpec("int64", "rows", "ids that are integers", ANYTHING),
    **_text("ids", "rows"),
    **_text("texts", "rows"),
    "texts.valid": ArraySpec("bool", "rows", "which subscriptions have a text", ANYTHING),
    "destinations.names": ArraySpec("int64", "destinations", "destinations that are integers", ANYTHING),
    **_text("destinations", "destinations"),
    "destinations.number": ArraySpec("int32", "rows", "the destination of each, or -1", Numbers("destinations", -1)),
    "weights": ArraySpec("float64", "rows", "of subscriptions, NaN for none", ANYTHING),
    REMOVED: ArraySpec("bool", "rows", "which subscriptions are removed", ANYTHING),
}


@contextmanager
def understood() -> Iterator[None]:
    """Turn errors about a manifest's facts into one that says what to do."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise StorageError(f"the manifest of the saved index is damaged: {error!r}; build it again") from error


def check_columns(facts: Mapping[str, Any], arrays: Mapping[str, Array], full: bool) -> None:
    """Raise unless the columns have the segment's length; if ``full``, unless they have right values, too."""
    raise_first(_OWNER, whole("length", facts["length"], 0, np.iinfo(np.int32).max))
    specs = {name: COLUMNS[name] for name in _columns(arrays)}
    known = ("book.", "table.", *(f"index{number}." for number in range(len(facts["parts"]))))
    for name in arrays:
        if name not in specs and not name.startswith(known):
            raise StorageError(f"the saved index has an array {name!r}, which belongs to nothing in it; build it again")
    sizes: Sizes = {"rows": facts["length"]}
    check_types(_OWNER, specs, arrays, sizes)
    if full:
        check_values(_OWNER, specs, arrays, sizes)
        for name in {name.removesuffix(".data") for name in specs if name.endswith(".data")}:
            strings(arrays, name).validate(full=True)


def _columns(arrays: Mapping[str, Array]) -> list[str]:
    """Names of the columns that a segment has."""
    found = ["ids"] if "ids" in arrays else ["ids.data", "ids.offsets"]
    if any(name.startswith("texts.") for name in arrays):
        found += ["texts.data", "texts.offsets", "texts.valid"]
    if any(name.startswith("destinations.") for name in arrays):
        integers = "destinations.names" in arrays
        found += ["destinations.names"] if integers else ["destinations.data", "destinations.offsets"]
        found.append("destinations.number")
    return found + [name for name in ("weights", REMOVED) if name in arrays]


def strings(arrays: Mapping[str, Array], name: str) -> Any:
    """A column of strings as an Arrow array."""
    data, offsets = arrays[f"{name}.data"], arrays[f"{name}.offsets"]
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def id_columns(ids: Any) -> dict[str, Array]:
    """Ids as arrays for storage; ``ids_from`` reads them back."""
    if ids.type == pa.int64():
        return {"ids": ids.to_numpy()}
    data, offsets = bytes_of(ids)
    return {"ids.data": data, "ids.offsets": offsets}


def check_ids(arrays: Mapping[str, Array]) -> None:
    """Raise unless these are ids, and nothing else."""
    names = ["ids"] if "ids" in arrays else ["ids.data", "ids.offsets"]
    specs = {name: COLUMNS[name] for name in names}
    if unknown := sorted(arrays.keys() - specs.keys()):
        raise ValueError(f"the ids of a change have an array {unknown[0]!r}")
    sizes: Sizes = {"rows": len(arrays[names[-1]]) - len(names) + 1}
    check_types(_OWNER, specs, arrays, sizes)
    check_values(_OWNER, specs, arrays, sizes)
    ids_from(arrays).validate(full=True)


def ids_from(arrays: Mapping[str, Array]) -> Any:
    return pa.array(arrays["ids"]) if "ids" in arrays else strings(arrays, "ids")


def component(
    arrays: Mapping[str, Array], prefix: str, specs: Mapping[str, ArraySpec], sizes: Sizes
) -> dict[str, Array]:
    """The arrays of the codebook or the table, after checking that each exists and has its type and length."""
    check_types(_OWNER, _prefixed(prefix, specs), arrays, sizes)
    return {name: arrays[f"{prefix}.{name}"] for name in specs}


def _prefixed(prefix: str, specs: Mapping[str, ArraySpec]) -> dict[str, ArraySpec]:
    return {f"{prefix}.{name}": spec for name, spec in specs.items()}


def check_parts(indexes: Sequence[FlatIndex], clauses: int) -> None:
    """Raise unless the parts of a segment hold its clauses one after another."""
    ends = [0, *(index.last for index in indexes)]
    if not indexes or ends[:-1] != [index.first for index in indexes] or ends[-1] != clauses or ends != sorted(ends):
        found = ", ".join(f"{index.first} to {index.last}" for index in indexes)
        raise StorageError(f"the parts of a saved index should hold clauses 0 to {clauses}, hold {found or 'none'}")


def check_safe(
    arrays: Mapping[str, Array], book: Codebook, table: Table, attributes: Attributes, indexes: Sequence[FlatIndex]
) -> None:
    """Raise unless all values that something is indexed by lead to where something is."""
    sizes: Sizes = {"rows": table.length}
    for prefix, specs in (("book", BOOK_TYPES), ("table", TABLE_TYPES)):
        named = _prefixed(prefix, specs)
        check_types(_OWNER, named, arrays, sizes)
        check_values(_OWNER, named, arrays, sizes)
    raise_first(_OWNER, books.problems(book, attributes))
    counts = book.counts()
    raise_first(_OWNER, tables.problems(table, attributes.multi, counts))
    for index in indexes:
        kind_of(index.params).check_values(index, attributes, counts, table)
