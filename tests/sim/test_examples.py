"""The conformance suite in the simulator."""

from __future__ import annotations

from tests.conformance.test_examples import *  # noqa: F403
