"""Arrays in the memory of a CUDA device: CuPy's, or NumPy's where numba simulates the device.

Nothing here is imported, and no driver is asked, before a device is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from gpumatch.errors import DeviceError

# All array functions of CuPy in use. In the simulator NumPy's stand in for these, and for no others.
CALLS = (
    "arange",
    "argsort",
    "asarray",
    "ascontiguousarray",
    "concatenate",
    "cumsum",
    "empty",
    "flatnonzero",
    "full",
    "searchsorted",
    "sort",
    "trunc",
    "unique",
    "unpackbits",
    "where",
    "zeros",
)


def simulated() -> bool:
    """Does numba simulate CUDA in this process? It reads the variable once, when it is imported, as a number."""
    config = sys.modules.get("numba.core.config")
    if config is not None:
        return bool(config.ENABLE_CUDASIM)
    try:
        return bool(int(os.environ.get("NUMBA_ENABLE_CUDASIM", "0")))
    except ValueError:
        return False


def library() -> Any:
    """The array library of the device."""
    if simulated():
        return _stand_ins()
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceError("arrays on a CUDA device need CuPy: pip install 'gpumatch[gpu13]', or gpu12") from error


def library_of(array: Any) -> Any:
    """The library of an array: NumPy, or ``library``."""
    return library() if is_device_array(array) else np


def is_device_array(array: object) -> bool:
    """Whether it is a CuPy array, or its stand-in in the simulator. Imports nothing."""
    if isinstance(array, np.ndarray):
        return isinstance(array, DeviceArray)
    return any(base.__name__ == "ndarray" and base.__module__.startswith("cupy") for base in type(array).__mro__)


def to_host(array: Any) -> Any:
    """An array on the host: a copy if it is on the device."""
    if isinstance(array, DeviceArray):
        return array.view(np.ndarray).copy()
    return array.get() if is_device_array(array) else array


def use_device(number: int) -> AbstractContextManager[Any]:
    """A context in which this device is the current one."""
    return nullcontext() if simulated() else library().cuda.Device(number)


def use_device_of(array: Any) -> AbstractContextManager[Any]:
    """A context in which the array's device is the current one; no change for an array on the host, or None."""
    return array.device if is_device_array(array) and not simulated() else nullcontext()


def wrap(pointer: int, shape: tuple[int, ...], dtype: Any, owner: object, strides: Any = None) -> Any:
    """An array over device memory that something else owns, which is kept for as long as the array is."""
    dtype = np.dtype(dtype)
    if 0 in shape:
        return library().empty(shape, dtype=dtype)
    if simulated():
        facts = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (pointer, False), "strides": strides}
        return np.asarray(SimpleNamespace(__array_interface__=facts, owner=owner)).view(DeviceArray)
    cupy = library()
    size = dtype.itemsize * int(np.prod(shape))
    if strides is not None:
        size = dtype.itemsize + sum((length - 1) * abs(step) for length, step in zip(shape, strides, strict=True))
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(pointer, size, owner), 0)
    return cupy.ndarray(shape, dtype, memory, strides)


def from_dlpack(data: Any) -> Any:
    """An array over the memory of a DLPack tensor on a CUDA device, safe to use on the current stream."""
    if not simulated():
        return library().from_dlpack(data)
    # NumPy takes only data that claims to be on the host; CuPy asks for the same with its stream.
    exporter = SimpleNamespace(__dlpack__=lambda **_: data.__dlpack__(stream=1), __dlpack_device__=lambda: (1, 0))
    tensor = np.from_dlpack(exporter)
    return wrap(tensor.ctypes.data, tensor.shape, tensor.dtype, tensor, tensor.strides)


def wait_for(kind: Literal["stream", "event"], handle: int) -> None:
    """Wait until the work on a CUDA stream, or that before an event, is done."""
    if not simulated():
        getattr(library().cuda.runtime, f"{kind}Synchronize")(handle)


def finish() -> None:
    """Wait until the work on the current stream is done: its results may then be used on any stream."""
    if not simulated():
        library().cuda.get_current_stream().synchronize()


class DeviceArray(np.ndarray[Any, np.dtype[Any]]):
    """Stands for a CuPy array in the simulator: like that, it refuses host arrays and functions not listed."""

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: Any, *inputs: Any, out: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        _refuse_host(ufunc.__name__, (*inputs, *out))
        if out:
            options["out"] = tuple(map(_bare, out))
        found = getattr(ufunc, method)(*map(_bare, inputs), **options)
        return out[0] if out else _marked(found)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if function.__name__ not in CALLS:
            raise TypeError(f"numpy.{function.__name__} is not listed for arrays on a device")
        return _on_device(function, *args, **kwargs)


@cache
def _stand_ins() -> SimpleNamespace:
    """NumPy's functions, taking and returning device arrays."""
    calls = {name: getattr(np, name) for name in CALLS}
    made = {name: partial(_on_device, call) for name, call in calls.items()}
    return SimpleNamespace(**{**made, "asarray": _uploaded})


def _on_device(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    _refuse_host(call.__name__, (*args, *options.values()))
    return _marked(call(*map(_bare, args), **{name: _bare(value) for name, value in options.items()}))


def _uploaded(data: Any, dtype: Any = None) -> Any:
    if isinstance(data, DeviceArray) and dtype in (None, data.dtype):
        return data
    return np.array(data, dtype).view(DeviceArray)


def _refuse_host(name: str, values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, (list, tuple)):
            _refuse_host(name, value)
        elif isinstance(value, np.ndarray) and value.ndim and not isinstance(value, DeviceArray):
            raise TypeError(f"{name} got an array of the host where it needs one on the device")


def _bare(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_bare, value))
    return value.view(np.ndarray) if isinstance(value, DeviceArray) else value


def _marked(found: Any) -> Any:
    return found.view(DeviceArray) if isinstance(found, np.ndarray) else found
