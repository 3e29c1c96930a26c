"""``coresident replay``: open the scheduler that a trace describes, or another, and run its workload again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from ..actors.errors import InvalidRequest
from ..runtime.config import Config, PolicyConfig
from ..runtime.host.observers import Observer
from .drivers import OnProgress, Progress
from .opening import MODELLED, differences, left_out, open_assembly, recorded_config, special_tokens
from .outcomes import Comparison, compare
from .quantiles import Spread
from .recorder import Recorder
from .replay_live import replay_live
from .replay_virtual import replay_virtual
from .statistics import TraceStatistics
from .workload import Workload, load_workload

__all__ = ["Progress", "ReplayOptions", "ReplayReport", "replay"]

FEW = 10
OVERLOADED = 2


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
    ``overload`` is how many times as long as the arrivals the run took, where that says that requests came faster than
    the device serves them. ``recording_error`` says why the replay's own trace is not whole.
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
    overload: float | None = None
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
    opened, assembly = await trio.to_thread.run_sync(partial(open_assembly, config))
    warnings += differences(workload.header, assembly)
    recorder = None if options.record is None else Recorder.open(options.record, assembly)
    observers = (*observers, *(() if recorder is None else (recorder,)))
    avoid = special_tokens(opened)
    virtual = config.device.backend == MODELLED
    last = _LastEnd(progress)
    try:
        if virtual:
            played = replay_virtual(assembly, workload, observers, last, avoid)
        else:
            played = await replay_live(assembly, workload, observers, last, avoid)
    finally:
        if recorder is not None:
            recorder.close()
    failure = None if recorder is None or recorder.error is None else str(recorder.error)
    if failure is not None:
        warnings += (f"the replay was not recorded whole: {failure}",)
    warnings += left_out(workload.recorded)
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
        overload=overload(workload, last.at),
        recording_error=failure,
    )


@attrs.define
class _LastEnd:
    """Passes progress on; ``at`` is when the latest request ended, in nanoseconds since readiness."""

    told: OnProgress | None
    at: int = 0

    def __call__(self, now: Progress) -> None:
        self.at = now.at
        if self.told is not None:
            self.told(now)


def overload(workload: Workload, ended: int) -> float | None:
    """The time to the last end over that of the arrivals, where it is more than twice as long.

    ``None`` of a few requests, and of a workload in which requests wait for others to end: that one slows down with
    the device.
    """
    dues = [item.due for item in workload.items if item.due is not None]
    if len(dues) < max(FEW, workload.size):
        return None
    first, last = min(dues), max(dues)
    if last == first or ended - first <= OVERLOADED * (last - first):
        return None
    return (ended - first) / (last - first)


def _config(workload: Workload, options: ReplayOptions, trace: str) -> tuple[Config, tuple[str, ...]]:
    config, warnings = recorded_config(workload.header, trace)
    if options.backend is not None:
        config = attrs.evolve(config, device=config.device.under(options.backend))
    if options.model is not None:
        config = attrs.evolve(config, generation=attrs.evolve(config.generation, model=options.model))
        if config.device.backend == MODELLED:
            raise InvalidRequest(
                f"the model {options.model} was asked for on the backend {MODELLED}, which computes nothing and has "
                "the costs of its device model: leave the model out, or name another backend; another device model is "
                "named by 'device.model' in a configuration or a lab file, for 'coresident simulate'",
                model=options.model,
            )
    if options.policy is not None:
        policies = attrs.evolve(config.policies, ordering=PolicyConfig(options.policy))
        config = attrs.evolve(config, policies=policies)
    return config, warnings


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
