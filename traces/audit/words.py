"""What an actor wanted done, in words that a person can compare: only the fields that say something."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from ...actors.effects import Effect, Notify, Report, Send
from ...actors.errors import CoresidentError
from ..events_schedule import Grant, Step, Tokens
from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from ..format import EVENTS, Event

_NAMES = {cls: name for name, cls in EVENTS.items()}
_MANY = 8


def effect_words(effect: Effect) -> str:
    """One effect."""
    match effect:
        case Send(to, message):
            return f"send {to}: {words(message)}"
        case Notify(event):
            return f"tell the client: {words(event)}"
        case Report(event):
            return f"report: {words(event)}"
        case _:
            return words(effect)


def event_words(event: Event) -> str:
    """One line of a trace."""
    match event:
        case Grant():
            served = ", ".join(event.requests) or event.owner
            shape = "" if event.tokens is None else f", {event.rows} x {event.tokens} tokens up to {event.context}"
            resumed = ", resumed" if event.resumed else ""
            charge = f", charged {event.charge} bytes, waited {event.waited_ns} ns"
            return f"grant {event.grant} of step {event.step} ({event.kind} for {served}{shape}{charge}{resumed})"
        case Step():
            return f"grant {event.grant} of step {event.step} {event.outcome}"
        case ArriveGeneration() | ArriveDecision() | ArrivePreparation():
            return f"{_NAMES[type(event)]} of {event.request}"
        case Tokens():
            return f"{len(event.gaps_ns)} tokens of {event.request}"
        case _:
            return f"{_NAMES[type(event)]} {_fields(event)}"


def words(value: Any) -> str:
    """A value: classes by their names and the fields that aren't at their default, long sequences by their length."""
    if isinstance(value, CoresidentError):
        return type(value).__name__
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, tuple):
        if len(value) > _MANY:
            return f"<{len(value)} of them>"
        return f"[{', '.join(words(item) for item in value)}]"
    if attrs.has(type(value)):
        return f"{type(value).__name__}({_fields(value)})"
    return repr(value)


def _fields(value: Any) -> str:
    told = ((field, getattr(value, field.name)) for field in attrs.fields(type(value)))
    return ", ".join(f"{f.name}={words(v)}" for f, v in told if f.default is attrs.NOTHING or v != f.default)
