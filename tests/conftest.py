"""Skips what this machine cannot run, with the reason, and makes hypothesis repeatable."""

from __future__ import annotations

import importlib.util
import os

import pytest
from hypothesis import settings

from gpumatch.cli.doctor import java_version
from gpumatch.device.discovery import why_not

os.environ.setdefault("GPUMATCH_TRIALS", "0")  # plans by estimates only are the same each time

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, reason in (("gpu", _why_no_gpu), ("spark", _why_no_spark)):
        marked = [item for item in items if item.get_closest_marker(marker)]
        why = reason() if marked else None
        if why is not None:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=why))


def _why_no_gpu() -> str | None:
    return why_not() or None


def _why_no_spark() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed"
    return None if java_version() else "no Java"
