"""Prefix files on disk: written whole or not at all, and read with everything verified.

A file is written under another name in its folder, brought to disk, and renamed; its reader never sees half of one.
Reading takes nothing on trust and maps nothing into memory, so that a file which shrinks meanwhile is an error and no
crash. Both go piece by piece, so that a step can be suspended between segments; ``prefix_header`` has the format.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from typing import Any, BinaryIO

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.errors import ArtifactInvalid, BackendFault, CoresidentError, InvalidRequest
from ...actors.work import PrefixFile
from ..models.architecture import invalid
from .contract import Segment
from .prefix_header import BLANK, LONGEST, Geometry, PrefixHeader, decode_head, token_bytes, token_hash

SEGMENT_BYTES = 4 << 20
_PART = ".part"
Piece = NDArray[Any]


def write_prefix(
    file: PrefixFile, backend: str, geometry: Geometry, pieces: Iterable[Piece]
) -> Generator[Segment, None, None]:
    """Write a prefix file. ``pieces`` are contiguous arrays that together are the keys and values in file order.

    A segment ends after about 4 MiB, which are on disk by then, so that the last one is no longer than the others.

    Raises:
        InvalidRequest: there is no such folder, or it may not be written to.
        BackendFault: the disk is full or failed. In either case nothing is left behind.
    """
    header = PrefixHeader.of(file, backend, geometry)
    folder, name = os.path.split(file.path)
    temporary: str | None = None
    try:
        number, temporary = tempfile.mkstemp(prefix=_beginning(name, os.getpid()), suffix=_PART, dir=folder)
        with os.fdopen(number, "wb") as stream:
            digest = hashlib.sha256()
            for part in (header.encode(), token_bytes(file.tokens)):
                digest.update(part)
                stream.write(part)
            for filled, view in _cut(pieces):
                digest.update(view)
                stream.write(view)
                if filled:
                    _to_disk(stream)
                    yield Segment()
            stream.seek(0)
            stream.write(attrs.evolve(header, checksum=digest.hexdigest()).encode())
            _to_disk(stream)
        os.replace(temporary, file.path)
        temporary = None
        _sync_folder(folder)
    except OSError as error:
        raise _unwritable(file.path, error) from error
    finally:
        if temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def read_prefix(
    file: PrefixFile, backend: str, geometry: Geometry, pieces: Iterable[Piece]
) -> Generator[Segment, None, None]:
    """Read keys and values into ``pieces``, which are valid once this has ended.

    Raises:
        ArtifactInvalid: the file can't be read, is damaged, or is not what ``file`` and the model ask for.
    """
    wanted = attrs.asdict(PrefixHeader.of(file, backend, geometry))
    del wanted["checksum"]
    with _opened(file.path) as stream:
        header, tokens = _head(stream, file.path)
        header.check(wanted, file.path)
        digest = hashlib.sha256(attrs.evolve(header, checksum=BLANK).encode())
        digest.update(tokens)
        for filled, view in _cut(pieces):
            if stream.readinto(view) != len(view):
                raise _shrunk(file.path)
            digest.update(view)
            if filled:
                yield Segment()
        if digest.hexdigest() != header.checksum:
            raise invalid(
                file.path, "checksum", header.checksum, f"its content has {digest.hexdigest()}: it is damaged"
            )


def remove_unfinished(path: str, process: int) -> None:
    """Remove what a process that has ended had written of a prefix file; nothing there is no error."""
    folder, name = os.path.split(path)
    beginning = _beginning(name, process)
    with suppress(OSError):
        for found in os.listdir(folder):
            # What has another dot is of a file whose name goes on with what looks like a process.
            if found.startswith(beginning) and found.endswith(_PART) and "." not in found[len(beginning) : -len(_PART)]:
                os.unlink(os.path.join(folder, found))


def _beginning(name: str, process: int) -> str:
    """How the names begin that a process writes under before it renames."""
    return f".{name[:64]}.{process}."


def look_into(path: str, launch: str, digest: str) -> PrefixFile:
    """What a file says of itself, checked against this launch and the model; keys and values are not read.

    Raises:
        ArtifactInvalid: as ``read_prefix``.
    """
    with _opened(path) as stream:
        header, tokens = _head(stream, path)
    header.check({"launch": launch, "digest": digest}, path)
    ids = tuple(np.frombuffer(tokens, dtype="<i8").tolist())
    return PrefixFile(path, header.launch, header.identity, ids, header.aligned, header.chunk)


@contextmanager
def _opened(path: str) -> Iterator[BufferedReader]:
    """A regular file; what the system says of it is said as ``ArtifactInvalid``."""
    try:
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise invalid(path, "file", "no regular file", "give the path of a prefix file")
        with open(path, "rb") as stream:
            yield stream
    except OSError as error:
        raise ArtifactInvalid(
            f"{path}: file cannot be read: {error.strerror or error}", file=path, field="file", value=str(error)
        ) from error


def _head(stream: BufferedReader, path: str) -> tuple[PrefixHeader, bytes]:
    """The head and the token ids; everything that can be told without the keys and values is checked."""
    size = os.fstat(stream.fileno()).st_size
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > min(size - 8, LONGEST):
        raise invalid(path, "header length", length, f"expected at most {min(max(0, size - 8), LONGEST)}: truncated?")
    header = decode_head(stream.read(length), path)
    expected = 8 + length + 8 * header.tokens + header.payload
    if size != expected:
        raise invalid(path, "size", size, f"expected {expected} bytes for {header.tokens} tokens: it is not whole")
    tokens = stream.read(8 * header.tokens)
    if len(tokens) != 8 * header.tokens:
        raise _shrunk(path)
    if token_hash(tokens) != header.token_hash:
        raise invalid(path, "token_hash", header.token_hash, f"its token ids have {token_hash(tokens)}")
    return header, tokens


def _shrunk(path: str) -> ArtifactInvalid:
    return invalid(path, "size", "shorter than before", "it was cut while it was read")


def _cut(pieces: Iterable[Piece]) -> Iterator[tuple[bool, memoryview]]:
    """The bytes of all pieces, none longer than a segment, each with whether it fills one."""
    held = 0
    for piece in pieces:
        whole = piece.data.cast("B")
        for start in range(0, len(whole), SEGMENT_BYTES):
            view = whole[start : start + SEGMENT_BYTES]
            held += len(view)
            filled = held >= SEGMENT_BYTES
            held = 0 if filled else held
            yield filled, view


def _to_disk(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _sync_folder(folder: str) -> None:
    """Bring the new name to disk; where folders can't be opened as files, renaming is all there is."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _unwritable(path: str, error: OSError) -> CoresidentError:
    what = f"{path}: the prefix cannot be written: {error.strerror or error}"
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError):
        return InvalidRequest(f"{what}; give a path in a folder that exists and may be written to", file=path)
    return BackendFault(f"{what}; free space there or choose another disk", file=path)
