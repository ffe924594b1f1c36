"""Tests that need a CUDA device: ``make test-gpu``. Where there is none, one skipped test says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumatch.device.discovery import why_not
from tests.conformance.devices import on

if why_not():
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if path.stem != "test_here"]
else:
    for name in ("device_suite", "test_examples", "test_extremes", "test_groups", "test_oracle"):
        pytest.register_assert_rewrite(f"tests.conformance.{name}")


@pytest.fixture(autouse=True, scope="session")
def there() -> Iterator[None]:
    """The conformance suite runs on the first device."""
    with on("cuda:0"):
        yield
