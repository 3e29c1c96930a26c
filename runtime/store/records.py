"""The journal's records and the rules by which its bytes are read; no files here.

A record is one line of canonical JSON (see :mod:`~coresident.runtime.store.canonical`), an end of line included::

    {"checksum":SHA256,"device":NAME,"manifest":DIGEST or null,"model":NAME,"previous":SHA256,"sequence":N,"version":1}

``checksum`` is the SHA-256 of the same object without it; ``previous`` is the checksum of the record before, zeros for
the first; ``sequence`` counts from 1. There are no times: a clock that steps back changes nothing.

Rules. Only what follows the last end of line can be torn: it is what an append that never returned has left, and reads
as not there. A line with its end is whole, and is an error unless it is in its one spelling, has its checksum, and
follows from the record before it; the last one too. A rest without an end of line is torn only if it is the beginning
of a record: a whole record with something other than an end of line behind it is an error.

What this detects: every change, insertion, removal or exchange of bytes that leaves something behind it, and any change
inside the last record. What it cannot detect: whole records missing from the end, and a journal written anew by
somebody who recomputes the checksums, which are no secret. Either can only select again what a trusted key once signed.
"""

from __future__ import annotations

import hashlib
from typing import Any

import attrs

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .canonical import bad_value, canonical, parse
from .digests import check_digest
from .manifest import check_name

VERSION = 1
MAX_RECORD = 1024
MAX_JOURNAL = 16 << 20
START = "0" * 64
_BEGIN = b'{"checksum":"'
_KEYS = {"device", "manifest", "model", "previous", "sequence", "version"}


@attrs.frozen
class Record:
    """From here on ``manifest`` (``None``: nothing) is what ``model`` runs from on ``device``."""

    sequence: int
    model: str
    device: str
    manifest: str | None
    previous: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(canonical(self._content())).hexdigest()

    def line(self) -> bytes:
        """The record's bytes."""
        return canonical({"checksum": self.checksum, **self._content()}) + b"\n"

    def _content(self) -> dict[str, Any]:
        return {**attrs.asdict(self), "version": VERSION}


@attrs.frozen
class Contents:
    """What a journal's bytes say: whole records, the bytes that they take, and the torn bytes after them."""

    records: tuple[Record, ...] = ()
    whole: int = 0
    torn: int = 0

    def selected(self) -> dict[tuple[str, str], Record]:
        """The newest record of every (model, device)."""
        return {(record.model, record.device): record for record in self.records}

    def following(self, model: str, device: str, manifest: str | None) -> Record:
        """The next record."""
        last = self.records[-1] if self.records else None
        previous = START if last is None else last.checksum
        return Record(len(self.records) + 1, model, device, manifest, previous)


def read_records(data: bytes, file: str) -> Contents:
    """Read a journal by the rules above.

    Raises:
        ArtifactInvalid: it is longer than is read, or a line is damaged; names the file and the line.
    """
    if len(data) > MAX_JOURNAL:
        raise bad_value(file, "size", len(data), f"at most {MAX_JOURNAL} bytes are read")
    records: list[Record] = []
    previous, begin = START, 0
    # Line by line: split at once, a file of nothing but ends of lines would become millions of objects.
    while (end := data.find(b"\n", begin)) >= 0:
        number = len(records) + 1
        record = _record(data[begin:end], number, previous, f"{file}, line {number}")
        records.append(record)
        previous, begin = record.checksum, end + 1
    _check_torn(data[begin:], f"{file}, line {len(records) + 1}")
    return Contents(tuple(records), begin, len(data) - begin)


def _record(line: bytes, number: int, previous: str, where: str) -> Record:
    try:
        content = parse(line, MAX_RECORD, where)
        checksum = content.pop("checksum", None)
        if hashlib.sha256(canonical(content)).hexdigest() != checksum:
            raise bad_value(where, "checksum", checksum, "it is not that of this record")
        record = _checked(content, where)
    except (ArtifactInvalid, InvalidRequest) as error:
        raise _damaged(where, error.message.removeprefix(f"{where}: ")) from None
    if (record.sequence, record.previous) != (number, previous):
        raise _damaged(where, f"record {record.sequence} does not follow from the one before it")
    return record


def _checked(content: dict[str, Any], where: str) -> Record:
    if content.keys() != _KEYS or type(content["version"]) is not int or content["version"] != VERSION:
        raise bad_value(where, "version", content.get("version"), f"version {VERSION} is what is read here")
    model, device, manifest, previous = (content[key] for key in ("model", "device", "manifest", "previous"))
    for name, value in (("model", model), ("device", device), ("previous", previous)):
        if not isinstance(value, str):
            raise bad_value(where, name, value, "it is not a string")
    if manifest is not None:
        check_digest(manifest)
    if type(content["sequence"]) is not int:
        raise bad_value(where, "sequence", content["sequence"], "it is not an integer")
    return Record(content["sequence"], check_name("model", model), check_name("device", device), manifest, previous)


def _check_torn(rest: bytes, where: str) -> None:
    """Pass when an append that was cut short can have left ``rest``."""
    begun = rest[: len(_BEGIN)] == _BEGIN[: len(rest)]
    whole = b"}" in rest[:-1]
    if not begun or whole or len(rest) > MAX_RECORD or not rest.decode("ascii", "replace").isascii():
        what = "a whole record without its end of line" if whole else "not the beginning of a record"
        raise _damaged(where, f"its last {len(rest)} bytes are {what}")


def _damaged(where: str, reason: str) -> ArtifactInvalid:
    return ArtifactInvalid(
        f"{where}: the journal is damaged: {reason}. What it selects is not known; restore it from a copy, or move it "
        "away and activate anew",
        file=where,
        field="record",
        value=reason,
    )
