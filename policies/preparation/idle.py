"""Prepare whenever the device has nothing else to do: the default.

The ordering policy already lets preparation run only when nothing else waits, so there is nothing to wait for here.
"""

from __future__ import annotations

from typing import Any

from ..views import Preparation, PreparationView


def idle() -> Preparation:
    """Let preparation begin at once."""

    def decide(view: PreparationView, memory: Any) -> tuple[int | None, Any]:
        return view.at, memory

    return decide
