"""The lines that a delivery leads to now, against those that are in the trace: differences in words.

Lines of the workload are left out, since messages are made of them; so are times of tokens, which the device told and
no message did, and everything about the content of sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import attrs

from ...runtime.host.observers import Delivery
from ..events_schedule import EndGeneration, PolicyFaulted, Tokens
from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, CancelRequest, Content, Pin, Release
from ..format import Event
from ..translate import Translator
from .words import event_words

_LEFT_OUT = (ArriveGeneration, ArriveDecision, ArrivePreparation, CancelRequest, Pin, Release, Tokens)


class _NoBlocks:
    """Contents without blocks: only lengths."""

    def describe(self, tokens: Sequence[int], ids: bool = False) -> Content:
        return Content(len(tokens), ())

    def trim(self) -> None:
        return


class Derived:
    """Translates deliveries as the recorder did. ``recorded`` and ``now`` are the latest compared lines, in words."""

    def __init__(self) -> None:
        self._translator = Translator(blocks=_NoBlocks())
        self._latest: tuple[list[Event], list[Event]] = ([], [])

    @property
    def recorded(self) -> tuple[str, ...]:
        return tuple(map(event_words, self._latest[0]))

    @property
    def now(self) -> tuple[str, ...]:
        return tuple(map(event_words, self._latest[1]))

    def begin(self, events: Iterable[Event]) -> None:
        """The lines of the next delivery; now there are none yet."""
        self._latest = _compared(events), []

    def difference(self, delivery: Delivery) -> str | None:
        """What the first difference is; ``None`` when there is none."""
        self._latest[1].extend(_compared(self._translator.delivery(delivery)))
        for one, other in zip_longest(*self._latest):
            if one != other:
                was = "nothing" if one is None else event_words(one)
                return f"recorded was {was}; now it is {'nothing' if other is None else event_words(other)}"
        return None


def _compared(events: Iterable[Event]) -> list[Event]:
    return [_plain(event) for event in events if not isinstance(event, _LEFT_OUT)]


def _plain(event: Event) -> Event:
    if isinstance(event, EndGeneration):
        return attrs.evolve(event, whole=None, output=None)
    if isinstance(event, PolicyFaulted):
        # What a policy raised is told in its own words, which may name addresses.
        return attrs.evolve(event, error="")
    return event
