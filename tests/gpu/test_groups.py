"""Groups on a device."""

from __future__ import annotations

import pytest

from tests.conformance.test_groups import *  # noqa: F403

pytestmark = pytest.mark.gpu
