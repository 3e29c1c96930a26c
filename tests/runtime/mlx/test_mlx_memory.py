"""MLX's memory: plans are what is allocated, copies are copies, limits are set, and nothing grows."""

from __future__ import annotations

import gc
import os
import threading

import attrs
import pytest
from coresident.actors.errors import BackendFault, InvalidRequest
from coresident.actors.work import StepKind
from coresident.runtime.backends.contract import DecodeInput, PlanRequest
from coresident.runtime.models.locate import ModelSource

from support import tiny_models
from support.backends import opened_on
from support.mlx_models import needs_mlx
from support.reference import HEADS, MODEL, REQUEST, Keep, decode, drain, prefill, score, workspace

needs_mlx()

import mlx.core as mx  # noqa: E402
from coresident.runtime.backends.mlx.limits import MemoryPolicy, nothing_cached  # noqa: E402
from coresident.runtime.backends.mlx.planning import Limits  # noqa: E402

TOKENS = [(7 * index + 3) % 251 for index in range(90)]


def test_the_plan_is_what_is_allocated_and_unloading_gives_it_back(tmp_path):
    source = ModelSource(str(tiny_models.write_folder(tmp_path / "model", "qwen2")), HEADS)
    # From its first use on MLX keeps a few bytes for itself.
    opened_on("mlx").unload(MODEL)
    with nothing_cached():
        before = mx.get_active_memory()
        backend = opened_on("mlx", source)
        # A scalar that an earlier model left to MLX may go meanwhile.
        assert abs(mx.get_active_memory() - before - backend.plan(MODEL, REQUEST).total) <= 16
        other = attrs.evolve(REQUEST, context=40, slots=1, decision_slots=0)
        drain(backend.load(MODEL, other, weights=False))
        assert abs(mx.get_active_memory() - before - backend.plan(MODEL, other).total) <= 16
    backend.unload(MODEL)
    assert abs(mx.get_active_memory() - before) <= 16
    assert mx.get_cache_memory() == 0


def test_E10_a_retained_copy_takes_its_bytes_and_leaves_the_slot_writable_in_place():
    """A full slot: its buffer must not be shared, or the next step would copy all of it."""
    backend = opened_on("mlx")
    prefill(backend, 0, (TOKENS * 2)[:96])
    with nothing_cached():
        before = mx.get_active_memory()
        drain(backend.save(MODEL, 0, 96, handle=1))
        assert mx.get_active_memory() - before == 96 * backend.describe(MODEL).kv_bytes_per_token
        slot = backend._residents[MODEL].slot("generation", 0)
        space = workspace(backend, StepKind.PREFILL, 1, 96)
        drain(backend.prefill(space, MODEL, "generation", 0, 95, TOKENS[:1], None))
        assert space.peak() < slot.caches[0].nbytes
        backend.drop(MODEL, 1)
        assert mx.get_active_memory() == before


@pytest.mark.parametrize("given_up", [False, True])
def test_after_a_step_nothing_of_it_is_left(given_up):
    backend = opened_on("mlx")
    prefill(backend, 0, TOKENS[:32])
    before = mx.get_active_memory()
    space = workspace(backend, StepKind.PREFILL, 16, 48)
    step = backend.prefill(space, MODEL, "generation", 0, 32, TOKENS[32:48], Keep())
    next(step)
    assert mx.get_active_memory() > before
    step.close() if given_up else drain(step)
    assert mx.get_active_memory() == before


def test_R9_a_peak_is_that_of_the_whole_step_with_what_it_held_while_suspended():
    backend = opened_on("mlx")
    space, before = workspace(backend, StepKind.PREFILL, 90, 90), mx.get_active_memory()
    chunk = backend.prefill(space, MODEL, "generation", 0, 0, TOKENS, Keep())
    seen = [mx.get_peak_memory() - before for _ in chunk]
    seen.append(mx.get_peak_memory() - before)
    assert space.peak() == max(seen)
    assert max(seen[1:]) > seen[0]


