"""The conformance suite in the simulator."""

from __future__ import annotations

from tests.conformance.test_oracle import *  # noqa: F403
