"""A decode run of always the same length."""

from __future__ import annotations

from typing import Any

from ..parameters import whole
from ..views import Quantum, QuantumView


def fixed(tokens: int = 8) -> Quantum:
    """Give every decode run ``tokens`` (1 to 1,024) tokens for each row."""
    tokens = whole("fixed", "tokens", tokens, 1, 1024)

    def decide(view: QuantumView, memory: Any) -> tuple[int, Any]:
        return tokens, memory

    return decide
