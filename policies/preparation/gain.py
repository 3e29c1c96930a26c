"""Prepare when it is expected to save time.

What preparing now saves is at most the device time of what is left, ``cost``, and no more than the time until the next
request comes: for that the latest quiet times (``thinks``) stand, those aside that have gone by. A request that comes
while a preparation is at work waits for its segment, ``delay``. Tokens that earlier preparations wasted tell how much
of this one may be in vain. With ``p`` the share of their tokens that was not wasted:

    gain = (p - (1 - p)) * mean(min(cost, rest)) - share(rest < cost) * delay

over the ``rest`` of each think that is longer than the quiet has lasted; when there is none, nobody is expected, and
``rest`` is ``cost``. Preparation begins when the gain is not negative: now, or at the end of the next think that makes
it so. An agent's short pauses are thus left alone, and a person's long ones are used.

Bound: it waits while other requests are open, and begins at the latest ``patience`` after the last of them has ended:
late, but never refused. Where nothing is known (no thinks, nothing measured, nothing wasted) it begins at once.
"""

from __future__ import annotations

from typing import Any

from ..parameters import number
from ..views import Preparation, PreparationView

_MS = 1_000_000


def gain(delay_ms: float = 25, patience_ms: float = 5000) -> Preparation:
    """Weigh a delay of ``delay_ms`` (0 to 60,000) against what is saved, for ``patience_ms`` (0 to 3,600,000)."""
    delay = number("gain", "delay_ms", delay_ms, 0, 60_000) * _MS
    patience = round(number("gain", "patience_ms", patience_ms, 0, 3_600_000) * _MS)

    def decide(view: PreparationView, memory: Any) -> tuple[int | None, Any]:
        if view.open:
            return None, memory
        last = max(view.at, view.quiet_since + patience)
        ends = sorted(view.quiet_since + think for think in view.thinks if view.quiet_since + think > view.at)
        for when in (view.at, *ends):
            if when >= last or _gain(view, when, delay) >= 0:
                return min(when, last), memory
        return last, memory

    return decide


def _gain(view: PreparationView, when: int, delay: float) -> float:
    """Expected nanoseconds saved by beginning then."""
    quiet = when - view.quiet_since
    rests = [think - quiet for think in view.thinks if think > quiet] or [view.cost_ns]
    saved = sum(min(view.cost_ns, rest) for rest in rests) / len(rests)
    interrupted = sum(rest < view.cost_ns for rest in rests) / len(rests)
    kept = 1 - view.wasted / view.computed if view.computed else 1.0
    return (2 * kept - 1) * saved - interrupted * delay
