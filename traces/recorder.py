"""The recorder: an observer that writes a trace as the run goes.

Rule 1: it never breaks the run: what goes wrong with the file ends the recording, is logged, and marks the trace as
not complete. Rule 2: lines are written in batches, at the latest when a request has ended; the file is synced when it
is closed. Rule 3: a batch is in the file whole or not at all, and the last line says what came before it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Protocol

import structlog

from ..actors.errors import InvalidRequest
from ..runtime.host.assembly import Assembly
from ..runtime.host.observers import Delivery
from .codec import encode
from .events_schedule import EndDecision, EndGeneration, EndPreparation, Refuse
from .format import EndOfTrace
from .header import LEVELS, Header, header_of
from .translate import Translator

_log = structlog.get_logger("coresident")
_BATCH = 64 * 1024


class TraceFile(Protocol):
    """What a recorder writes to: an unbuffered binary file that can be cut."""

    def write(self, data: Any, /) -> int | None: ...

    def seek(self, offset: int, /) -> int: ...

    def truncate(self, size: int | None = None, /) -> int: ...

    def close(self) -> None: ...


class Recorder:
    """Observes a host and writes its trace. Made by :meth:`open`; close it after the host has ended."""

    def __init__(self, file: TraceFile, header: Header, name: str = "trace") -> None:
        self._file = file
        self._name = name
        self._translator = Translator(ids=header.content == "tokens")
        self._digest = hashlib.sha256()
        self._batch: list[bytes] = []
        self._size = 0
        self._offset = 0
        self._events = 0
        self._error: Exception | None = None
        self._closed = False
        self._write(encode(header))

    @classmethod
    def open(cls, path: str | Path, assembly: Assembly, content: bool = False) -> Recorder:
        """Begin a trace of a run of ``assembly``, in place of a file of that name; ``content`` adds token ids.

        Raises ``InvalidRequest`` when the file cannot be written.
        """
        header = header_of(assembly, LEVELS[content])
        try:
            file = Path(path).open("wb", buffering=0)  # noqa: SIM115 - closed by close()
            try:
                return cls(file, header, str(path))
            except OSError:
                file.close()
                raise
        except OSError as error:
            raise InvalidRequest(
                f"trace {path} cannot be written: {error.strerror or error}; name a file in a folder that can",
                file=str(path),
            ) from error

    # --- the observer's side ------------------------------------------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        """Write what a delivery means. Raises ``OSError`` when the file fails: the host then drops this observer."""
        ended = False
        for event in self._translator.delivery(delivery):
            line = encode(event)
            self._batch.append(line)
            self._size += len(line)
            ended = ended or isinstance(event, EndGeneration | EndDecision | EndPreparation | Refuse)
        if ended or self._size >= _BATCH:
            self._flush()

    def token(self, request: str, index: int, at: int) -> None:
        """Note a token's time."""
        self._translator.token(request, at)

    def dropped(self, error: Exception) -> None:
        """Recording has failed: seal the trace as not complete, as far as the file still takes it."""
        self._error = error
        self._batch.clear()
        _log.error("recording.incomplete", trace=self._name, error=repr(error), events=self._events)
        self._seal()

    # --- the owner's side ---------------------------------------------------------------------------------------

    @property
    def error(self) -> Exception | None:
        """What ended the recording early."""
        return self._error

    def close(self) -> None:
        """Write what is left, seal and sync.

        Never raises for the file's sake: a failure is logged. Closing twice is no error.
        """
        if self._closed:
            return
        self._closed = True
        if self._error is None:
            try:
                self._flush()
            except OSError as error:
                self.dropped(error)
            else:
                self._seal()
        try:
            self._file.close()
        except OSError as error:
            _log.error("recording.not_closed", trace=self._name, error=repr(error))

    def _flush(self) -> None:
        data = b"".join(self._batch)
        self._write(data)
        self._events += len(self._batch)
        self._batch.clear()
        self._size = 0

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) or 0 :]
        self._digest.update(data)
        self._offset += len(data)

    def _seal(self) -> None:
        complete = self._error is None
        reason = None if complete else f"{type(self._error).__name__}: {self._error}"
        try:
            if not complete:
                self._file.seek(self._offset)
                self._file.truncate()
            self._write(encode(EndOfTrace(self._events, self._digest.hexdigest(), complete, reason)))
            self._sync()
        except OSError as error:
            self._error = self._error or error
            _log.error("recording.not_sealed", trace=self._name, error=repr(error))

    def _sync(self) -> None:
        fileno = getattr(self._file, "fileno", None)
        if fileno is not None:
            os.fsync(fileno())
