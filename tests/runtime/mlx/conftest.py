"""MLX counts memory for the whole process: what earlier tests left in circles must not be freed inside of a test."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _nothing_left_of_earlier_tests() -> None:
    gc.collect()
