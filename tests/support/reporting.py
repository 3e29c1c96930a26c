"""Runs for reports: the samples, a log whose figures are known, and one with more grants than a page draws."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import coresident.traces
from coresident.traces.blocks import BlockTable
from coresident.traces.codec import encode
from coresident.traces.events_schedule import (
    ChargeFault,
    Drop,
    EndDecision,
    EndGeneration,
    Grant,
    LedgerState,
    Measures,
    PolicyFaulted,
    Ready,
    Refuse,
    Retain,
    Reuse,
    Step,
    Tokens,
    Yield,
)
from coresident.traces.events_workload import ArriveDecision, ArriveGeneration, CancelRequest
from coresident.traces.format import Event
from coresident.traces.importers.heading import imported_header
from coresident.traces.reader import TraceReader

from .commands import write_trace

SAMPLES = {path.stem: path for path in sorted((Path(coresident.traces.__file__).parent / "samples").glob("*.jsonl"))}
MS = 10**6
EVIL = "<script>alert('d')</script>"
ODD = "u\x1b[2J\ud800"
BLOCKS = BlockTable(64)


def content(tokens: int) -> Any:
    return BLOCKS.describe(range(tokens))


def arrive(at: int, request: str, work_class: str = "foreground", tokens: int = 100) -> Event:
    return ArriveGeneration(at, request, work_class, content(tokens), 10, "i")


def decide(at: int, request: str) -> Event:
    return ArriveDecision(at, request, content(30), (content(5),), ("rank",), "i")


def grant(at: int, number: int, step: str, *requests: str, work_class: str = "foreground", **fields: Any) -> Event:
    kind = {"supervisor": "load", "decision": "decision"}.get(step.split("/")[0], "prefill")
    return Grant(at, number, step, step.split("/")[0], requests, work_class, kind, 40, 0, **fields)


def step(at: int, number: int, name: str, outcome: str = "finished", device_ns: int = 10 * MS) -> Event:
    return Step(at, number, name, outcome, Measures(30, device_ns, 2, device_ns // 2, device_ns))


LOG: tuple[Event, ...] = (
    LedgerState(0, 700, 0, 0, 1000),
    grant(0, 1, "supervisor/1"),
    step(10 * MS, 1, "supervisor/1"),
    Ready(10 * MS, 1, "ready", 1000),
    # g1 has the device at once. A decision comes, and waits for 5 ms until g1 is suspended.
    arrive(20 * MS, "g1"),
    Reuse(20 * MS, "g1", 100, 60, 50, "static_prefix"),
    grant(20 * MS, 2, "generation/1", "g1"),
    decide(25 * MS, EVIL),
    Yield(27 * MS, 2, "generation/1", "decision/1"),
    step(30 * MS, 2, "generation/1", "suspended"),
    grant(30 * MS, 3, "decision/1", EVIL, work_class="decision"),
    arrive(32 * MS, ODD, "utility"),
    step(40 * MS, 3, "decision/1"),
    EndDecision(40 * MS, EVIL, "completed", "", 1, 5, 10),
    grant(40 * MS, 4, "generation/1", "g1", resumed=True),
    # A second decision is given up before it ever has the device; g1 is cancelled in its chunk.
    decide(45 * MS, "late"),
    EndDecision(48 * MS, "late", "abstained", "deadline", 1, 5, 0),
    CancelRequest(49 * MS, "g1", "left", 0, 29 * MS),
    Yield(49 * MS, 4, "generation/1"),
    step(50 * MS, 4, "generation/1", "withdrawn"),
    EndGeneration(50 * MS, "g1", "cancelled", "cancelled", 100, 50, 0, 0),
    Retain(50 * MS, "generation", 1, 64, 300),
    grant(50 * MS, 5, "generation/2", ODD, work_class="utility"),
    step(60 * MS, 5, "generation/2"),
    Tokens(60 * MS, ODD, (28 * MS, 2 * MS, 4 * MS)),
    EndGeneration(60 * MS, ODD, "completed", "length", 100, 0, 100, 3),
    Drop(70 * MS, "generation", 1, 64, 300, "evicted"),
    arrive(70 * MS, "big", tokens=5000),
    Refuse(70 * MS, "big", "ContextExceeded"),
    arrive(80 * MS, "open"),
    ChargeFault(85 * MS, "generation/9", 1024, 2048),
    PolicyFaulted(90 * MS, "quantum", "it <b>raised</b>"),
    LedgerState(100 * MS, 0, 0, 0, 1000),
)


def header() -> bytes:
    """The header of a sample: what ran does not matter."""
    with TraceReader(SAMPLES["chat"]) as reader:
        return encode(reader.header)


def trace(path: Path, events: Iterable[Event]) -> Path:
    """A whole trace of these events; its path."""
    return write_trace(path, [header(), *map(encode, events)])


def never_run(path: Path) -> Path:
    """An import of two requests and a decision, from a source that tells no outcomes; its path."""
    events = (
        ArriveGeneration(0, "r1", "foreground", content(100), 7, "azure", expected=7),
        ArriveGeneration(10**9, "r2", "foreground", content(100), 5, "azure"),
        decide(2 * 10**9, "r3"),
    )
    heading = imported_header("azure", 64, 0, decisions=True, ends=False)
    return write_trace(path, [encode(heading), *map(encode, events)])


def with_outcomes(path: Path) -> Path:
    """An import of two requests with the times that tokens and ends had at their source; its path."""
    events = (
        arrive(0, "r1"),
        arrive(200 * MS, "r2"),
        Tokens(500 * MS, "r1", (100 * MS, 400 * MS)),
        EndGeneration(500 * MS, "r1", "completed", "length", 100, 0, 100, 2),
        Tokens(1500 * MS, "r2", (400 * MS, 900 * MS)),
        EndGeneration(1500 * MS, "r2", "completed", "length", 100, 0, 100, 2),
    )
    heading = imported_header("vllm", 64, 0, decisions=False, ends=True)
    return write_trace(path, [encode(heading), *map(encode, events)])


def busy(grants: int) -> Iterable[Event]:
    """A run of this many grants: short decisions between chunks, each with a wait of its own."""
    yield LedgerState(0, 700, 0, 0, 1000)
    for number in range(1, grants + 1):
        at, request = number * 3 * MS, f"r{number}"
        decision = number % 3 == 0
        yield decide(at - number, request) if decision else arrive(at - number, request)
        work_class, name = ("decision", f"decision/{number}") if decision else ("foreground", f"generation/{number}")
        yield grant(at, number, name, request, work_class=work_class)
        yield step(at + 2 * MS, number, name, device_ns=2 * MS)
        if decision:
            yield EndDecision(at + 2 * MS, request, "completed", "", 1, 5, 0)
        else:
            yield EndGeneration(at + 2 * MS, request, "completed", "length", 100, 0, 100, 1)
