"""Prepare nothing: for comparison, and for machines whose idle time is worth more than a first token."""

from __future__ import annotations

from typing import Any

from ..views import Preparation, PreparationView


def never() -> Preparation:
    """Keep every preparation from beginning."""

    def decide(view: PreparationView, memory: Any) -> tuple[int | None, Any]:
        return None, memory

    return decide
