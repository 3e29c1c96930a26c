"""The reference backend's memory: plans equal allocations, charges bound and nearly equal what steps take."""

from __future__ import annotations

import gc
import tracemalloc

import attrs
import numpy as np
import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.actors.work import StepKind
from coresident.runtime.backends.contract import DecodeInput, PlanRequest, Sampled
from coresident.runtime.backends.reference.shapes import ChunkShape
from coresident.runtime.backends.reference.workspace import RegionPool, ScratchWorkspace
from coresident.runtime.models.architecture import DecoderConfig, Rope
from coresident.runtime.models.heads import HeadFile, LinearHead, write_linear_heads
from coresident.runtime.models.locate import ModelSource
from hypothesis import given, settings
from hypothesis import strategies as st

from support import tiny_models
from support.reference import HEADS, MODEL, REQUEST, Keep, drain, opened, workspace

SMALL = 48 * 1024
"""Python objects and NumPy's casting buffers: what a step may use beside its charge."""

WIDE = DecoderConfig(
    architecture="llama",
    hidden=576,
    layers=2,
    heads=9,
    kv_heads=3,
    head_dim=64,
    mlp=1536,
    vocabulary=512,
    eps=1e-5,
    rope=Rope(),
    tied=True,
    context_limit=8192,
)


def held(backend) -> int:
    """Bytes really allocated for the model, found by walking its arrays down to the owners of their memory."""
    resident = backend._residents[MODEL]
    weights = resident.weights
    arrays = [weights.embedding, weights.output, weights.final_norm]
    arrays += [array for layer in weights.layers for array in attrs.astuple(layer, recurse=False) if array is not None]
    arrays += [head.weight for head in resident.facts.heads.values() if isinstance(head, LinearHead)]
    arrays += [array for slots in resident.slots.values() for slot in slots for array in (*slot.keys, *slot.values)]
    owners = {}
    for array in arrays:
        while isinstance(array.base, np.ndarray):
            array = array.base
        owners[id(array)] = array.nbytes
    return sum(owners.values())


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_plan_is_what_is_allocated(family, tmp_path):
    source = ModelSource(str(tiny_models.write_folder(tmp_path / "model", family)), HEADS)
    backend = opened(source)
    assert backend.plan(MODEL, REQUEST).total == held(backend)
    other = attrs.evolve(REQUEST, context=40, slots=1, decision_slots=0)
    drain(backend.load(MODEL, other, weights=False))
    assert backend.plan(MODEL, other).total == held(backend)


def test_plan_counts_linear_heads_and_names_accounts(tmp_path):
    digest = opened(ModelSource()).describe(MODEL).digest
    head = LinearHead("fit", "rank", np.ones(64, np.float32), 0.5)
    write_linear_heads(tmp_path / "heads.safetensors", [head], digest)
    backend = opened(
        ModelSource(heads=(HeadFile(str(tmp_path / "heads.safetensors")),)), attrs.evolve(REQUEST, heads=())
    )
    plan = backend.plan(MODEL, attrs.evolve(REQUEST, heads=("fit",)))
    assert plan.total == held(backend)
    assert set(plan.by_account()) == {"weights/model", "kv/model", "decision_kv/model"}
    with pytest.raises(InvalidRequest, match=r"no head 'late'.*fit"):
        backend.plan(MODEL, attrs.evolve(REQUEST, heads=("late",)))


def test_plan_names_a_buffer_above_the_devices_limit():
    backend = opened(max_buffer=20_000)
    oversized = backend.plan(MODEL, REQUEST).oversized()
    assert oversized is not None
    assert oversized.bytes > 20_000


def test_loading_again_holds_one_copy():
    backend = opened()
    tracemalloc.start()
    try:
        drain(backend.load(MODEL, REQUEST, weights=True))
        gc.collect()
        once = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        drain(backend.load(MODEL, REQUEST, weights=True))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - once < backend.plan(MODEL, REQUEST).total / 2


CASES = [
    (StepKind.PREFILL, 16, 16, 1),
    (StepKind.PREFILL, 5, 90, 1),
    (StepKind.PREFILL, 1, 96, 1),
    (StepKind.DECODE, 1, 80, 3),
    (StepKind.DECODE, 1, 2, 1),
    (StepKind.DECISION, 16, 64, 1),
    (StepKind.DECISION, 3, 40, 1),
]


