"""The recorder: an observer that writes a trace as the run goes.

Rule 1: it never breaks the run: what goes wrong with the file ends the recording, is logged, and marks the trace as
not complete. Rule 2: lines are written in batches, at the latest when a request has ended; the file is synced when it
is closed. Rule 3: a batch is in the file whole or not at all, and the last line says what came before it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

import structlog

from ..actors.errors import InvalidRequest
from ..runtime.host.assembly import Assembly
from ..runtime.host.observers import Delivery
from .blocks import BlockTable
from .events_schedule import EndCheckpoint, EndDecision, EndGeneration, EndPreparation, Refuse
from .header import BLOCK, LEVELS, Header, header_of
from .messages import MessageLog
from .translate import Translator
from .writer import TraceFile, TraceWriter

_ENDS = (EndGeneration, EndDecision, EndPreparation, EndCheckpoint, Refuse)
_log = structlog.get_logger("coresident")


class Recorder:
    """Observes a host and writes its trace. Made by :meth:`open`; close it after the host has ended."""

    def __init__(self, file: TraceFile, header: Header, name: str = "trace") -> None:
        self._file = file
        self._name = name
        ids = header.content == "tokens"
        self._blocks = BlockTable(BLOCK, live=self._live_blocks)
        self._translator = Translator(ids, self._blocks)
        self._messages: MessageLog | None = None
        if header.facts is not None:
            self._messages = MessageLog(partial(self._blocks.describe, ids=ids), self._translator.arrival)
        self._error: Exception | None = None
        self._closed = False
        self._writer = TraceWriter(file, header)

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
        events = list(self._translator.delivery(delivery))
        ended = any(isinstance(event, _ENDS) for event in events)
        if self._messages is not None:
            events.append(self._messages.took(delivery, events))
        for event in events:
            self._writer.add(event)
        if ended:
            self._writer.flush()

    def token(self, request: str, index: int, at: int) -> None:
        """Note a token's time."""
        self._translator.token(request, at)

    def dropped(self, error: Exception) -> None:
        """Recording has failed: seal the trace as not complete, as far as the file still takes it."""
        self._error = error
        self._writer.forget()
        _log.error("recording.incomplete", trace=self._name, error=repr(error), events=self._writer.events)
        self._seal()

    def _live_blocks(self) -> Collection[int]:
        return self._messages.live.blocks() if self._messages is not None else ()

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
                self._writer.flush()
            except OSError as error:
                self.dropped(error)
            else:
                self._seal()
        try:
            self._file.close()
        except OSError as error:
            _log.error("recording.not_closed", trace=self._name, error=repr(error))

    def _seal(self) -> None:
        reason = None if self._error is None else f"{type(self._error).__name__}: {self._error}"
        try:
            self._writer.seal(reason)
        except OSError as error:
            self._error = self._error or error
            _log.error("recording.not_sealed", trace=self._name, error=repr(error))
