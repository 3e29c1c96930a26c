"""Buffers: what they take, what a device's limits refuse, and that nothing is left behind."""

from __future__ import annotations

from threading import Thread

import attrs
import pytest
from coresident.actors.errors import BackendFault, BudgetExceeded, DeviceLost
from coresident.actors.memory.plan import AllocationPlan, admit_context
from coresident.actors.memory.plan import Buffer as Planned
from coresident.runtime.backends.vulkan.arena import Piece, pack
from coresident.runtime.backends.vulkan.describing import BUDGET
from coresident.runtime.backends.vulkan.results import Result

from support.vulkan_fakes import Watched
from support.vulkan_life import Life, device_info, functions, opened

MIB = 1 << 20
LIMITS = ("max_storage_range", "max_buffer_size", "max_allocation")


@pytest.fixture
def watched():
    return Watched(functions())


def limited(**limits):
    return attrs.evolve(device_info(), limits=attrs.evolve(device_info().limits, **limits))


def open_limited(watched, **limits):
    return opened(watched.functions, limited(**limits))


def test_what_is_required_is_what_an_allocation_takes_and_asking_takes_nothing(watched) -> None:
    device = opened(watched.functions)
    sizes = [1, 64, 1000, 3 * MIB + 1]
    required = [device.requirement(size) for size in sizes]
    assert device.allocations == device.allocated == watched.count("vkAllocateMemory") == 0
    assert [device.allocate(size, "a piece", host=size > 64).bytes for size in sizes] == required
    assert (device.allocations, device.allocated) == (4, sum(required))
    probes = watched.count("vkGetBufferMemoryRequirements")
    assert [device.requirement(size) for size in sizes] == required
    assert watched.count("vkGetBufferMemoryRequirements") == probes
    device.close()
    assert watched.left() == []


def test_a_buffer_is_freed_once_and_its_memory_comes_back(watched) -> None:
    device = opened(watched.functions)
    before = device.budget()
    buffer = device.allocate(MIB, "a piece", host=True)
    assert device.budget() <= before - MIB
    buffer.view[:] = 7
    buffer.free()
    buffer.free()
    assert buffer.view is None
    assert (device.allocations, device.allocated, device.budget()) == (0, 0, before)
    device.close()
    device.close()
    buffer.free()
    assert watched.left() == []


@pytest.mark.parametrize("least", LIMITS)
def test_FIELD_62_the_least_of_three_limits_counts_whichever_it_is(watched, least) -> None:
    """The largest piece is what all of them allow; a larger one is shown by a plan, and refused, never tried."""
    device = open_limited(watched, **{**dict.fromkeys(LIMITS, 8 * MIB), least: MIB + 100})
    assert device.limits.block == MIB + 64
    assert device.requirement(16 * MIB) >= 16 * MIB
    device.allocate(device.limits.block, "a piece")
    tried = watched.count("vkCreateBuffer")
    if least == "max_storage_range":
        with pytest.raises(BackendFault, match=r"it must lie inside, hold at most 1048676 bytes"):
            device.sets().make("scale", 1, [device.allocate(64, "x").bound(), device.allocate(2 * MIB, "y").bound()])
    else:
        with pytest.raises(BudgetExceeded, match="weights asks for 2097152 bytes, 1048676 are available"):
            device.allocate(2 * MIB, "weights")
        assert watched.count("vkCreateBuffer") == tried
    device.close()
    assert watched.left() == []


@pytest.mark.parametrize("least", LIMITS)
def test_FIELD_61_a_limit_of_2_gib_shrinks_the_context_in_256s(watched, least) -> None:
    """A cache of one piece of 128 KiB a token, and memory for three times the limit; nothing is allocated for it."""
    limit, token = 2 << 30, 128 << 10
    device = open_limited(watched, **{**dict.fromkeys((*LIMITS, "max_texel_elements"), 1 << 40), least: limit})

    def plan_for(context):
        blocks = pack([Piece("cache", token * context)], device.limits.block, device.limits.alignment).blocks
        return AllocationPlan(
            tuple(Planned("kv", "kv", device.requirement(size)) for size in blocks), device.limits.block
        )

    assert admit_context(30_000, plan_for, 3 * limit).context == limit // token == 16_384
    with pytest.raises(BudgetExceeded, match=r"buffer kv of model asks for .* cannot allocate it in one piece"):
        admit_context(30_000, lambda context: plan_for(30_000), 3 * limit)
    device.close()


