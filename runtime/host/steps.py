"""From a grant's work to backend calls, one segment at a time.

The same code runs steps for the thread executor and for the virtual host. A :class:`Run` is one step between its first
segment and its end; a suspended chunk is a run that nobody advances. Request-bound parts that actors never see
(samplers, detokenizers, where tokens go) are looked up in :class:`Streams` by request id.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TypeAlias, TypeVar

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
from ..backends.contract import Backend, DecodeInput, PlanRequest, Sampled, Sampler, Segment, Workspace

_T = TypeVar("_T")
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


class Streams:
    """Streams of open requests, by id. ``notice(request, index)`` is told of every token, where the step runs."""

    def __init__(self, notice: Callable[[str, int], None]) -> None:
        self._streams: dict[str, Stream] = {}
        self._counts: dict[str, int] = {}
        self._notice = notice

    def open(self, request: str, stream: Stream) -> None:
        self._streams[request] = stream
        self._counts[request] = 0

    def close(self, request: str) -> None:
        """Forget a request; one that never had a stream is no error."""
        self._streams.pop(request, None)
        self._counts.pop(request, None)

    def sampler(self, request: str) -> Sampler:
        """The sampler of a request. Raises ``BackendFault`` when its client is gone."""
        return self._get(request).sampler

    def take(self, request: str, sampled: Sampled) -> Stop | None:
        """Hand a token to its request; why the sequence stops here, or ``None``."""
        stream = self._get(request)
        index = self._counts[request]
        self._counts[request] = index + 1
        self._notice(request, index)
        return stream.on_token(request, sampled)

    def _get(self, request: str) -> Stream:
        try:
            return self._streams[request]
        except KeyError:
            raise BackendFault(f"request {request} has no stream: it was closed before its step ran") from None

    def __len__(self) -> int:
        return len(self._streams)


class Run:
    """One step on its way. Iterate ``segments``; afterwards ``result`` is set. Close it to free its workspace."""

    def __init__(self, backend: Backend, streams: Streams, plans: Mapping[str, PlanRequest], step: StepRequest) -> None:
        self.step = step
        self.device_ns = 0
        self.result = StepResult()
        self.stop_early = False
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
            case LoadWork(model=model, weights=weights):
                yield from backend.load(model, self._plans[model], weights)
            case WarmupWork(model=model):
                yield from backend.warm(model, space)
            case PrefillWork() as work:
                yield from self._prefill(work)
            case DecodeWork() as work:
                yield from self._decode(work)
            case DecisionWork() as work:
                yield from self._decide(work)
            case CopyWork() as work:
                yield from backend.copy(work.model, work.role, work.source, work.targets, work.tokens)
            case SaveWork() as work:
                yield from backend.save(work.model, work.slot, work.tokens, work.handle)
            case RestoreWork() as work:
                yield from backend.restore(work.model, work.slot, work.tokens, work.handle)
            case StoreWork() as work:
                yield from backend.store(work.model, work.handle, work.file)
            case FetchWork() as work:
                yield from backend.fetch(work.model, work.handle, work.file)

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
            stop = self._streams.take(work.request, sampled)
            self.result = StepResult(rows=(_row(work.request, [sampled.token], stop),))

    def _decode(self, work: DecodeWork) -> Generator[Segment, None, None]:
        """Token after token until the quantum, a stop in every row, or a yield."""
        samplers = {row.request: self._streams.sampler(row.request) for row in work.rows}
        tokens: dict[str, list[int]] = {row.request: [] for row in work.rows}
        stops: dict[str, Stop] = {}
        for _ in range(work.quantum):
            rows = [row for row in work.rows if row.request not in stops and len(tokens[row.request]) < row.limit]
            if not rows or self.stop_early:
                break
            inputs = [_next_input(row, tokens[row.request]) for row in rows]
            chosen = yield from self._backend.decode(
                self._workspace, work.model, inputs, [samplers[row.request] for row in rows]
            )
            for row, sampled in zip(rows, chosen, strict=True):
                tokens[row.request].append(sampled.token)
                stop = self._streams.take(row.request, sampled)
                if stop is not None:
                    stops[row.request] = stop
        self.result = StepResult(
            rows=tuple(_row(row.request, tokens[row.request], stops.get(row.request)) for row in work.rows)
        )

    def _decide(self, work: DecisionWork) -> Generator[Segment, None, None]:
        scores: list[RowScores] = []
        for row in work.rows:
            segments = self._backend.score(self._workspace, work.model, row.slot, row.start, row.tokens, work.heads)
            values = yield from segments if row is work.rows[-1] else _not_last(segments)
            scores.append(RowScores(row.index, values))
        self.result = StepResult(scores=tuple(scores))


def _row(request: str, tokens: list[int], stop: Stop | None) -> RowResult:
    if isinstance(stop, CoresidentError):
        return RowResult(request, tuple(tokens), "text_failed", stop)
    return RowResult(request, tuple(tokens), stop)


def _not_last(segments: Generator[Segment, None, _T]) -> Generator[Segment, None, _T]:
    """The same segments of a part that is followed by another: none of them is the step's last."""
    while True:
        try:
            segment = next(segments)
        except StopIteration as end:
            value: _T = end.value
            return value
        yield attrs.evolve(segment, last=False)


def _next_input(row: DecodeRow, generated: list[int]) -> DecodeInput:
    token = generated[-1] if generated else row.token
    return DecodeInput(row.slot, row.position + len(generated), token)
