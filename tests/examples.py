"""How much of a test is for every small change, and what make test-ci adds to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

ALL = 100  # examples of a property that names no number; profiles are in conftest.py


def examples(number: int) -> int:
    """So many examples of a property with all of them, a tenth in a quick run, but at least ten."""
    return max(number * settings.default.max_examples // ALL, min(number, 10))


def later(*values: Any) -> list[Any]:
    """Further values of a parameter, which take long."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
