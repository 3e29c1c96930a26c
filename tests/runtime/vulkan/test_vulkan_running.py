"""Recordings: what they compute, run after run, on memory that is bound in every way."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from coresident.actors.errors import BackendFault
from coresident.runtime.backends.vulkan.sets import SETS, texel_bytes

from support.parts import require_or_skip
from support.vulkan_fakes import Watched
from support.vulkan_life import BYTES, COUNT, NAME, SPIRV, A, Life, X, device_info, expected, functions, opened, scale
from tools.compile_shaders import COMPILER, TARGET, call


@pytest.fixture
def watched():
    return Watched(functions())


@pytest.fixture
def life(watched):
    made = Life(opened(watched.functions))
    made.prepare()
    yield made
    made.device.close()
    assert watched.left() == []


@pytest.mark.parametrize("half", [0, 1])
def test_a_kernel_computes_with_what_is_bound(half) -> None:
    life = Life(opened())
    life.prepare(half)
    assert np.array_equal(life.answer(), expected(half))
    life.device.close()


def test_a_recording_runs_as_often_as_wanted_and_sees_what_the_host_wrote(life, watched) -> None:
    assert np.array_equal(life.answer(), expected())
    began = watched.count("vkBeginCommandBuffer")
    life.buffers["x"].view.view(np.float32)[:] *= 2
    assert not np.array_equal(life.answer(), expected())
    life.buffers["x"].view.view(np.float32)[:] /= 2
    assert np.array_equal(life.answer(), expected())
    assert (life.device.submits, watched.count("vkBeginCommandBuffer")) == (3, began)
    assert life.device.pipelines.created == watched.count("vkCreateComputePipelines") == 1


def test_recordings_that_are_submitted_together_see_each_others_writes(life) -> None:
    behind = Life(life.device)
    behind.prepare()
    with life.device.record() as recording:
        recording.copy(life.buffers["out"], behind.buffers["w"], [(0, 0, BYTES)])
        between = recording.finish()
    life.device.run([life.commands, between, behind.commands])
    once = expected()
    assert np.array_equal(behind.buffers["out"].view.view(np.float32), once * X[:COUNT] + np.float32(A))
    assert life.device.submits == 1


def test_a_recording_begins_and_ends_with_a_barrier(life, watched) -> None:
    """A driver on a CPU runs everything in order, and so would not show that one is missing."""
    names = [name for name, _ in watched.calls]
    recorded = names[names.index("vkBeginCommandBuffer") + 1 : names.index("vkEndCommandBuffer")]
    commands = [name for name in recorded if name.startswith("vkCmd")]
    assert commands[0] == commands[-1] == "vkCmdPipelineBarrier"
    assert "vkCmdDispatch" in commands[1:-1]


def test_many_regions_are_copied_by_one_command(life, watched) -> None:
    source, target = life.buffers["x"], life.buffers["out"]
    source.view[:] = np.arange(2 * BYTES) % 251
    target.view[:] = 0
    copied = watched.count("vkCmdCopyBuffer")
    with life.device.record() as recording:
        recording.copy(source, target, [(64 * index, 16 * index, 16) for index in range(10)])
        recording.copy(source, target, [])
    life.device.run([recording.finish()])
    wanted = source.view.reshape(-1, 64)[:10, :16].ravel()
    assert np.array_equal(target.view[:160], wanted)
    assert not target.view[160:].any()
    assert watched.count("vkCmdCopyBuffer") == copied + 1


def test_sets_are_made_beyond_one_pool_and_all_freed(life, watched) -> None:
    pools, views = watched.count("vkCreateDescriptorPool"), watched.count("vkCreateBufferView")
    pool = life.device.sets()
    handles = [pool.make(NAME, 0, [life.buffers["w"].bound()]) for _ in range(2 * SETS + 1)]
    assert len(set(handles)) == len(handles)
    assert watched.count("vkCreateDescriptorPool") == pools + 3
    pool.free()
    pool.free()
    assert watched.count("vkDestroyDescriptorPool") == 3
    assert watched.count("vkDestroyBufferView") == watched.count("vkCreateBufferView") - views
    assert pool.make(NAME, 0, [life.buffers["w"].bound()])


@pytest.mark.parametrize(("offset", "size"), [(32, 64), (0, 0), (0, BYTES + 1), (-64, 64), (BYTES, 64)], ids=str)
def test_a_range_that_a_binding_cannot_have_is_refused(life, offset, size) -> None:
    bound = life.buffers["y"].bound(offset, size)
    with pytest.raises(BackendFault, match="binding 1 of set 1 of kernel scale cannot take"):
        life.device.sets().make(NAME, 1, [life.buffers["x"].bound(0, BYTES), bound])


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("max_storage_range", 512, "binding 0 of set 1 .* hold at most 512 bytes"),
        ("max_texel_elements", 128, "binding 0 of set 0 .* hold at most 512 bytes"),
        ("max_storage_bindings", 1, "kernel scale binds 2 storage buffers, and .* allows 1"),
        ("max_groups", 3, r"with \(4, 1, 1\) groups: 1 to 3 are possible"),
    ],
)
def test_what_a_device_cannot_do_is_refused_before_it_is_asked(watched, limit, value, message) -> None:
    info = attrs.evolve(device_info(), limits=attrs.evolve(device_info().limits, **{limit: value}))
    life = Life(opened(watched.functions, info))
    with pytest.raises(BackendFault, match=message):
        life.prepare()
    life.device.close()
    assert watched.left() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [({"push": b"1234"}, "takes 8 bytes of constants, not 4"), ({"groups": (0, 1, 1)}, "groups: 1 to")],
)
def test_a_dispatch_that_does_not_fit_its_kernel_is_refused_and_the_recording_freed(
    life, watched, change, message
) -> None:
    pool, freed = life.device.sets(), watched.count("vkFreeCommandBuffers")
    bounds = [life.buffers["x"].bound(0, BYTES), life.buffers["y"].bound()]
    sets = [pool.make(NAME, 0, [life.buffers["w"].bound()]), pool.make(NAME, 1, bounds)]
    with pytest.raises(BackendFault, match=message), life.device.record() as recording:
        recording.dispatch(attrs.evolve(scale(), **change), sets)
    assert watched.count("vkFreeCommandBuffers") == freed + 1
    assert np.array_equal(life.answer(), expected())


@pytest.mark.parametrize("region", [(0, 0, 0), (-1, 0, 4), (0, 4, BYTES), (2 * BYTES, 0, 4)], ids=str)
def test_a_copy_out_of_range_is_refused(life, region) -> None:
    with pytest.raises(BackendFault, match="out of range"), life.device.record() as recording:
        recording.copy(life.buffers["x"], life.buffers["out"], [region])


def test_a_recording_is_freed_once(life, watched) -> None:
    freed = watched.count("vkFreeCommandBuffers")
    life.commands.free()
    life.commands.free()
    assert watched.count("vkFreeCommandBuffers") == freed + 1


@pytest.mark.parametrize(
    ("name", "size"),
    [("VK_FORMAT_R32_SFLOAT", 4), ("VK_FORMAT_R16G16B16A16_SFLOAT", 8), ("VK_FORMAT_R32G32B32A32_UINT", 16)],
)
def test_a_texels_bytes_are_read_from_its_format(name, size) -> None:
    assert texel_bytes(name) == size


def test_the_small_kernel_is_what_its_source_compiles_to(tmp_path) -> None:
    output = tmp_path / "kernel.spv"
    source = SPIRV.with_suffix(".comp")
    try:
        call(COMPILER, "-V", "--target-env", TARGET, "--quiet", "-o", str(output), str(source))
    except FileNotFoundError as error:
        require_or_skip("vulkan", str(error))
    assert output.read_bytes() == SPIRV.read_bytes()
