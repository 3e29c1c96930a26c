"""``coresident replay``: open the scheduler that a trace describes, or another, and run its workload again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from ..actors.errors import InvalidRequest, TraceInvalid
from ..runtime.backends.catalog import Opened, open_backend
from ..runtime.backends.modelled import ModelledBackend
from ..runtime.config import Config, PolicyConfig
from ..runtime.host.assembly import GENERATION, Assembly, assemble
from ..runtime.host.observers import Observer
from .drivers import OnProgress, Progress
from .header import config_of
from .outcomes import Comparison, compare
from .quantiles import Spread
from .recorder import Recorder
from .replay_live import replay_live
from .replay_virtual import replay_virtual
from .statistics import TraceStatistics
from .workload import Workload, load_workload

__all__ = ["Progress", "ReplayOptions", "ReplayReport", "replay"]

MODELLED = "modelled"


@attrs.frozen
class ReplayOptions:
    """What to do otherwise than the recording did; ``None`` is as recorded.

    ``backend`` ``modelled`` runs in virtual time, all others in real time. ``model`` is a model reference, ``policy``
    an ordering policy, ``record`` a file for the trace of the replay.
    """

    backend: str | None = None
    model: str | None = None
    policy: str | None = None
    record: Path | None = None


@attrs.frozen
class ReplayReport:
    """What a replay came to.

    ``drift`` is how late requests were submitted, in nanoseconds; ``recorded`` are the trace's own statistics.
    ``recording_error`` says why the replay's own trace is not whole.
    """

    trace: str
    backend: str
    model: str
    virtual: bool
    statistics: TraceStatistics
    recorded: TraceStatistics
    comparison: Comparison
    drift: Spread
    warnings: tuple[str, ...]
    recording_error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = attrs.asdict(self)
        data["statistics"] = self.statistics.as_dict()
        data["recorded"] = self.recorded.as_dict()
        data["comparison"]["same"] = self.comparison.same
        return data


async def replay(
    trace: str | Path,
    options: ReplayOptions | None = None,
    progress: OnProgress | None = None,
    observers: Iterable[Observer] = (),
) -> ReplayReport:
    """Run a trace's workload again, seen by ``observers``, and compare.

    Raises:
        TraceInvalid: the file is not a whole, unchanged trace of a version that is read here.
        InvalidRequest, ArtifactInvalid, BudgetExceeded, PolicyFault: the scheduler it asks for cannot be opened.
    """
    options = options or ReplayOptions()
    if options.record is not None and _same_file(options.record, Path(trace)):
        raise InvalidRequest(f"the replay would be recorded over its own trace {trace}: name another file")
    workload = await trio.to_thread.run_sync(load_workload, trace)
    config, warnings = _config(workload, options, str(trace))
    opened, assembly = await trio.to_thread.run_sync(partial(_open, config))
    warnings += _warnings(workload, assembly)
    recorder = None if options.record is None else Recorder.open(options.record, assembly)
    observers = (*observers, *(() if recorder is None else (recorder,)))
    avoid = {key: _special(opened, key) for key in opened.kits}
    virtual = config.device.backend == MODELLED
    try:
        if virtual:
            played = replay_virtual(assembly, workload, observers, progress, avoid)
        else:
            played = await replay_live(assembly, workload, observers, progress, avoid)
    finally:
        if recorder is not None:
            recorder.close()
    failure = None if recorder is None or recorder.error is None else str(recorder.error)
    if failure is not None:
        warnings += (f"the replay was not recorded whole: {failure}",)
    outcomes = {item.request: item.outcome for item in workload.items}
    return ReplayReport(
        trace=str(trace),
        backend=config.device.backend,
        model=assembly.models[assembly.generation_model].label,
        virtual=virtual,
        statistics=played.statistics,
        recorded=workload.recorded,
        comparison=compare(outcomes, played.outcomes),
        drift=Spread.of(played.drifts),
        warnings=warnings,
        recording_error=failure,
    )


def _config(workload: Workload, options: ReplayOptions, trace: str) -> tuple[Config, tuple[str, ...]]:
    try:
        config, warnings = config_of(workload.header)
    except ValueError as error:
        raise TraceInvalid(f"trace {trace}, line 1: {error}", file=trace, line=1) from error
    if options.backend is not None:
        config = attrs.evolve(config, device=attrs.evolve(config.device, backend=options.backend))
    if options.model is not None:
        config = attrs.evolve(config, generation=attrs.evolve(config.generation, model=options.model))
        if config.device.backend == MODELLED:
            raise InvalidRequest(
                f"the model {options.model} was asked for on the backend {MODELLED}, which computes nothing and has "
                "one fixed cost: leave the model out, or name another backend",
                model=options.model,
            )
    if options.policy is not None:
        policies = attrs.evolve(config.policies, ordering=PolicyConfig(options.policy))
        config = attrs.evolve(config, policies=policies)
    return config, warnings


def _open(config: Config) -> tuple[Opened, Assembly]:
    """Everything before the device is touched. On the virtual host, the modelled device does not sleep."""
    opened = open_backend(config)
    backend = opened.backend
    if config.generation.context > backend.describe(GENERATION).context_limit:
        # The recording's cap on a model with less: its own limit, as far as that goes.
        config = attrs.evolve(config, generation=attrs.evolve(config.generation, context=0))
    if config.device.backend == MODELLED:
        backend = ModelledBackend(heads=tuple(opened.heads))
    return opened, assemble(config, backend, opened.heads)


def _warnings(workload: Workload, assembly: Assembly) -> tuple[str, ...]:
    warnings = []
    for key, description in assembly.models.items():
        recorded = workload.header.model(key)
        if recorded is not None and recorded.digest != description.digest:
            warnings.append(
                f"the {key} model is {description.label} ({description.digest[:12]}), "
                f"recorded was {recorded.label} ({recorded.digest[:12]})"
            )
    admitted = workload.header.device.admitted_context
    if assembly.context < admitted:
        warnings.append(
            f"the admitted context is {assembly.context} tokens, recorded were {admitted}: longer ones are refused"
        )
    return tuple(warnings)


def _special(opened: Opened, key: str) -> Collection[int]:
    tokenizer = opened.kits[key].tokenizer
    return tokenizer.special_tokens | tokenizer.stop_tokens


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
