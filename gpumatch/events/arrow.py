"""Arrow, NumPy, pandas and polars columns as typed columns, without copies where the layout allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from gpumatch.arrays import Array
from gpumatch.device_memory import library_of, to_host
from gpumatch.errors import SchemaError
from gpumatch.events.columns import (
    BAD_TEXT,
    INEXACT,
    NANOS,
    NOT_WHOLE,
    OUTSIDE_INT64,
    BadValue,
    Column,
    Strings,
    from_values,
    tick,
    too_far,
    too_fine,
    zone_hint,
)
from gpumatch.schema import AttributeType

_AS_IT_IS = {"float": np.dtype(np.float64), "int": np.dtype(np.int64)}  # arrays that are columns already
_DATETIME64 = {"Y": "s", "M": "s", "W": "s", "D": "s", "h": "s", "m": "s", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}


def from_any(name: str, kind: AttributeType, data: Any) -> Column | None:
    """A column from any object with one value per event; None if all of them are missing."""
    if isinstance(data, np.ndarray):
        return from_numpy(name, kind, data)
    if isinstance(data, (list, tuple, range)):
        return from_values(name, kind, data)
    try:
        array = _arrow(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise SchemaError(f"attribute {name!r} is {kind}, but its column cannot be read: {error}") from error
    return from_numpy(name, kind, array) if isinstance(array, np.ndarray) else from_arrow(name, kind, array)


def _arrow(data: Any) -> Any:
    """The column as Arrow, or as the numpy array that it is made of."""
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return data
    if of_library(data, "pandas"):
        if isinstance(data.dtype, np.dtype) or hasattr(data.dtype, "fill_value"):  # the latter is pandas' sparse dtype
            return np.asarray(data)
        return pa.array(data, from_pandas=True)
    if of_library(data, "polars"):
        return data.to_arrow()  # its C stream fails for dates and categories in some versions
    if hasattr(data, "__arrow_c_stream__"):
        return pa.chunked_array(data)
    exports = hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_device_array__")
    return pa.array(data) if exports else np.asarray(data)


def of_library(data: object, library: str) -> bool:
    """Whether the value's class is, or derives from, a class of a library, without importing the library."""
    return any(base.__module__.partition(".")[0] == library for base in type(data).__mro__)


def from_numpy(name: str, kind: AttributeType, array: Array) -> Column | None:
    """A one-dimensional array, or a two-dimensional one for a list attribute; masked entries are missing."""
    if not 1 <= array.ndim <= 1 + kind.multi:
        raise wrong_type(name, kind, f"{array.ndim}-dimensional {array.dtype}", array.ndim > 1)
    mask = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    array = np.asarray(array)
    if mask is None and not kind.multi and kind.kind in _AS_IT_IS and array.dtype == _AS_IT_IS[kind.kind]:
        return Column(np.ascontiguousarray(array)) if len(array) else None
    if array.dtype.kind in "OT":
        values = array.astype(object)  # a copy
        values[False if mask is None else mask] = None
        return from_values(name, kind, values.tolist())
    if mask is not None and array.dtype.kind == "M":
        mask = mask | np.isnat(array)  # Arrow takes either NaT or the mask for null
    try:
        flat = pa.array(_native(array).reshape(-1), mask=None if mask is None else mask.reshape(-1))
    except BadValue as bad:
        raise bad.error(name, kind) from None
    except UnicodeError:
        return from_values(name, kind, array.tolist())  # which knows the event to blame
    except pa.ArrowException:
        raise wrong_type(name, kind, str(array.dtype), False) from None
    if array.ndim == 1:
        return from_arrow(name, kind, flat)
    ends = np.arange(len(array) + 1, dtype=np.int64) * array.shape[1]
    return from_arrow(name, kind, pa.LargeListArray.from_arrays(ends, flat))


def _native(array: Array) -> Array:
    """The array in a byte order and time unit that Arrow supports."""
    if array.dtype.kind != "M":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    unit = _DATETIME64.get(np.datetime_data(array.dtype)[0])
    if unit is None:
        raise BadValue(0, array.flat[0], f", of type {array.dtype}; use datetime64[ns] or coarser")
    cast = array.astype(f"datetime64[{unit}]", copy=False)
    wrong = (cast.astype(array.dtype) != array) & ~np.isnat(array)  # NumPy overflows silently
    if wrong.any():
        at = int(np.argmax(wrong))
        raise BadValue(at, array.flat[at], f", which is outside the range of datetime64[{unit}]")
    return cast


