"""What a recording says about its device: times of finished steps with their shapes, gaps, charges, segments.

A decode run is one sample of several tokens and rows: how many, and where, comes from when its requests' tokens were
made. Sizes that a grant doesn't say come from what it served: the rows of its decision, the prefix it kept or found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import attrs

from ..events_schedule import EndCheckpoint, EndGeneration, Grant, LedgerState, Retain, Reuse, Seat, Step, Tokens
from ..events_workload import ArriveCheckpoint, ArriveDecision, ArriveGeneration, ArrivePreparation
from ..format import Event
from ..header import Header


@attrs.frozen
class Sample:
    """``ns`` of device time that ``steps`` operations of a kind took together.

    ``size`` is the sum of their sizes, ``pairs`` that of size times context; ``sizes`` has them one by one, where they
    are known. ``at`` is when the grant came.
    """

    at: int
    kind: str
    ns: int
    steps: int = 1
    size: int = 0
    pairs: int = 0
    sizes: tuple[int, ...] = ()


@attrs.frozen
class Charge:
    """Workspace bytes that were charged for new tokens (rows of a decode step) at a context."""

    tokens: int
    context: int
    bytes: int


@attrs.frozen
class Observations:
    """All of one trace. ``gaps`` are ``(at, ns)``; ``segments`` count those of whole chunks and of single rows."""

    samples: tuple[Sample, ...]
    gaps: tuple[tuple[int, int], ...]
    charges: tuple[Charge, ...]
    segments: tuple[int, ...]
    kv_bytes: tuple[int, ...]
    reserved: int

    def before(self, at: int) -> Observations:
        """Only what happened before a time."""
        samples = tuple(sample for sample in self.samples if sample.at < at)
        return attrs.evolve(self, samples=samples, gaps=tuple(gap for gap in self.gaps if gap[0] < at))


@attrs.define
class _Request:
    arrived: int
    times: list[int] = attrs.field(factory=list)
    prompt: int = 0
    rows: tuple[int, ...] = ()
    instruction: int = 0
    scored: int = 0
    found: int = 0


class Observer:
    """Takes the events of one trace in order.

    Instructions that a decision model of its own prefills are left out: prefill is the generation model's.
    """

    def __init__(self, header: Header) -> None:
        self._slots = header.decision.rows_per_slice if header.decision else 1
        self._apart = header.decision is not None and not header.decision.shares_weights
        self._requests: dict[str, _Request] = {}
        self._grant: Grant | None = None
        self._last: tuple[Grant, int] | None = None
        self._decodes: list[tuple[Grant, int, int]] = []
        self._saves: list[tuple[int, int]] = []
        self._files: dict[str, tuple[str, int, int]] = {}
        self._samples: list[Sample] = []
        self._gaps: list[tuple[int, int]] = []
        self._charges: dict[tuple[int, int], int] = {}
        self._segments: list[int] = []
        self._kv: list[int] = []
        self._reserved = 0

    def add(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ArriveGeneration() | ArrivePreparation() | ArriveCheckpoint():
                self._requests[event.request] = _Request(event.at)
            case ArriveDecision(instruction=instruction, rows=rows):
                sizes = tuple(row.tokens for row in rows)
                self._requests[event.request] = _Request(event.at, rows=sizes, instruction=instruction.tokens)
            case Reuse(request=request, reused=reused) | Seat(request=request, reused=reused):
                self._requests[request].found = reused
            case Tokens(request=request, gaps_ns=gaps):
                entry = self._requests[request]
                entry.times = list(accumulate(gaps, initial=entry.arrived))[1:]
            case EndGeneration(request=request, prompt=prompt):
                self._requests[request].prompt = prompt
            case EndCheckpoint(request=request, tokens=tokens) if request in self._files:
                kind, at, ns = self._files.pop(request)
                self._samples.append(Sample(at, kind, ns, 1, tokens, tokens**2))
            case Retain():
                self._kept(event)
            case Grant():
                self._granted(event)
            case Step():
                self._stepped(event)
            case LedgerState(reserved=reserved):
                self._reserved = max(self._reserved, reserved)
            case _:
                pass

    def result(self) -> Observations:
        """What was seen; decode runs of requests that never ended are left out."""
        decodes = (self._decoded(*run) for run in self._decodes)
        samples = sorted((*self._samples, *(run for run in decodes if run)), key=lambda sample: sample.at)
        charges = tuple(Charge(tokens, context, size) for (tokens, context), size in self._charges.items())
        return Observations(
            tuple(samples), tuple(self._gaps), charges, tuple(self._segments), tuple(self._kv), self._reserved
        )

    # --- grants and their ends ----------------------------------------------------------------------------------

    def _granted(self, grant: Grant) -> None:
        if self._last is not None and set(self._last[0].requests) & set(grant.requests):
            before, device_ns = self._last
            self._gaps.append((before.at, max(0, grant.at - before.at - device_ns)))
        self._grant, self._last = grant, None
        if grant.rows is not None and grant.tokens is not None and grant.context is not None:
            tokens = grant.rows if grant.kind == "decode" else grant.rows * grant.tokens
            key = (tokens, grant.context)
            self._charges[key] = max(self._charges.get(key, 0), grant.charge)

    def _stepped(self, step: Step) -> None:
        grant, measured = self._grant, step.measured
        if grant is None or grant.grant != step.grant or measured is None:
            return
        self._grant, self._last = None, (grant, measured.device_ns)
        if step.outcome != "finished":
            return
        if grant.kind == "decode":
            self._decodes.append((grant, step.at, measured.device_ns))
        elif grant.kind == "save":
            self._saves.append((grant.at, measured.step_ns))
        elif grant.kind in ("store", "fetch") and grant.requests:
            self._files[grant.requests[0]] = (grant.kind, grant.at, measured.step_ns)
        else:
            self._samples += self._sized(grant, measured.step_ns)
            if measured.device_ns == measured.step_ns and grant.kind in ("prefill", "decision"):
                self._segments.append(round(measured.segments / (grant.rows or 1)))

    def _sized(self, grant: Grant, ns: int) -> Iterator[Sample]:
        request = self._requests.get(grant.requests[0]) if grant.requests else None
        if grant.kind == "prefill" and self._apart and grant.owner == "decision":
            return
        if grant.kind == "prefill" and grant.tokens is not None and grant.context is not None:
            yield Sample(grant.at, "prefill", ns, 1, grant.tokens, grant.tokens * grant.context, (grant.tokens,))
        elif grant.kind == "decision" and request is not None and grant.rows is not None:
            rows = request.rows[request.scored : request.scored + grant.rows]
            request.scored += grant.rows
            pairs = sum(row * (request.instruction + row) for row in rows)
            yield Sample(grant.at, "decision", ns, len(rows), sum(rows), pairs, rows)
        elif grant.kind == "copy" and request is not None:
            copied = request.instruction * (self._slots - 1)
            yield Sample(grant.at, "copy", ns, 1, copied, copied * request.instruction)
        elif grant.kind == "restore" and request is not None:
            yield Sample(grant.at, "restore", ns, 1, request.found, request.found**2)
        else:
            yield Sample(grant.at, grant.kind, ns)

    def _kept(self, event: Retain) -> None:
        """What is kept after a save tells what it copied: the tokens that no other prefix had."""
        copied = event.tokens - event.shared
        if copied:
            self._kv.append(event.bytes // copied)
        if self._saves:
            at, ns = self._saves.pop()
            self._samples.append(Sample(at, "save", ns, 1, copied, copied * event.tokens))

    def _decoded(self, grant: Grant, end: int, ns: int) -> Sample | None:
        steps = size = pairs = 0
        for name in grant.requests:
            request = self._requests.get(name)
            if request is None or not request.prompt:
                return None
            first, last = bisect_right(request.times, grant.at), bisect_right(request.times, end)
            count = last - first
            steps = max(steps, count)
            size += count
            # Token number k (the prefill made number 0) is computed by feeding position prompt + k - 1.
            pairs += count * (request.prompt - 1) + (first + last - 1) * count // 2
        return Sample(grant.at, "decode", ns, steps, size, pairs) if steps else None
