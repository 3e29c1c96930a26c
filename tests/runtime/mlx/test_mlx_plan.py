"""The allocation plan from the sizes of real arrays: what MLX counts after a load is what the plan said before."""

from __future__ import annotations

import gc

import attrs
import numpy as np
import pytest
from coresident.actors.errors import BudgetExceeded, InvalidRequest
from coresident.actors.memory.plan import admit_context
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.models.heads import HeadFile, LinearHead, write_linear_heads
from coresident.runtime.models.locate import ModelSource
from gguf.constants import GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from support.mlx_models import GEMMA3, needs_mlx, write_quantized, write_random
from support.reference import drain
from support.tiny_models import write_folder, write_gguf

needs_mlx()

import mlx.core as mx  # noqa: E402 - skipped without it
from coresident.runtime.backends.mlx.backend import MlxBackend  # noqa: E402
from coresident.runtime.backends.mlx.description import read_facts  # noqa: E402
from coresident.runtime.backends.mlx.limits import nothing_cached  # noqa: E402
from coresident.runtime.backends.mlx.loading import load_model  # noqa: E402
from coresident.runtime.backends.mlx.planning import Limits, check_partition, device_limits, held_bytes, model_plan  # noqa: E402

REQUEST = PlanRequest(context=300, slots=2, chunk=16, decision_slots=2, decision_context=70, rows_per_slice=2)
PAGE = 16384


def file_of(form: str, folder):
    if form == "synthetic":
        return "synthetic"
    if form == "gguf":
        return write_gguf(folder / "model.gguf", "qwen3", GGMLQuantizationType.Q4_1)
    if form == "quantized":
        return write_quantized(folder / "quantized", write_folder(folder / "plain", "llama_llama3"))
    return write_random(folder / "gemma", GEMMA3)


@pytest.mark.parametrize("form", ["synthetic", "gguf", "quantized", "windows"])
def test_E9_what_is_held_after_a_load_is_the_plan(form, tmp_path):
    backend = MlxBackend({"m": ModelSource(str(file_of(form, tmp_path)))})
    plan = backend.plan("m", REQUEST)
    gc.collect()
    before = mx.get_active_memory()
    drain(backend.load("m", REQUEST, True))
    assert abs(mx.get_active_memory() - before - plan.total) <= 64
    sizes = read_facts(ModelSource(str(file_of(form, tmp_path)))).sizes
    assert plan.by_account()["kv/m"] == 2 * 300 * backend.describe("m").kv_bytes_per_token
    assert plan.by_account()["decision_kv/m"] == 2 * 70 * 2 * sizes.layers * sizes.position_bytes
    backend.unload("m")
    gc.collect()
    assert abs(mx.get_active_memory() - before) <= 64


@pytest.mark.parametrize("form", ["gguf", "quantized"])
def test_a_load_holds_nothing_twice_but_one_array(form, tmp_path):
    source = ModelSource(str(file_of(form, tmp_path)))
    facts = read_facts(source)
    largest = max(array.bytes for array in facts.arrays)
    gc.collect()
    with nothing_cached():
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        drain(load_model(source, facts))
        peak = mx.get_peak_memory() - before
    # A quantized matrix of a GGUF file is repacked as three arrays at once.
    assert peak <= sum(array.bytes for array in facts.arrays) + 3 * largest


def test_linear_heads_are_in_the_plan_and_in_memory(tmp_path):
    digest = read_facts(ModelSource()).description.digest
    vectors = [np.full(64, number, np.float32) for number in (1, 2)]
    heads = [LinearHead(f"h{number}", "rank", vector, 0.5) for number, vector in enumerate(vectors)]
    write_linear_heads(tmp_path / "heads.safetensors", heads, digest)
    plain = MlxBackend({"m": ModelSource()}).plan("m", REQUEST)
    backend = MlxBackend({"m": ModelSource(heads=(HeadFile(str(tmp_path / "heads.safetensors")),))})
    plan = backend.plan("m", attrs.evolve(REQUEST, heads=("h0", "h1")))
    assert plan.total == plain.total + 2 * 64 * 4
    gc.collect()
    before = mx.get_active_memory()
    drain(backend.load("m", REQUEST, True))
    assert abs(mx.get_active_memory() - before - plan.total) <= 64


@given(size=st.integers(0, 1 << 40))
def test_arrays_from_a_page_on_take_whole_pages(size):
    held = held_bytes(size, PAGE)
    assert size <= held < size + PAGE
    assert held % PAGE == 0 if size >= PAGE else held == size
    assert held_bytes(size, 1) == size


def test_a_device_with_pages_and_a_largest_buffer_is_planned_for():
    facts = read_facts(ModelSource())
    plain, paged = (model_plan("m", facts, REQUEST, None, page) for page in (1, PAGE))
    count = sum(buffer.count for buffer in plain.buffers)
    assert plain.total < paged.total < plain.total + count * PAGE
    assert all(buffer.bytes % PAGE == 0 or buffer.bytes < PAGE for buffer in paged.buffers)
    admitted = admit_context(
        4096, lambda context: model_plan("m", facts, attrs.evolve(REQUEST, context=context), 70_000, PAGE), 1 << 30
    )
    # 16 positions of two heads of 16 float32 values make 2 KiB; 65,536 bytes are four pages.
    assert (admitted.context, admitted.plan.max_buffer) == (512, 70_000)
    with pytest.raises(BudgetExceeded, match="embed_tokens"):
        admit_context(4096, lambda context: model_plan("m", facts, REQUEST, 60_000, PAGE), 1 << 30)


def test_the_cpu_tells_no_limits():
    limits = device_limits()
    if mx.default_device().type == mx.DeviceType.cpu:
        assert (limits.page, limits.max_buffer, limits.recommended) == (1, None, None)
    else:
        assert limits.page >= 4096
        assert limits.max_buffer is None or limits.max_buffer > 1 << 20
    assert limits.device


def test_a_partition_beyond_what_the_device_recommends_is_refused():
    limits = Limits("Some GPU", PAGE, 8 << 30, 10 << 30, 16 << 30)
    check_partition(10 << 30, limits)
    check_partition(1 << 40, attrs.evolve(limits, recommended=None))
    with pytest.raises(InvalidRequest, match=f"at most {10 << 30}") as refused:
        check_partition((10 << 30) + 1, limits)
    assert refused.value.details["limit"] == 10 << 30


def test_heads_can_be_chosen_by_name_only():
    facts = read_facts(ModelSource())
    with pytest.raises(InvalidRequest, match="there is no head 'rank'"):
        facts.choose_heads(("rank",))
