"""Groups in the simulator."""

from __future__ import annotations

from tests.conformance.test_groups import *  # noqa: F403
