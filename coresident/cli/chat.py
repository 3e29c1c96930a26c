"""``coresident chat``: a conversation in the terminal, with a decision about each message before it is answered."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import attrs
import trio
import typer
from rich.console import Console
from rich.text import Text

from ..actors.errors import ContextExceeded, InvalidRequest
from ..generation import Generation
from ..opening import open_scheduler
from ..runtime.config import Config
from ..scheduler import Scheduler
from . import options
from .demo import modest
from .failures import BAD_INPUT, DOES_NOT_FIT, check_recorded
from .faults import PolicyFaults
from .options import configured
from .progress import Loading, Progress
from .running import Interrupts, run
from .wording import duration, screen, shown, size

QUESTION = "Does the message ask for something? Answer Yes or No."
HELP = "/new begins again, /stats shows figures, /quit or Ctrl-D ends, Ctrl-C stops an answer"
BLOCK = 65536


@attrs.frozen
class Settings:
    """How the chat answers."""

    tokens: int
    system: str
    record: Path | None


def chat(
    config: options.ConfigFile = None,
    model: options.Model = None,
    backend: options.Backend = None,
    policy: options.Policy = None,
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")] = 256,
    system: Annotated[str, typer.Option(help="What the model is told first.")] = "",
    record: options.Record = None,
) -> None:
    """Talk to the model. A decision about each message comes before its answer; what was said is kept and reused.

    From a pipe, every line is a message.
    """
    chosen = configured(
        config, modest(model, backend) if config is None else None, model=model, backend=backend, policy=policy
    )
    code = run(partial(_talk, chosen, Settings(tokens, system, record)))
    if code:
        raise typer.Exit(code)


async def _talk(config: Config, settings: Settings, interrupts: Interrupts) -> int:
    """The whole conversation; the exit code."""
    console, faults = screen(), PolicyFaults()
    async with open_scheduler(
        config, record=settings.record, observers=[faults, Loading(config, Progress())]
    ) as scheduler:
        console.print(scheduler.label, style="bold", soft_wrap=True)
        console.print(HELP, style="dim", soft_wrap=True)
        conversation = Conversation(scheduler, settings, console, interrupts, partial(faults.lines, config.policies))
        await conversation.go_on()
    for line in faults.lines(config.policies):
        console.print(line, style="yellow", soft_wrap=True)
    check_recorded(settings.record, scheduler.recording_error)
    return conversation.code


class Lines:
    """Lines of stdin, read on a thread that may be left waiting: the process can end while a person does not type."""

    def __init__(self) -> None:
        self._rest = b""
        self._ended = False

    async def next(self) -> str | None:
        """The next line without its end; ``None`` at the end of input."""
        while b"\n" not in self._rest and not self._ended:
            block = await trio.to_thread.run_sync(partial(os.read, sys.stdin.fileno(), BLOCK), abandon_on_cancel=True)
            self._ended = not block
            self._rest += block
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", errors="replace").strip()


class Conversation:
    """Messages so far, and what happens with the next one."""

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        console: Console,
        interrupts: Interrupts,
        faults: Callable[[], Sequence[str]],
    ) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._answered = 0
        self._refused: InvalidRequest | None = None
        self._settings = settings
        self._console = console
        self._interrupts = interrupts
        self._lines = Lines()
        self._messages = self._beginning()

    @property
    def code(self) -> int:
        """The exit code of a conversation that has ended: 0 unless every message of a pipe was refused."""
        if self._answered or self._refused is None or sys.stdin.isatty():
            return 0
        return DOES_NOT_FIT if isinstance(self._refused, ContextExceeded) else BAD_INPUT

    async def go_on(self) -> None:
        """Take lines until the end of input or ``/quit``."""
        person = sys.stdin.isatty()
        while True:
            if person:
                self._console.print("> ", style="bold", end="")
            line = await self._lines.next()
            if line is None or line == "/quit":
                break
            if line and not person:
                self._console.print(f"> {shown(line)}", style="bold", soft_wrap=True)
            if line.startswith("/"):
                self._command(line)
            elif line:
                await self._turn(line)

    def _beginning(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self._settings.system}] if self._settings.system else []

    def _command(self, line: str) -> None:
        if line == "/new":
            self._messages = self._beginning()
            self._console.print("a new conversation", style="dim")
        elif line == "/stats":
            self._statistics()
        else:
            self._console.print(HELP, style="dim", soft_wrap=True)

    async def _turn(self, line: str) -> None:
        """Decide, answer, remember. A message that does not fit is refused and forgotten; the conversation goes on."""
        messages = [*self._messages, {"role": "user", "content": line}]
        try:
            await self._decide(line)
            answer = await self._answer(messages)
        except InvalidRequest as error:
            self._refused = error
            self._console.print(f"not answered: {self._why(line, error)}", style="red", soft_wrap=True)
            return
        self._answered += 1
        self._messages = [*messages, {"role": "assistant", "content": answer}]

    def _why(self, line: str, error: InvalidRequest) -> str:
        """The refusal, or that the conversation has filled the context where the message alone would fit."""
        alone = self._scheduler.measure([*self._beginning(), {"role": "user", "content": line}])
        if not isinstance(error, ContextExceeded) or not alone.remaining or self._messages == self._beginning():
            return error.message
        return (
            f"the conversation has filled the context of {alone.admitted_context:,} tokens; /new begins again with "
            "room for this message"
        )

    async def _decide(self, line: str) -> None:
        try:
            decision = await self._scheduler.decide(QUESTION, [line])
        except InvalidRequest as error:
            self._dim(f"asks for something: unavailable: {error.message}")
            return
        scores = decision.scores.get("probability")
        value = f"{scores[0]:.2f}" if scores else f"abstained ({decision.reason})"
        self._dim(f"asks for something: {value}, decided in {duration(decision.total_ns)}")

    async def _answer(self, messages: list[dict[str, str]]) -> str:
        remaining = self._scheduler.measure(messages).remaining
        limit = max(1, min(self._settings.tokens, remaining))
        generation = self._scheduler.generate(messages, max_tokens=limit)
        with self._interrupts.calling(partial(generation.cancel, "interrupted")):
            await self._stream(generation)
        result = await generation.result()
        rate = ""
        if result.first_token_ns is not None and len(result.tokens) > 1:
            seconds = (result.total_ns - result.first_token_ns) / 1e9
            rate = (
                f" at {(len(result.tokens) - 1) / seconds:.1f} tokens/s, first after {duration(result.first_token_ns)}"
            )
        stopped = ", stopped by you" if result.outcome == "cancelled" else ""
        if result.reason == "length" and limit < self._settings.tokens:
            stopped = ", cut short: the conversation has filled the context; /new begins again"
        reused = f"{result.reused} of {result.prompt_tokens} prompt tokens reused"
        self._dim(f"{len(result.tokens)} tokens{rate}; {reused}{stopped}")
        return result.text

    async def _stream(self, generation: Generation) -> None:
        async with generation:
            async for piece in generation:
                self._console.out(shown(piece.text), end="", highlight=False)
                self._console.file.flush()
        self._console.print()

    def _statistics(self) -> None:
        now = self._scheduler.statistics()
        ledger, prefixes = now.device.ledger, now.generation.prefixes
        self._dim(
            f"{now.device.grants} grants, {now.device.yields} yields; {size(ledger.reserved)} of "
            f"{size(ledger.partition)} reserved; {prefixes.entries} prefixes retained in {size(prefixes.used)}, "
            f"{prefixes.hits} hits, {prefixes.misses} misses; context of {now.readiness.admitted_context:,} tokens"
        )
        for line in self._faults():
            self._dim(line)

    def _dim(self, line: str) -> None:
        self._console.print(Text(line, style="dim"), soft_wrap=True)
