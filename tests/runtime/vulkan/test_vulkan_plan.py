"""The allocation plan of Vulkan: exact to the byte, cut to fit any limits, and refused before anything is allocated."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
import pytest
from coresident.actors.errors import BackendFault, BudgetExceeded
from coresident.actors.memory.plan import admit_context
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.vulkan.backend import VulkanBackend
from coresident.runtime.backends.vulkan.library import open_functions
from coresident.runtime.backends.vulkan.limits import Limits
from coresident.runtime.backends.vulkan.products import cut, products
from coresident.runtime.backends.vulkan.results import Result
from coresident.runtime.models.locate import ModelSource
from hypothesis import given, settings
from hypothesis import strategies as st

from support import tiny_models
from support.backends import opened_on
from support.reference import HEADS, MODEL, REQUEST, decode, drain, prefill, score
from support.vulkan_fakes import Watched
from support.vulkan_models import FORMS, written

pytestmark = pytest.mark.usefixtures("vulkan")


TOKENS = [(7 * at + 3) % 160 for at in range(50)]
SMALL = {"max_storage_range": 32 << 10}
"""Embeddings in two pieces, weights and KV in dozens of blocks."""


@cache
def own_limits() -> Limits:
    """Those of the device."""
    return VulkanBackend({}).planned.limits


def limited(source: ModelSource | None = None, **changes: Any) -> VulkanBackend:
    """A backend whose device has other limits, with nothing loaded."""
    models = {MODEL: source or ModelSource(heads=HEADS)}
    return VulkanBackend(models, limits=attrs.evolve(own_limits(), **changes))


def load(backend: VulkanBackend, request: PlanRequest = REQUEST) -> VulkanBackend:
    drain(backend.load(MODEL, request, weights=True))
    return backend


def numbers(backend: VulkanBackend) -> list[Any]:
    """Everything that limits must not change, to the bit."""
    return [
        prefill(backend, 1, TOKENS).tobytes(),
        *(row.tobytes() for row in decode(backend, [(1, len(TOKENS), 5)])),
        score(backend, 0, 0, TOKENS[:9]),
    ]


@cache
def expected() -> list[Any]:
    """The numbers of the synthetic model on the device as it is."""
    return numbers(opened_on("vulkan"))


@pytest.mark.parametrize(("family", "form"), FORMS)
def test_FIELD_62_the_plan_is_what_is_allocated_to_the_byte(family, form, tmp_path):
    backend = limited(written(tmp_path, family, form))
    plan = backend.plan(MODEL, REQUEST)
    assert backend.planned.allocations == 0
    load(backend)
    assert (backend.planned.allocated, backend.planned.allocations) == (plan.total, plan.allocations)
    backend.unload(MODEL)
    assert (backend.planned.allocated, backend.planned.allocations) == (0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        SMALL,
        {"max_texel_elements": 2 << 10, "max_buffer_size": 40_000, "max_allocation": 33_000},
        {"max_texel_elements": 2, "texels": False, "max_allocation": 33_000},
    ],
)
def test_FIELD_61_weights_and_kv_are_cut_where_a_device_is_small_and_the_bits_are_the_same(changes):
    backend = limited(**changes)
    plan = backend.plan(MODEL, REQUEST)
    assert max(buffer.bytes for buffer in plan.buffers) <= backend.planned.limits.block
    assert plan.allocations > 10
    load(backend)
    assert backend.planned.allocated == plan.total
    assert len(backend._residents[MODEL].loaded().weights.products["embedding"].cuts) > 1
    assert numbers(backend) == expected()


@pytest.mark.parametrize(("family", "form"), FORMS)
def test_FIELD_61_every_form_is_cut_by_rows_and_gives_the_same_bits(family, form, tmp_path, monkeypatch):
    source = written(tmp_path, family, form)
    whole = numbers(load(limited(source)))
    monkeypatch.setattr("coresident.runtime.backends.vulkan.products.largest_piece", lambda limits: 512)
    backend = load(limited(source))
    matrices = backend._residents[MODEL].loaded().weights.products.values()
    assert all(len(product.cuts) > 1 for product in matrices if product.rows > 8)
    assert numbers(backend) == whole


@given(rows=st.integers(1, 3000), inputs=st.integers(1, 40), block=st.integers(64, 1 << 17))
@settings(max_examples=60, deadline=None)
def test_cuts_cover_a_matrix_in_order_and_fit_where_they_can(rows, inputs, block):
    limits = attrs.evolve(own_limits(), max_storage_range=block * 64)
    cuts = cut("m", "f16", rows, inputs, limits).cuts
    assert [one.first for one in cuts] == [sum(one.matrix.rows for one in cuts[:at]) for at in range(len(cuts))]
    assert sum(one.matrix.rows for one in cuts) == rows
    assert all(one.first % 8 == 0 for one in cuts)
    assert all(piece.bytes <= limits.block for one in cuts if one.matrix.rows > 8 for piece in one.pieces())


def test_FIELD_61_the_context_shrinks_in_256s_where_one_layer_of_a_slot_is_too_large():
    """The keys of a layer take 128 bytes a token."""
    backend = limited(max_storage_range=100_000)
    request = PlanRequest(context=5000, slots=1, chunk=16)
    admitted = admit_context(5000, lambda context: backend.plan(MODEL, attrs.evolve(request, context=context)), 1 << 30)
    assert (admitted.context, admitted.capped) == (768, False)
    load(backend, attrs.evolve(request, context=admitted.context))
    prefill(backend, 0, TOKENS)


def test_FIELD_61_the_context_shrinks_where_a_device_allows_few_allocations():
    backend = limited(**SMALL, max_allocations=70)
    request = PlanRequest(context=2000, slots=2, chunk=16)
    admitted = admit_context(2000, lambda context: backend.plan(MODEL, attrs.evolve(request, context=context)), 1 << 30)
    assert 0 < admitted.context < 2000
    assert admitted.context % 256 == 0
    assert admitted.plan.allocations <= 70 * 3 // 4
    load(backend, attrs.evolve(request, context=admitted.context))
    assert backend.planned.allocations == admitted.plan.allocations
    prefill(backend, 0, TOKENS)


def test_R9_a_step_whose_arrays_are_too_large_is_refused_with_the_load():
    backend = limited(max_storage_range=16 << 10)
    with pytest.raises(BudgetExceeded, match="largest array of a step") as refusal:
        load(backend)
    assert refusal.value.details["asked"] > refusal.value.details["available"] == 16 << 10
    assert backend.planned.allocations == 0


def test_R9_what_a_step_tells_the_host_is_no_larger_than_a_buffer_may_be(tmp_path, monkeypatch):
    """Eight rows of logits are one buffer of it, with all else that comes back."""
    monkeypatch.setattr(tiny_models, "VOCABULARY", 2000)
    source = ModelSource(str(tiny_models.write_folder(tmp_path / "model", "llama")))
    request, refusals = PlanRequest(context=64, slots=8, chunk=8), []
    for block in range(60_000, 72_000, 2_000):
        backend = limited(source, max_allocation=block)
        try:
            load(backend, request)
        except BudgetExceeded as refusal:
            refusals.append(refusal.details["what"])
            continue
        for slot in range(8):
            prefill(backend, slot, TOKENS[:8])
        decode(backend, [(slot, 8, slot) for slot in range(8)])
    assert set(refusals) == {f"largest array of a step of model {MODEL!r}"}
    assert len(refusals) < 6


def test_R9_a_load_that_the_device_has_no_room_for_is_refused_before_it_allocates():
    backend = VulkanBackend({MODEL: ModelSource(heads=HEADS)}, share=1)
    free = backend.planned.budget()
    request = attrs.evolve(REQUEST, context=free // 768 // 3 + 256)
    with pytest.raises(BudgetExceeded) as refusal:
        load(backend, request)
    assert refusal.value.details["asked"] == backend.plan(MODEL, request).total
    assert refusal.value.details["available"] == free
    assert backend.planned.allocations == 0
    load(backend)


def test_R9_a_load_beyond_the_number_of_allocations_is_refused_before_it_allocates():
    backend = limited(**SMALL, max_allocations=20)
    with pytest.raises(BudgetExceeded, match=r"asks for \d+ allocations, 20 are available"):
        load(backend)
    assert backend.planned.allocations == 0


def test_a_load_given_up_anywhere_frees_its_memory():
    backend = limited(**SMALL)
    segments = 0
    while True:
        loading, last = backend.load(MODEL, REQUEST, weights=True), False
        for _ in range(segments + 1):
            last = next(loading).last
        loading.close()
        if last:
            break
        assert (backend.planned.allocated, backend.planned.allocations) == (0, 0)
        with pytest.raises(BackendFault, match="not loaded"):
            drain(backend.load(MODEL, REQUEST, weights=False))
        segments += 1
    assert segments > 5
    assert backend.planned.allocated == backend.plan(MODEL, REQUEST).total


@pytest.mark.parametrize("name", ["vkAllocateMemory", "vkAllocateCommandBuffers", "vkQueueSubmit", "vkCreateBuffer"])
def test_R9_a_load_that_fails_anywhere_leaves_nothing_and_can_be_repeated(name):
    watched = Watched(open_functions())
    backend = VulkanBackend({MODEL: ModelSource(heads=HEADS)}, functions=watched.functions)
    backend.plan(MODEL, REQUEST)
    before = watched.count(name)
    load(backend)
    calls = watched.count(name) - before
    backend.unload(MODEL)
    for nth in range(1, calls + 1):
        watched.fail(name, Result.ERROR_OUT_OF_DEVICE_MEMORY, nth=nth)
        with pytest.raises((BudgetExceeded, BackendFault), match=r"memory|OUT_OF_DEVICE_MEMORY"):
            load(backend)
        assert (backend.planned.allocated, backend.planned.allocations) == (0, 0)
        watched.fault = None
    assert calls > 2
    load(backend)
    assert numbers(backend) == expected()


def test_slots_that_cannot_be_allocated_leave_the_weights():
    watched = Watched(open_functions())
    backend = load(VulkanBackend({MODEL: ModelSource(heads=HEADS)}, functions=watched.functions))
    kept = backend._residents[MODEL].loaded()
    watched.fail("vkAllocateMemory", Result.ERROR_OUT_OF_DEVICE_MEMORY)
    with pytest.raises(BudgetExceeded):
        drain(backend.load(MODEL, REQUEST, weights=False))
    assert backend.planned.allocated == backend.plan(MODEL, REQUEST).by_account()[f"weights/{MODEL}"]
    drain(backend.load(MODEL, REQUEST, weights=False))
    assert backend._residents[MODEL].loaded() is kept
    assert numbers(backend) == expected()


def test_slots_are_made_a_buffer_at_a_time():
    """Each is filled with zeros, which takes a second a GiB on a CPU."""
    backend = load(limited(**SMALL))
    blocks = sum(buffer.count for buffer in backend.plan(MODEL, REQUEST).buffers if buffer.account == f"kv/{MODEL}")
    _, segments = drain(backend.load(MODEL, attrs.evolve(REQUEST, decision_slots=0), weights=False))
    assert segments == blocks + 1 > 3


SHAPES = st.builds(
    StepShape,
    kind=st.sampled_from([StepKind.PREFILL, StepKind.DECODE, StepKind.DECISION, StepKind.WARMUP]),
    rows=st.integers(1, 20),
    tokens=st.integers(1, 300),
    context=st.integers(1, 5000),
)


@pytest.mark.parametrize("block", [None, 48 << 10])
def test_R9_no_smaller_step_is_charged_more(block):
    backend = limited() if block is None else limited(max_storage_range=block)

    @given(shape=SHAPES, less=st.tuples(st.integers(0, 19), st.integers(0, 299), st.integers(0, 4999)))
    @settings(max_examples=100, deadline=None)
    def check(shape: StepShape, less: tuple[int, int, int]) -> None:
        sizes = (max(1, have - by) for have, by in zip((shape.rows, shape.tokens, shape.context), less, strict=True))
        assert backend.charge(MODEL, StepShape(shape.kind, *sizes)) <= backend.charge(MODEL, shape)

    check()


def test_what_is_resident_is_said(tmp_path):
    labels = [limited(written(tmp_path, *form)).describe(MODEL).label for form in FORMS[:4]]
    said = [label.rpartition("; ")[2] for label in labels]
    assert said == ["Q4_1 kept quantized", "Q8_0 kept quantized", "Q4_K kept quantized", "F16 as float16"]


def test_every_matrix_of_a_model_is_planned():
    backend = limited()
    facts = backend._known(MODEL)
    names = {product.name for product in products(facts, backend.planned.limits)}
    matrices = {name for name, shape in facts.config.tensor_shapes().items() if len(shape) > 1}
    assert names == matrices | {"heads"}
