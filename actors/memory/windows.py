"""Layers that see only the last positions: what of their state can be reused.

A layer with a window of ``w`` positions keeps the last ``w`` of ``held`` tokens. To go on behind token ``m`` it needs
the ``w`` before ``m``. So once anything has left a window, state can be reused only where it was taken (``m == held``);
it cannot be trimmed. The rule is read from every layer, since a model may mix windowed and full ones.
"""

from __future__ import annotations

from collections.abc import Iterable


def reusable(windows: Iterable[int | None], held: int, wanted: int) -> int:
    """``wanted`` of ``held`` tokens where every layer has what it needs there, else 0; ``None`` is a full layer."""
    return wanted if wanted == held or whole(windows, held) else 0


def whole(windows: Iterable[int | None], held: int) -> bool:
    """Whether every layer still has all of ``held`` tokens."""
    return all(window is None or held <= window for window in windows)
