"""Tests that compute on a Vulkan device say so: ``pytestmark = pytest.mark.usefixtures("vulkan")``."""

from __future__ import annotations

import pytest

from support.vulkan_here import needs_vulkan


@pytest.fixture(scope="session")
def vulkan() -> None:
    """Skips, or fails where Vulkan is required, when no device is found."""
    needs_vulkan()
