"""A timeline for Perfetto and other viewers of the Trace Event Format, written as a trace is read.

The format is Google's "Trace Event Format" in its JSON object form: ``traceEvents`` of phases ``B``/``E`` (a slice
begins, ends), ``b``/``e`` (the same, apart from any thread), ``i`` (an instant), ``C`` (a counter), ``s``/``t``/``f``
(a flow begins, passes, ends, in the slice that is open there), and ``M`` (names). ``ts`` is in microseconds, here with
three decimals, so that no nanosecond is lost.

A run is a process. Its threads are the device, whose slices are the steps, and the actors, where requests arrive and
end. A flow leads from a request's arrival through its steps to its end, and a slice of its own spans all of it.
Counters are the ledger. Events of a track are written in the order of time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import attrs

from ...runtime.host.assembly import DECISION, GENERATION
from ..events_schedule import (
    ChargeFault,
    Drop,
    EndDecision,
    EndGeneration,
    EndPreparation,
    Grant,
    LedgerState,
    PolicyFaulted,
    Ready,
    Refuse,
    Retain,
    Step,
    Yield,
)
from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest
from ..format import Arrival, Ending, Event
from ..header import Header
from .levels import RESERVED, RETAINED, WORKSPACE, Levels
from .words import shown

DEVICE = "device"
SUPERVISOR = "supervisor"
THREADS: Mapping[str, int] = {DEVICE: 1, DECISION: 2, GENERATION: 3, SUPERVISOR: 4}
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@attrs.define
class _Open:
    actor: str
    work_class: str
    flow: int


class Timeline:
    """Follows runs, one after another, and writes their events to a binary file; :meth:`close` ends it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._process = 0
        self._flows = 0
        self._first = True
        self._requests: dict[str, _Open] = {}
        self._running: int | None = None
        self._levels = Levels()
        self._counted: dict[str, int] = {}
        self._last = 0
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[')

    def begin(self, label: str, header: Header) -> None:
        """The next process."""
        self._process += 1
        self._requests.clear()
        self._running = None
        self._levels = Levels()
        self._counted.clear()
        self._last = 0
        where = f"imported from {header.imported}" if header.imported else header.device.backend
        self._name("process_name", 0, f"{label} ({shown(where)})")
        for thread, number in THREADS.items():
            self._name("thread_name", number, thread)

    def add(self, event: Event) -> None:
        """Write what one event means."""
        self._last = event.at
        match event:
            case ArriveGeneration() | ArriveDecision() | ArrivePreparation():
                self._arrive(event)
            case EndGeneration() | EndDecision() | EndPreparation() | Refuse():
                self._end(event)
            case Grant():
                self._grant(event)
            case Step():
                self._step(event)
            case LedgerState() | Retain() | Drop():
                self._count(event)
            case _:
                self._instant(event)

    def end(self) -> None:
        """The run's trace has ended: what is open ends with it."""
        if self._running is not None:
            self._write("E", self._last, DEVICE, args={"outcome": "open at the end of the trace"})
        for request in list(self._requests):
            self._leave(request, self._last, "open at the end of the trace", {})

    def close(self) -> None:
        """Write the end of the file."""
        self._file.write(b"\n]}\n")

    # --- requests -----------------------------------------------------------------------------------------------

    def _arrive(self, event: Arrival) -> None:
        actor, work_class, args = _described(event)
        self._flows += 1
        opened = self._requests[event.request] = _Open(actor, work_class, self._flows)
        name = shown(event.request)
        self._write("b", event.at, actor, name, cat=work_class, id=opened.flow, args=args)
        self._write("B", event.at, actor, f"{name} arrives", cat=work_class, args=args)
        self._flow("s", event.at, actor, opened.flow)
        self._write("E", event.at, actor)

    def _end(self, event: Ending) -> None:
        if isinstance(event, Refuse):
            self._leave(event.request, event.at, "refused", {"error": event.error})
            return
        details = attrs.asdict(event, filter=attrs.filters.exclude("at", "request", "whole", "output", "outcome"))
        self._leave(event.request, event.at, event.outcome, details)

    def _leave(self, request: str, at: int, outcome: str, details: Mapping[str, Any]) -> None:
        opened = self._requests.pop(request)
        name = shown(request)
        self._write("B", at, opened.actor, f"{name} {outcome}", cat=opened.work_class, args=_plain(details))
        self._flow("f", at, opened.actor, opened.flow, bp="e")
        self._write("E", at, opened.actor)
        self._write("e", at, opened.actor, name, cat=opened.work_class, id=opened.flow, args={"outcome": outcome})

    # --- the device ---------------------------------------------------------------------------------------------

    def _grant(self, grant: Grant) -> None:
        requests = [shown(request) for request in grant.requests]
        args = {
            "step": shown(grant.step),
            "grant": grant.grant,
            "class": grant.work_class,
            "requests": requests,
            "charge": grant.charge,
            "waited_ns": grant.waited_ns,
            "resumed": grant.resumed,
            **{key: value for key in ("rows", "tokens", "context") if (value := getattr(grant, key)) is not None},
        }
        name = " ".join([grant.kind, *requests[:1]]) + ("" if len(requests) < 2 else f" and {len(requests) - 1} more")
        self._running = grant.grant
        self._write("B", grant.at, DEVICE, name, cat=grant.work_class, args=args)
        for request in grant.requests:
            if request in self._requests:
                self._flow("t", grant.at, DEVICE, self._requests[request].flow)
        self._count(grant)

    def _step(self, step: Step) -> None:
        """A grant ends; or a step that was suspended is given up, which takes no time."""
        if step.grant == self._running:
            self._running = None
            measures = {} if step.measured is None else attrs.asdict(step.measured)
            self._write("E", step.at, DEVICE, args={"outcome": step.outcome, **measures})
        else:
            self._write("i", step.at, DEVICE, f"{shown(step.step)} {step.outcome}", s="t")
        self._count(step)

    def _count(self, event: Event) -> None:
        """The ledger as counters, where it changed."""
        self._levels.add(event)
        levels = {key: self._levels.now(key) for key in (RESERVED, RETAINED, WORKSPACE)}
        for key, value in levels.items():
            if self._counted.get(key) != value:
                self._counted[key] = value
                self._write("C", event.at, DEVICE, f"ledger: {key}", args={"bytes": value})

    def _instant(self, event: Event) -> None:
        args: dict[str, Any]
        thread = DEVICE
        match event:
            case Yield():
                name, args = "told to give way", {"step": shown(event.step), "to": shown(event.to or "a cancel")}
            case CancelRequest():
                thread = self._requests[event.request].actor
                name, args = f"cancel {shown(event.request)}", {"reason": shown(event.reason)}
            case ChargeFault():
                name, args = "more used than charged", {"step": shown(event.step), "measured": event.measured}
            case PolicyFaulted():
                name, args = f"the {event.policy} policy failed", {"error": shown(event.error)}
            case Ready():
                thread, name, args = SUPERVISOR, event.state, {"context": event.context, "error": event.error}
            case _:
                return
        self._write("i", event.at, thread, name, s="t", args=_plain(args))

    # --- lines --------------------------------------------------------------------------------------------------

    def _flow(self, phase: str, at: int, thread: str, number: int, **fields: Any) -> None:
        self._write(phase, at, thread, "request", cat="request", id=number, **fields)

    def _name(self, kind: str, thread: int, name: str) -> None:
        self._line({"ph": "M", "name": kind, "pid": self._process, "tid": thread, "args": {"name": name}})

    def _write(self, phase: str, at: int, thread: str, name: str | None = None, **fields: Any) -> None:
        """One event. The time is written as digits: a float would round it."""
        event = {"ph": phase, "pid": self._process, "tid": THREADS[thread]}
        if name is not None:
            event["name"] = name
        self._line(event | fields, f'"ts":{at // 1000}.{at % 1000:03d},')

    def _line(self, event: Mapping[str, Any], time: str = "") -> None:
        body = _JSON.encode(event)
        self._file.write(f"{'' if self._first else ','}\n{{{time}{body[1:]}".encode())
        self._first = False


def _described(event: Arrival) -> tuple[str, str, dict[str, Any]]:
    match event:
        case ArriveGeneration():
            args = {"prompt": event.prompt.tokens, "max_tokens": event.max_tokens}
            return GENERATION, event.work_class, {**args, "conversation": shown(event.conversation)}
        case ArriveDecision():
            args = {"instruction": event.instruction.tokens, "rows": len(event.rows)}
            return DECISION, "decision", {**args, "deadline_ns": event.deadline_ns}
        case ArrivePreparation():
            args = {"known": event.known.tokens, "standing": event.standing}
            return GENERATION, "preparation", {**args, "conversation": shown(event.conversation)}


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    found: Iterable[tuple[str, Any]] = details.items()
    return {key: shown(value) if isinstance(value, str) else value for key, value in found if value is not None}
