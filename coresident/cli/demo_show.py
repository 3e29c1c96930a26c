"""Three ways to show the demo: a live screen, plain lines, or nothing until the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import trio
from rich.console import Console
from rich.live import Live

from ..results import Piece
from .demo_run import Decided, Run, words_of
from .demo_screen import DemoScreen
from .wording import duration, percentile, size

FRAME = 0.125
LINE = 64


class Show(Protocol):
    """How a run is shown while it goes on."""

    @contextmanager
    def showing(self, run: Run) -> Iterator[None]: ...

    async def keep_drawing(self) -> None: ...

    def told(self, it: Piece | Decided | str) -> None: ...


class Quiet:
    """Nothing until the end."""

    @contextmanager
    def showing(self, run: Run) -> Iterator[None]:
        yield

    async def keep_drawing(self) -> None:
        return

    def told(self, it: Piece | Decided | str) -> None:
        return


class Alive:
    """The live screen, redrawn a few times a second; its last frame stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    @contextmanager
    def showing(self, run: Run) -> Iterator[None]:
        with Live(DemoScreen(run), console=self._console, auto_refresh=False) as self._live:
            yield

    async def keep_drawing(self) -> None:
        while self._live is not None:
            self._live.refresh()
            await trio.sleep(FRAME)

    def told(self, it: Piece | Decided | str) -> None:
        if self._live is not None and isinstance(it, str):
            self._live.refresh()


class Plain:
    """Lines with the time since the model was loaded; for pipes, logs and simple terminals."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began: int | None = None
        self._run: Run | None = None
        self._text = ""

    @contextmanager
    def showing(self, run: Run) -> Iterator[None]:
        self._run = run
        yield

    async def keep_drawing(self) -> None:
        return

    def told(self, it: Piece | Decided | str) -> None:
        match it:
            case Piece() if self._run is not None:
                self._text += words_of(it, self._run.toy)
                if len(self._text) >= LINE:
                    self._flush()
            case Decided():
                self._decided(it)
            case "answering" if self._run is not None:
                self._say(f"{self._run.label}, loaded in {duration(self._run.loaded_ns)}")
            case "checking":
                self._say("the answer once more, alone, to compare the tokens")
            case _:
                self._flush()

    def _decided(self, decided: Decided) -> None:
        if self._run is None:
            return
        waited = self._run.watch.decisions[decided.result.request]
        took = f"waited {duration(waited.waited_ns)} for {waited.waited_for}, answered in {duration(waited.total_ns)}"
        self._say(f"decision {decided.result.request}: {took}")
        for row, score in zip(decided.rows, decided.result.scores.get("probability", ()), strict=False):
            self._say(f"    urgent {score:.2f}: {row}")

    def _flush(self) -> None:
        if self._text:
            self._say(f"answer: {self._text}".replace("\n", " "))
            self._text = ""

    def _say(self, line: str) -> None:
        now = time.monotonic_ns()
        self._began = now if self._began is None else self._began
        self._console.print(f"{(now - self._began) / 1e9:7.2f} s  {line}", soft_wrap=True)


def summarize(run: Run, record: Path | None, console: Console) -> None:
    """The figures of the run in a few sentences. Says what was measured, and claims nothing that was not."""
    lines = [f"{run.label}, loaded in {duration(run.loaded_ns)}.", *_answer(run), *_decisions(run), *_memory(run)]
    lines.append(_equality(run))
    if run.toy:
        lines.append("The text is not language: the model is untrained (its tokens are bytes, shown escaped).")
    else:
        lines.append(
            "The scores are no judgements: no trained decision model is shipped, so the instruct model's own Yes is "
            "compared with its No, and a model as small as SmolLM2 says either whatever the message is."
        )
    lines += run.faults.lines(run.policies)
    if record is not None and run.recording_error is None:
        lines.append(f"Recorded to {record}: run it again with 'coresident replay {record}'.")
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal)


def _answer(run: Run) -> list[str]:
    result = run.result
    if result is None:
        return []
    gap = max((late - early for early, late in pairwise(run.token_times)), default=None)
    rate = "-" if run.rate is None else f"{run.rate:.1f}"
    return [
        f"Answer: {result.prompt_tokens} prompt tokens, first token after {duration(result.first_token_ns)}, "
        f"{len(result.tokens)} tokens at {rate} tokens/s with decisions in between, longest gap {duration(gap)}."
    ]


def _decisions(run: Run) -> list[str]:
    seen, times = run.seen(), run.latencies()
    if not seen:
        return ["No decision was answered: the answer ended first. Ask for more --tokens, or a smaller --every."]
    waits = [waited.waited_ns for waited in seen if waited.waited_ns is not None]
    most = max(waited.segments for waited in seen)
    segments = "at most one segment" if most <= 1 else f"up to {most} segments"
    return [
        f"Decisions: {len(seen)} answered, latency p50 {duration(percentile(times, 0.5))}, max {duration(max(times))}; "
        f"wait for the device p50 {duration(percentile(waits, 0.5))}, max {duration(max(waits))}. "
        f"Each waited for {segments} of other work, counted from the grants."
    ]


def _memory(run: Run) -> list[str]:
    if run.statistics is None:
        return []
    ledger = run.statistics.device.ledger
    space = ledger.accounts["workspace"]
    return [
        f"Memory: {size(ledger.reserved)} of {size(ledger.partition)} reserved; "
        f"workspace at most {size(space.peak)} of {size(space.reserved)}."
    ]


def _equality(run: Run) -> str:
    if run.equal is None:
        return f"Not compared with a run alone: {run.check_skipped}."
    if run.equal:
        return "The answer generated once more alone has the same tokens."
    return "The answer generated once more alone has OTHER tokens: sharing the device changed it."