def from_arrow(name: str, kind: AttributeType, array: Any) -> Column | None:
    """An Arrow Array or ChunkedArray of any layout that fits the attribute."""
    if pt.is_run_end_encoded(array.type):
        array = pc.run_end_decode(_combined(array))
    if array.null_count == len(array):
        return None
    if not fits(kind, array.type):
        if pt.is_floating(array.type) and np.isnan(_combined(array).to_numpy(zero_copy_only=False)).all():
            return None  # how pandas writes an empty column
        raise mismatch(name, kind, array.type)
    try:
        return _lists(kind, _combined(array)) if kind.multi else Column(*_scalars(kind, array))
    except BadValue as bad:
        raise bad.error(name, kind) from None
    except pa.ArrowNotImplementedError as error:  # string_view in old versions of Arrow, for one
        hint = "upgrade pyarrow, or convert the column"
        raise SchemaError(f"attribute {name!r} is {kind}, but its column is {array.type}: {error}; {hint}") from error


def fits(kind: AttributeType, found: Any) -> bool:
    if kind.multi:
        return is_list(found) and (pt.is_null(found.value_type) or _scalar_fits(kind, found.value_type))
    return _scalar_fits(kind, found)


def _scalar_fits(kind: AttributeType, found: Any) -> bool:
    if pt.is_dictionary(found):
        found = found.value_type
    if kind.kind in ("int", "float"):
        return bool(pt.is_integer(found) or pt.is_floating(found))
    if kind.kind == "bool":
        return bool(pt.is_boolean(found))
    if kind.kind == "string":
        return bool(pt.is_string(found) or pt.is_large_string(found) or pt.is_string_view(found))
    if kind.kind == "date" and pt.is_date(found):
        return True
    return bool(pt.is_timestamp(found) and (found.tz is None) == (kind.zone is None))


def is_list(found: Any) -> bool:
    tests = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
    return any(test(found) for test in tests)


def mismatch(name: str, kind: AttributeType, found: Any) -> SchemaError:
    inner = found.value_type if kind.multi and is_list(found) else found
    if kind.kind in ("timestamp", "date") and pt.is_timestamp(inner) and kind.multi == is_list(found):
        return SchemaError(f"attribute {name!r} is {kind}, but its column is {found}; {zone_hint(kind)}")
    return wrong_type(name, kind, str(found), is_list(found))


def wrong_type(name: str, kind: AttributeType, found: str, is_list: bool) -> SchemaError:
    if kind.multi and not is_list:
        hint = f"pass a list per event, or declare the attribute as {kind.name}"
    elif is_list and not kind.multi:
        hint = f"pass one value per event, or declare the attribute as list<{kind.name}>"
    else:
        hint = f"convert the column to {kind}, or declare the attribute with the type of the data"
    return SchemaError(f"attribute {name!r} is {kind}, but its column is {found}; {hint}")


def _combined(array: Any) -> Any:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()  # combining would copy a single chunk


def _lists(kind: AttributeType, array: Any) -> Column:
    valid = _valid(array)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = starts(lengths)
    elements = array.flatten()  # of the lists that are not null
    if elements.null_count == len(elements):
        return Column(empty(kind), valid, np.zeros(len(array) + 1, np.int64))
    try:
        values, present = _scalars(kind, elements)
    except BadValue as bad:
        raise in_list(bad, offsets) from None
    return list_column(values, present, offsets, valid)


def in_list(bad: BadValue, offsets: Array) -> BadValue:
    """A bad element of a list as a bad value of the list's event."""
    return BadValue(int(np.searchsorted(to_host(offsets), bad.at, "right")) - 1, bad.found, bad.why)


def list_column(values: Array | Strings, present: Array | None, offsets: Array, valid: Array | None) -> Column:
    """A column of lists without their missing elements."""
    if not isinstance(values, Strings) and values.dtype == np.float64:
        there = values == values
        present = None if there.all() else there
    if present is not None:
        values, offsets = values[present], starts(present)[offsets]
    return Column(values, valid, offsets)


def starts(lengths: Array) -> Array:
    """0 and the running sums of lengths: where each piece starts, and where the last one ends."""
    offsets: Array = library_of(lengths).zeros(len(lengths) + 1, dtype=np.int64)
    offsets[1:] = lengths.cumsum(dtype=np.int64)
    return offsets


def empty(kind: AttributeType) -> Array | Strings:
    if kind.kind == "string":
        return Strings(pa.array([], pa.large_string()), np.zeros(0, np.int32))
    return np.zeros(0, np.float64 if kind.kind == "float" else np.int64)


def _valid(array: Any) -> Array | None:
    if not array.null_count:
        return None
    valid: Array = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _scalars(kind: AttributeType, array: Any) -> tuple[Array | Strings, Array | None]:
    """Values and validity of an array whose type fits."""
    if kind.kind == "string":
        return with_presence(_strings(array))
    if pt.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return numbers(kind, array.type, *plain(_combined(array)))


def with_presence(strings: Strings) -> tuple[Strings, Array | None]:
    """Strings, and which of them are present (None: all)."""
    there = strings.indices >= 0
    return strings, None if there.all() else there