def steps(backend, kind, tokens, context, rows, sampler=None):
    """The step that a charge of this shape is for, with everything before it evaluated."""
    start = context - tokens
    sampler = sampler or Keep()
    for slots in backend._residents[MODEL].slots.values():
        for slot in slots:
            slot.filled = start
            for array in (*slot.keys, *slot.values):
                array[:] = 0
    space = workspace(backend, kind, tokens, context, rows)
    if kind is StepKind.PREFILL:
        return space, backend.prefill(space, MODEL, "generation", 0, start, [1] * tokens, sampler)
    if kind is StepKind.DECODE:
        inputs = [DecodeInput(slot, start, 1) for slot in range(rows)]
        return space, backend.decode(space, MODEL, inputs, [sampler for _ in inputs])
    return space, backend.score(space, MODEL, 0, start, [1] * tokens, ("yes", "rest"))


@pytest.mark.parametrize("case", CASES)
def test_R9_charge_bounds_what_a_step_takes_and_little_more(case):
    backend = opened(pool_limit=0)
    space, step = steps(backend, *case)
    gc.collect()
    tracemalloc.start()
    try:
        drain(step)
        hidden = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.8 * space.charge <= space.peak() <= space.charge
    assert hidden <= SMALL
    space.close()


class Forget:
    """A sampler that allocates nothing."""

    def sample(self, logits):
        return Sampled(0)


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    request = PlanRequest(context=2048, slots=2, chunk=256, decision_slots=1, decision_context=512)
    return opened(ModelSource(str(smollm2_path), HEADS), request, pool_limit=0)


@pytest.mark.parametrize(
    "case", [(StepKind.PREFILL, 256, 2048, 1), (StepKind.DECODE, 1, 2048, 2), (StepKind.DECISION, 40, 512, 1)]
)
def test_R9_a_real_models_steps_take_their_charge_and_numpys_own_buffers(smollm2, case):
    space, step = steps(smollm2, *case, sampler=Forget())
    gc.collect()
    tracemalloc.start()
    try:
        drain(step)
        hidden = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.8 * space.charge <= space.peak() <= space.charge
    # A ufunc over strided operands may take three buffers of np.getbufsize() complex numbers, whatever the step's size.
    assert hidden <= SMALL + 3 * 8 * np.getbufsize()
    space.close()


@given(tokens=st.integers(1, 300), before=st.integers(0, 8000), fewer=st.integers(0, 300), earlier=st.integers(0, 8000))
@settings(max_examples=200, deadline=None)
def test_R9_a_charge_covers_every_smaller_shape(tokens, before, fewer, earlier):
    whole = ChunkShape(WIDE, tokens, before + tokens)
    less = max(1, tokens - fewer)
    smaller = ChunkShape(WIDE, less, less + max(0, before - earlier))
    assert smaller.bytes() <= whole.bytes()
    piece = smaller.kv_heads() * smaller.group * smaller.query_rows() * smaller.context
    assert piece <= smaller.score_elements()


def test_R9_a_step_given_up_in_the_middle_leaves_its_workspace_empty():
    backend = opened()
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    step = backend.prefill(space, MODEL, "generation", 0, 0, [1] * 16, None)
    next(step)
    assert space.mark() > 0
    step.close()
    assert space.mark() == 0
    space.close()


@given(sizes=st.lists(st.integers(64, 4096), max_size=20), limit=st.integers(0, 8192))
def test_idle_regions_stay_within_the_pools_limit(sizes, limit):
    pool = RegionPool(limit)
    spaces = [ScratchWorkspace(size, pool) for size in sizes]
    for space in spaces:
        space.close()
        space.close()
        assert pool.idle_bytes <= limit


def test_a_region_is_used_again_and_a_closed_workspace_is_refused():
    pool = RegionPool(4096)
    space = ScratchWorkspace(1024, pool)
    first = space.take((8,)).ctypes.data
    space.close()
    assert ScratchWorkspace(1024, pool).take((8,)).ctypes.data == first
    with pytest.raises(BackendFault, match="closed"):
        space.take((8,))
