"""From a grant's work to backend calls, one segment at a time.

The same code runs steps for the thread executor and for the virtual host. A :class:`Run` is one step between its first
segment and its end; a suspended chunk is a run that nobody advances. Request-bound parts that actors never see
(samplers, detokenizers, where tokens go) are looked up in :class:`Streams` by request id.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs

from ...actors.errors import BackendFault, CoresidentError
from ...actors.work import (
    CopyWork,
    DecisionWork,
    DecodeRow,
    DecodeWork,
    FetchWork,
    LoadWork,
    PrefillWork,
    RestoreWork,
    RowResult,
    RowScores,
    SaveWork,
    StepRequest,
    StepResult,
    StoreWork,
    WarmupWork,
)
from ..backends.batched import score_rows
from ..backends.contract import Backend, DecodeInput, PlanRequest, Sampled, Sampler, Segment, Workspace
from ..backends.verifying import ask_repair

Stop: TypeAlias = str | CoresidentError
OnToken: TypeAlias = Callable[[str, Sampled], Stop | None]


@attrs.frozen
class Stream:
    """What a generation request brings to the device: its sampler, and who takes its tokens.

    ``on_token(request, sampled)`` runs where the step runs; it returns why the sequence stops here, or ``None``. An
    error that it returns ends this request alone; what it raises fails the whole step, for every request that shares
    it.
    """

    sampler: Sampler
    on_token: OnToken


@attrs.define
class _Opened:
    """The stream of an open request, and how many tokens it has taken."""

    sampler: Sampler
    on_token: OnToken
    count: int = 0


@attrs.define
class _Line:
    """A row of a decode run on its way."""

    row: DecodeRow
    sampler: Sampler
    tokens: list[int] = attrs.field(factory=list)
    stop: Stop | None = None

    def input(self) -> DecodeInput:
        """What to feed next: the row's token, then the newest."""
        row, tokens = self.row, self.tokens
        return DecodeInput(row.slot, row.position + len(tokens), tokens[-1] if tokens else row.token)


class Takers(Protocol):
    """Where a run finds its samplers and leaves its tokens: :class:`Streams`, or their far end in a worker."""

    def sampler(self, request: str) -> Sampler:
        """The sampler of a request. Raises ``BackendFault`` when its client is gone."""
        ...

    def take(self, rows: Sequence[tuple[str, Sampled]]) -> list[Stop | None]:
        """Hand a step's tokens to their requests; for each why its sequence stops here, or ``None``."""
        ...


class Streams:
    """Streams of open requests, by id. ``notice(request, index)`` is told of every token, where the step runs."""

    def __init__(self, notice: Callable[[str, int], None]) -> None:
        self._streams: dict[str, _Opened] = {}
        self._notice = notice

    def open(self, request: str, stream: Stream) -> None:
        self._streams[request] = _Opened(stream.sampler, stream.on_token)

    def close(self, request: str) -> None:
        """Forget a request; one that never had a stream is no error."""
        self._streams.pop(request, None)

    def sampler(self, request: str) -> Sampler:
        """The sampler of a request. Raises ``BackendFault`` when its client is gone."""
        return self._get(request).sampler

    def is_open(self, request: str) -> bool:
        return request in self._streams

    def take(self, rows: Sequence[tuple[str, Sampled]]) -> list[Stop | None]:
        """Hand a step's tokens to their requests, in order; for each why its sequence stops here, or ``None``."""
        return [self._take(request, sampled) for request, sampled in rows]

    def _take(self, request: str, sampled: Sampled) -> Stop | None:
        stream = self._get(request)
        index, stream.count = stream.count, stream.count + 1
        self._notice(request, index)
        return stream.on_token(request, sampled)

    def shown(self, step: StepRequest) -> tuple[str, ...]:
        """Those requests of a step that have taken tokens."""
        rows = step.work.rows if isinstance(step.work, DecodeWork) else ()
        requests = dict.fromkeys((step.request, *(row.request for row in rows)))
        return tuple(request for request in requests if request in self._streams and self._streams[request].count)

    def _get(self, request: str) -> _Opened:
        try:
            return self._streams[request]
        except KeyError:
            raise BackendFault(f"request {request} has no stream: it was closed before its step ran") from None

    def __len__(self) -> int:
        return len(self._streams)


