"""Files of the registry: what a scheduler has registered, and what it last said about itself.

``NAME.json`` is written once, behind the registry's lock. ``NAME.state`` is replaced whole at each change, so its
readers see an old one or a new one; one that is missing or damaged says nothing, and changes nothing that counts.
Both are bounded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import attrs
import cattrs
from attrs import validators

from ...actors.errors import ArtifactInvalid
from ..store.faults import invalid, missing
from ..store.folders import File, Folder

SUFFIX, STATE, PART = ".json", ".state", ".part"
MOST_BYTES = 16_384
MOST_LETTERS = 300
# Unknown keys are a newer version's, and are left out.
_CONVERTER = cattrs.Converter()


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


@attrs.frozen
class Claim:
    """What one scheduler takes: ``partition`` bytes of physical device ``device``, which has ``physical``.

    With 0 for ``physical`` this claim bounds nothing. ``store`` is the folder of the store its models are from.
    """

    device: str = attrs.field(converter=_short)
    partition: int = attrs.field(validator=validators.ge(0))
    physical: int = attrs.field(validator=validators.ge(0))
    backend: str
    label: str = attrs.field(converter=_short)
    store: str = ""


@attrs.frozen
class Published:
    """A scheduler's readiness, and the process ids of its workers."""

    state: str = "unknown"
    revision: int = 0
    admitted_context: int = 0
    actions: tuple[str, ...] = ()
    error: str = attrs.field(default="", converter=_short)
    workers: tuple[int, ...] = ()


@attrs.frozen
class Entry:
    """A live registration. ``since`` is the wall clock's seconds, to show to people."""

    pid: int
    since: float
    claim: Claim
    published: Published = Published()

    def words(self) -> str:
        """Who holds how much."""
        return f"process {self.pid} with {self.claim.label} on {self.claim.backend} holds {self.claim.partition}"


def write_entry(file: File, entry: Entry) -> None:
    """Fill a new registration."""
    file.write(_encoded(entry))


def read_entry(folder: Folder, name: str) -> Entry:
    """A registration. Raises ``ArtifactInvalid`` when it is gone, still empty, or can't be read."""
    path = os.path.join(folder.path, name + SUFFIX)
    try:
        text = _text(folder, name + SUFFIX)
        if not text:
            raise missing(path)
        return _CONVERTER.structure(json.loads(text), Entry)
    except (ValueError, RecursionError, cattrs.BaseValidationError, TypeError) as error:
        raise invalid(path, "unreadable", "this is no registration that can be read; end its process") from error


def write_state(folder: Folder, name: str, state: Published) -> None:
    """Replace what a scheduler says of itself."""
    with folder.file(name + PART, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
        file.write(_encoded(state))
    folder.replace(name + PART, folder, name + STATE)


def read_state(folder: Folder, name: str, entry: Entry) -> Entry:
    """The registration with what its scheduler last said, where that can be read."""
    try:
        said = _CONVERTER.structure(json.loads(_text(folder, name + STATE)), Published)
    except (ArtifactInvalid, ValueError, RecursionError, cattrs.BaseValidationError, TypeError):
        return entry
    return attrs.evolve(entry, published=said)


def remove_strays(folder: Folder, there: Iterable[str]) -> None:
    """Remove what was published by registrations that are gone, as of processes that ended while they published."""
    names = set(there)
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in (STATE, PART) and stem + SUFFIX not in names:
            folder.unlink(name)


def _encoded(value: Entry | Published) -> bytes:
    return json.dumps(attrs.asdict(value)).encode()


def _text(folder: Folder, name: str) -> str:
    """A file's text. Raises ``ValueError`` for more than is ever written, and for what is no text."""
    with folder.file(name) as file:
        data = b""
        while len(data) <= MOST_BYTES and (more := file.read(MOST_BYTES + 1 - len(data))):
            data += more
    if len(data) > MOST_BYTES:
        raise ValueError(f"{name} has more than {MOST_BYTES} bytes")
    return data.decode()
