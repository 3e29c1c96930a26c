"""Standard streams that may be closed, and modules of the current folder."""

from __future__ import annotations

import os
import sys


def open_streams() -> None:
    """Put the null device in the place of a standard stream that was closed when the process began."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def allow_local_modules() -> None:
    """Let ``module:attribute`` name a module of the current folder; it hides none that is installed."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
