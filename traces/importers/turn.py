"""What an importer makes of one request of its source, before it becomes events."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from ...actors.errors import TraceInvalid
from ..events_workload import Content


@attrs.frozen
class End:
    """When the source saw a request end, and how it stopped; ``first`` is when its first token came, if known (ns)."""

    at: int
    first: int | None = None
    reason: str = "length"


@attrs.frozen
class Turn:
    """One request. ``at`` is nanoseconds on the source's own clock.

    ``output`` tokens were generated; none means that it failed. ``key`` is how later turns name it in ``after``.
    ``known`` is the head of it that the next turn of its conversation begins with, ``standing`` tokens of that are
    instructions and tools. ``invalid`` makes an error that names its place in the source.
    """

    at: int
    prompt: Content
    output: int
    identity: str
    invalid: Callable[[str], TraceInvalid]
    conversation: str = ""
    key: str = ""
    after: str = ""
    end: End | None = None
    known: Content | None = None
    standing: int = 0


@attrs.frozen
class Settings:
    """What an import was asked for.

    ``limit`` takes the first so many requests. ``seed`` draws everything that is drawn. A share ``decisions`` of the
    requests become decisions; ``decide_before_turns`` puts one in front of every turn; ``prepare`` prepares, when a
    turn has ended, what the next one begins with. ``open_loop`` keeps recorded times where turns would follow ends.
    ``block_size`` in tokens is the format's own unless it is given. Where the source tells no content, all prompts
    begin with the same ``shared_head`` tokens. Sessions of a folder start ``spacing_s`` seconds after each other.
    """

    limit: int | None = None
    seed: int = 0
    decisions: float = 0.0
    decide_before_turns: bool = False
    prepare: bool = False
    open_loop: bool = False
    block_size: int | None = None
    shared_head: int = 0
    spacing_s: float = 0.0


@attrs.frozen
class Opened:
    """A source, opened: the size of its blocks, its turns in order of time, and how many bytes of it were read."""

    block_size: int
    turns: Iterator[Turn]
    position: Callable[[], int]
    size: int
