"""Barriers of every recording: whatever one dispatch or copy writes, no other touches before the next barrier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from coresident.actors.work import StepKind
from coresident.runtime.backends.contract import DecodeInput
from coresident.runtime.backends.vulkan import shapes, writing
from coresident.runtime.models.sampling import GreedySampler, SamplingParams

from support import tiny_models
from support.backends import opened_on
from support.reference import MODEL, REQUEST, Keep, drain, prefill, score, workspace
from support.vulkan_fakes import Watched
from support.vulkan_hazards import Hazards, watch
from support.vulkan_life import functions
from support.vulkan_models import written

DISCRETE = 2
"""VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU."""

TOKENS = [*tiny_models.TOKENS * 5][:90]
LISTED = GreedySampler(SamplingParams(logprobs=3))


@pytest.fixture
def hazards() -> Iterator[Hazards]:
    with pytest.MonkeyPatch.context() as patch:
        yield watch(patch)


def run_all(backend: Any) -> None:
    """Every kind of step, and every way in which something is read or copied."""
    prefill(backend, 0, TOKENS)
    rows = [DecodeInput(slot, 40 + slot, 7) for slot in range(3)]
    for slot in range(1, 3):
        drain(backend.copy(MODEL, "generation", 0, [slot], 40 + slot))
    space = workspace(backend, StepKind.DECODE, 1, 64, len(rows))
    drain(backend.decode(space, MODEL, rows, [LISTED, GreedySampler(SamplingParams()), Keep()]))
    space.close()
    drain(backend.save(MODEL, 0, 40, 1))
    drain(backend.restore(MODEL, 1, 40, 1))
    prefill(backend, 0, TOKENS[:20], role="decision")
    score(backend, 0, 20, TOKENS[20:27])
    backend.logits_all(MODEL, "generation", 1, 40, TOKENS[40:56])


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize(
    ("family", "form", "request_"),
    [
        ("llama", "Q4_1", REQUEST),
        ("qwen3", "F16", attrs.evolve(REQUEST, chunk=64)),
    ],
)
def test_no_dispatch_touches_what_another_writes_before_a_barrier(hazards, gpu, family, form, request_, tmp_path):
    watched = Watched(functions())
    if gpu:
        watched.replace("vkGetPhysicalDeviceProperties", lambda physical, out: setattr(out, "deviceType", DISCRETE))
    run_all(opened_on("vulkan", written(tmp_path, family, form), request_, functions=watched.functions))
    assert hazards.found == set()
    assert hazards.dispatches > 200


def test_a_unit_of_attention_has_its_scores_to_itself(hazards, monkeypatch, tmp_path):
    """With room for one unit at a time, each waits for the one before."""
    monkeypatch.setattr(shapes, "LANE_BYTES", 1)
    run_all(opened_on("vulkan", written(tmp_path, "llama", "Q4_1"), attrs.evolve(REQUEST, chunk=64)))
    assert hazards.found == set()


def test_missing_barriers_are_found(hazards, monkeypatch, tmp_path):
    monkeypatch.setattr(writing.Writer, "barrier", lambda self: None)
    run_all(opened_on("vulkan", written(tmp_path, "qwen3", "F16"), attrs.evolve(REQUEST, chunk=64)))
    assert {kind for kind, _, _ in hazards.found} == {"read after write", "write after read", "write after write"}
    met = {name.split("_")[0] for _, *pair in hazards.found for name in pair}
    assert met == {"embed", "rms", "matmul", "rope", "scores", "softmax", "values", "swiglu", "top", "sumexp", "copy"}
