"""SmolLM2 on Vulkan, once: the numbers of transformers and of the reference backend, the same bits in any chunks, with
its weights as quantized as in the file.

A token of a prompt takes a twentieth of a CPU second on a device that is the CPU, and one that is decoded a sixth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coresident.actors.work import StepKind
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.models.checkpoint import Tensor
from coresident.runtime.models.heads import VerbalizerHead
from coresident.runtime.models.locate import ModelSource
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from support.backends import opened_on
from support.reference import MODEL, Keep, drain, opened, prefill, score, workspace
from support.smollm2 import CASES, EXPECTED, check_logits

HEADS = (VerbalizerHead("yes", "probability", positive=(300,), negative=(400,)),)
REQUEST = PlanRequest(
    context=64, slots=2, chunk=32, decision_slots=1, decision_context=64, rows_per_slice=1, heads=("yes",)
)
KEPT = ("Q4_1", "Q8_0", "Q4_K")


@pytest.fixture(scope="module")
def vulkan(smollm2_path: Path) -> Iterator[Any]:
    backend = opened_on("vulkan", ModelSource(str(smollm2_path), HEADS), REQUEST)
    yield backend
    backend.unload(MODEL)


def test_E9_smollm2_stays_quantized(vulkan, smollm2_path):
    """What is planned is what is allocated, and the weights take the bytes that their types have in the file."""
    plan = vulkan.plan(MODEL, REQUEST)
    assert vulkan.planned.allocated == plan.total
    staging = sum(buffer.total for buffer in plan.buffers if buffer.name == "staging")
    weights = plan.by_account()[f"weights/{MODEL}"] - staging
    tensors = ModelSource(str(smollm2_path)).open().tensors.values()
    quantized = sum(bytes_in_file(tensor) for tensor in tensors if tensor.stored in KEPT)
    others = sum(bytes_in_file(tensor) for tensor in tensors if tensor.stored not in KEPT)
    assert quantized + others < weights < 1.02 * quantized + others
    assert weights < vulkan.describe(MODEL).parameters


def bytes_in_file(tensor: Tensor) -> int:
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[tensor.stored]]
    return math.prod(tensor.shape) // values * size


@pytest.mark.parametrize(("prompt", "count", "greedy"), CASES)
def test_E8_smollm2_gives_the_logits_of_transformers_and_of_the_reference(vulkan, reference, prompt, count, greedy):
    check_logits(vulkan, reference, prompt, count, greedy)


@pytest.fixture(scope="module")
def reference(smollm2_path: Path) -> Any:
    return opened(ModelSource(str(smollm2_path), HEADS), REQUEST)


def test_R10_smollm2_gives_the_same_bits_in_other_chunks_with_a_decision_in_between(vulkan):
    tokens = np.load(EXPECTED)["code_ids"].tolist()[:16]
    alone = evaluated(vulkan, 0, tokens, ())
    scores = decided(vulkan, tokens[:5], tokens[5:8])
    for cuts in ((1, 12), (7,)):
        other = evaluated(vulkan, 1, tokens, cuts, lambda: decided(vulkan, tokens[:5], tokens[5:8]) == scores)
        assert other.tobytes() == alone.tobytes()


def decided(backend, instruction, row):
    prefill(backend, 0, instruction, role="decision")
    return score(backend, 0, len(instruction), row, ("yes",))


def evaluated(backend, slot, tokens, cuts, between=lambda: True):
    """Final logits; in the middle of each chunk, something else runs, and must be true."""
    edges, keep = (0, *cuts, len(tokens)), Keep()
    for start, end in pairwise(edges):
        space = workspace(backend, StepKind.PREFILL, end - start, end)
        steps = backend.prefill(space, MODEL, "generation", slot, start, tokens[start:end], keep)
        next(steps)
        assert between()
        drain(steps)
        space.close()
    return keep.seen[-1]
