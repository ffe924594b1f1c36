"""Where matching runs."""

from __future__ import annotations

import re

from gpumatch.errors import DeviceError


def resolve_device(device: str) -> tuple[str, str]:
    """The device that ``device=`` means, and the reason. This version matches on the CPU."""
    if device == "cpu":
        return "cpu", "as asked"
    if device == "auto":
        return "cpu", "auto: this version matches on the CPU only"
    if isinstance(device, str) and re.fullmatch(r"cuda(:\d+)?", device):
        raise DeviceError(
            f"device {device!r} was asked for, but this version matches on the CPU only; use device='cpu'"
        )
    raise DeviceError(f"device is 'auto' or 'cpu', found {device!r}")
