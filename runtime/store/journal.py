"""Which manifest each (model, device) runs from: a file that only grows, by :mod:`.records`, under an advisory lock.

Readers hold the lock shared, and take the torn rest of an append that never returned as not there. A writer holds it
alone: it first cuts such a rest off, then appends, and returns when the record and the file's name are on the medium.
An append that fails is taken back as far as the system lets it; what is left then is the record, or a torn rest, never
anything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import attrs

from ...actors.errors import ArtifactInvalid, CoresidentError
from .digests import CHUNK
from .faults import StoreFault
from .folders import File, Folder
from .locks import FileLock
from .records import MAX_JOURNAL, Contents, Record, read_records

NAME = "journal"
LOCK = "journal.lock"
WAIT_S = 60.0
"""Seconds that a reader or writer waits for the lock; it is held while one record is written, or garbage collected."""


@attrs.define
class HeldJournal:
    """The journal while nobody else can append to it."""

    contents: Contents
    _folder: Folder
    _file: File

    def append(self, model: str, device: str, manifest: str | None) -> Record:
        """Add a record; it is on the medium when this returns.

        Raises:
            StoreFault: the system refused a write or sync, and the selection is as before; or, when the system refuses
                to take back what was written, as the record says.
        """
        self.recover()
        record = self.contents.following(model, device, manifest)
        line = record.line()
        if self.contents.whole + len(line) > MAX_JOURNAL:
            advice = "move the journal away and activate anew what is in use"
            raise StoreFault(f"{self._file.path} has its {MAX_JOURNAL} bytes: {advice}", path=self._file.path)
        try:
            self._file.write(line)
            self.settle()
        except BaseException as error:
            self._take_back(error)
            raise
        self.contents = Contents((*self.contents.records, record), self.contents.whole + len(line))
        return record

    def settle(self) -> None:
        """Return when all that it says is on the medium: whoever appended it may have died before it was."""
        self._file.settle()
        self._folder.sync()

    def recover(self) -> int:
        """Cut off the torn rest of an append that never returned; how many bytes it had."""
        torn = self.contents.torn
        if torn:
            self._file.truncate(self.contents.whole)
            self._file.sync()
            self.contents = attrs.evolve(self.contents, torn=0)
        return torn

    def _take_back(self, error: BaseException) -> None:
        try:
            self._file.truncate(self.contents.whole)
            self._file.sync()
        except CoresidentError as fault:
            error.add_note(f"besides, what was written of the record could not be taken back: {fault}")


@attrs.frozen
class Journal:
    """The journal of a store in ``folder``."""

    folder: Folder

    def read(self) -> Contents:
        """What it says now; nothing when there is none. Changes nothing, so it can be on a read-only system.

        Raises:
            ArtifactInvalid: it is damaged before its torn rest; names the line.
            StoreBusy: somebody holds it for longer than a minute.
        """
        with ExitStack() as stack:
            lock = self._shared()
            if lock is not None:
                stack.enter_context(lock)
            try:
                file = stack.enter_context(self.folder.file(NAME))
            except ArtifactInvalid as error:
                if error.details["fault"] != "missing":
                    raise
                return Contents()
            return _contents(file)

    @contextmanager
    def held(self) -> Iterator[HeldJournal]:
        """Keep everybody else from appending while the block runs. Raises like :meth:`read`."""
        with (
            FileLock.take(self.folder, LOCK, timeout_s=WAIT_S),
            self.folder.file(NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND) as file,
        ):
            yield HeldJournal(_contents(file), self.folder, file)

    def append(self, model: str, device: str, manifest: str | None) -> Record:
        """Hold the journal and append: see :meth:`HeldJournal.append`."""
        with self.held() as held:
            return held.append(model, device, manifest)

    def _shared(self) -> FileLock | None:
        """The lock, shared; ``None`` where nobody ever wrote here, which a reader does not change."""
        try:
            return FileLock.take(self.folder, LOCK, shared=True, timeout_s=WAIT_S, flags=os.O_RDONLY)
        except ArtifactInvalid as error:
            if error.details["fault"] != "missing":
                raise
            return None


def _contents(file: File) -> Contents:
    data = bytearray()
    while len(data) <= MAX_JOURNAL and (more := file.read(CHUNK)):
        data += more
    return read_records(bytes(data), file.path)
