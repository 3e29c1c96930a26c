"""Writing results: the table as CSV or Parquet, and beside it what depends on the machine."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from ...actors.errors import InvalidRequest
from ..fields import CLASSES
from .columns import COLUMNS, Entry, Value
from .plan import Run
from .store import replacing

Row: TypeAlias = dict[str, Value]
TABLE = "results"
TIMING = "timing.csv"


def rows(runs: Sequence[Run], results: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """The table's rows: by run in the plan's order, then by class from the most urgent one."""
    return [
        {column.name: column.value(entry) for column in COLUMNS} for run in runs for entry in _entries(run, results)
    ]


def _entries(run: Run, results: Mapping[str, Mapping[str, Any]]) -> list[Entry]:
    result = results[run.id]
    if result["error"] is not None:
        return [Entry(run, result)]
    classes: Mapping[str, Mapping[str, Any]] = result["statistics"]["classes"]
    return [Entry(run, result, name, classes[name]) for name in CLASSES if name in classes]


def check_format(form: str) -> None:
    """Raises ``InvalidRequest`` when the package that writes a format is not installed."""
    if form == "parquet":
        _arrow()


def write_table(folder: Path, form: str, table: Sequence[Row]) -> Path:
    """Write ``results.csv`` or ``results.parquet``; its path. Raises ``OSError``."""
    path = folder / f"{TABLE}.{form}"
    with replacing(path) as part:
        if form == "parquet":
            _write_parquet(part, table)
        else:
            part.write_bytes(csv_of([column.name for column in COLUMNS], table))
    return path


def write_timing(folder: Path, runs: Sequence[Run], results: Mapping[str, Mapping[str, Any]]) -> None:
    """Write ``timing.csv``: the CPU time of each run where it was carried out, and grants a second of it."""
    done = {run.id: results[run.id] for run in runs}
    lines: list[Row] = [
        {"run": id, "cpu_ns": result["cpu_ns"], "steps_per_cpu_s": _rate(result)} for id, result in done.items()
    ]
    with replacing(folder / TIMING) as part:
        part.write_bytes(csv_of(["run", "cpu_ns", "steps_per_cpu_s"], lines))


def csv_of(names: Sequence[str], table: Sequence[Row]) -> bytes:
    """CSV with a line of names; floats with all their digits."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue().encode()


def _rate(result: Mapping[str, Any]) -> float | None:
    steps = result.get("steps")
    return steps * 1e9 / result["cpu_ns"] if steps and result["cpu_ns"] else None


def _arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InvalidRequest(
            "results as Parquet need the package pyarrow: install coresident[lab], or take the format 'csv'"
        ) from error


def _write_parquet(path: Path, table: Sequence[Row]) -> None:
    arrow, parquet = _arrow()
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    fields = [arrow.field(c.name, types[c.kind], metadata={"about": c.about}) for c in COLUMNS]
    schema = arrow.schema(fields)
    parquet.write_table(arrow.Table.from_pylist(list(table), schema=schema), path)
