"""Ordering policies for sweeps, as ``support.lab_policies:NAME``: first come first served, until they misbehave."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from coresident.policies.ordering.fifo import fifo


def plain():
    """As a user's own that does nothing special."""
    return fifo()


def raising():
    """Fails at its first decision."""

    def decide(view, memory):
        raise ZeroDivisionError("this policy divides by zero")

    return decide


def killing():
    """Kills the process that it runs in, as a machine without memory would."""

    def decide(view, memory):
        os.kill(os.getpid(), signal.SIGKILL)

    return decide


def stuck(pipe: str = ""):
    """While the named pipe is there: opens it, says so with a byte, and never decides anything."""
    rest = fifo()

    def decide(view, memory):
        if Path(pipe).exists():
            with open(pipe, "wb", buffering=0) as end:
                end.write(b".")
                threading.Event().wait()
        return rest(view, memory)

    return decide
