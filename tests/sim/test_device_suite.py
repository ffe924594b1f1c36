"""All that a matcher does on a device, in the simulator."""

from __future__ import annotations

from tests.conformance.device_suite import *  # noqa: F403
