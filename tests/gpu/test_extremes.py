"""The conformance suite on a device."""

from __future__ import annotations

import pytest

from tests.conformance.test_extremes import *  # noqa: F403

pytestmark = pytest.mark.gpu
