"""Columns in the memory of a CUDA device as typed columns there: cuDF, CuPy, objects with their protocols, and Arrow.

Types, conversions and errors are as in ``arrow_in``. Strings are encoded on the host, unless they come as codes of a
dictionary: then the codes stay where they are, and only the dictionary is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from gpumatch.arrays import Array
from gpumatch.device_memory import finish, from_dlpack, is_device_array, library, to_host, use_device_of, wait_for, wrap
from gpumatch.errors import DeviceError, SchemaError
from gpumatch.events import arrow as arrow_in
from gpumatch.events.arrow import of_library
from gpumatch.events.arrow_device import CUDA, DeviceArrow, imported
from gpumatch.events.columns import BadValue, Column, Strings
from gpumatch.schema import AttributeType

_NAT = -(2**63)
_UNITS = ("s", "ms", "us", "ns")  # of datetime64 that Arrow has, too
_UNREADABLE = (pa.ArrowException, ValueError, TypeError, RuntimeError, BufferError)


@dataclass(frozen=True, slots=True)
class _Flat:
    """Numbers, or codes of a dictionary."""

    type: Any  # Arrow's
    length: int
    values: Any  # None: of a type that cannot be read here
    valid: Array | None  # which are not null; None: all
    dictionary: Any = None  # an Arrow array on the host


@dataclass(frozen=True, slots=True)
class _Lists:
    """Lists of numbers or codes."""

    type: Any
    length: int
    valid: Array | None
    offsets: Array
    elements: _Flat

    @property
    def values(self) -> Any:
        return self.elements.values if self.elements.values is not None else self.offsets


_Found: TypeAlias = "_Flat | _Lists | np.ndarray[Any, Any] | pa.Array"  # the last two are on the host


def on_device(data: Any) -> bool:
    """Whether a column or table is in the memory of a CUDA device. Imports nothing to find out."""
    if is_device_array(data) or isinstance(data, DeviceArrow):
        return True
    if isinstance(data, (list, tuple, range, np.ndarray)) or of_library(data, "pandas") or of_library(data, "polars"):
        return False
    if isinstance(data, (pa.Array, pa.RecordBatch)):
        return not data.is_cpu
    if of_library(data, "cudf"):
        return True
    if hasattr(data, "__dlpack_device__"):
        return int(data.__dlpack_device__()[0]) in CUDA
    if hasattr(data, "__arrow_c_device_array__"):
        return imported(data) is not None
    return hasattr(data, "__cuda_array_interface__")


def device_table(data: Any) -> tuple[int, Iterable[str], Callable[[str], Any]] | None:
    """As ``batch._table``, for a table on a device: events, column names, columns by name; None for anything else."""
    if not on_device(data):
        return None
    if of_library(data, "cudf"):
        return (len(data), data.columns, data.__getitem__) if hasattr(data, "columns") else None
    table = imported(data) if hasattr(data, "__arrow_c_device_array__") else None
    if table is None or not pt.is_struct(table.type):
        return None
    with table.device:
        if table.valid() is not None:
            raise SchemaError("some events of the Arrow struct array are null; leave them out")
    names = [field.name for field in table.type]
    return table.length, names, lambda name: table.field(names.index(name))


def length_of(data: Any) -> int:
    """The number of values of a column, even of one on a device that has no ``len``."""
    if hasattr(type(data), "__len__") or not on_device(data):
        return len(data)
    if hasattr(data, "__arrow_c_device_array__"):
        return _exported(data).length
    return len(_array(data)[0])


def type_of(data: Any) -> Any:
    """The type of a column on a device: Arrow's, or NumPy's or just its name if Arrow has none."""
    try:
        found = _opened(data, multi=False)
    except _WrongType as wrong:
        return wrong.text
    except DeviceError:
        raise
    except _UNREADABLE as error:
        raise SchemaError(f"an array on a CUDA device cannot be read: {error}") from error
    return found.dtype if isinstance(found, np.ndarray) else found.type


def from_device(name: str, kind: AttributeType, data: Any) -> Column | None:
    """A column from data that ``on_device`` accepts; None if all values are missing."""
    try:
        found = _opened(data, kind.multi)
    except _WrongType as wrong:
        raise arrow_in.wrong_type(name, kind, wrong.text, wrong.is_list) from None
    except DeviceError:
        raise
    except _UNREADABLE as error:
        raise SchemaError(f"attribute {name!r} is {kind}, but its column cannot be read: {error}") from error
    if not isinstance(found, (_Flat, _Lists)):
        return arrow_in.from_any(name, kind, found)
    with use_device_of(found.values):
        try:
            column = _column(name, kind, found)
        except BadValue as bad:
            raise bad.error(name, kind) from None
        finish()
        return column


class _WrongType(Exception):  # noqa: N818 - never leaves this module
    """An array that does not fit the attribute, or any attribute."""

    def __init__(self, text: str, is_list: bool) -> None:
        super().__init__(text, is_list)
        self.text, self.is_list = text, is_list


def _opened(data: Any, multi: bool) -> _Found:
    if of_library(data, "cudf"):
        return _read_cudf(data)
    if isinstance(data, DeviceArrow):
        return _read_arrow(data)
    if not is_device_array(data) and hasattr(data, "__arrow_c_device_array__"):
        return _read_arrow(_exported(data))
    return _read_array(data, multi)


def _exported(data: Any) -> DeviceArrow:
    array = imported(data)
    if array is None:
        raise TypeError(f"{type(data).__name__} says that it is on a CUDA device, but exports Arrow data elsewhere")
    return array


# cuDF and Arrow


def _read_cudf(series: Any) -> _Found:
    dtype = series.dtype
    if getattr(dtype, "name", None) == "category":
        codes = _exported(series.cat.codes.to_pylibcudf()[0])
        categories = series.cat.categories.to_arrow()
        with codes.device:
            kind = pa.dictionary(codes.type, categories.type)
            return _Flat(kind, codes.length, codes.values(), codes.valid(), categories)
    array = _exported(series.to_pylibcudf()[0])
    if _is_text(array.type):
        return series.to_arrow()
    zone = getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)  # pylibcudf's columns have none, but are in UTC
    if zone is not None and pt.is_timestamp(array.type):
        array = replace(array, type=pa.timestamp(array.type.unit, str(zone)))
    return _read_arrow(array)


def _is_text(found: Any) -> bool:
    inner = found.value_type if arrow_in.is_list(found) else found
    return bool(pt.is_string(inner) or pt.is_large_string(inner) or pt.is_string_view(inner))


def _read_arrow(array: DeviceArrow) -> _Found:
    with array.device:
        if _is_text(array.type):
            return array.to_host()
        lists = array.lists()
        if lists is None:
            return _flat(array)
        offsets, elements = lists
        return _without_null_lists(array.type, array.valid(), offsets, _flat(elements))


def _flat(array: DeviceArrow) -> _Flat:
    if not pt.is_dictionary(array.type):
        return _Flat(array.type, array.length, array.values(), array.valid())
    try:
        dictionary = array.dictionary().to_host()
    except NotImplementedError:  # of a type that no attribute takes
        return _Flat(array.type, array.length, None, array.valid())
    return _Flat(array.type, array.length, array.codes().values(), array.valid(), dictionary)


def _without_null_lists(found: Any, valid: Array | None, offsets: Array, elements: _Flat) -> _Lists:
    """Lists where null ones have no elements, which Arrow allows them to have."""
    length = len(offsets) - 1
    if valid is None or elements.values is None:
        return _Lists(found, length, valid, offsets, elements)
    xp = library()
    kept = arrow_in.starts(xp.where(valid, offsets[1:] - offsets[:-1], np.int64(0)))
    if int(kept[-1]) < elements.length:
        owner = xp.searchsorted(offsets, xp.arange(elements.length, dtype=np.int64), "right") - 1
        keep = valid[owner]
        there = None if elements.valid is None else elements.valid[keep]
        elements = replace(elements, length=int(kept[-1]), values=elements.values[keep], valid=there)
    return _Lists(found, length, valid, kept, elements)


# Arrays


def _read_array(data: Any, multi: bool) -> _Found:
    """An array of one dimension, or of two for a list attribute."""
    values, dtype, mask = _array(data)
    if not 1 <= values.ndim <= 1 + multi:
        raise _WrongType(f"{values.ndim}-dimensional {dtype}", values.ndim > 1)
    with use_device_of(values):
        valid = None if mask is None else mask.reshape(-1)
        found = _arrow_type(dtype)
        if found is None:  # times that only NumPy converts
            host = to_host(values).view(dtype)
            return host if mask is None else np.ma.array(host, mask=~to_host(mask))
        flat = library().ascontiguousarray(values).reshape(-1)
        if dtype.kind == "M":
            there = flat != _NAT
            valid = there if valid is None else valid & there
        if valid is not None and valid.all():
            valid = None
        numbers = _Flat(found, len(flat), flat, valid)
        if values.ndim == 1:
            return numbers
        offsets = library().arange(len(values) + 1, dtype=np.int64) * values.shape[1]
        return _Lists(pa.large_list(found), len(values), None, offsets, numbers)


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    """The Arrow type of an array's values; None for times in units that Arrow does not have."""
    if dtype.kind == "M":
        unit, count = np.datetime_data(dtype)
        return pa.timestamp(unit) if unit in _UNITS and count == 1 else None
    try:
        if dtype.kind in "biufm" and dtype.isnative:
            return pa.from_numpy_dtype(dtype)
    except pa.ArrowNotImplementedError:
        pass
    raise _WrongType(str(dtype), False)


