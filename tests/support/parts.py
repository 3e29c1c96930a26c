"""Optional parts of the test suite, and the one way to skip a test that lacks its part.

A part is something a machine may not have. Where it is missing, its tests skip and say why; a machine that is
meant to have it names it in ``CORESIDENT_REQUIRE`` (comma-separated), and the same absence is then a failure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn

import pytest

VARIABLE = "CORESIDENT_REQUIRE"
PARTS = ("smollm2", "mlx", "vulkan", "browser", "lab", "cluster", "plots", "fastapi", "uvloop", "store")


def required_parts(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The parts this machine must have; an unknown name is a usage error of pytest."""
    names = frozenset(name.strip() for name in environ.get(VARIABLE, "").split(",") if name.strip())
    unknown = sorted(names.difference(PARTS))
    if unknown:
        raise pytest.UsageError(f"{VARIABLE} names unknown parts {unknown}; the known ones are {list(PARTS)}")
    return names


def require_or_skip(part: str, reason: str, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip the running test because ``part`` is missing, or fail it where the part is required."""
    if part not in PARTS:
        raise ValueError(f"unknown part {part!r}; the known ones are {list(PARTS)}")
    if part in required_parts(environ):
        pytest.fail(f"{part} is required by {VARIABLE} but missing: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")
