"""Labs in a folder, and crews that count what they carry out and can be interrupted."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path

from coresident.traces.lab.crews import Crew, crew
from coresident.traces.lab.file import load_lab
from coresident.traces.lab.plan import plan
from coresident.traces.lab.store import Store
from coresident.traces.lab.sweep import sweep
from coresident.traces.lab.tables import csv_of, rows

SMALL = """
traces = ["chat", {file = "cancels", limit = 3}]
[policies.strict]
[policies.aging]
ordering = {name = "aging", rate = [1.0, 4.0]}
quantum = "timed"
"""


def lab_in(folder: Path, text: str = SMALL, name: str = "lab.toml"):
    """A lab file's content in a folder, read."""
    path = folder / name
    path.write_text(text)
    return load_lab(path)


class Counted:
    """A crew of this process that notes the runs it carries out; Ctrl-C comes before run number ``until``."""

    def __init__(self, until: int | None = None) -> None:
        self.ran = []
        self.crew = Crew(self._open, 1)
        self._until = until

    @contextmanager
    def _open(self, workers):
        with crew("serial").open(workers) as executor:
            yield _Counting(executor, self._note)

    def _note(self, run):
        if len(self.ran) == self._until:
            raise KeyboardInterrupt
        self.ran.append(run.id)


class _Counting(Executor):
    def __init__(self, executor, note):
        self._executor = executor
        self._note = note

    def submit(self, function, *args, **named) -> Future:
        if args:
            self._note(args[0])
        return self._executor.submit(function, *args, **named)


def swept(lab, crew, folder=None, on_progress=None):
    """All runs of a lab on a crew, and its result table as CSV."""
    runs = plan(lab)
    done = sweep(runs, Store(folder or lab.folder), crew, on_progress)
    table = rows(runs, done.results)
    return done, csv_of(list(table[0]), table)