def _array(data: Any) -> tuple[Any, np.dtype[Any], Any]:
    """An array over the values, with times as integers; the type of the values; and which are present (None: all)."""
    if is_device_array(data):
        return data.view(np.int64) if data.dtype.kind == "M" else data, data.dtype, None
    facts = getattr(data, "__cuda_array_interface__", None)
    if hasattr(data, "__dlpack__") and (facts is None or (facts["version"] < 3 and facts.get("mask") is None)):
        # before version 3, the CUDA array interface did not say what to wait for
        values = from_dlpack(data)
        return values, values.dtype, None
    assert facts is not None
    mask = facts.get("mask")
    return _wrapped(facts, data), np.dtype(facts["typestr"]), None if mask is None else _mask(mask, facts["shape"])


def _wrapped(facts: Any, owner: object) -> Any:
    dtype = np.dtype(facts["typestr"])
    values = np.dtype(np.int64) if dtype.kind == "M" else dtype
    wrapped = wrap(facts["data"][0] or 0, tuple(facts["shape"]), values, owner, facts.get("strides"))
    if facts.get("stream") is not None:
        with use_device_of(wrapped):  # each device has a default stream of its own
            wait_for("stream", facts["stream"])
    return wrapped


def _mask(mask: Any, shape: tuple[int, ...]) -> Array:
    """A mask as booleans: values that are not zero are present."""
    facts = mask.__cuda_array_interface__
    if tuple(facts["shape"]) != tuple(shape):
        raise ValueError(f"its mask has the shape {facts['shape']}, not that of the values, {shape}")
    wrapped = _wrapped(facts, mask)
    with use_device_of(wrapped):
        found: Array = library().ascontiguousarray(wrapped != 0)
        return found


