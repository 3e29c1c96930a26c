"""Contract tests of the live host run through each front door; ``doors`` names those that can do what a test needs."""

from __future__ import annotations

import pytest

from support import live
from support.doors import DOORS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "front_door" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("doors")
        metafunc.parametrize("front_door", marker.args if marker else DOORS, indirect=True)


@pytest.fixture
def front_door(request: pytest.FixtureRequest):
    """Where ``live.desk`` opens its scheduler."""
    before = live.door.set(request.param)
    yield request.param
    live.door.reset(before)
