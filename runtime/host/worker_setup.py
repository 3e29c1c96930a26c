"""What worker processes are started with, and how one is opened: greeted, configured, and compared."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping

import attrs

from ...actors.errors import ArtifactInvalid
from ..backends.contract import PlanRequest
from ..config import Config
from ..worker.drivers import WorkerEnvironment
from ..worker.files import FileClaim
from ..worker.messages import check_hello, digests_of, hello_body, open_body
from .worker_process import WorkerProcess

# An interrupt from the terminal is the parent's to answer, also while the worker is still importing.
_START = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from coresident.runtime.worker.child import main"
# -P: a file of the working directory must not stand for a module of the library.
COMMAND = (sys.executable, "-P", "-c", f"{_START}; main()")
GRACE_SECONDS = 5.0
_PARTS = ("device", "generation", "decision", "store")
_HELLO, _OPEN = -1, -2


@attrs.frozen
class WorkerSetup:
    """The same for every child of an executor.

    ``plans`` and ``digests`` are by model key, in the order in which models are loaded; ``manifests`` are the files
    that a model's load has to verify, if any. ``repair`` replaces damaged files, before a child opens them. ``grace``
    is the seconds that each gentle step of an end is given.
    """

    config: Config
    plans: Mapping[str, PlanRequest]
    digests: Mapping[str, str]
    manifests: Mapping[str, tuple[FileClaim, ...]] = attrs.field(factory=dict)
    repair: Callable[[], object] = attrs.field(default=lambda: None)
    command: tuple[str, ...] = COMMAND
    grace: float = GRACE_SECONDS

    @property
    def first(self) -> str:
        """The model whose load begins a start or a recovery."""
        return next(iter(self.plans))

    def environment(self, repair: bool = False) -> WorkerEnvironment:
        """For one child, once damaged files are replaced where it is for a ``repair``.

        Raises ``ArtifactInvalid`` for a driver manifest that can't be read, and a file of which there is no good copy.
        """
        if repair:
            self.repair()
        return WorkerEnvironment(os.environ, self.config.device.driver)

    def config_text(self) -> str:
        """The parts that a backend is opened from, as JSON; policies and limits stay with the host."""
        config = attrs.evolve(self.config, device=self.config.device.inside())
        parts = attrs.asdict(config, filter=lambda attribute, value: value is not None)
        return json.dumps({name: parts.get(name, False) for name in _PARTS})


async def open_worker(worker: WorkerProcess, setup: WorkerSetup) -> None:
    """Greet a child and have it open its backend; one that can't is closed.

    Raises:
        InvalidRequest: it speaks another protocol, or lacks a capability.
        ArtifactInvalid: a model is not the one that was admitted here.
        DeviceLost: it ended meanwhile. Whatever it answers in place of an answer is raised too.
    """
    try:
        check_hello(await worker.ask(hello_body(_HELLO)), "the worker")
        opened = await worker.ask(open_body(_OPEN, setup.config_text(), tuple(setup.digests)))
        for model, found in digests_of(opened, tuple(setup.digests)).items():
            digest = setup.digests[model]
            if digest != found:
                raise ArtifactInvalid(
                    f"the worker finds another {model} model (digest {found}) than was admitted ({digest}): its files "
                    "have changed; open the scheduler again",
                    field="digest",
                    value=found,
                )
    except BaseException:
        await worker.close(setup.grace)
        raise
