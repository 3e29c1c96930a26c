"""How often work gave way, to whom, and what was lost by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .gather import Run
from .tables import Table, WordsRow, table_of
from .words import count, duration, share

_LOST = {
    "withdrawn": "steps withdrawn for a cancel",
    "dropped": "suspended steps dropped for memory",
    "failed": "steps that failed",
}


def preemption_table(runs: Sequence[Run]) -> Table | None:
    """How often work gave way and what was lost; ``None`` where nothing did and nothing was."""
    if not any(run.device.yields or run.device.drops or run.occupancy.given_up for run in runs):
        return None
    rows: list[WordsRow] = [
        ("told to give way", lambda run: f"{run.device.yields:,} of {count(run.occupancy.count, 'grant')}"),
        ("of these suspended, to go on later", lambda run: f"{run.device.suspensions:,}"),
        ("gave way within, p50", lambda run: duration(run.occupancy.gave_way.percentile(500))),
        ("gave way within, worst", lambda run: duration(run.occupancy.gave_way.percentile(1000))),
        ("longest segment", _longest),
        *((f"device time of {what}", _given_up(how)) for how, what in _LOST.items()),
        ("prepared tokens wasted", _wasted),
    ]
    return table_of("preemption and waste", runs, rows)


def interruption_table(runs: Sequence[Run]) -> Table | None:
    """Who gave way to whom, how often."""
    pairs = sorted({pair for run in runs for pair in run.occupancy.interruptions})
    rows = [(f"{who}, for {whom}", _interruptions((who, whom))) for who, whom in pairs]
    return table_of("who gave way, and for whom", runs, rows) if rows else None


def _interruptions(pair: tuple[str, str]) -> Callable[[Run], str]:
    return lambda run: f"{run.occupancy.interruptions[pair]:,}"


def _longest(run: Run) -> str:
    return f"{duration(run.device.longest_segment_ns)} (wanted: {run.header.device.yield_ms} ms)"


def _given_up(how: str) -> Callable[[Run], str]:
    def words(run: Run) -> str:
        ns = run.occupancy.given_up[how]
        return f"{duration(ns)} ({share(ns / max(1, run.device.busy_ns))})" if ns else "none"

    return words


def _wasted(run: Run) -> str:
    preparation = run.statistics.preparation
    return "no preparation" if preparation is None else f"{preparation.wasted:,} of {preparation.computed:,}"
