"""SmolLM2 on MLX, once: the numbers of transformers and of the reference backend, with its weights as quantized as in
the file.

A token takes a fifth of a CPU second here, so the prompts are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.models.locate import ModelSource

from support.mlx_models import needs_mlx
from support.reference import MODEL, drain, opened
from support.smollm2 import CASES, check_logits

needs_mlx()

from coresident.runtime.backends.mlx.backend import MlxBackend  # noqa: E402 - skipped without it
from coresident.runtime.backends.reference import ReferenceBackend  # noqa: E402

REQUEST = PlanRequest(context=64, slots=2, chunk=32)


@pytest.fixture(scope="module")
def mlx(smollm2_path: Path) -> Iterator[MlxBackend]:
    backend = MlxBackend({MODEL: ModelSource(str(smollm2_path))})
    drain(backend.load(MODEL, REQUEST, True))
    yield backend
    backend.unload(MODEL)


@pytest.fixture(scope="module")
def reference(smollm2_path: Path) -> ReferenceBackend:
    return opened(ModelSource(str(smollm2_path)), REQUEST)


@pytest.mark.parametrize(("prompt", "count", "greedy"), CASES)
def test_E8_smollm2_gives_the_logits_of_transformers_and_of_the_reference(mlx, reference, prompt, count, greedy):
    check_logits(mlx, reference, prompt, count, greedy)


def test_E9_smollm2_stays_quantized(mlx, smollm2_path):
    """135 million weights in 4 and 8 bits, with two float32 numbers for each 32 of them."""
    weights = mlx.plan(MODEL, REQUEST).by_account()[f"weights/{MODEL}"]
    assert weights < 1.3 * smollm2_path.stat().st_size
    assert weights < mlx.describe(MODEL).parameters
