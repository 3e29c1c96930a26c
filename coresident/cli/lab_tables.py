"""A sweep's results on a terminal: for each trace, device and class of work, the policies beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from ..traces.lab.tables import Row
from .wording import shown, table_of

REUSED = "reused"
_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))
_SMALLEST = 0.01
_ENDS = ("cancelled", "abstained", "failed", "refused", "open")
_WAIT = {"queue_wait": "wait"}
_STREAMED = {**_WAIT, "first_token": "first token", "token_gap": "gap"}
_TIMES = {"decision": {**_WAIT, "latency": "latency"}, "preparation": _WAIT}


@attrs.frozen
class Cell:
    """The rows of one policy, a row for each seed."""

    rows: tuple[Row, ...]

    def numbers(self, name: str) -> list[float]:
        """The values of a column, without the rows that have none."""
        return [value for row in self.rows if isinstance(value := row[name], int | float)]

    def time(self, name: str, figure: str) -> float | None:
        """Of several seeds the median of the medians, and the worst of anything else."""
        values = self.numbers(f"{name}_{figure}_ns")
        return (median(values) if figure == "p50" else max(values)) if values else None

    def total(self, name: str) -> int:
        return round(sum(self.numbers(name)))

    def middle(self, name: str) -> float | None:
        values = self.numbers(name)
        return median(values) if values else None


@attrs.frozen
class _Head:
    """A column: one figure or several of each cell, how they are written, and which is best (``None``: no matter)."""

    name: str
    values: Callable[[Cell], Sequence[float | None]]
    words: Callable[[Sequence[float]], Sequence[str]]
    best: Callable[..., float] | None = None
    unit: Callable[[Sequence[float]], str] = lambda _: ""


@attrs.frozen
class Block:
    """One trace, device and class: ``wide`` is the table with the 99th percentiles, ``narrow`` the one without."""

    title: str
    wide: Table
    narrow: Table
    notes: tuple[str, ...]


def comparison(table: Sequence[Row]) -> Iterator[Block]:
    """What did not fail. Of several seeds counts are added up; times are as :meth:`Cell.time` says."""
    places: dict[tuple[str, str], dict[str, dict[str, list[Row]]]] = {}
    for row in table:
        if row["error"] is None:
            place = places.setdefault((shown(str(row["trace"])), shown(str(row["device"]))), {})
            place.setdefault(str(row["work_class"]), {}).setdefault(shown(str(row["policy"])), []).append(row)
    for (trace, device), classes in places.items():
        same = _alike(classes)
        for work_class, policies in classes.items():
            cells = {policy: Cell(tuple(rows)) for policy, rows in policies.items()}
            seeds = max(len(cell.rows) for cell in cells.values())
            over = f", over {seeds} seeds: counts added up, median p50, worst of the rest" if seeds > 1 else ""
            last = work_class == next(reversed(classes))
            notes = (*_reasons(cells), *(same if last else ()))
            wide, narrow = (_table(work_class, cells, figures) for figures in (("p50", "p99", "max"), ("p50", "max")))
            yield Block(f"{work_class}, {trace} on {device}{over}", wide, narrow, notes)


_NAMES = {"run", "policy", "digest", "ordering", "quantum", "retention", "abstention", "preparation"}


def _alike(classes: Mapping[str, Mapping[str, Sequence[Row]]]) -> tuple[str, ...]:
    """Policies with the same figures in every class and for every seed."""
    figures: dict[str, list[Any]] = {}
    for policies in classes.values():
        for policy, rows in policies.items():
            figures.setdefault(policy, []).extend(
                [[value for name, value in row.items() if name not in _NAMES] for row in rows]
            )
    groups: dict[str, list[str]] = {}
    for policy, values in figures.items():
        groups.setdefault(repr(values), []).append(policy)
    return tuple(
        f"{', '.join(group)}: the same figures: nothing in this trace tells them apart"
        for group in groups.values()
        if len(group) > 1
    )


def _reasons(cells: Mapping[str, Cell]) -> Iterator[str]:
    """Why requests abstained, failed or were refused; policies with the same reasons in one line."""
    groups: dict[str, list[str]] = {}
    for policy, cell in cells.items():
        told = [f"seed {row['seed']}: {row['reasons']}" for row in cell.rows if row["reasons"]]
        if told:
            words = "; ".join(told) if len(cell.rows) > 1 else told[0].partition(": ")[2]
            groups.setdefault(words, []).append(policy)
    yield from (f"{', '.join(policies)}: {shown(words)}" for words, policies in groups.items())


def _table(work_class: str, cells: Mapping[str, Cell], figures: Sequence[str]) -> Table:
    """Ends other than completion, and reuse, have a column where there is any."""
    heads = [_DONE]
    ends = [end for end in _ENDS if any(cell.total(end) for cell in cells.values())]
    heads += [_count(end, end, None if end == "cancelled" else min) for end in ends]
    heads += [_times(name, words, figures) for name, words in _TIMES.get(work_class, _STREAMED).items()]
    more = () if work_class == "decision" else _PREPARED if work_class == "preparation" else _TOKENS
    reused = any(cell.total("reused_tokens") for cell in cells.values())
    heads += [head for head in more if reused or head.name != REUSED]
    made = table_of("", "policy", *(f">{head.name}" for head in heads))
    made.columns[0].no_wrap = True
    columns = [_column(head, list(cells.values())) for head in heads]
    for policy, *texts in zip(cells, *columns, strict=True):
        made.add_row(policy, *texts)
    return made


def _column(head: _Head, cells: Sequence[Cell]) -> list[Text]:
    """The cells, with what is best of each figure in bold, unless all are as good."""
    values = [head.values(cell) for cell in cells]
    bests = [_best(head, [value for value in figures if value is not None]) for figures in zip(*values, strict=True)]
    texts = []
    for given in values:
        known = [value for value in given if value is not None]
        if len(known) < len(given):
            texts.append(Text("-"))
            continue
        parts = zip(head.words(known), known, bests, strict=True)
        pieces = [Text(word, style="bold" if value == best else "") for word, value, best in parts]
        texts.append(Text("/").join(pieces).append(head.unit(known)))
    return texts


def _best(head: _Head, values: Sequence[float]) -> float | None:
    return head.best(values) if head.best is not None and len(set(values)) > 1 else None


def _times(name: str, words: str, figures: Sequence[str]) -> _Head:
    return _Head(
        f"{words}\n{'/'.join(figures)}", lambda cell: [cell.time(name, f) for f in figures], _scaled, min, _unit_of
    )


def _fitting(times: Sequence[float]) -> tuple[str, float]:
    """The largest unit of all in which the smallest time that isn't none is still a figure."""
    least, most = min((time for time in times if time), default=0), max(times)
    fitting = (unit for unit in _UNITS if most >= unit[1] and least >= _SMALLEST * unit[1])
    return next(fitting, _UNITS[-1])


def _unit_of(times: Sequence[float]) -> str:
    return f" {_fitting(times)[0]}"


def _scaled(times: Sequence[float]) -> list[str]:
    values = [time / _fitting(times)[1] for time in times]
    return [f"{v:,.0f}" if v >= 9.95 or not v else f"{v:.1f}" if v >= 0.995 else f"{v:.2f}" for v in values]


def _count(name: str, column: str, best: Callable[..., float] | None) -> _Head:
    return _Head(name, lambda cell: [cell.total(column)], lambda values: [f"{value:,}" for value in values], best)


def _middle(name: str, column: str, form: str) -> _Head:
    return _Head(name, lambda cell: [cell.middle(column)], lambda values: [format(v, form) for v in values], max)


_DONE = _Head(
    "done",
    lambda cell: [cell.total("completed"), cell.total("requests")],
    lambda values: [f"{value:,}" for value in values],
    max,
)
_TOKENS = (_middle("tok/s", "tokens_per_s", ".1f"), _middle(REUSED, "reuse_share", ".0%"))
_PREPARED = (
    _count("computed", "preparation_computed_tokens", None),
    _count("used", "preparation_used_tokens", max),
    _count("wasted", "preparation_wasted_tokens", min),
)
