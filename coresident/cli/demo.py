"""``coresident demo``: an answer streams while decisions arrive, and go first."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import attrs
import trio
import typer

from ..actors.errors import ArtifactInvalid
from ..opening import open_scheduler
from ..runtime.backends.catalog import open_backend
from ..runtime.config import GIB, MIB, Bytes, Config, DeviceConfig, GenerationConfig
from ..runtime.host.observers import Observer
from ..runtime.models.locate import SYNTHETIC, VARIABLE, find_model
from . import options
from .demo_run import Run, perform
from .demo_show import Alive, Plain, Quiet, Show, summarize
from .failures import check_recorded
from .faults import PolicyFaults
from .options import configured
from .progress import Loading, Progress
from .running import Interrupts, run
from .watch import Watch
from .wording import print_json, screen


@attrs.frozen
class Settings:
    """What the demo does: tokens of the answer, seconds between decisions, whether to compare with a run alone."""

    tokens: int
    every: float
    check: bool | None = None
    record: Path | None = None


MODEST_CONTEXT = 2048
# A small model on two slow cores makes about ten tokens a second, the synthetic checkpoint about a thousand.
SLOW = Settings(64, 1.0)
FAST = Settings(900, 0.2)


def demo(
    config: options.ConfigFile = None,
    model: options.Model = None,
    backend: options.Backend = None,
    policy: options.Policy = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Length of the answer.")] = None,
    every: Annotated[float | None, typer.Option(min=0.01, help="Seconds between decisions.")] = None,
    check: Annotated[
        bool | None, typer.Option("--check/--no-check", help="Generate once more alone and compare the tokens.")
    ] = None,
    live: Annotated[bool | None, typer.Option("--live/--plain", help="A live screen, or plain lines.")] = None,
    record: options.Record = None,
    as_json: options.AsJson = False,
) -> None:
    """Stream an answer while decisions arrive: see who has the device, the memory, and what each decision waited for.

    Runs on SmolLM2 when it is installed, on a small untrained checkpoint otherwise, and ends by itself. Without --check
    or --no-check, the comparison with a run alone is made when it takes less than about 10 s.

    A policy of your own is a function that returns decide(view, memory) -> (choice, memory), in a module that is
    installed or in this folder. In mine.py, for --policy mine:first:

    from coresident.policies.views import Choice

    def first(): return lambda view, memory: (Choice((view.running or view.waiting[0]).step), memory)
    """
    chosen = configured(
        config, modest(model, backend) if config is None else None, model=model, backend=backend, policy=policy
    )
    modelled = chosen.device.backend == "modelled"
    named = chosen.generation.model or None
    toy = modelled or find_model(named, store=chosen.store, device=chosen.device.backend).path == SYNTHETIC
    pace = FAST if toy and not modelled else SLOW
    settings = Settings(tokens or pace.tokens, every or pace.every, check, record)
    console = screen()
    alive = console.is_terminal and not console.is_dumb_terminal if live is None else live
    show: Show = Quiet() if as_json else Alive(console) if alive else Plain(console)
    told = [] if alive and not as_json else [Loading(chosen, Progress())]
    done = run(partial(_perform, chosen, settings, toy, show, told))
    if as_json:
        print_json(done.as_json())
    else:
        summarize(done, settings.record, console)
    check_recorded(settings.record, done.recording_error)


def modest(named: str | None = None, backend: str | None = None) -> Config:
    """A configuration of modest size, for SmolLM2 where it is installed and no model was named.

    Raises ``ArtifactInvalid`` for a model, named here or by the environment, that is not there or cannot be run.
    """
    model, context = "", MODEST_CONTEXT
    if named or os.environ.get(VARIABLE):
        context = min(context, _context_limit(named, backend))
    else:
        model = _default_model()
    device = DeviceConfig(partition=Bytes(5 * GIB // 4))
    return Config(device, GenerationConfig(model=model, context=context, retained=Bytes(64 * MIB)))


def _context_limit(named: str | None, backend: str | None) -> int:
    """The model's own context; MLX takes models that the others don't."""
    if backend == "mlx":
        asked = Config(DeviceConfig(backend), GenerationConfig(model=named or ""), decision=None)
        return open_backend(asked).backend.describe("generation").context_limit
    return find_model(named or None, device=DeviceConfig().backend).open().config.context_limit


def _default_model() -> str:
    try:
        find_model("smollm2")
    except ArtifactInvalid:
        return SYNTHETIC
    return "smollm2"


async def _perform(
    config: Config, settings: Settings, toy: bool, show: Show, told: Sequence[Observer], interrupts: Interrupts
) -> Run:
    watch = Watch()
    done = Run("", settings.tokens, watch, toy, faults=PolicyFaults(), policies=config.policies)
    began = time.monotonic_ns()
    with show.showing(done):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(show.keep_drawing)
            watchers: list[Observer] = [watch, done.faults, *told]
            async with open_scheduler(config, record=settings.record, observers=watchers) as scheduler:
                done.loaded_ns = time.monotonic_ns() - began
                done.label, done.scheduler = scheduler.label, scheduler
                try:
                    await perform(done, scheduler, settings.every, settings.check, show.told)
                finally:
                    # The screen is drawn once more after the scheduler has closed.
                    done.statistics = scheduler.statistics()
            done.recording_error = scheduler.recording_error
            nursery.cancel_scope.cancel()
    return done
