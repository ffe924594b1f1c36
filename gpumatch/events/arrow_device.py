"""Arrow arrays in the memory of a CUDA device, through the Arrow C device interface.

https://arrow.apache.org/docs/format/CDeviceDataInterface.html describes the two structs.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from gpumatch.arrays import Array
from gpumatch.device_memory import library, to_host, use_device, wait_for, wrap

CUDA = (2, 13)  # device types of CUDA memory and of CUDA managed memory, in Arrow as in DLPack
address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class ArrowArray(ctypes.Structure):
    """``struct ArrowArray``."""


ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class ArrowDeviceArray(ctypes.Structure):
    """``struct ArrowDeviceArray``."""

    _fields_ = (
        ("array", ArrowArray),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.POINTER(ctypes.c_void_p)),
        ("reserved", ctypes.c_int64 * 3),
    )


@dataclass(frozen=True, slots=True)
class DeviceArrow:
    """A slice of an Arrow array on a device. Its arrays are views where the layout allows."""

    type: Any
    start: int  # of the slice in the buffers
    length: int
    struct: Any  # its struct
    owner: object  # the capsule, which frees the memory when the last array over it is gone
    number: int  # of the device

    @property
    def device(self) -> AbstractContextManager[Any]:
        """A context in which its device is the current one."""
        return use_device(self.number)

    def __len__(self) -> int:
        return self.length

    def slice(self, start: int, length: int) -> DeviceArrow:
        return replace(self, start=self.start + start, length=length)

    def valid(self) -> Array | None:
        """Which values are not null; None if all are."""
        if pt.is_null(self.type):
            return self._zeros(np.bool_)
        if self.struct.null_count == 0 or not self.struct.n_buffers or not self.struct.buffers[0] or not self.length:
            return None
        bits = self._bits(0)
        return None if bits.all() else bits

    def values(self) -> Array | None:
        """Numbers, booleans, or dates and times as integers; None for other types."""
        found = self.type
        if pt.is_boolean(found):
            return self._bits(1)
        if pt.is_date(found) or pt.is_timestamp(found):
            return self._numbers(1, np.int32 if pt.is_date32(found) else np.int64, self.start, self.length)
        if pt.is_integer(found) or pt.is_floating(found):
            return self._numbers(1, found.to_pandas_dtype(), self.start, self.length)
        return None

    def codes(self) -> DeviceArrow:
        """The indices of a dictionary array."""
        return replace(self, type=self.type.index_type)

    def dictionary(self) -> DeviceArrow:
        struct = self.struct.dictionary.contents
        return replace(self, type=self.type.value_type, start=struct.offset, length=struct.length, struct=struct)

    def field(self, number: int) -> DeviceArrow:
        """A column of a struct array."""
        struct = self.struct.children[number].contents
        return replace(self, type=self.type.field(number).type, start=self.start + struct.offset, struct=struct)

    def lists(self) -> tuple[Array, DeviceArrow] | None:
        """Where each list starts among the elements and the last one ends, and the elements; None for other types."""
        if not (pt.is_list(self.type) or pt.is_large_list(self.type) or pt.is_fixed_size_list(self.type)):
            return None
        struct = self.struct.children[0].contents
        elements = replace(self, type=self.type.value_type, start=struct.offset, length=struct.length, struct=struct)
        if pt.is_fixed_size_list(self.type):
            size = self.type.list_size
            offsets = library().arange(self.length + 1, dtype=np.int64) * size
            return offsets, elements.slice(self.start * size, self.length * size)
        offsets = self._ends(pt.is_large_list(self.type)).astype(np.int64, copy=False)
        first = int(offsets[0])
        return offsets - first, elements.slice(first, int(offsets[-1]) - first)

    def to_host(self) -> Any:
        """A copy as an Arrow array on the host, of numbers, times, strings, dictionaries or lists of these."""
        if pt.is_dictionary(self.type):
            return pa.DictionaryArray.from_arrays(self.codes().to_host(), self.dictionary().to_host())
        if pt.is_null(self.type):
            return pa.nulls(self.length)
        buffers, children = [self.valid()], []
        if (lists := self.lists()) is not None:
            offsets, elements = lists
            children.append(elements.to_host())
            if not pt.is_fixed_size_list(self.type):
                buffers.append(offsets.astype(np.int64 if pt.is_large_list(self.type) else np.int32))
        elif pt.is_string(self.type) or pt.is_large_string(self.type):
            buffers += self._texts()
        else:
            buffers.append(self.values())
            if buffers[-1] is None:
                raise NotImplementedError(f"{self.type} cannot be read from a device; copy the column to the host")
        return pa.Array.from_buffers(self.type, self.length, [*map(_buffer, buffers)], children=children)

    def _texts(self) -> tuple[Array, Array]:
        """Where each string starts and the last one ends, and the bytes of all."""
        ends = self._ends(pt.is_large_string(self.type))
        first, last = int(ends[0]), int(ends[-1])
        return ends - ends[0], self._numbers(2, np.uint8, first, last - first)

    def _ends(self, large: bool) -> Array:
        """The offsets of lists or strings."""
        dtype = np.int64 if large else np.int32
        if not self.length:
            return self._zeros(dtype, 1)  # there may be no buffer
        return self._numbers(1, dtype, self.start, self.length + 1)

    def _numbers(self, buffer: int, dtype: Any, start: int, length: int) -> Array:
        pointer = (self.struct.buffers[buffer] or 0) + start * np.dtype(dtype).itemsize
        numbers: Array = wrap(pointer, (length,), dtype, self.owner)
        return numbers

    def _bits(self, buffer: int) -> Array:
        """A bitmap as booleans."""
        first = self.start % 8
        packed = self._numbers(buffer, np.uint8, self.start // 8, -(-(first + self.length) // 8) if self.length else 0)
        bits: Array = library().unpackbits(packed, bitorder="little")[first : first + self.length].view(np.bool_)
        return bits

    def _zeros(self, dtype: Any, more: int = 0) -> Array:
        zeros: Array = library().zeros(self.length + more, dtype=dtype)
        return zeros


def _buffer(array: Array | None) -> Any:
    """A copy of an array on the host in Arrow's layout: booleans are bits."""
    copy = to_host(array)
    if copy is None:
        return None
    return pa.py_buffer(np.packbits(copy, bitorder="little") if copy.dtype == np.bool_ else copy)


def imported(data: Any) -> DeviceArrow | None:
    """Data that an object exports by ``__arrow_c_device_array__``; None if it is not on a CUDA device.

    Waits for work that the exporter still has pending on it.
    """
    schema, capsule = data.__arrow_c_device_array__()
    device = ArrowDeviceArray.from_address(address(capsule, b"arrow_device_array"))
    if device.device_type not in CUDA:
        return None
    if device.sync_event and device.sync_event[0]:
        wait_for("event", device.sync_event[0])
    found = pa.field(SimpleNamespace(__arrow_c_schema__=lambda: schema)).type
    return DeviceArrow(found, device.array.offset, device.array.length, device.array, capsule, device.device_id)
