"""Workload events: what was asked of the scheduler, and when. A replay submits them again."""

from __future__ import annotations

import attrs

from .fields import CLASSES, FILES, one_of


@attrs.frozen
class Content:
    """A token sequence: its length and, block by block, which content it has.

    ``blocks`` are numbers of blocks of the header's ``block_size`` tokens, the last one maybe shorter, given in order
    of first appearance or, in scope ``source``, any from 1; equal numbers mean equal tokens after an equal head, and
    as many of them. ``shares`` has ``(block, other,
    tokens)`` for a new block that begins with the same ``tokens`` tokens as an earlier one after the same head.
    ``ids`` are the tokens, when the header's content level is ``tokens``.
    """

    tokens: int
    blocks: tuple[int, ...]
    shares: tuple[tuple[int, int, int], ...] = ()
    ids: tuple[int, ...] | None = None

    def __attrs_post_init__(self) -> None:
        if self.ids is not None and len(self.ids) != self.tokens:
            raise ValueError(f"{len(self.ids)} ids are given for {self.tokens} tokens")


@attrs.frozen
class ArriveGeneration:
    """A generation request. ``deadline_ns`` counts from the arrival.

    ``after`` names an earlier request whose end led to this one, ``think_ns`` later; without ``think_ns`` that end
    was not seen before the arrival, and the request stands on its own. ``expected`` are the tokens that the request
    generated at its source, where that is known when it arrives: a replay stops there.
    """

    at: int
    request: str
    work_class: str = attrs.field(validator=one_of(CLASSES))
    prompt: Content
    max_tokens: int
    identity: str
    retain: bool = True
    conversation: str = ""
    deadline_ns: int | None = None
    after: str | None = None
    think_ns: int | None = None
    expected: int | None = None


@attrs.frozen
class ArriveDecision:
    """A decision request; times and dependencies as in :class:`ArriveGeneration`."""

    at: int
    request: str
    instruction: Content
    rows: tuple[Content, ...]
    heads: tuple[str, ...]
    identity: str
    deadline_ns: int | None = None
    after: str | None = None
    think_ns: int | None = None


@attrs.frozen
class ArrivePreparation:
    """What is known of a prompt to come, ``standing`` tokens of it instructions and tools.

    A newer one of the same ``conversation`` supersedes it. Dependencies as in :class:`ArriveGeneration`.
    """

    at: int
    request: str
    known: Content
    standing: int
    identity: str
    conversation: str = ""
    after: str | None = None
    think_ns: int | None = None


@attrs.frozen
class ArriveCheckpoint:
    """A retained prefix is to be stored in a file, or fetched from one, of a prompt of ``tokens`` tokens.

    Files are not part of a trace, so a replay leaves this out.
    """

    at: int
    request: str
    action: str = attrs.field(validator=one_of(FILES))
    tokens: int
    identity: str


@attrs.frozen
class Pin:
    """What is retained for a conversation is kept from eviction from here on, or no longer."""

    at: int
    conversation: str
    pinned: bool = True


@attrs.frozen
class Release:
    """What is retained for a conversation is given up."""

    at: int
    conversation: str


@attrs.frozen
class CancelRequest:
    """The client gave the request up ``after_ns`` after its token number ``after_tokens`` (0: after its arrival)."""

    at: int
    request: str
    reason: str
    after_tokens: int
    after_ns: int
