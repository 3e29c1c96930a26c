"""Devices that nobody closes: dropped, or open when the process ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.vulkan_fakes import Watched
from support.vulkan_here import needs_vulkan
from support.vulkan_life import Life, expected, functions, opened

ENDING = """
from support.vulkan_life import Life, expected, opened
import numpy as np, sys
lives = [Life(opened()) for _ in range(2)]
for life in lives:
    life.prepare()
    assert np.array_equal(life.answer(), expected())
print("answered")
{last}
"""
LASTS = ("lives[0].device.close()", "lives.append(lives)")


@pytest.mark.parametrize("last", LASTS)
def test_a_process_that_ends_with_open_devices_ends_well(last) -> None:
    needs_vulkan()
    tests = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", ENDING.format(last=last)],
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "answered\n", "")


def test_a_device_that_is_dropped_gives_everything_back() -> None:
    watched = Watched(functions())
    life = Life(opened(watched.functions))
    life.prepare()
    life.answer()
    del life
    gc.collect()
    assert watched.left() == []


def test_a_buffer_keeps_its_device_open() -> None:
    """Its view is memory of the device."""
    watched = Watched(functions())
    device = opened(watched.functions)
    buffer = device.allocate(64, "a piece", host=True)
    del device
    gc.collect()
    buffer.view[:] = 3
    assert "Memory" in dict(watched.left())
    del buffer
    gc.collect()
    assert watched.left() == []


def test_two_devices_work_side_by_side_and_one_closes_alone() -> None:
    first, second = Life(opened()), Life(opened())
    for life in (first, second):
        life.prepare()
    assert np.array_equal(first.answer(), second.answer())
    first.device.close()
    assert first.buffers["out"].view is None
    assert np.array_equal(second.answer(), expected())
    second.device.close()
