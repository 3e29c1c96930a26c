"""What there is to say of an imported workload that nothing has run yet: its requests and their tokens."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from ..fields import CLASSES
from ..format import Event
from ..header import Header
from .words import count, duration, listed, shown


class Workload:
    """Takes the events of an imported trace in order.

    A context is a prompt and what was generated at the source, or a decision's instruction and longest row.
    """

    def __init__(self, header: Header) -> None:
        self._source = shown(header.imported)
        self._requests: Counter[str] = Counter()
        self._prompts = 0
        self._generated = 0
        self._longest = 0
        self._last = 0

    def add(self, event: Event) -> None:
        """Count one event; only arrivals matter."""
        match event:
            case ArriveGeneration():
                self._arrive(event.at, event.work_class, event.prompt.tokens)
                self._generated += event.expected or 0
                self._longest = max(self._longest, event.prompt.tokens + (event.expected or 0))
            case ArriveDecision():
                rows = [row.tokens for row in event.rows]
                self._arrive(event.at, "decision", event.instruction.tokens + sum(rows))
                self._longest = max(self._longest, event.instruction.tokens + max(rows, default=0))
            case ArrivePreparation():
                # Its prompt is that of a request to come, which is counted then.
                self._arrive(event.at, "preparation", 0)
            case _:
                pass

    def words(self) -> str:
        """``imported from azure, not run: 86 decision and 214 foreground requests, arriving over 84.20 s; ...``."""
        return (
            f"imported from {self._source}, not run: {self._asked()}, arriving over {duration(self._last)}; "
            f"{count(self._prompts, 'prompt token')}, {self._generated:,} generated at the source, longest context "
            f"{count(self._longest, 'token')}"
        )

    def _asked(self) -> str:
        asked = [f"{self._requests[name]:,} {name}" for name in CLASSES if self._requests[name]]
        return f"{listed(asked)} {'request' if self._requests.total() == 1 else 'requests'}" if asked else "no requests"

    def _arrive(self, at: int, work_class: str, prompt: int) -> None:
        self._requests[work_class] += 1
        self._prompts += prompt
        self._last = at


def how_to_run(path: Path) -> str:
    """What to do to have a run of an imported trace, as commands."""
    return (
        f"run it with coresident replay {path} --backend modelled --record RUN, or compare policies on it with "
        "coresident simulate LAB (coresident simulate --example prints a lab file)"
    )
