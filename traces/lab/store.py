"""Results on disk: one file for each run, whole or not there.

A file is written beside its place and moved into it, so that a kill at any time leaves no half of one. It holds the
SHA-256 of its result, so a file that was damaged later is known as such, and its run is done again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...actors.errors import CoresidentError, InvalidRequest
from .identity import digest_of
from .plan import Run

SCHEMA = "coresident.lab.result"
VERSION = 1


class NotKept(CoresidentError):
    """A file of the results could not be written, so the sweep has stopped. Whoever runs it makes room."""


@contextmanager
def keeping(folder: Path, done: int, total: int) -> Iterator[None]:
    """Raises ``NotKept`` for an ``OSError`` in the block, with how many runs of the ``total`` are ``done``."""
    try:
        yield
    except OSError as error:
        path, reason = error.filename2 or error.filename or folder, error.strerror or str(error)
        raise NotKept(
            f"{path} can't be written: {reason}; {done} of {total} runs are done and kept in {folder}. "
            "Make room, and give the same command again: it goes on from there",
            file=str(path),
            kept=done,
            total=total,
        ) from error


class Store:
    """The results of a folder. ``damaged`` names the files that were there and could not be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: list[Path] = []
        try:
            (folder / "runs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequest(
                f"results can't be kept in {folder}: {error.strerror or error}; name another output.folder",
                folder=str(folder),
            ) from error

    def path(self, run: Run) -> Path:
        """The file of a run's result."""
        return self.folder / "runs" / f"{run.id}.json"

    def load(self, run: Run) -> dict[str, Any] | None:
        """The result of a run that is done; ``None`` when it has to be carried out.

        A run that failed is tried again, and so is one whose trace was to be recorded and is not there.
        """
        path = self.path(run)
        if not path.exists():
            return None
        result = _whole(path, run)
        if result is None:
            self.damaged.append(path)
            return None
        recorded = run.record is None or run.record.is_file()
        return result if result["error"] is None and recorded else None

    def save(self, run: Run, result: Mapping[str, Any]) -> None:
        """Keep the result of a run, or the error that ended it."""
        about = {"trace": str(run.path), "policy": run.policy, "device": run.device, "seed": run.seed}
        data = {"schema": SCHEMA, "version": VERSION, "about": about, "sha256": digest_of(result), "result": result}
        with replacing(self.path(run)) as part:
            part.write_text(json.dumps(data, indent=1, ensure_ascii=False, default=str), encoding="utf-8")


def _whole(path: Path, run: Run) -> dict[str, Any] | None:
    """The result in a file; ``None`` when that isn't what was written for the run."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or (data.get("schema"), data.get("version")) != (SCHEMA, VERSION):
        return None
    result = data.get("result")
    whole = isinstance(result, dict) and result.get("run") == run.id and data.get("sha256") == digest_of(result)
    return result if whole else None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of ``path`` when the block ends well, and is gone when it doesn't."""
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            # What a write to an open file fails with has no name.
            error.filename = str(path)
        raise
