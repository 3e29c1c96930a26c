"""The memory of Vulkan's steps: exact, pooled within a limit, recorded over once, and the step's own while it lives."""

from __future__ import annotations

import gc
from functools import cache
from typing import Any

import attrs
import pytest
from coresident.actors.errors import BackendFault, BudgetExceeded
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import DecodeInput
from coresident.runtime.backends.vulkan import regions
from coresident.runtime.backends.vulkan.backend import VulkanBackend
from coresident.runtime.backends.vulkan.library import open_functions
from coresident.runtime.backends.vulkan.results import Result
from coresident.runtime.models.locate import ModelSource

from support.reference import HEADS, MODEL, REQUEST, Keep, decode, drain, prefill, score, workspace
from support.vulkan_fakes import Watched

pytestmark = pytest.mark.usefixtures("vulkan")


TOKENS = [(7 * at + 3) % 251 for at in range(96)]
LONG = attrs.evolve(REQUEST, context=1100)


def opened(request: Any = REQUEST, **options: Any) -> VulkanBackend:
    backend = VulkanBackend({MODEL: ModelSource(heads=HEADS)}, **options)
    drain(backend.load(MODEL, request, weights=True))
    return backend


@cache
def plain() -> VulkanBackend:
    """A backend that nothing happens to."""
    return opened()


@pytest.fixture(scope="module")
def shared() -> VulkanBackend:
    return opened()


@pytest.fixture
def backend(shared: VulkanBackend) -> VulkanBackend:
    """Loaded anew, so that it has no regions."""
    drain(shared.load(MODEL, REQUEST, weights=True))
    return shared


def chunk(backend: VulkanBackend, space: Any, start: int = 0, count: int = 16, slot: int = 0) -> Any:
    return backend.prefill(space, MODEL, "generation", slot, start, TOKENS[start : start + count], Keep())


def test_R9_a_step_takes_what_it_is_charged_to_the_byte(backend):
    before = backend.planned.allocated
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    drain(chunk(backend, space))
    assert space.peak() == space.charge == backend.planned.allocated - before == backend.regions.bytes
    space.close()
    assert space.peak() == space.charge


def test_what_was_recorded_once_runs_again_whatever_the_positions(backend):
    prefill(backend, 0, TOKENS)
    decode(backend, [(0, 96 - 1, 5)])
    counts, allocated = attrs.evolve(backend.regions.counts), backend.planned.allocated
    for first in (40, 60, 90):
        prefill(backend, 0, TOKENS[::-1])
        decode(backend, [(0, first, first)])
    assert backend.regions.counts == counts
    assert backend.planned.allocated == allocated


def test_another_slot_or_length_is_recorded_once_too(backend):
    for slot, count, more in ((0, 16, 2), (1, 16, 1), (0, 13, 2), (1, 16, 0), (0, 13, 0), (0, 16, 0)):
        before = backend.regions.counts.programs
        prefill(backend, slot, TOKENS[:count])
        assert backend.regions.counts.programs - before == more


def test_a_region_forgets_the_recordings_used_longest_ago(backend, monkeypatch):
    monkeypatch.setattr(regions, "PROGRAMS", 4)
    before = backend.regions.counts.programs
    for count in (1, 2, 3, 1):
        prefill(backend, 0, TOKENS[:count])
    assert backend.regions.counts.programs == before + 8
    (region,) = backend.regions._idle
    assert len(region._programs) == 4
    assert prefill(backend, 0, TOKENS[:16]).tobytes() == prefill(plain(), 0, TOKENS[:16]).tobytes()


def test_idle_regions_stay_within_the_limit_and_the_last_used_stay():
    backend = opened(LONG, workspace=1)
    charge = backend.charge(MODEL, StepShape(StepKind.PREFILL, 1, 16, 1000))
    backend.regions.limit = 2 * charge
    resident = backend.planned.allocated
    for end in (16, 300, 600, 1000, 16, 300, 600, 1000):
        for slot in backend._residents[MODEL].slots["generation"]:
            slot.filled = end - 16
        space = workspace(backend, StepKind.PREFILL, 16, end)
        drain(backend.prefill(space, MODEL, "generation", 0, end - 16, TOKENS[:16], None))
        assert backend.planned.allocated - resident == backend.regions.bytes <= 2 * charge
        space.close()
    made = backend.regions.counts.regions
    space = workspace(backend, StepKind.PREFILL, 16, 1000)
    drain(backend.prefill(space, MODEL, "generation", 0, 984, TOKENS[:16], None))
    assert backend.regions.counts.regions == made


def test_without_room_for_idle_regions_none_is_kept():
    backend = opened(workspace=0)
    before = backend.planned.allocated
    assert prefill(backend, 0, TOKENS).tobytes() == prefill(plain(), 0, TOKENS).tobytes()
    assert backend.planned.allocated == before
    assert backend.regions.bytes == 0


def test_R10_a_suspended_chunk_keeps_its_region_whatever_runs_meanwhile(backend, monkeypatch):
    monkeypatch.setattr("coresident.runtime.backends.vulkan.steps.CPU_SEGMENT", 1)
    alone = prefill(backend, 2, TOKENS[:16])
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    keep = Keep()
    steps = backend.prefill(space, MODEL, "generation", 0, 0, TOKENS[:16], keep)
    for number, _ in enumerate(steps):
        if number % 9 == 0:
            assert prefill(backend, 2, TOKENS[:16]).tobytes() == alone.tobytes()
            score(backend, 0, 0, TOKENS[:16])
    assert number > 30
    assert keep.seen[-1].tobytes() == alone.tobytes()
    space.close()