def plain(array: Any) -> tuple[Array, Array | None]:
    """Numbers, booleans or times as numpy arrays, NaN or 0 for null, and which of them are not null (None: all)."""
    found = array.type
    if pt.is_floating(found):
        return array.to_numpy(zero_copy_only=False), None  # nulls are NaN now
    if pt.is_date32(found):
        array = array.cast(pa.int32())
    elif pt.is_temporal(found):
        array = array.view(pa.int64())
    valid = _valid(array)
    if valid is not None:
        array = array.fill_null(False if pt.is_boolean(found) else 0)
    return array.to_numpy(zero_copy_only=False), valid


def numbers(kind: AttributeType, found: Any, values: Array, valid: Array | None) -> tuple[Array, Array | None]:
    """Values and validity, in the form of a column, from the output of ``plain``; on the host or on a device."""
    if pt.is_floating(found):
        floats = values.astype(np.float64, copy=False)
        return (floats, None) if kind.kind == "float" else whole(floats)
    if kind.kind == "float":
        floats = exact(values)
        return floats if valid is None else library_of(floats).where(valid, floats, np.nan), None
    if kind.kind in ("date", "timestamp"):
        nanos = NANOS["day" if pt.is_date32(found) else "ms" if pt.is_date64(found) else found.unit]
        return rescale(values.astype(np.int64, copy=False), nanos, kind), valid
    if values.dtype == np.uint64 and values.max() > 2**63 - 1:
        raise BadValue(int(values.argmax()), int(values.max()), OUTSIDE_INT64)
    return values.astype(np.int64, copy=False), valid


def whole(floats: Array) -> tuple[Array, Array | None]:
    """Floats as int64 and validity: NaN is missing, anything else must be whole and in range."""
    xp = library_of(floats)
    valid = floats == floats
    if not valid.all():
        floats = xp.where(valid, floats, 0.0)
    inside = (floats >= -(2.0**63)) & (floats < 2.0**63)
    good = inside & (xp.trunc(floats) == floats)
    if not good.all():
        at = int(good.argmin())
        raise BadValue(at, float(floats[at]), NOT_WHOLE if inside[at] else OUTSIDE_INT64)
    return floats.astype(np.int64), None if valid.all() else valid


def exact(ints: Array) -> Array:
    """Integers as float64; each must be exact: its odd factor needs at most 53 bits."""
    if ints.dtype.itemsize == 8 and len(ints):
        xp, one = library_of(ints), np.uint64(1)
        size = ints.astype(np.uint64)
        size = xp.where(ints < 0, ~size + one, size)  # right for -2**63 as well
        large = xp.where(size > 2**53, size, one)
        odd = large // (large & (~large + one))
        if odd.max() > 2**53:
            at = int(odd.argmax())
            raise BadValue(at, int(ints[at]), INEXACT)
    return ints.astype(np.float64)


def rescale(ticks: Array, nanos: int, kind: AttributeType) -> Array:
    """Ticks of ``nanos`` nanoseconds as steps of the attribute; one that is not a whole number of steps is an error."""
    step = tick(kind)
    if nanos >= step:
        limit = (2**63 - 1) // (nanos // step)
        bad, why = (ticks > limit) | (ticks < -limit), too_far(kind)
        scaled = ticks if nanos == step else ticks * (nanos // step)
    else:
        scaled = ticks // (step // nanos)
        bad, why = scaled * (step // nanos) != ticks, too_fine(kind)
    if bad.any():
        at = int(bad.argmax())
        unit = next(unit for unit, length in NANOS.items() if length == nanos)
        found = to_host(ticks[at : at + 1]).astype(f"datetime64[{'D' if unit == 'day' else unit}]")
        raise BadValue(at, str(found[0]), why)
    return scaled


def _strings(array: Any) -> Strings:
    if isinstance(array, pa.ChunkedArray) and pt.is_dictionary(array.type) and array.num_chunks > 1:
        array = array.cast(array.type.value_type)  # Arrow cannot join dictionaries with nulls
    encoded = _combined(array if pt.is_dictionary(array.type) else array.dictionary_encode())
    dictionary = encoded.dictionary.cast(pa.large_string())
    if dictionary.null_count or len(dictionary) > len(encoded):  # the latter would cost more to encode than the events
        encoded = dictionary.take(encoded.indices).dictionary_encode()
        dictionary = encoded.dictionary
    return checked_text(Strings(dictionary, encoded.indices.cast(pa.int32()).fill_null(-1).to_numpy()))


def checked_text(strings: Strings) -> Strings:
    """The strings, after checking that their dictionary is valid Unicode."""
    try:
        strings.dictionary.validate(full=True)
    except pa.ArrowInvalid:
        raise _bad_text(strings.dictionary, strings.indices) from None
    return strings


def _bad_text(dictionary: Any, indices: Array) -> BadValue:
    for code, text in enumerate(dictionary.cast(pa.large_binary())):
        try:
            text.as_py().decode()
        except UnicodeDecodeError:
            return BadValue(int((indices == code).argmax()), text.as_py(), BAD_TEXT)
    raise AssertionError("the dictionary is valid")
