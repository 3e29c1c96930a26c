"""Vulkan on every family and form of weights: the numbers of the reference backend on the same file."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.locate import ModelSource
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from support import tiny_models
from support.backends import opened_on
from support.reference import MODEL, REQUEST, Keep, opened, prefill, score
from support.vulkan_fakes import Watched
from support.vulkan_life import functions
from support.vulkan_models import FORMS, written

TOKENS = list(tiny_models.TOKENS) * 3
ROW = list(tiny_models.TOKENS[:7])
NEAR = 1e-3
DISCRETE = 2
"""VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU."""

WITHOUT_HEADS = attrs.evolve(REQUEST, heads=())


def everything(backend: Any) -> dict[str, np.ndarray]:
    """Logits of a prompt by chunks, of three greedy steps behind it, and the values of two heads."""
    session = KVSession(backend, MODEL, 0, REQUEST.chunk)
    forced = session.logits(TOKENS)
    steps = Keep()
    session.generate(3, steps)
    prefill(backend, 0, TOKENS[:20], role="decision")
    return {"prompt": forced, "steps": np.array(steps.seen), "heads": np.array(score(backend, 0, 20, ROW))}


def check_near(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert got["prompt"].argmax(-1).tolist() == expected["prompt"].argmax(-1).tolist()
    assert got["steps"].argmax(-1).tolist() == expected["steps"].argmax(-1).tolist()
    for name, values in expected.items():
        scale = max(1.0, float(np.abs(values).max()) / 10)
        np.testing.assert_allclose(got[name], values, rtol=0, atol=NEAR * scale, err_msg=name)


@pytest.mark.parametrize(("family", "form"), [*FORMS, ("llama_linear", "Q4_0"), ("llama", "folder")])
def test_every_family_and_form_gives_the_numbers_of_the_reference_backend(family, form, tmp_path):
    source = written(tmp_path, family, form)
    check_near(everything(opened_on("vulkan", source)), everything(opened(source)))


@pytest.mark.parametrize(("family", "form"), [("llama", "Q4_1"), ("qwen3", "folder")])
def test_the_kernels_that_a_gpu_takes_give_the_same_bits(family, form, tmp_path):
    """The device says that it is one; its kernels read plain storage buffers, and its segments are longer."""
    source = written(tmp_path, family, form)
    watched = Watched(functions())
    watched.replace("vkGetPhysicalDeviceProperties", lambda physical, out: setattr(out, "deviceType", DISCRETE))
    backend = opened_on("vulkan", source, functions=watched.functions)
    assert backend.planned.info.kind == "discrete"
    here = everything(opened_on("vulkan", source))
    for name, values in everything(backend).items():
        assert values.tobytes() == here[name].tobytes(), name


def test_types_that_are_not_kept_are_rounded_to_float16_and_the_label_says_so(tmp_path):
    """The reference backend has a file with the rounded values."""
    kind = GGMLQuantizationType.Q5_0
    weights = tiny_models.tensors("llama")
    path = tiny_models.write_gguf(tmp_path / "model.gguf", "llama", kind, weights=weights)
    rounded = {name: rounding(values, kind) if values.ndim > 1 else values for name, values in weights.items()}
    backend = opened_on("vulkan", ModelSource(str(path)), WITHOUT_HEADS)
    assert "Q5_0" in backend.describe(MODEL).label
    assert "float16" in backend.describe(MODEL).label
    same = tiny_models.write_folder(tmp_path / "folder", "llama", weights=rounded)
    ours, theirs = (
        KVSession(one, MODEL, 0, REQUEST.chunk).logits(TOKENS)
        for one in (backend, opened(ModelSource(str(same)), WITHOUT_HEADS))
    )
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=NEAR)


def rounding(values: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """What a quantized matrix holds, as float16 rounds it."""
    return dequantize(quantize(values, kind), kind).astype(np.float16).astype(np.float32)
