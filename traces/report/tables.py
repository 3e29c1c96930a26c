"""Tables as data, and the comparison of runs: a table per class, a column per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from ..fields import CLASSES
from ..quantiles import Spread
from ..statistics import ClassStatistics
from .gather import Run
from .latency import LATENCY
from .words import duration, shown

ALIKE = 5
"""Percent by which figures differ that are still called as good as each other."""

_TIMES, _PART = "\N{MULTIPLICATION SIGN}", "\N{DIVISION SIGN}"
_MINUS = "\N{MINUS SIGN}"

WordsRow: TypeAlias = tuple[str, Callable[[Run], str]]


@attrs.frozen
class Cell:
    """``note`` is how it compares with the first run's.

    ``best`` marks the best of a row and what is within ``ALIKE`` percent of it, where another is not.
    """

    text: str
    note: str = ""
    best: bool = False


@attrs.frozen
class Table:
    """``rows`` are names with their cells, one for each of ``columns``."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@attrs.frozen
class _Figure:
    """A row: a number of each run, how it is shown, and whether less of it is better."""

    name: str
    of: Callable[[Run], float | None]
    words: Callable[[float], str]
    less: bool | None = True


def comparison(runs: Sequence[Run]) -> list[tuple[str, Table]]:
    """Each class that any run had, with its table."""
    columns = tuple(run.label for run in runs)
    tables = []
    for work_class in CLASSES:
        if any(work_class in run.statistics.classes for run in runs):
            figures = _figures(work_class, same_requests(runs, work_class))
            rows = tuple(row for figure in figures if (row := _row(figure, runs)) is not None)
            tables.append((work_class, Table(work_class, columns, (*rows, _ends(work_class, runs)))))
    return tables


def table_of(caption: str, runs: Sequence[Run], rows: Sequence[WordsRow]) -> Table:
    """A table of words: each row is a name and what is said of a run."""
    cells = tuple((name, tuple(Cell(words(run)) for run in runs)) for name, words in rows)
    return Table(caption, tuple(run.label for run in runs), cells)


def compared(values: Sequence[float | None]) -> list[str]:
    """How each value compares with the first, as :func:`relation` has it."""
    first = values[0] if values else None
    return ["" if index == 0 else relation(first, value) for index, value in enumerate(values)]


def relation(before: float | None, now: float | None) -> str:
    """One value against another: ``+12 %``, how many times as much or what part, or nothing where it is the same."""
    if not before or now is None:
        return ""
    ratio = now / before
    if ratio >= 9.95:
        return f"{_TIMES} {ratio:,.0f}"
    if ratio >= 2:
        return f"{_TIMES} {ratio:.1f}"
    if 0 < ratio <= 1 / 9.95:
        return f"{_PART} {1 / ratio:,.0f}"
    change = round((ratio - 1) * 100)
    return f"{'+' if change > 0 else _MINUS}{abs(change)} %" if change else ""


def same_requests(runs: Sequence[Run], work_class: str) -> bool:
    """Whether all runs had as many requests of a class."""
    entries = [run.statistics.classes.get(work_class) for run in runs]
    return len({0 if entry is None else entry.requests for entry in entries}) == 1


def _figures(work_class: str, same: bool) -> list[_Figure]:
    """The rows of a class; how many completed is judged where all runs had the same requests."""

    def of(read: Callable[[ClassStatistics], float | None]) -> Callable[[Run], float | None]:
        def read_run(run: Run) -> float | None:
            entry = run.statistics.classes.get(work_class)
            return None if entry is None else read(entry)

        return read_run

    def latency(permille: int) -> Callable[[Run], float | None]:
        return lambda run: LATENCY.of(run, work_class).percentile(permille)

    return [
        _Figure("requests", of(lambda entry: entry.requests), _whole, None),
        _Figure("completed", of(lambda entry: entry.completed), _whole, False if same else None),
        *_spread("queue wait", of, lambda entry: entry.queue_wait, worst=True),
        *_spread("first token", of, lambda entry: entry.first_token),
        *_spread("gap between tokens", of, lambda entry: entry.gaps),
        _Figure("arrival to end, p50", latency(500), _time),
        _Figure("arrival to end, p99", latency(990), _time),
        _Figure("arrival to end, worst", latency(1000), _time),
        _Figure("tokens/s while streaming", of(lambda entry: entry.decode_rate), _rate, False),
        _Figure("tokens/s over the run", of(lambda entry: entry.rate), _rate, False),
        _Figure("prompt tokens reused", of(_reuse), _percent, False),
    ]


def _spread(
    name: str,
    of: Callable[[Callable[[ClassStatistics], float | None]], Callable[[Run], float | None]],
    spread: Callable[[ClassStatistics], Spread],
    worst: bool = False,
) -> list[_Figure]:
    figures = [
        _Figure(f"{name}, p50", of(lambda entry: spread(entry).p50), _time),
        _Figure(f"{name}, p99", of(lambda entry: spread(entry).p99), _time),
    ]
    return [*figures, _Figure(f"{name}, worst", of(lambda entry: spread(entry).max), _time)] if worst else figures


def _row(figure: _Figure, runs: Sequence[Run]) -> tuple[str, tuple[Cell, ...]] | None:
    values = [figure.of(run) for run in runs]
    known = [value for value in values if value is not None]
    if not known:
        return None
    good = set() if figure.less is None else as_good(known, figure.less)
    notes = [""] * len(values) if figure.less is None else compared(values)
    cells = (
        Cell("-") if value is None else Cell(figure.words(value), note, value in good)
        for value, note in zip(values, notes, strict=True)
    )
    return figure.name, tuple(cells)


def as_good(known: Sequence[float], less: bool) -> set[float]:
    """The best of the values, the least of them or the most, and those within ``ALIKE`` percent; none where all are."""
    margin = 1 + ALIKE / 100
    if less:
        good = {value for value in known if value <= min(known) * margin}
    else:
        good = {value for value in known if value * margin >= max(known)}
    return good if good != set(known) else set()


def _ends(work_class: str, runs: Sequence[Run]) -> tuple[str, tuple[Cell, ...]]:
    entries = [run.statistics.classes.get(work_class) for run in runs]
    return "not completed", tuple(Cell("-" if entry is None else not_completed(entry)) for entry in entries)


def not_completed(entry: ClassStatistics) -> str:
    """How those ended that did not complete, with reasons: ``2 refused (ContextExceeded 2)``, or ``none``."""
    parts = [f"{entry.cancelled} cancelled"] if entry.cancelled else []
    for word, counts in (("abstained", entry.abstained), ("refused", entry.refused), ("failed", entry.failed)):
        if counts:
            reasons = ", ".join(f"{shown(reason)} {count}" for reason, count in counts.items())
            parts.append(f"{sum(counts.values())} {word} ({reasons})")
    if entry.open:
        parts.append(f"{entry.open} open at the end")
    return ", ".join(parts) or "none"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _time(value: float) -> str:
    return duration(round(value))


def _rate(value: float) -> str:
    return f"{value:,.1f}"


def _percent(value: float) -> str:
    return f"{value:.0%}".replace("%", " %")


def _reuse(entry: ClassStatistics) -> float | None:
    return entry.reuse_share
