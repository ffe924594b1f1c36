"""How much of a test is for every small change, and what make test-ci and test-long add to it."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

ALL = 100  # examples of a property that names no number; profiles are in conftest.py


def examples(number: int) -> int:
    """So many examples of a property with all of them, a tenth in a quick run, but at least ten."""
    return max(number * settings.default.max_examples // ALL, min(number, 10))


def rounds(number: int) -> int:
    """So many repetitions with make test-long, a tenth otherwise."""
    return number if "GPUMATCH_ALL" in os.environ else max(number // 10, 1)


def later(*values: Any) -> list[Any]:
    """Further values of a parameter, which take long."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
