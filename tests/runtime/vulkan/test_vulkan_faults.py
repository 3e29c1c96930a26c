"""A driver that fails at any call of a device's life: a typed error, nothing left behind, and what goes on after it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from coresident.actors.errors import BackendFault, BudgetExceeded, DeviceLost, InvalidRequest
from coresident.runtime.backends.vulkan.results import Result

from support.vulkan_fakes import Watched
from support.vulkan_life import NAME, Life, expected, functions, opened, quick_functions

UNKNOWN = -1000999999
CODES = (
    Result.ERROR_OUT_OF_DEVICE_MEMORY,
    Result.ERROR_OUT_OF_HOST_MEMORY,
    Result.ERROR_DEVICE_LOST,
    Result.ERROR_INITIALIZATION_FAILED,
    UNKNOWN,
)
MEMORY = CODES[:2]
REFUSED = "is no longer|asks for"
"""How errors begin that say more than which function failed: a device that went away, memory that is not there."""

LAST = {"vkQueueSubmit", "vkWaitForFences"}
"""Here an error of any kind may have left work half done; without memory for a submit, nothing was done."""


@pytest.fixture
def watched():
    return Watched(functions())


def use(life: Life) -> None:
    life.prepare()
    assert np.array_equal(life.answer(), expected())


def live(watched: Watched, folder) -> None:
    """Everything a device does, in the order of its life; it must be closed by whoever called."""
    life = Life(opened(watched.functions, cache=folder))
    try:
        use(life)
        life.device.save_cache()
    finally:
        life.device.close()


@cache
def fallible_calls() -> tuple[tuple[str, int], ...]:
    watched = Watched(functions())
    life = Life(opened(watched.functions))
    use(life)
    life.device.close()
    return tuple(watched.fallible())


def test_a_life_makes_and_destroys_everything_once(watched, tmp_path) -> None:
    live(watched, tmp_path)
    assert watched.left() == []
    created = sum(name.startswith(("vkCreate", "vkAllocateMemory")) for name, _ in watched.calls)
    destroyed = sum(name.startswith(("vkDestroy", "vkFreeMemory")) for name, _ in watched.calls)
    assert created == destroyed > 20


@pytest.mark.parametrize("code", CODES, ids=str)
def test_any_call_that_fails_is_a_typed_error_that_leaks_nothing(tmp_path, code) -> None:
    """From opening to closing, one life for every call that can fail."""
    whole = Watched(quick_functions())
    live(whole, tmp_path)
    for name, nth in whole.fallible():
        watched = Watched(quick_functions())
        watched.fail(name, code, nth)
        if (name, nth) == ("vkCreatePipelineCache", 1) and code != Result.ERROR_DEVICE_LOST:
            # The file is of no use then, which a warning says.
            live(watched, tmp_path)
        else:
            with pytest.raises((BackendFault, BudgetExceeded, InvalidRequest), match=f"{name}|{REFUSED}"):
                live(watched, tmp_path)
        assert watched.left() == [], f"{name} {nth}"


@pytest.mark.parametrize("code", CODES[1:], ids=str)
def test_only_a_device_that_failed_is_lost_and_every_other_goes_on(code) -> None:
    """What failed once is tried again: it works, unless the device itself is gone."""
    watched = Watched(quick_functions())
    device = opened(watched.functions)
    began = len(watched.fallible())
    device.close()
    for name, nth in fallible_calls()[began:]:
        watched = Watched(quick_functions())
        life = Life(opened(watched.functions))
        watched.fail(name, code, nth - sum(called == name for called, _ in watched.calls))
        with pytest.raises((BackendFault, BudgetExceeded)):
            use(life)
        lost = code == Result.ERROR_DEVICE_LOST or name == "vkWaitForFences" or (name in LAST and code not in MEMORY)
        assert (life.device.fault is not None) == lost, f"{name} {nth}"
        if lost:
            with pytest.raises(DeviceLost):
                Life(life.device).prepare()
        else:
            use(Life(life.device))
        life.device.close()
        assert watched.left() == []


def record_nothing(device) -> None:
    with device.record() as recording:
        recording.finish().free()


ACTS = {
    "allocate": lambda device: device.allocate(4096, "a piece", host=True).free(),
    "record": record_nothing,
    "pipeline": lambda device: device.pipeline(NAME),
    "plan": lambda device: device.requirement(5000),
}
KEPT = {"DescriptorSetLayout", "PipelineLayout"}
"""Made once for all kernels that want the same."""


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("code", [UNKNOWN, Result.ERROR_DEVICE_LOST], ids=str)
def test_what_fails_gives_back_at_once_what_it_had_made_so_far(act, code) -> None:
    """Long before the device is closed, lost or not."""
    whole = Watched(quick_functions())
    device = opened(whole.functions)
    whole.calls.clear()
    ACTS[act](device)
    device.close()
    assert whole.fallible()
    for name, nth in whole.fallible():
        watched = Watched(quick_functions())
        device = opened(watched.functions)
        before = watched.left()
        watched.fail(name, code, nth)
        with pytest.raises(BackendFault):
            ACTS[act](device)
        assert [key for key in watched.left() if key[0] not in KEPT] == before, f"{name} {nth}"
        device.close()