def failing_once(monkeypatch, after):
    """Let the evaluation fail that comes after ``after`` others."""
    really, calls = mx.eval, []

    def evaluate(*arrays):
        calls.append(arrays)
        if len(calls) == after + 1:
            raise RuntimeError("the device says no")
        really(*arrays)

    monkeypatch.setattr(mx, "eval", evaluate)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_chunk_whose_evaluation_fails_leaves_a_slot_that_can_be_filled_again(monkeypatch, after):
    backend = opened_on("mlx")
    cold = prefill(backend, 0, TOKENS[:40])
    prefill(backend, 0, TOKENS[:32])
    with monkeypatch.context() as patch:
        failing_once(patch, after)
        with pytest.raises(RuntimeError, match="the device says no"):
            prefill(backend, 0, TOKENS[32:40], start=32)
    with pytest.raises(InvalidRequest, match="0 are evaluated"):
        decode(backend, [(0, 40, 1)])
    assert prefill(backend, 0, TOKENS[:40]).tobytes() == cold.tobytes()


def test_a_decode_step_whose_evaluation_fails_costs_its_own_slot_alone(monkeypatch):
    backend = opened_on("mlx")
    for slot in (0, 1):
        prefill(backend, slot, TOKENS[:40])
    expected = decode(backend, [(1, 40, 5)])[0]
    with monkeypatch.context() as patch:
        failing_once(patch, 0)
        with pytest.raises(RuntimeError, match="the device says no"):
            decode(backend, [(0, 40, 5)])
    with pytest.raises(InvalidRequest, match="0 are evaluated"):
        decode(backend, [(0, 40, 5)])
    assert decode(backend, [(1, 40, 5)])[0].tobytes() == expected.tobytes()


def test_a_sampler_that_fails_costs_no_position():
    class Broken:
        def sample(self, logits):
            raise ValueError("no token")

    backend = opened_on("mlx")
    prefill(backend, 0, TOKENS[:40])
    space = workspace(backend, StepKind.DECODE, 1, 41)
    with pytest.raises(ValueError, match="no token"):
        drain(backend.decode(space, MODEL, [DecodeInput(0, 40, 5)], [Broken()]))
    decode(backend, [(0, 41, 6)])


def test_R7_alternating_steps_and_new_backends_add_neither_threads_nor_files_nor_memory():
    def held():
        # What earlier tests held in a circle may be freed at any moment.
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), mx.get_active_memory()

    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads and files are counted where /proc is")
    backend = opened_on("mlx")
    prefill(backend, 0, TOKENS[:8])
    for _ in range(2):
        before = held()
        for _ in range(60):
            score(backend, 0, 0, TOKENS[:4])
            decode(backend, [(0, 8, 11)])
        for _ in range(5):
            assert opened_on("mlx").describe(MODEL)
    assert held() == before


def test_two_threads_at_once_are_refused_and_one_after_the_other_are_not():
    backend = opened_on("mlx")
    cold = prefill(backend, 0, TOKENS[:20])
    seen = []
    with backend._stream.entered(), pytest.raises(BackendFault, match="two threads use one MLX backend"):
        prefill(backend, 0, TOKENS[:20])
    thread = threading.Thread(target=lambda: seen.append(prefill(backend, 0, TOKENS[:20])))
    thread.start()
    thread.join()
    assert seen[0].tobytes() == cold.tobytes()


@pytest.mark.parametrize(("partition", "recommended", "wired"), [(100, 60, [60]), (50, 60, [50]), (50, None, [])])
def test_FIELD_59_no_more_is_wired_than_the_partition_and_what_is_recommended(
    monkeypatch, partition, recommended, wired
):
    called = {"cache": [], "wired": []}
    monkeypatch.setattr(mx, "set_wired_limit", called["wired"].append)
    monkeypatch.setattr(mx, "set_cache_limit", called["cache"].append)
    MemoryPolicy(partition, workspace=40).apply(Limits("a device", 1, None, recommended, None))
    assert called == {"cache": [10], "wired": wired}


def test_the_margin_is_on_every_charge_and_cannot_be_negative():
    shapes = [StepKind.PREFILL, StepKind.DECODE, StepKind.DECISION]
    none, much = (opened_on("mlx", request=PlanRequest(16, 1, 16), margin=margin) for margin in (0, 100))
    for kind in shapes:
        space, double = workspace(none, kind, 16, 16).charge, workspace(much, kind, 16, 16).charge
        assert 1.9 * space < double <= 2 * space
    with pytest.raises(InvalidRequest, match="margin is -1 percent"):
        opened_on("mlx", margin=-1)
