"""Steps on Vulkan: tokens chosen on the device, broken logits, warm-up, retained KV by small pieces, lost devices."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from coresident.actors.errors import ArtifactInvalid, BackendFault, DeviceLost
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.contract import DecodeInput, Sampled
from coresident.runtime.backends.reference.layout import interleaved_rows
from coresident.runtime.backends.session import KVSession
from coresident.runtime.backends.vulkan.backend import VulkanBackend
from coresident.runtime.backends.vulkan.library import open_functions
from coresident.runtime.backends.vulkan.results import Result
from coresident.runtime.backends.vulkan.writing import Running
from coresident.runtime.models.locate import ModelSource
from coresident.runtime.models.sampling import GreedySampler, SamplingParams, SeededSampler
from gguf.constants import GGMLQuantizationType

from support import tiny_models
from support.reference import HEADS, MODEL, REQUEST, Keep, decode, drain, opened, prefill, score, workspace
from support.vulkan_fakes import Watched
from support.vulkan_models import written

pytestmark = pytest.mark.usefixtures("vulkan")


TOKENS = [(7 * at + 3) % 160 for at in range(90)]
GREEDY = GreedySampler(SamplingParams())


def loaded(source: ModelSource | None = None, **options: Any) -> VulkanBackend:
    backend = VulkanBackend({MODEL: source or ModelSource(heads=HEADS)}, **options)
    drain(backend.load(MODEL, REQUEST, weights=True))
    return backend


@pytest.fixture(scope="module")
def backend() -> VulkanBackend:
    return loaded()


def step(backend: VulkanBackend, rows: list[DecodeInput], samplers: list[Any]) -> tuple[Sampled, ...]:
    space = workspace(backend, StepKind.DECODE, 1, max(row.position for row in rows) + 1, len(rows))
    try:
        chosen: tuple[Sampled, ...] = drain(backend.decode(space, MODEL, rows, samplers))[0]
        return chosen
    finally:
        space.close()


@pytest.mark.parametrize("logprobs", [None, 0, 1, 5, 20])
def test_tokens_chosen_on_the_device_are_those_of_the_logits(backend, logprobs):
    greedy = GreedySampler(SamplingParams(logprobs=logprobs))
    for slot in range(3):
        prefill(backend, slot, TOKENS[: 20 + slot])
    rows = [DecodeInput(slot, 20 + slot, 7) for slot in range(3)]
    logits = decode(backend, [(row.slot, row.position, row.token) for row in rows])
    for found, each in zip(step(backend, rows, [greedy, Keep(), greedy])[::2], logits[::2], strict=True):
        expected = greedy.sample(each)
        assert [found.token, *dict(found.top)] == [expected.token, *dict(expected.top)]
        values = [[one.logprob or 0, *dict(one.top).values()] for one in (found, expected)]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-5)
        assert (found.logprob is None) == (logprobs is None)


def test_a_sampler_with_a_seed_draws_the_same_beside_others(backend):
    def drawn(rows: list[int], others: Any) -> int:
        samplers = [SeededSampler(SamplingParams(temperature=1.5, seed=9)) if slot == 1 else others for slot in rows]
        return step(backend, [DecodeInput(slot, 9, 7) for slot in rows], samplers)[rows.index(1)].token

    for slot in range(3):
        prefill(backend, slot, TOKENS[slot : slot + 9])
    assert drawn([1], None) == drawn([0, 1, 2], GREEDY) == drawn([2, 1], Keep())


@pytest.mark.parametrize(
    "sampler", [GREEDY, GreedySampler(SamplingParams(logprobs=3)), SeededSampler(SamplingParams(temperature=1.0))]
)
def test_broken_logits_are_the_fault_of_the_reference_backend(sampler, tmp_path):
    weights = tiny_models.tensors("llama")
    weights["lm_head.weight"][7, 0] = np.inf
    source = ModelSource(str(tiny_models.write_folder(tmp_path / "model", "llama", weights=weights)), HEADS)
    said = []
    for broken in (opened(source), loaded(source)):
        space = workspace(broken, StepKind.PREFILL, 16, 16)
        with pytest.raises(BackendFault, match="logits are not finite, the first is") as fault:
            drain(broken.prefill(space, MODEL, "generation", 0, 0, TOKENS[:16], sampler))
        said.append(fault.value.message)
        with pytest.raises(BackendFault, match="logits are not finite"):
            drain(broken.decode(space, MODEL, [DecodeInput(0, 16, 3)], [sampler]))
    assert said[0] == said[1]


def test_a_head_that_is_not_finite_is_a_fault(tmp_path):
    weights = tiny_models.tensors("llama")
    weights["lm_head.weight"][5, 0] = np.inf
    source = ModelSource(str(tiny_models.write_folder(tmp_path / "model", "llama", weights=weights)), HEADS)
    with pytest.raises(BackendFault, match="head 'yes' gives"):
        score(loaded(source), 0, 0, TOKENS[:5])


def test_a_value_that_its_resident_form_cannot_hold_is_refused_and_named(tmp_path):
    weights = tiny_models.tensors("llama")
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] = 1e6
    path = tiny_models.write_gguf(tmp_path / "model.gguf", "llama", GGMLQuantizationType.BF16, weights=weights)
    backend = VulkanBackend({MODEL: ModelSource(str(path))})
    with pytest.raises(ArtifactInvalid, match=r"model.gguf: tensor blk.1.ffn_up.weight.*outside the range of float16"):
        drain(backend.load(MODEL, attrs.evolve(REQUEST, heads=()), weights=True))
    assert backend.planned.allocations == 0


@pytest.mark.parametrize("name", ["head_dim", "hidden"])
def test_a_size_that_kernels_cannot_take_is_refused_when_the_model_is_described(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_models, "HIDDEN", 62 if name == "hidden" else 64)
    monkeypatch.setitem(tiny_models.SETTINGS["qwen3"], "head_dim", 30 if name == "head_dim" else 32)
    path = tiny_models.write_folder(tmp_path / "model", "qwen3")
    with pytest.raises(ArtifactInvalid, match=f"{name} is [36][02]: this backend needs a multiple of 4"):
        VulkanBackend({MODEL: ModelSource(str(path))}).describe(MODEL)


@pytest.mark.parametrize(("hidden", "mlp", "vocabulary"), [(60, 97, 161), (68, 30, 163)])
def test_awkward_sizes_give_the_numbers_of_the_reference_backend(hidden, mlp, vocabulary, tmp_path, monkeypatch):
    for name, value in (("HIDDEN", hidden), ("MLP", mlp), ("VOCABULARY", vocabulary)):
        monkeypatch.setattr(tiny_models, name, value)
    source = ModelSource(str(tiny_models.write_folder(tmp_path / "model", "qwen3")), HEADS)
    ours, reference = loaded(source), opened(source)
    np.testing.assert_allclose(prefill(ours, 0, TOKENS), prefill(reference, 0, TOKENS), rtol=0, atol=1e-4)
    np.testing.assert_allclose(score(ours, 0, 0, TOKENS[:9]), score(reference, 0, 0, TOKENS[:9]), rtol=0, atol=1e-4)
    at = step(ours, [DecodeInput(0, 90, 5)], [GREEDY])[0].token
    assert at == int(np.argmax(decode(reference, [(0, 90, 5)])[0]))


def test_R70_after_warming_no_step_makes_a_pipeline(tmp_path):
    source = ModelSource(str(tiny_models.write_gguf(tmp_path / "m", "qwen3", GGMLQuantizationType.Q4_1)), HEADS)
    backend = loaded(source)
    charge = backend.charge(MODEL, StepShape(StepKind.WARMUP, 1, REQUEST.chunk, REQUEST.chunk))
    space = backend.open_workspace(charge)
    drain(backend.warm(MODEL, space))
    assert space.peak() <= charge
    space.close()
    assert all(slot.filled == 0 for slots in backend._residents[MODEL].slots.values() for slot in slots)
    made = backend.planned.pipelines.created
    for count in range(1, 18):
        prefill(backend, count % 3, TOKENS[:count])
        score(backend, 0, 0, TOKENS[:count])
    for slot in range(3):
        prefill(backend, slot, TOKENS)
    for rows in ([0], [0, 1], [0, 1, 2]):
        for sampler in (GREEDY, GreedySampler(SamplingParams(logprobs=20)), Keep()):
            step(backend, [DecodeInput(slot, 90, 1) for slot in rows], [sampler] * len(rows))
    KVSession(backend, MODEL, 0, 16).logits(TOKENS)
    assert backend.planned.pipelines.created == made


@pytest.mark.parametrize("staging", [1 << 10, 3 << 10, 40 << 10])
def test_retained_kv_goes_through_a_small_staging_buffer_in_many_pieces(staging, monkeypatch):
    """A position takes 256 bytes in a layer."""
    monkeypatch.setattr("coresident.runtime.backends.vulkan.planning.STAGING", staging)
    backend = loaded()
    cold = prefill(backend, 0, TOKENS)
    _, segments = drain(backend.save(MODEL, 0, 80, handle=1))
    pieces = -(-3 * 80 // (staging // 256))
    assert segments >= pieces - 1
    drain(backend.save(MODEL, 0, 85, handle=2, base=1, shared=64))
    backend.drop(MODEL, 1)
    prefill(backend, 1, TOKENS[::-1])
    drain(backend.restore(MODEL, 1, 80, handle=2))
    assert prefill(backend, 1, TOKENS[80:], start=80).tobytes() == cold.tobytes()


@pytest.mark.parametrize(("family", "form"), [("llama", "Q4_1"), ("qwen3", "F16")])
def test_a_gpus_way_of_reading_and_of_submitting_gives_the_same_bits(family, form, tmp_path, monkeypatch):
    """Also where its watchdog asks for several submits a decode step."""
    source, found, submits = written(tmp_path, family, form), [], []
    monkeypatch.setattr("coresident.runtime.backends.vulkan.steps.GPU_SEGMENT", 1 << 16)
    for cpu in (True, False):
        monkeypatch.setattr(Running, "on_cpu", cpu)
        backend = loaded(source)
        rows = [prefill(backend, slot, TOKENS[slot:]) for slot in range(2)]
        before = backend.planned.submits
        rows += decode(backend, [(0, 90, 5), (1, 89, 5)])
        submits.append(backend.planned.submits - before)
        found.append([*(row.tobytes() for row in rows), score(backend, 0, 0, TOKENS[:9])])
    assert found[0] == found[1]
    assert submits[0] + 2 <= submits[1]


def test_retained_kv_is_what_the_reference_backend_keeps(backend):
    """Its rotary pairs are neighbours, where this one keeps the halves of the file."""
    reference = opened()
    kept = []
    for each in (reference, backend):
        prefill(each, 0, TOKENS)
        drain(each.save(MODEL, 0, 70, handle=9))
        kept.append(list(each._residents[MODEL].retained[9].pieces(70)))
        each.drop(MODEL, 9)
    pairs = interleaved_rows(1, 16)
    assert len(kept[1]) == 3 * 2 * 2 * 2
    for number, (theirs, ours) in enumerate(zip(*kept, strict=True)):
        keys = number % 8 < 4
        np.testing.assert_allclose(ours[:, pairs] if keys else ours, theirs, rtol=0, atol=1e-4)


class Two:
    """Two models on one device whose calls can fail."""

    def __init__(self) -> None:
        self.raw = Watched(open_functions())
        sources = {MODEL: ModelSource(heads=HEADS), "other": ModelSource()}
        self.backend = VulkanBackend(sources, functions=self.raw.functions)
        for model in sources:
            self.load(model)

    def load(self, model: str, weights: bool = True) -> None:
        drain(self.backend.load(model, REQUEST if model == MODEL else attrs.evolve(REQUEST, heads=()), weights))


@pytest.mark.parametrize("weights", [True, False], ids=["repair", "retry"])
def test_R6_a_lost_device_is_opened_anew_by_the_next_load_and_every_model_loads_its_weights_anew(weights):
    two = Two()
    expected = prefill(two.backend, 0, TOKENS)
    lost = two.backend.planned
    two.raw.fail("vkQueueSubmit", Result.ERROR_DEVICE_LOST)
    with pytest.raises(DeviceLost, match="VK_ERROR_DEVICE_LOST"):
        prefill(two.backend, 0, TOKENS)
    with pytest.raises(DeviceLost, match="VK_ERROR_DEVICE_LOST"):
        prefill(two.backend, 1, TOKENS)
    two.load(MODEL, weights)
    assert two.backend.planned is not lost
    assert prefill(two.backend, 0, TOKENS).tobytes() == expected.tobytes()
    with pytest.raises(BackendFault, match="not loaded"):
        two.backend._resident("other")
    two.load("other", weights)
    assert two.backend.planned.allocated - two.backend.regions.bytes == sum(
        two.backend.plan(model, REQUEST if model == MODEL else attrs.evolve(REQUEST, heads=())).total
        for model in (MODEL, "other")
    )


def test_R6_a_lost_device_can_be_unloaded_and_a_failed_repair_repeated(backend):
    two = Two()
    charge = two.backend.charge(MODEL, StepShape(StepKind.PREFILL, 1, 16, 16))
    space = two.backend.open_workspace(charge)
    part = two.backend.prefill(space, MODEL, "generation", 0, 0, TOKENS[:16], Keep())
    next(part)
    two.raw.fail("vkWaitForFences", Result.ERROR_DEVICE_LOST)
    with pytest.raises(DeviceLost):
        drain(part)
    space.close()
    two.backend.unload("other")
    assert two.backend.charge(MODEL, StepShape(StepKind.PREFILL, 1, 77, 900)) > charge
    two.raw.fail("vkCreateDevice", Result.ERROR_INITIALIZATION_FAILED)
    with pytest.raises(BackendFault, match="vkCreateDevice"):
        two.load(MODEL)
    two.load(MODEL)
    assert prefill(two.backend, 0, TOKENS).tobytes() == prefill(backend, 0, TOKENS).tobytes()
