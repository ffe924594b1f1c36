"""The conformance suite in the simulator."""

from __future__ import annotations

from tests.conformance.test_extremes import *  # noqa: F403
