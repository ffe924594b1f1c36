"""Finds devices without starting CUDA, so that a process that forks later may still use it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re

from gpumatch.device_memory import simulated
from gpumatch.errors import DeviceError

_LIBRARIES = {"cupy": "CuPy", "numba_cuda": "numba-cuda"}
_INSTALL = "pip install 'gpumatch[gpu13]' (CUDA 13) or 'gpumatch[gpu12]' (CUDA 12)"


def resolve_device(device: str) -> tuple[str, str]:
    """The device that ``device=`` means, ``cpu`` or ``cuda:N``, and the reason."""
    if device == "cpu":
        return "cpu", "as asked"
    if device == "auto":
        if simulated():
            return "cpu", "auto: numba only simulates CUDA in this process; device='cuda:0' asks for that"
        devices = count_devices()
        missing = _why_not(devices).partition(";")[0]  # advice is for those who asked for a device
        return ("cpu", f"auto: {missing}") if missing else ("cuda:0", f"auto: found {devices} CUDA device(s)")
    found = re.fullmatch(r"cuda(?::(\d+))?", device) if isinstance(device, str) else None
    if found is None:
        raise DeviceError(f"device is 'auto', 'cpu' or 'cuda:N', found {device!r}")
    number = int(found[1] or 0)
    if simulated():
        if number:
            raise DeviceError(f"numba simulates one CUDA device, 'cuda:0', found {device!r}")
        return "cuda:0", "as asked, simulated by numba"
    devices = count_devices()
    missing = _why_not(devices)
    if devices is None or missing:
        raise DeviceError(f"device {device!r} was asked for, but {missing}")
    if number >= devices:
        raise DeviceError(f"device {device!r} was asked for, but there are {devices} CUDA devices, from 'cuda:0'")
    return f"cuda:{number}", "as asked"


def why_not() -> str:
    """Why no CUDA device can be used here, and what to do about it; empty if one can."""
    return _why_not(count_devices())


def _why_not(devices: int | None) -> str:
    if devices is None:
        return (
            "no NVIDIA driver was found here; install it where there is a GPU (a container must be started with "
            "access to it), or use device='cpu'"
        )
    if devices == 0:
        return (
            "the NVIDIA driver shows no GPU to this process (CUDA_VISIBLE_DEVICES may hide it); use device='cpu', or a "
            "machine with one"
        )
    lacking = [name for module, name in _LIBRARIES.items() if importlib.util.find_spec(module) is None]
    if lacking:
        return (
            f"{' and '.join(lacking)} are missing: {_INSTALL}"
            if lacking[1:]
            else f"{lacking[0]} is missing: {_INSTALL}"
        )
    return ""


def count_devices() -> int | None:
    """How many CUDA devices this process sees; None without a driver.

    Asks the management library, since asking CUDA itself would start it.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    count = ctypes.c_uint(0)
    if nvml.nvmlInit_v2() != 0:  # a driver that shows nothing
        return 0
    try:
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return 0
    finally:
        nvml.nvmlShutdown()
    return visible(count.value, os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(count: int, wanted: str | None) -> int:
    """How many of ``count`` devices CUDA_VISIBLE_DEVICES leaves: those listed before the first that does not exist."""
    if wanted is None:
        return count
    seen = 0
    for item in wanted.split(","):
        name = item.strip()
        if not name or (name.lstrip("-").isdigit() and not 0 <= int(name) < count):
            break
        seen += 1
    return seen
