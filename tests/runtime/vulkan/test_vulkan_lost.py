"""Devices that are lost, and submits that do not end: what still works, and what is freed when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coresident.actors.errors import DeviceLost
from coresident.runtime.backends.vulkan import link, submitting
from coresident.runtime.backends.vulkan.results import Result

from support.vulkan_fakes import Watched
from support.vulkan_life import Life, expected, functions, opened


@pytest.fixture
def watched():
    return Watched(functions())


def lost_device(watched: Watched) -> Life:
    life = Life(opened(watched.functions, cache=Path("unused")))
    life.prepare()
    watched.fail("vkWaitForFences", Result.ERROR_DEVICE_LOST)
    with pytest.raises(DeviceLost, match="vkWaitForFences returned VK_ERROR_DEVICE_LOST"):
        life.answer()
    return life


def test_a_lost_device_says_why_until_a_new_one_is_opened(watched) -> None:
    life = lost_device(watched)
    for act in (
        life.answer,
        lambda: life.device.allocate(64, "a piece"),
        lambda: life.device.requirement(12345),
        life.device.record,
        life.device.save_cache,
    ):
        with pytest.raises(DeviceLost, match="lost until it is opened anew: vkWaitForFences returned VK_ERROR"):
            act()
    new = Life(opened(watched.functions))
    new.prepare()
    assert np.array_equal(new.answer(), expected())
    life.device.close()
    assert np.array_equal(new.answer(), expected())
    new.device.close()
    assert watched.left() == []


def test_what_a_lost_device_holds_can_be_freed(watched) -> None:
    life = lost_device(watched)
    life.commands.free()
    for buffer in life.buffers.values():
        buffer.free()
    assert life.device.allocated == 0
    life.device.close()
    assert watched.left() == []


def test_a_wait_that_takes_a_few_turns_is_no_fault(watched) -> None:
    life = Life(opened(watched.functions, submit_seconds=1))
    life.prepare()
    watched.fail("vkWaitForFences", Result.TIMEOUT)
    assert np.array_equal(life.answer(), expected())
    assert watched.count("vkWaitForFences") == 2
    life.device.close()


def test_a_submit_that_never_ends_loses_the_device_after_its_time(watched) -> None:
    life = Life(opened(watched.functions, submit_seconds=2))
    life.prepare()
    watched.fail("vkWaitForFences", Result.TIMEOUT, on=True)
    with pytest.raises(DeviceLost, match=r"has not finished in 2 s \(timed out\)"):
        life.answer()
    assert watched.count("vkWaitForFences") * link.WAIT_NS == 2_000_000_000
    with pytest.raises(DeviceLost, match="timed out"):
        life.device.record()
    life.device.close()


def test_what_a_running_submit_uses_is_not_freed_under_it_and_goes_when_it_ends(watched) -> None:
    life = Life(opened(watched.functions, submit_seconds=1))
    life.prepare()
    watched.fail("vkWaitForFences", Result.TIMEOUT, on=True)
    with pytest.raises(DeviceLost):
        life.answer()
    living = watched.left()
    life.commands.free()
    for buffer in life.buffers.values():
        buffer.free()
    assert watched.left() == living
    watched.fault = None
    life.device.close()
    assert watched.left() == []


def test_a_device_that_does_not_end_its_work_is_left_to_the_end_of_the_process(watched, capsys) -> None:
    """Destroying what it uses would crash the process."""
    life = Life(opened(watched.functions, submit_seconds=1))
    life.prepare()
    watched.fail("vkWaitForFences", Result.TIMEOUT, on=True)
    with pytest.raises(DeviceLost):
        life.answer()
    destroyed = watched.count("vkDestroyBuffer")
    life.device.close()
    assert "still works on a submit that was given up" in capsys.readouterr().out
    assert watched.count("vkDestroyBuffer") == destroyed
    assert watched.count("vkDestroyDevice") == 0
    for buffer in life.buffers.values():
        buffer.free()
    assert watched.count("vkDestroyBuffer") == destroyed


def test_a_device_that_is_lost_while_a_submit_runs_is_freed(watched) -> None:
    life = Life(opened(watched.functions, submit_seconds=1))
    life.prepare()
    watched.fail("vkWaitForFences", Result.TIMEOUT, on=True)
    with pytest.raises(DeviceLost, match="timed out"):
        life.answer()
    watched.fail("vkWaitForFences", Result.ERROR_DEVICE_LOST, on=True)
    life.device.close()
    assert watched.left() == []


def test_a_cpu_gets_more_time_than_a_card() -> None:
    assert submitting.seconds_for("cpu") > submitting.seconds_for("discrete")
