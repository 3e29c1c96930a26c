"""Stop strings in a stream of text.

Rule 1: the stop string that is complete first ends the stream; of those complete at the same character, the
longest.
Rule 2: no character of it is ever handed out, so the longest ending of the text that could begin a stop
string is held back. Both rules look at characters, not at pieces, so the result is the same however the
stream was cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ...actors.errors import InvalidRequest

MAX_STOPS = 16
MAX_STOP_LENGTH = 256


def check_stops(stops: Sequence[str]) -> tuple[str, ...]:
    """Stop strings as a tuple, duplicates removed.

    Raises:
        InvalidRequest: too many, too long, empty, or not text.
    """
    if isinstance(stops, str):
        raise InvalidRequest(f"stop is the text {stops!r}; a sequence of texts is needed", field="stop", value=stops)
    if not isinstance(stops, Sequence):
        raise InvalidRequest(f"stop is {stops!r}; a sequence of texts is needed", field="stop", value=stops)
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(
            f"stop has {len(stops)} strings; at most {MAX_STOPS} are allowed", field="stop", value=len(stops)
        )
    for stop in stops:
        if not isinstance(stop, str) or not 0 < len(stop) <= MAX_STOP_LENGTH:
            raise InvalidRequest(
                f"stop has the entry {stop!r}; each must be a text of 1 to {MAX_STOP_LENGTH} characters",
                field="stop",
                value=stop,
            )
    return tuple(dict.fromkeys(stops))


@attrs.define
class StopScanner:
    """Passes text on until a stop string is complete; holds back less than the longest stop string."""

    stops: tuple[str, ...] = attrs.field(converter=check_stops)
    matched: str | None = attrs.field(init=False, default=None)
    held: str = attrs.field(init=False, default="")

    def push(self, text: str) -> tuple[str, bool]:
        """Take the next text; returns what is certain to come before any stop string, and whether one was found."""
        if self.matched is not None:
            return "", True
        text = self.held + text
        found = self._first_complete(text)
        if found is not None:
            start, self.matched = found
            self.held = ""
            return text[:start], True
        keep = self._possible_start(text)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """The stream has ended without a stop string: the text that was held back."""
        text, self.held = self.held, ""
        return text

    def _first_complete(self, text: str) -> tuple[int, str] | None:
        found = [(at + len(stop), at, stop) for stop in self.stops if (at := text.find(stop)) >= 0]
        if not found:
            return None
        _, start, stop = min(found)
        return start, stop

    def _possible_start(self, text: str) -> int:
        """Length of the longest ending of ``text`` that begins a stop string."""
        longest = max(map(len, self.stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            ending = text[len(text) - size :]
            if any(stop.startswith(ending) for stop in self.stops):
                return size
        return 0
