"""Simulation: a trace's workload under virtual time, on the modelled device, with the actors that ship.

Stage: trace -> player -> virtual host -> statistics. Two simulations of one input are equal to the byte, on any
machine: their digests say so. Sweeps, tests and benchmarks come in here; ``coresident replay`` shares the same path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import attrs

from ..runtime.config import Config
from ..runtime.host.observers import Delivery, Observer
from .codec import encode
from .drivers import OnProgress
from .opening import differences, left_out, modelled, open_assembly, recorded_config, special_tokens
from .recorder import Recorder
from .replay_virtual import replay_virtual
from .statistics import TraceStatistics
from .streaming import open_workload
from .translate import Translator

__all__ = ["Simulation", "simulate"]


@attrs.frozen
class Simulation:
    """What a simulation came to.

    ``digest`` is the SHA-256 of the run's event lines as a recorder writes them, without the header and without
    ``took`` lines; empty when it was not asked for. ``recorded`` are the trace's own statistics, where it has a
    schedule. ``steps`` counts grants, ``outcomes`` requests by how they ended; ``context`` is the admitted context in
    tokens.
    """

    digest: str
    statistics: TraceStatistics
    recorded: TraceStatistics | None
    requests: int
    steps: int
    virtual_ns: int
    context: int
    outcomes: Mapping[str, int]
    warnings: tuple[str, ...]


class _Recording(Recorder):
    """A recorder whose ``error`` ends the simulation at its end: half a trace is no result, so it is not sealed."""

    def delivered(self, delivery: Delivery) -> None:
        if self._error is None:
            try:
                super().delivered(delivery)
            except OSError as error:
                self._error = error

    def dropped(self, error: Exception) -> None:
        self._error = error

    def _seal(self) -> None:
        try:
            self._writer.seal()
        except OSError as error:
            self._error = error


class _Digest:
    """An observer that hashes the lines that a recorder would write."""

    def __init__(self) -> None:
        self._translator = Translator()
        self._hash = hashlib.sha256()

    def delivered(self, delivery: Delivery) -> None:
        for event in self._translator.delivery(delivery):
            self._hash.update(encode(event))

    def token(self, request: str, index: int, at: int) -> None:
        self._translator.token(request, at)

    def dropped(self, error: Exception) -> None:
        raise error

    def result(self) -> str:
        return self._hash.hexdigest()


def simulate(
    trace: str | Path,
    config: Config | None = None,
    *,
    seed: int = 0,
    limit: int | None = None,
    record: Path | None = None,
    on_progress: OnProgress | None = None,
    observers: Iterable[Observer] = (),
    digest: bool = True,
) -> Simulation:
    """Play a trace's workload under virtual time.

    ``config`` is the scheduler; without one it is the recording's own, on the modelled device. ``seed`` is for made-up
    tokens and the device's noise, ``limit`` the most requests that are played, ``record`` a file for the trace of this
    run.

    Raises:
        OSError: the trace of this run can't be written to its end.
        TraceInvalid: the file is not a whole, unchanged trace of a version that is read here.
        InvalidRequest, BudgetExceeded: the scheduler can't be opened: it has no meaning, or does not fit.
        PolicyFault: a policy can't be made, raised, or chose what can't be done.
    """
    hashing, recorder = _Digest() if digest else None, None
    with ExitStack() as stack:
        workload = stack.enter_context(closing(open_workload(trace, limit)))
        warnings: tuple[str, ...] = ()
        if config is None:
            config, warnings = recorded_config(workload.header, trace)
        opened, assembly = open_assembly(modelled(config), seed)
        warnings += differences(workload.header, assembly)
        seen: list[Observer] = [*observers, *([] if hashing is None else [hashing])]
        if record is not None:
            recorder = _Recording.open(record, assembly)
            seen.append(stack.enter_context(closing(recorder)))
        played = replay_virtual(assembly, workload, seen, on_progress, special_tokens(opened), seed, strict=True)
    if recorder is not None and recorder.error is not None:
        raise recorder.error
    return Simulation(
        digest=hashing.result() if hashing is not None else "",
        statistics=played.statistics,
        recorded=workload.recorded,
        requests=workload.size,
        steps=assembly.device.statistics().grants,
        virtual_ns=played.statistics.span_ns,
        context=assembly.context,
        outcomes=dict(sorted(played.counts.items())),
        warnings=warnings + left_out(workload.recorded),
    )
