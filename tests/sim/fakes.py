"""Data as libraries for CUDA devices hand it over, but in memory of the host, where the simulator has its device.

The methods of cuDF are those of 26.8 and 26.10 that gpumatch calls, as their sources have them.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gpumatch.device_memory import DeviceArray
from gpumatch.events.arrow_device import ArrowDeviceArray, address


class CudaArray:
    """What has ``__cuda_array_interface__``: a device array of numba, for one."""

    def __init__(self, array: np.ndarray, mask: Any = None, stream: int | None = None, version: int = 3) -> None:
        self.array, self.mask, self.stream, self.version = array, mask, stream, version

    def __len__(self) -> int:
        return len(self.array)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        facts = dict(self.array.__array_interface__)
        return {**facts, "version": self.version, "mask": self.mask, "stream": self.stream}


class Tensor:
    """What speaks DLPack, as a tensor of PyTorch does; with the older CUDA array interface that PyTorch has, too."""

    def __init__(self, array: np.ndarray, device: int = 2, interface: int | None = None) -> None:
        self.array, self.device, self.interface = array, device, interface
        self.streams: list[Any] = []

    def __len__(self) -> int:
        return len(self.array)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.interface is None:
            raise AttributeError("__cuda_array_interface__")
        return CudaArray(self.array, version=self.interface).__cuda_array_interface__


class DeviceArrowArray:
    """An Arrow array or record batch that says it is on a device."""

    def __init__(self, array: pa.Array | pa.RecordBatch, device: int = 2, event: int | None = None) -> None:
        self.array, self.device = array, device
        self.event = None if event is None else ctypes.c_void_p(event)

    def __arrow_c_device_array__(self, requested_schema: object = None, **_: object) -> tuple[object, object]:
        schema, capsule = self.array.__arrow_c_device_array__(requested_schema)
        exported = ArrowDeviceArray.from_address(address(capsule, b"arrow_device_array"))
        exported.device_type = self.device
        if self.event is not None:
            exported.sync_event = ctypes.pointer(self.event)
        return schema, capsule


class Index:
    """A cuDF Index, as ``Series.cat.categories`` is one."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    def to_arrow(self) -> pa.Array:
        return self.array


class Series:
    def __init__(self, array: pa.Array) -> None:
        self.array = array

    @classmethod
    def from_arrow(cls, array: pa.Array) -> Series:
        assert isinstance(array, pa.Array)
        return cls(array)

    def __len__(self) -> int:
        return len(self.array)

    @property
    def dtype(self) -> Any:
        found = self.array.type
        if pa.types.is_dictionary(found):
            return SimpleNamespace(name="category")
        if pa.types.is_timestamp(found) and found.tz is not None:
            return pd.DatetimeTZDtype(found.unit, found.tz)
        return SimpleNamespace(name="list") if pa.types.is_nested(found) else np.dtype(found.to_pandas_dtype())

    @property
    def cat(self) -> Any:
        assert pa.types.is_dictionary(self.array.type)
        return SimpleNamespace(codes=Series(self.array.indices), categories=Index(self.array.dictionary))

    def to_pylibcudf(self) -> tuple[DeviceArrowArray, dict[str, Any]]:
        """A column of pylibcudf: no zones, and of categories the codes only."""
        found = self.array.type
        if pa.types.is_dictionary(found):
            return DeviceArrowArray(self.array.indices), {}
        if pa.types.is_timestamp(found):
            return DeviceArrowArray(self.array.view(pa.timestamp(found.unit))), {}
        return DeviceArrowArray(self.array), {"name": None, "index": None}

    def to_arrow(self) -> pa.Array:
        return self.array

    def take(self, indices: Any) -> Series:
        assert isinstance(indices, DeviceArray)
        taken = Series(self.array.take(pa.array(indices.view(np.ndarray))))
        taken.index = indices  # as in cuDF, rows keep what they are called
        return taken

    def reset_index(self, *, drop: bool = False) -> Series:
        assert drop
        return Series(self.array)


class DataFrame:
    def __init__(self, data: dict[str, Any]) -> None:
        """Of Series, or of arrays on the device."""
        for column in data.values():
            assert isinstance(column, (Series, DeviceArray))
            assert not hasattr(column, "index"), "columns are put together by their index"
        self.data = {
            name: Series(pa.array(column.view(np.ndarray))) if isinstance(column, DeviceArray) else column
            for name, column in data.items()
        }

    @property
    def columns(self) -> Any:
        return pd.Index(list(self.data))

    def __len__(self) -> int:
        return max(map(len, self.data.values()), default=0)

    def __getitem__(self, name: str) -> Series:
        return self.data[name]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise AssertionError("that would copy all columns to the host")


for of_cudf, module in ((Series, "series"), (DataFrame, "dataframe"), (Index, "index")):
    of_cudf.__module__ = f"cudf.core.{module}"
