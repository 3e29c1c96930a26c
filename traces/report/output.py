"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...actors.errors import InvalidRequest


def check_output(path: Path, traces: Sequence[Path], what: str) -> None:
    """Raise ``InvalidRequest`` when ``what`` can't be written to a path, or would be in place of a trace."""
    folder = path.parent
    if not folder.is_dir():
        raise InvalidRequest(
            f"{what} is to be {path}, but there is no folder {folder}: make it, or name another", file=str(path)
        )
    if path.is_dir():
        raise InvalidRequest(f"{what} is to be {path}, which is a folder: name a file in it", file=str(path))
    for trace in traces:
        if path.exists() and trace.exists() and path.samefile(trace):
            raise InvalidRequest(
                f"{what} is to be {path}, which is one of the traces to read: name another file", file=str(path)
            )


@contextmanager
def written(path: Path, what: str) -> Iterator[BinaryIO]:
    """A file to write to that takes its place when the block ends without an error, and is gone otherwise.

    What is no regular file, such as a pipe, is written to as it is. Raises ``InvalidRequest`` when it can't be written.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                yield file
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"{what} can't be written to {path}: {error.strerror or error}; name a file on a disk with room, in a "
            "folder that can be written",
            file=str(path),
        ) from error
