"""Small imported traces, written line by line: ties, shared blocks, followers and failures."""

from __future__ import annotations

import attrs
from coresident.traces.events_schedule import EndGeneration
from coresident.traces.events_workload import ArriveGeneration, Content
from coresident.traces.importers.heading import imported_header
from coresident.traces.writer import TraceWriter

MS = 1_000_000
BLOCK = 16


def request(number, at_ms, blocks=(1,), tokens=None, expected=4, **fields):
    """An arrival; its prompt is whole blocks unless ``tokens`` says otherwise."""
    prompt = Content(tokens or BLOCK * len(blocks), tuple(blocks))
    return ArriveGeneration(
        at_ms * MS, f"r{number}", "foreground", prompt, expected, "source", expected=expected, **fields
    )


def failure(number, at_ms):
    """The end of a request that failed at its source."""
    return EndGeneration(at_ms * MS, f"r{number}", "failed", "Failed", 1, 0, 0, 0, error="Failed")


def write_imported(path, events, **changes):
    """Write a trace as an importer does; ``changes`` are to its header's generation section."""
    header = imported_header("mooncake", BLOCK, 0, decisions=False, ends=False)
    generation = attrs.evolve(header.generation, **{"context": 1024, "chunk": 64, **changes})
    header = attrs.evolve(header, generation=generation)
    with path.open("wb", buffering=0) as file:
        writer = TraceWriter(file, header)
        for event in events:
            writer.add(event)
        writer.flush()
        writer.seal()
    return path


def ties(path, count=40):
    """Many requests of few instants, with heads in common, and one in four a follower."""
    events = []
    for number in range(1, count + 1):
        at = number // 8 * 500
        follows = {"after": f"r{number - 3}", "think_ns": 20 * MS} if number % 4 == 0 else {}
        events.append(request(number, at, (1, 2, 10 + number % 3, 100 + number), **follows))
    return write_imported(path, events)
