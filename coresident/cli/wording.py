"""Figures for people: sizes, durations and shares. Machines get integers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from ..traces.report.words import duration as duration
from ..traces.report.words import shown as shown
from ..traces.report.words import size as size


class Screen(Console):
    """A console that lets a closed pipe end the command instead of the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the reader of the output went away")


def screen() -> Screen:
    """The console on stdout. Text is shown as it is: no markup, no emoji codes, no guessed highlights."""
    return Screen(highlight=False, markup=False, emoji=False)


def percentile(values: Sequence[int], share: float) -> int | None:
    """The nearest-rank percentile; ``None`` of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def table_of(title: str, *columns: str) -> Table:
    """An empty table; columns whose name begins with ``>`` hold figures."""
    table = Table(title=title, title_justify="left", title_style="dim", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def print_json(body: Mapping[str, Any]) -> None:
    """One JSON object on stdout, attrs classes as objects."""
    print(json.dumps(body, default=_plain, indent=2, ensure_ascii=False))


def _plain(value: object) -> object:
    if attrs.has(type(value)):
        return attrs.asdict(value, recurse=False)  # type: ignore[arg-type]
    return str(value)
