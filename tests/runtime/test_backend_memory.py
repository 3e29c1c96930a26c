"""Memory on every backend: what is measured stays below the charge, and a step that would not is refused."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BackendFault, BudgetExceeded, InvalidRequest
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import DecodeInput, PlanRequest

from support.backends import NAMES, opened_on
from support.reference import MODEL, REQUEST, Keep, drain, workspace

WIDE = PlanRequest(context=600, slots=3, chunk=256, decision_slots=2, decision_context=600, heads=("yes", "rest"))
SWEEP = [
    *((StepKind.PREFILL, tokens, context, 1) for tokens, context in [(1, 1), (16, 600), (127, 127), (256, 256)]),
    *((StepKind.DECODE, 1, context, rows) for context, rows in [(1, 1), (129, 3), (600, 2)]),
    *((StepKind.DECISION, tokens, context, 2) for tokens, context in [(2, 3), (40, 240), (288, 288)]),
]


@pytest.fixture(params=NAMES)
def backend(request):
    return opened_on(request.param)


def step(backend, space, kind, tokens, context, rows=1):
    """A step that ends at ``context``; what is in front of it is taken for evaluated."""
    start = context - tokens
    for slots in backend._residents[MODEL].slots.values():
        for slot in slots:
            slot.filled = start
            # The reference backend's slots hold what was in memory before; MLX has no other way than to clear it.
            for array in (*slot.keys, *slot.values) if backend.name == "reference" else ():
                array[:] = 0
    if kind is StepKind.PREFILL:
        return backend.prefill(space, MODEL, "generation", 0, start, [1] * tokens, Keep())
    if kind is StepKind.DECODE:
        inputs = [DecodeInput(slot, start, 1) for slot in range(rows)]
        return backend.decode(space, MODEL, inputs, [Keep() for _ in inputs])
    return backend.score(space, MODEL, 0, start, [1] * tokens, ("yes", "rest"))


@pytest.mark.parametrize("name", NAMES)
def test_R9_no_step_takes_more_than_its_charge(name):
    backend = opened_on(name, request=WIDE)
    for case in SWEEP:
        space = workspace(backend, *case)
        drain(step(backend, space, *case))
        assert 0 < space.peak() <= space.charge, case
        space.close()


@pytest.mark.parametrize("kind", [StepKind.PREFILL, StepKind.DECODE, StepKind.DECISION])
def test_R9_using_more_than_the_charge_is_refused_and_the_backend_goes_on(backend, kind):
    before, _ = drain(step(backend, workspace(backend, kind, 1, 20), kind, 1, 20))
    tight = backend.open_workspace(1024)
    with pytest.raises(BudgetExceeded) as refusal:
        drain(step(backend, tight, kind, 1, 20))
    assert refusal.value.details["asked"] > refusal.value.details["available"]
    tight.close()
    after, _ = drain(step(backend, workspace(backend, kind, 1, 20), kind, 1, 20))
    assert after == before


def test_R9_no_step_goes_on_in_a_closed_workspace(backend):
    space = workspace(backend, StepKind.PREFILL, 16, 16)
    space.close()
    with pytest.raises(BackendFault, match="workspace is closed"):
        drain(step(backend, space, StepKind.PREFILL, 16, 16))


def test_R5_a_step_given_up_gives_its_memory_back(backend):
    """What it had is free again, so that another step's measure does not see it."""
    space, other = (workspace(backend, StepKind.PREFILL, 16, 96) for _ in range(2))
    given_up = step(backend, space, StepKind.PREFILL, 16, 96)
    next(given_up)
    given_up.close()
    drain(step(backend, other, StepKind.PREFILL, 16, 96))
    assert other.peak() <= other.charge
    space.close()


def test_R9_what_runs_beside_a_suspended_chunk_is_not_its_own(backend):
    space = workspace(backend, StepKind.PREFILL, 16, 96)
    for _ in step(backend, space, StepKind.PREFILL, 16, 96):
        between = workspace(backend, StepKind.DECISION, 64, 64)
        drain(backend.score(between, MODEL, 0, 0, [1] * 64, ("yes", "rest")))
        assert space.charge < between.peak() <= between.charge
        between.close()
    assert 0 < space.peak() <= space.charge
    space.close()


def test_a_step_without_workspace_is_charged_nothing(backend):
    assert backend.charge(MODEL, StepShape(StepKind.SAVE, 1, 16, 16)) == 0
    space = backend.open_workspace(0)
    assert space.peak() == 0
    space.close()


def test_warming_stays_within_its_charge(backend):
    charge = backend.charge(MODEL, StepShape(StepKind.WARMUP, 1, REQUEST.chunk, REQUEST.chunk))
    space = backend.open_workspace(charge)
    drain(backend.warm(MODEL, space))
    assert 0 < space.peak() <= charge
    space.close()


def test_a_load_given_up_holds_no_weights(backend):
    loading = backend.load(MODEL, REQUEST, weights=True)
    next(loading)
    loading.close()
    with pytest.raises(BackendFault, match="not loaded"):
        drain(backend.load(MODEL, REQUEST, weights=False))


def test_unknown_models_and_unloaded_models_are_refused(backend):
    with pytest.raises(InvalidRequest, match=r"no model 'other'.*model"):
        backend.plan("other", PlanRequest(16, 1, 16))
    backend.unload(MODEL)
    backend.unload(MODEL)
    space = backend.open_workspace(1 << 20)
    with pytest.raises(BackendFault, match="not loaded"):
        drain(backend.prefill(space, MODEL, "generation", 0, 0, [1], None))
    space.close()


def test_a_workspace_of_another_backend_is_refused(backend):
    class Foreign:
        charge = 1 << 20

    with pytest.raises(InvalidRequest, match="a workspace of this backend is needed, not Foreign"):
        drain(backend.prefill(Foreign(), MODEL, "generation", 0, 0, [1], None))
