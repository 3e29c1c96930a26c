"""Opening a scheduler: configuration, models, memory and the actors' host, in one async context manager."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .actors.errors import ArtifactInvalid, InvalidRequest
from .runtime.backends.catalog import Opened, open_backend
from .runtime.config import Config, load_config
from .runtime.host.assembly import Assembly, assemble
from .runtime.host.live import open_live
from .runtime.host.observers import Observer
from .runtime.models.restoring import restore_models
from .scheduler import Scheduler

if TYPE_CHECKING:
    from .traces.recorder import Recorder


def read_config(config: object) -> Config:
    """A configuration as it is, from its file, or the defaults. Raises ``InvalidRequest`` for anything else."""
    if isinstance(config, Config):
        return config
    if config is not None and not isinstance(config, str | os.PathLike):
        raise InvalidRequest(
            f"config is {config!r}: give a Config, the path of a TOML file, or None for the defaults",
            field="config",
            value=config,
        )
    return Config() if config is None else load_config(Path(config))


def prepare(config: Config | str | Path | None) -> tuple[Opened, Assembly]:
    """Everything before the device is touched: configuration, metadata, plan and admission."""
    config = read_config(config)
    try:
        opened = open_backend(config)
    except ArtifactInvalid:
        if not restore_models(config):
            raise
        opened = open_backend(config)
    return opened, assemble(config, opened.backend, opened.heads)


@asynccontextmanager
async def open_scheduler(
    config: Config | str | Path | None = None,
    *,
    record: str | Path | None = None,
    record_content: bool = False,
    observers: Iterable[Observer] = (),
) -> AsyncIterator[Scheduler]:
    """Open a scheduler: models loaded and warm inside the block, everything ended and freed after it.

    Args:
        config: a :class:`Config`, the path of a TOML file, or ``None`` for the defaults.
        record: write a trace of the run to this file; ``record_content`` adds token ids to it.

    Raises:
        InvalidRequest, ArtifactInvalid: the configuration or a model file is not what it should be.
        BudgetExceeded: the partition is too small, or the physical device has no room for it beside those of other
            schedulers; says what is missing.
        PolicyFault: a policy cannot be made.
        RuntimeError: not called under Trio; ``coresident.aio`` and ``coresident.blocking`` are for other programs.

    A generation that is open when the block ends raises ``Closed``.
    """
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "this open_scheduler runs under Trio: start your program with trio.run(main), or take the one in "
            "coresident.aio for asyncio, or in coresident.blocking for no event loop"
        )
    opened, assembly = await trio.to_thread.run_sync(partial(prepare, config))
    watchers = list(observers)
    recorder: Recorder | None = None
    if record is not None:
        from .traces.recorder import Recorder

        recorder = Recorder.open(record, assembly, content=record_content)
        watchers.append(recorder)
    try:
        async with open_live(assembly, watchers) as runtime:
            yield Scheduler(runtime, opened.kits, recorder)
    finally:
        if recorder is not None:
            recorder.close()
