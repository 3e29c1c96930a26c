"""What transformers computed with SmolLM2, and what a backend must compute with the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from coresident.runtime.backends.session import KVSession

from support.reference import MODEL, Keep

EXPECTED = Path(__file__).parents[1] / "fixtures" / "logits_smollm2.npz"
CASES = [("chat", None, 12), ("code", 16, 0), ("prose", 8, 0)]
"""A prompt, how many of its tokens, and how many are decoded behind them: one whole, and the heads of two others."""


def check_logits(backend: Any, reference: Any, prompt: str, count: int | None, greedy: int) -> None:
    """The numbers of transformers and of the reference backend; both have chunks of 32."""
    expected = np.load(EXPECTED)
    tokens = expected[f"{prompt}_ids"].tolist()[:count]
    session = KVSession(backend, MODEL, slot=0, chunk=32)
    logits = session.logits(tokens)
    beside = KVSession(reference, MODEL, slot=0, chunk=32).logits(tokens)
    assert logits.argmax(-1).tolist() == expected[f"{prompt}_argmax"].tolist()[:count] == beside.argmax(-1).tolist()
    for last in (beside[-1], *([expected[f"{prompt}_last"].astype(np.float32)] if count is None else [])):
        assert np.abs(logits[-1] - last).max() <= 0.05
        assert cosine(logits[-1], last) >= 0.9999
    assert list(session.generate(greedy, Keep())) == expected[f"{prompt}_greedy"].tolist()[:greedy]


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    one, other = one.astype(np.float64), other.astype(np.float64)
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))
