"""SmolLM2 on MLX, once: the numbers of transformers and of the reference backend, with its weights as quantized as in
the file.

A token takes a fifth of a CPU second here, so the prompts are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from coresident.runtime.backends.contract import PlanRequest
from coresident.runtime.backends.session import KVSession
from coresident.runtime.models.locate import ModelSource

from support.mlx_models import needs_mlx
from support.reference import MODEL, Keep, drain, opened

needs_mlx()

from coresident.runtime.backends.mlx.backend import MlxBackend  # noqa: E402 - skipped without it
from coresident.runtime.backends.reference import ReferenceBackend  # noqa: E402

EXPECTED = Path(__file__).parents[2] / "fixtures" / "logits_smollm2.npz"
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


@pytest.mark.parametrize(("prompt", "count", "greedy"), [("chat", None, 12), ("code", 16, 0), ("prose", 8, 0)])
def test_E8_smollm2_gives_the_logits_of_transformers_and_of_the_reference(mlx, reference, prompt, count, greedy):
    """One whole prompt with its answer, and the heads of two others."""
    expected = np.load(EXPECTED)
    tokens = expected[f"{prompt}_ids"].tolist()[:count]
    session = KVSession(mlx, MODEL, slot=0, chunk=REQUEST.chunk)
    logits = session.logits(tokens)
    beside = KVSession(reference, MODEL, slot=0, chunk=REQUEST.chunk).logits(tokens)
    assert logits.argmax(-1).tolist() == expected[f"{prompt}_argmax"].tolist()[:count] == beside.argmax(-1).tolist()
    for last in (beside[-1], *([expected[f"{prompt}_last"].astype(np.float32)] if count is None else [])):
        assert np.abs(logits[-1] - last).max() <= 0.05
        assert cosine(logits[-1], last) >= 0.9999
    assert list(session.generate(greedy, Keep())) == expected[f"{prompt}_greedy"].tolist()[:greedy]


def test_E9_smollm2_stays_quantized(mlx, smollm2_path):
    """135 million weights in 4 and 8 bits, with two float32 numbers for each 32 of them."""
    weights = mlx.plan(MODEL, REQUEST).by_account()[f"weights/{MODEL}"]
    assert weights < 1.3 * smollm2_path.stat().st_size
    assert weights < mlx.describe(MODEL).parameters


def cosine(one, other):
    one, other = one.astype(np.float64), other.astype(np.float64)
    return one @ other / np.sqrt((one @ one) * (other @ other))
