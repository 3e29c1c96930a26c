"""A file beside the store (a key, a manifest that was just signed): written once, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ...actors.errors import InvalidRequest
from .faults import translated


def write_new(path: Path, text: bytes, mode: int = 0o644, advice: str = "name another file") -> None:
    """Write a file that must not be there; it is on the medium when this returns.

    Raises:
        InvalidRequest: it is there, and stays as it is; ends with ``advice``.
        StoreFault: the system refuses; then it is not there.
    """
    with translated("write", str(path)):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            raise _is_there(path, advice) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink()
            raise


def require_new(path: Path, advice: str = "name another file") -> None:
    """Raise ``InvalidRequest`` when something has this path, be it a link to nowhere."""
    if os.path.lexists(path):
        raise _is_there(path, advice)


def _is_there(path: Path, advice: str) -> InvalidRequest:
    return InvalidRequest(f"{path} is there, and is never overwritten: {advice}", file=str(path))