def test_more_allocations_than_the_device_has_are_refused_and_freed_ones_count_no_more(watched) -> None:
    device = open_limited(watched, max_allocations=2)
    first, _ = device.allocate(64, "first"), device.allocate(64, "second")
    with pytest.raises(BudgetExceeded, match="third asks for 3 allocations, 2 are available, 1 are missing"):
        device.allocate(64, "third")
    first.free()
    device.allocate(64, "third")
    device.close()
    assert watched.left() == []


@pytest.mark.parametrize("code", [Result.ERROR_OUT_OF_DEVICE_MEMORY, Result.ERROR_OUT_OF_HOST_MEMORY])
def test_a_driver_without_memory_is_a_budget_that_is_exceeded_and_the_device_goes_on(watched, code) -> None:
    device = opened(watched.functions)
    watched.fail("vkAllocateMemory", code)
    asked = device.requirement(MIB)
    with pytest.raises(BudgetExceeded, match=f"weights asks for {asked} bytes, 0 are available") as caught:
        device.allocate(MIB, "weights")
    assert f"VK_{code.name}" in str(caught.value)
    assert (device.fault, device.allocations) == (None, 0)
    device.allocate(MIB, "weights")
    device.close()
    assert watched.left() == []


def test_the_budget_is_a_share_of_the_heap_where_the_driver_tells_none() -> None:
    info = attrs.evolve(device_info(), extensions=device_info().extensions - {BUDGET})
    for share in (80, 25):
        device = opened(info=info, share=share)
        heap = info.heaps[device.memory.types.device_heap]
        assert device.budget() == heap * share // 100
        taken = device.allocate(MIB, "a piece").bytes
        assert device.budget() == heap * share // 100 - taken
        device.close()


def test_the_budget_is_the_drivers_own_where_it_tells_one(watched) -> None:
    """What other programs leave, less what this one uses; never below nothing."""
    told = {"budget": 900, "usage": 200}

    def tell(physical, out):
        budget = functions().ffi.cast("VkPhysicalDeviceMemoryBudgetPropertiesEXT*", out.pNext)
        heap = device.memory.types.device_heap
        budget.heapBudget[heap], budget.heapUsage[heap] = told["budget"], told["usage"]

    device = opened(watched.functions)
    told_by_driver = attrs.evolve(device.info, extensions=device.info.extensions | {BUDGET})
    device.link.info = told_by_driver
    watched.replace("vkGetPhysicalDeviceMemoryProperties2", tell)
    assert device.budget() == 700
    told["usage"] = 1000
    assert device.budget() == 0
    device.close()


def test_a_plan_may_be_asked_for_while_a_submit_runs_and_leaves_nothing(watched) -> None:
    """By another thread; what was never submitted is destroyed at once."""
    life = Life(opened(watched.functions))
    life.prepare()
    before = watched.left()
    asked = []
    watched.replace("vkQueueSubmit", lambda *args: asked.append((life.device.requirement(777), watched.left())))
    life.answer()
    assert asked == [(life.device.requirement(777), before)]
    life.device.close()


def test_threads_that_ask_while_the_device_is_closed_get_an_answer_or_a_typed_error(watched) -> None:
    device = opened(watched.functions)
    outcomes = []

    def ask(first):
        for size in range(first, first + 200):
            try:
                outcomes.append(device.requirement(size) >= size)
            except DeviceLost:
                outcomes.append(True)

    threads = [Thread(target=ask, args=(1000 * index,)) for index in range(1, 4)]
    for thread in threads:
        thread.start()
    device.close()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 600
    assert watched.left() == []


def test_a_closed_device_refuses_and_does_not_crash() -> None:
    device = opened()
    device.close()
    with pytest.raises(DeviceLost, match="is closed: open it anew"):
        device.allocate(64, "a piece")
    with pytest.raises(DeviceLost):
        device.requirement(64)
