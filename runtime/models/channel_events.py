"""What the channel decoder says: events, its limits, and the error for output that breaks its family's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ...actors.errors import CoresidentError, InvalidRequest
from .channel_families import PROBLEMS, Kind


@attrs.frozen
class ChannelOpened:
    """A channel begins; none is open at that moment. ``recipient``: the tool, where a header names it."""

    kind: Kind
    recipient: str | None = None


@attrs.frozen
class ChannelTokens:
    """Token ids of the open channel, never markers; at least one."""

    kind: Kind
    tokens: tuple[int, ...]


@attrs.frozen
class ChannelClosed:
    """The open channel ends. ``cut``: a thought that the output's length ended, not the model."""

    kind: Kind
    cut: bool = False


ChannelEvent: TypeAlias = ChannelOpened | ChannelTokens | ChannelClosed


def _at_least(least: int) -> Callable[[object, attrs.Attribute[int], int], None]:
    def check(limits: object, field: attrs.Attribute[int], value: int) -> None:
        if type(value) is not int or value < least:
            raise InvalidRequest(
                f"{field.name} is {value!r}; an integer of at least {least} is needed", field=field.name, value=value
            )

    return check


@attrs.frozen
class ChannelLimits:
    """Bounds of one output, in tokens without markers; ``channels`` counts how many may open.

    Thoughts count together, tool calls too, and a header alone. The answer has no bound of its own: the request's
    length is one.

    Raises:
        InvalidRequest: a limit that is not an integer, or too small to mean anything.
    """

    thought_tokens: int = attrs.field(default=32_768, validator=_at_least(0))
    tool_call_tokens: int = attrs.field(default=8_192, validator=_at_least(0))
    header_tokens: int = attrs.field(default=64, validator=_at_least(1))
    channels: int = attrs.field(default=256, validator=_at_least(1))


class MalformedChannels(CoresidentError):
    """The model's output breaks the rules of its marker family: discard it or generate again; no request is at fault.

    ``details``: ``problem`` (a key of ``PROBLEMS``), ``family``, ``position`` (index from 0 of the token at which it
    showed: of a marker its first), ``found``, ``open_channel``, and ``limit`` where one was exceeded. ``events``: what
    the failing call had decoded before; it is not part of the error's identity.
    """

    def __init__(
        self,
        problem: str,
        family: str,
        position: int,
        found: str,
        open_channel: str | None,
        limit: int | None = None,
        events: tuple[ChannelEvent, ...] = (),
    ) -> None:
        bound = "" if limit is None else f" (limit {limit})"
        super().__init__(
            f"{family} channels: {PROBLEMS[problem]}{bound}: found {found} at token {position} while "
            f"{open_channel or 'no channel'} was open; discard this output and generate again",
            problem=problem,
            family=family,
            position=position,
            found=found,
            open_channel=open_channel,
            limit=limit,
        )
        self.events = events
