"""How many examples a property has: numbers are for a run with all of them, a quick one has a share."""

from __future__ import annotations

from hypothesis import settings

ALL = 100  # as many a property has that names no number; profiles in conftest.py


def examples(number: int) -> int:
    """So many with all examples, a tenth in a quick run, but at least ten."""
    return max(number * settings.default.max_examples // ALL, min(number, 10))