# Columns


def _column(name: str, kind: AttributeType, found: _Flat | _Lists) -> Column | None:
    if not found.length or (found.valid is not None and not found.valid.any()):
        return None
    if not arrow_in.fits(kind, found.type):
        if isinstance(found, _Flat) and pt.is_floating(found.type):
            floats = _filled(found).values
            if not (floats == floats).any():
                return None  # an empty column
        raise arrow_in.mismatch(name, kind, found.type)
    if isinstance(found, _Lists):
        return _list_column(name, kind, found)
    _check_readable(name, kind, found)
    return Column(*_scalars(kind, found))


def _list_column(name: str, kind: AttributeType, found: _Lists) -> Column:
    elements = found.elements
    if not elements.length or (elements.valid is not None and not elements.valid.any()):
        nothing = Column(arrow_in.empty(kind), None, np.zeros(found.length + 1, np.int64))
        return replace(nothing.moved(library().asarray), valid=found.valid)
    _check_readable(name, kind, elements)
    try:
        values, present = _scalars(kind, elements)
    except BadValue as bad:
        raise arrow_in.in_list(bad, found.offsets) from None
    return arrow_in.list_column(values, present, found.offsets, found.valid)


def _check_readable(name: str, kind: AttributeType, found: _Flat) -> None:
    if found.values is None:
        hint = "which cannot be read from a CUDA device; copy the column to the host, or convert it"
        raise SchemaError(f"attribute {name!r} is {kind}, but its column is {found.type}, {hint}")


def _scalars(kind: AttributeType, found: _Flat) -> tuple[Array | Strings, Array | None]:
    """Values and validity of a column whose type fits."""
    if kind.kind == "string":
        return arrow_in.with_presence(_strings(found))
    plain = _filled(found if found.dictionary is None else _decoded(found))
    return arrow_in.numbers(kind, plain.type, plain.values, plain.valid)


def _filled(found: _Flat) -> _Flat:
    """NaN or 0 instead of null, as in ``arrow_in.plain``."""
    if found.valid is None:
        return found
    floats = pt.is_floating(found.type)
    filler = found.values.dtype.type("nan" if floats else 0)
    values = library().where(found.valid, found.values, filler)
    return replace(found, values=values, valid=None if floats else found.valid)


def _there(found: _Flat) -> Array:
    """Which codes stand for a value: a negative code is another way to write null."""
    there: Array = found.values >= 0
    return there if found.valid is None else there & found.valid


def _decoded(found: _Flat) -> _Flat:
    """Codes of numbers as the numbers themselves."""
    xp, there = library(), _there(found)
    at = xp.where(there, found.values, found.values.dtype.type(0))
    known, present = arrow_in.plain(found.dictionary)
    if present is not None:
        there = there & xp.asarray(present)[at]
    return _Flat(found.type.value_type, found.length, xp.asarray(known)[at], there)


def _strings(found: _Flat) -> Strings:
    xp, there, nothing = library(), _there(found), np.int32(-1)
    dictionary = found.dictionary.cast(pa.large_string())
    indices = xp.where(there, found.values.astype(np.int32), nothing)
    if len(dictionary) > len(indices):  # would cost more to encode than the events
        used = xp.unique(indices[there])
        dictionary = dictionary.take(pa.array(to_host(used)))
        indices = xp.where(there, xp.searchsorted(used, indices).astype(np.int32), nothing)
    if dictionary.null_count:
        encoded = dictionary.dictionary_encode()
        codes = np.append(encoded.indices.fill_null(-1).to_numpy(), -1).astype(np.int32)  # the last for index -1
        dictionary, indices = encoded.dictionary, xp.asarray(codes)[indices]
    return arrow_in.checked_text(Strings(dictionary, indices))
