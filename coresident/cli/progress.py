"""What goes on while a person waits: on stderr, so that stdout has nothing but the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import structlog
from rich.console import Console

from ..actors.effects import RunGrant
from ..actors.work import LoadWork, WarmupWork
from ..runtime.config import Config
from ..runtime.config_worker import PROCESS
from ..runtime.host.assembly import GENERATION
from ..runtime.host.observers import Delivery
from ..runtime.models.locate import SYNTHETIC, find_model
from .wording import size

_log = structlog.get_logger("coresident")
PAUSE_NS = 5 * 10**9


class Progress:
    """A terminal is told everything. Elsewhere stderr is a log, which has at level info what begins."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._live = self._console.is_terminal
        self._clock = clock
        self._last = clock()

    def begins(self, line: str) -> None:
        """Something begins that may take long."""
        if self._live:
            self._say(line)
        else:
            _log.info("progress", doing=line)

    def goes_on(self, line: str) -> None:
        """It is done in part, or with one of its parts."""
        if self._live:
            self._say(line)

    def counts(self, line: str) -> None:
        """It is on its way; said every few seconds only."""
        now = self._clock()
        if now - self._last >= PAUSE_NS:
            self._last = now
            self.goes_on(line)

    def _say(self, line: str) -> None:
        self._console.print(line, style="dim", soft_wrap=True)


class Loading:
    """An observer that says which model is being loaded and warmed up, once each, until all of them are ready.

    It speaks no earlier than the first load: input that is refused before has one message only.
    """

    def __init__(self, config: Config, progress: Progress) -> None:
        self._config = config
        self._progress = progress
        self._said: set[tuple[str, str]] = set()

    def delivered(self, delivery: Delivery) -> None:
        for effect in delivery.effects:
            if isinstance(effect, RunGrant) and isinstance(effect.grant.step.work, LoadWork | WarmupWork):
                self._begins(effect.grant.step.work)

    def token(self, request: str, index: int, at: int) -> None:
        """Tokens tell nothing about loads."""

    def dropped(self, error: Exception) -> None:
        """The host has logged it; the run goes on without these lines."""

    def _begins(self, work: LoadWork | WarmupWork) -> None:
        if (work.kind, work.model) in self._said:
            return
        self._said.add((work.kind, work.model))
        if isinstance(work, LoadWork):
            self._progress.begins(f"{loading(self._config, work.model)} ...")
        else:
            self._progress.goes_on("warming it up: one step of each kind ...")


def loading(config: Config, model: str = GENERATION) -> str:
    """What is loaded, how large its file is, and where it is loaded.

    Raises ``ArtifactInvalid`` for a model that is not there.
    """
    if config.device.backend == "modelled":
        return "loading the model of a device"
    separate = config.decision.model if model != GENERATION and config.decision is not None else ""
    named = separate or config.generation.model or None
    path = find_model(named, store=config.store, device=config.device.backend).path
    where = ", in a worker process" if config.device.executor == PROCESS else ""
    if path == SYNTHETIC:
        return f"loading the {SYNTHETIC} checkpoint{where}"
    return f"loading {Path(path).name} ({size(_bytes_of(Path(path)))}){where}"


def _bytes_of(path: Path) -> int:
    """A folder's weights are what counts of it."""
    return sum(each.stat().st_size for each in path.glob("*.safetensors")) if path.is_dir() else path.stat().st_size
