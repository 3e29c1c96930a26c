"""A known prompt, the question that continues it, and a way to stop in the middle of preparing it."""

from __future__ import annotations

from .bench_host import BenchHost

CHUNK = 8
KNOWN = tuple(range(1, 49))
QUESTION = (*KNOWN, 60, 61, 62)


def counts(host: BenchHost, request: str) -> tuple[str, int, int, int, int]:
    """How a preparation ended: outcome, goal, reused, computed, wasted."""
    ended = host.ends[request]
    return ended.outcome, ended.goal, ended.reused, ended.computed, ended.wasted


def at_chunk(host: BenchHost, segments: int) -> None:
    """Run so many more segments."""
    goal = len(host.device.segments) + segments
    host.run(until=lambda: len(host.device.segments) >= goal)


def in_chunk(host: BenchHost, request: str, chunks: int, segments: int) -> None:
    """Run until a preparation has finished so many chunks, and so many segments of the next one."""
    host.run(until=lambda: len(host.progress.get(request, ())) >= chunks)
    for _ in range(segments):
        host.segment()
