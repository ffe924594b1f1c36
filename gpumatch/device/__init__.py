"""CUDA devices: finding them, keeping segments on them, and matching there."""

from __future__ import annotations

from gpumatch.device.discovery import resolve_device

__all__ = ["resolve_device"]
