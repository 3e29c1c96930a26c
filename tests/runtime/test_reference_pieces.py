"""The reference backend cuts attention and products into pieces, whose sizes don't change what is computed."""

from __future__ import annotations

import numpy as np
import pytest
from coresident.actors.work import StepKind

from support.reference import MODEL, drain, opened, prefill, workspace

TOKENS = [int(token) for token in np.random.default_rng(7).integers(0, 256, 90)]


@pytest.mark.parametrize("elements", [1, 100, 700, 3000])
def test_small_pieces_of_attention_and_products_give_the_same(monkeypatch, elements):
    """Long contexts and wide models are cut into pieces by heads, query rows and product rows."""
    backend = opened()
    whole = prefill(backend, 0, TOKENS)
    base = "coresident.runtime.backends.reference."
    monkeypatch.setattr(base + "shapes.SCORE_ELEMENTS", elements)
    monkeypatch.setattr(base + "kernel.ATOM_OPERATIONS", 1)
    monkeypatch.setattr(base + "kernel.LOWEST_ROWS", 3)
    np.testing.assert_allclose(prefill(backend, 1, TOKENS), whole, atol=1e-4)
    space = workspace(backend, StepKind.PREFILL, 16, 96)
    prefill(backend, 1, TOKENS[:80])
    _, segments = drain(backend.prefill(space, MODEL, "generation", 1, 80, TOKENS[:16], None))
    assert segments > 3 * 5 * 6
    space.close()