class Run:
    """One step on its way. Iterate ``segments``; afterwards ``result`` is set. Close it to free its workspace."""

    def __init__(self, backend: Backend, streams: Takers, plans: Mapping[str, PlanRequest], step: StepRequest) -> None:
        self.step = step
        self.device_ns = 0
        self.result = StepResult()
        self.stop_early = False
        self.abandoned = False
        self._backend = backend
        self._streams = streams
        self._plans = plans
        self._workspace: Workspace = backend.open_workspace(step.charge)
        self.segments: Generator[Segment, None, None] = self._segments()

    @property
    def ends_early(self) -> bool:
        """A decode run is never suspended: told to yield, it ends after its token."""
        return isinstance(self.step.work, DecodeWork)

    @property
    def workspace(self) -> int:
        """Peak workspace bytes so far."""
        return self._workspace.peak()

    def close(self) -> None:
        """Free the workspace and whatever a suspended chunk holds; closing twice is no error."""
        self.segments.close()
        self._workspace.close()

    def _segments(self) -> Generator[Segment, None, None]:
        backend, space = self._backend, self._workspace
        match self.step.work:
            case DecodeWork() as work:
                return self._decode(work)
            case PrefillWork() as work:
                return self._prefill(work)
            case DecisionWork() as work:
                return self._decide(work)
            case LoadWork(model=model, weights=weights) as work:
                ask_repair(backend, model, work.repair)
                return backend.load(model, self._plans[model], weights)
            case WarmupWork(model=model):
                return backend.warm(model, space)
            case CopyWork() as work:
                return backend.copy(work.model, work.role, work.source, work.targets, work.tokens)
            case SaveWork() as work:
                return backend.save(work.model, work.slot, work.tokens, work.handle, work.base, work.shared)
            case RestoreWork() as work:
                return backend.restore(work.model, work.slot, work.tokens, work.handle)
            case StoreWork() as work:
                return backend.store(work.model, work.handle, work.file)
            case FetchWork() as work:
                return backend.fetch(work.model, work.handle, work.file)

    def _prefill(self, work: PrefillWork) -> Generator[Segment, None, None]:
        sampler = self._streams.sampler(work.request) if work.last else None
        sampled = yield from self._backend.prefill(
            self._workspace,
            work.model,
            work.role,
            work.slot,
            work.start,
            work.tokens,
            sampler,
        )
        if sampled is not None:
            (stop,) = self._take([(work.request, sampled)])
            self.result = StepResult(rows=(_row(work.request, [sampled.token], stop),))

    def _decode(self, work: DecodeWork) -> Generator[Segment, None, None]:
        """Token after token until the quantum, a stop in every row, or a yield."""
        lines = [_Line(row, self._streams.sampler(row.request)) for row in work.rows]
        going = lines
        for _ in range(work.quantum):
            if not going or self.stop_early:
                break
            inputs, samplers = [line.input() for line in going], [line.sampler for line in going]
            chosen = yield from self._backend.decode(self._workspace, work.model, inputs, samplers)
            for line, sampled in zip(going, chosen, strict=True):
                line.tokens.append(sampled.token)
            stops = self._take([(line.row.request, one) for line, one in zip(going, chosen, strict=True)])
            for line, stop in zip(going, stops, strict=True):
                line.stop = stop
            going = [line for line in going if line.stop is None and len(line.tokens) < line.row.limit]
        self.result = StepResult(tuple([_row(line.row.request, line.tokens, line.stop) for line in lines]))

    def _take(self, rows: Sequence[tuple[str, Sampled]]) -> list[Stop | None]:
        """A step that ended as failed while it hung may come back: its requests have had their end, or run again."""
        if self.abandoned:
            raise BackendFault(f"step {self.step.step} was given up: its tokens go nowhere")
        return self._streams.take(rows)

    def _decide(self, work: DecisionWork) -> Generator[Segment, None, None]:
        values = yield from score_rows(self._backend, self._workspace, work.model, work.rows, work.heads)
        scores = [RowScores(row.index, row_values) for row, row_values in zip(work.rows, values, strict=True)]
        self.result = StepResult(scores=tuple(scores))


def _row(request: str, tokens: list[int], stop: Stop | None) -> RowResult:
    if isinstance(stop, CoresidentError):
        return RowResult(request, tuple(tokens), "text_failed", stop)
    return RowResult(request, tuple(tokens), stop)