def test_two_parts_of_one_step_at_once_need_the_charge_of_both(backend):
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    first = chunk(backend, space)
    next(first)
    with pytest.raises(BudgetExceeded) as refusal:
        next(chunk(backend, space, slot=1))
    assert refusal.value.details["available"] == 0
    drain(first)
    wide = backend.open_workspace(2 * space.charge)
    first, second = chunk(backend, wide), chunk(backend, wide, slot=1)
    next(first)
    drain(second)
    drain(first)
    assert wide.peak() == 2 * space.charge


def test_a_workspace_that_closes_before_its_part_ends_gives_its_region_back_with_it(backend):
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    part = chunk(backend, space)
    next(part)
    space.close()
    assert backend.regions.idle_bytes == 0
    part.close()
    assert backend.regions.idle_bytes == space.charge


@pytest.mark.parametrize("way", ["unload", "load", "load without weights"])
def test_a_suspended_chunk_cannot_go_on_after_its_model_was_unloaded_or_loaded_anew(backend, way):
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    part = chunk(backend, space)
    next(part)
    if way == "unload":
        backend.unload(MODEL)
        assert backend.planned.allocated == 0
    else:
        drain(backend.load(MODEL, REQUEST, weights=way == "load"))
    with pytest.raises(BackendFault, match="loaded anew or unloaded meanwhile"):
        drain(part)
    space.close()
    if way != "unload":
        assert prefill(backend, 0, TOKENS).tobytes() == prefill(plain(), 0, TOKENS).tobytes()


def test_R9_a_region_that_the_driver_refuses_fails_its_step_alone():
    watched = Watched(open_functions())
    backend = opened(functions=watched.functions)
    before = backend.planned.allocated
    for nth in (1, 2):
        watched.fail("vkAllocateMemory", Result.ERROR_OUT_OF_DEVICE_MEMORY, nth=nth)
        with pytest.raises(BudgetExceeded):
            prefill(backend, 0, TOKENS)
        assert backend.planned.allocated == before
    watched.fault = None
    prefill(backend, 0, TOKENS)


def test_idle_regions_give_way_to_one_that_the_driver_would_refuse():
    watched = Watched(open_functions())
    backend = opened(functions=watched.functions)
    prefill(backend, 0, TOKENS[:32])
    watched.fail("vkAllocateMemory", Result.ERROR_OUT_OF_DEVICE_MEMORY)
    decode(backend, [(0, 32, 5)])
    assert backend.regions.bytes == backend.charge(MODEL, StepShape(StepKind.DECODE, 1, 1, 33))


def test_a_recording_that_fails_is_made_anew():
    watched = Watched(open_functions())
    backend = opened(functions=watched.functions)
    for name in ("vkAllocateCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer"):
        for nth in (2, 3):
            backend.regions.forget()
            watched.fail(name, Result.ERROR_OUT_OF_HOST_MEMORY, nth=nth)
            with pytest.raises((BackendFault, BudgetExceeded)):
                prefill(backend, 0, TOKENS)
            watched.fault = None
    assert prefill(backend, 0, TOKENS).tobytes() == prefill(plain(), 0, TOKENS).tobytes()


def test_decode_rows_of_any_number_share_a_step(backend):
    many = opened(attrs.evolve(REQUEST, slots=11, context=32))
    for slot in range(11):
        prefill(many, slot, TOKENS[slot : slot + 9])
    together = decode(many, [(slot, 9, slot) for slot in range(11)])
    for slot in range(11):
        prefill(backend, 0, TOKENS[slot : slot + 9])
        assert decode(backend, [(0, 9, slot)])[0].tobytes() == together[slot].tobytes()


def test_a_chunk_runs_in_one_submit_for_each_segment_and_a_decode_step_in_one(backend):
    prefill(backend, 0, TOKENS[:16])
    before = backend.planned.submits
    space = workspace(backend, StepKind.PREFILL, 16, 32)
    _, segments = drain(chunk(backend, space, start=16))
    assert backend.planned.submits - before == segments + 1
    decode(backend, [(0, 32, 5)])
    before = backend.planned.submits
    space = workspace(backend, StepKind.DECODE, 1, 33)
    drain(backend.decode(space, MODEL, [DecodeInput(0, 32, 5)], [Keep()]))
    assert backend.planned.submits - before == 1


@pytest.mark.parametrize("close", [True, False])
def test_a_backend_dropped_behind_a_suspended_chunk_gives_everything_back(close):
    """Its recordings are half made; nothing may be recorded once the device is closed."""
    watched = Watched(open_functions())
    backend = opened(functions=watched.functions)
    part = chunk(backend, workspace(backend, StepKind.PREFILL, 16, 16))
    next(part)
    if close:
        part.close()
    del part, backend
    gc.collect()
    names = [name for name, _ in watched.calls]
    assert not any(name.startswith("vkCmd") for name in names[names.index("vkDestroyDevice") :])
    assert watched.left() == []
