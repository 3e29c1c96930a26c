"""The ledger over time, each part of it against its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from .charts import Chart, Layer, Tick, place, steps, time_ticks
from .gather import Run, time_axes
from .levels import RESERVED, RETAINED, WORKSPACE
from .tables import Table, WordsRow, table_of
from .words import share, size


@attrs.frozen
class _Part:
    """Bytes with a limit; ``css`` colours them."""

    key: str
    title: str
    limit: Callable[[Run], int]


PARTS = (
    _Part(RESERVED, "reserved of the partition", lambda run: run.device.partition),
    _Part(RETAINED, "retained prefixes, of their budget", lambda run: run.header.generation.retained),
    _Part(WORKSPACE, "workspace charged, of its budget", lambda run: run.header.device.workspace),
)


@attrs.frozen
class Ledger:
    """A run's charts, and what it has none of."""

    label: str
    charts: tuple[Chart, ...]
    nothing: tuple[str, ...]


def ledgers(runs: Sequence[Run]) -> list[Ledger]:
    """Those of the runs that reserved anything; the same part has the same scale in all."""
    seen = [run for run in runs if run.levels.peak(RESERVED)]
    most = {part.key: max((_most(run, part) for run in seen), default=0) for part in PARTS}
    found = []
    for run, span in zip(seen, time_axes(seen), strict=True):
        drawn = [part for part in PARTS if run.levels.peak(part.key)]
        missing = tuple(f"Nothing {part.title.split(',')[0]}." for part in PARTS if part not in drawn)
        charts = tuple(_chart(run, part, most[part.key], span) for part in drawn)
        found.append(Ledger(run.label, charts, missing))
    return found


def memory_table(runs: Sequence[Run]) -> Table:
    """Peaks of each run."""
    rows: list[WordsRow] = [
        ("partition", lambda run: size(run.device.partition)),
        ("reserved, at most", lambda run: _of(run.device.reserved, run.device.partition)),
        ("retained prefixes, at most", lambda run: _of(run.device.retained, run.header.generation.retained)),
        ("workspace charged, at most", lambda run: _of(run.device.workspace_charged, run.header.device.workspace)),
        ("workspace measured, at most", lambda run: size(run.device.workspace_measured)),
        ("steps that used more than charged", lambda run: f"{run.device.charges_exceeded:,}"),
    ]
    return table_of("peaks", runs, rows)


def _chart(run: Run, part: _Part, most: int, span: int) -> Chart:
    end = run.statistics.span_ns
    levels = run.levels.of(part.key, end)
    points = [(min(index * run.levels.width / span, 1.0), level / most) for index, level in enumerate(levels)]
    if end < span:
        points.append((end / span, 0.0))
    peak, limit = run.levels.peak(part.key), part.limit(run)
    layers = (
        Layer(f"{part.key} area", steps(points, area=True)),
        Layer("limit line", steps([(0.0, place(limit, 0, most))])),
    )
    ticks = tuple(Tick(at * 100, size(round(most * at))) for at in (0.0, 0.5, 1.0))
    summary = f"{run.label}: {part.title}, at most {size(peak)} of {size(limit)}."
    return Chart(part.title, summary, layers, time_ticks(span), ticks, "ledger")


def _most(run: Run, part: _Part) -> int:
    return max(part.limit(run), run.levels.peak(part.key))


def _of(part: int, whole: int) -> str:
    return f"{size(part)} of {size(whole)} ({share(part / whole)})" if whole else size(part)
