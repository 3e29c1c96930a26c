"""Writing a trace: lines in batches, and a last line that says what came before it.

A batch is in the file whole or not at all: :meth:`TraceWriter.seal` cuts what a failed write left of one. A recorder
of a live run and an importer write through this.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Protocol

from .codec import encode
from .format import EndOfTrace, Event
from .header import Header

_BATCH = 64 * 1024


class TraceFile(Protocol):
    """What a trace is written to: an unbuffered binary file that can be cut."""

    def write(self, data: Any, /) -> int | None: ...

    def seek(self, offset: int, /) -> int: ...

    def truncate(self, size: int | None = None, /) -> int: ...

    def close(self) -> None: ...


class TraceWriter:
    """Writes one trace. Its methods raise the ``OSError`` of the file; ``events`` are those in the file."""

    def __init__(self, file: TraceFile, header: Header) -> None:
        self.events = 0
        self._file = file
        self._digest = hashlib.sha256()
        self._batch: list[bytes] = []
        self._size = 0
        self._offset = 0
        self._write(encode(header))

    def add(self, event: Event) -> None:
        """Take an event; it is in the file when its batch is full, or after :meth:`flush`."""
        line = encode(event)
        self._batch.append(line)
        self._size += len(line)
        if self._size >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what was taken."""
        self._write(b"".join(self._batch))
        self.events += len(self._batch)
        self.forget()

    def forget(self) -> None:
        """Give up what was taken and is not written."""
        self._batch.clear()
        self._size = 0

    def seal(self, error: str | None = None) -> None:
        """Write the last line and sync; with an ``error`` the trace is marked as not complete because of it."""
        if error is not None:
            self._file.seek(self._offset)
            self._file.truncate()
        self._write(encode(EndOfTrace(self.events, self._digest.hexdigest(), error is None, error)))
        fileno = getattr(self._file, "fileno", None)
        if fileno is not None:
            os.fsync(fileno())

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]
        self._digest.update(data)
        self._offset += len(data)
