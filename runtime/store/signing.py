"""What is signed: files described by the bytes that they have now."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from ...actors.errors import CoresidentError, InvalidRequest
from .digests import CHUNK
from .manifest import ANY, FILE_NAME, FileEntry, Manifest
from .selection import Progress


def left_out(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The folders inside the folders that are signed, hidden ones aside: a model's files lie side by side."""
    inside = [inner for path in paths if path.is_dir() for inner in sorted(path.iterdir())]
    return tuple(inner for inner in inside if inner.is_dir() and not inner.name.startswith("."))


def files_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files themselves, and for a folder those directly in it, hidden ones and a manifest left out, by name.

    Links to files are followed: what is signed are the bytes, under the link's name.

    Raises:
        InvalidRequest: there is no such file or folder, or nothing in the folder, or a link leads nowhere.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if not file.name.startswith("."))
            _require_links(inside)
            found += [file for file in inside if file.is_file() and file.name != FILE_NAME]
        elif path.is_file():
            found.append(path)
        else:
            _require_links([path])
            raise InvalidRequest(f"there is no file or folder {path} to sign", file=str(path))
    if not found:
        folders = ", ".join(folder.name for folder in left_out(paths))
        only = f": there are only folders ({folders}); name the one that has the model's files" if folders else ""
        raise InvalidRequest(f"there are no files to sign in {', '.join(map(str, paths))}{only}")
    return tuple(found)


def _require_links(paths: Sequence[Path]) -> None:
    """Refuse links that lead nowhere: left out, a model that lacks a file would be signed."""
    broken = [path for path in paths if path.is_symlink() and not path.exists()]
    if broken:
        shown = ", ".join(f"{path} -> {os.readlink(path)}" for path in broken[:5])
        raise InvalidRequest(
            f"{len(broken)} of the files to sign are links that lead nowhere: {shown}; copy the files themselves "
            "(cp -L), or remove the links",
            file=str(broken[0]),
        )


def describe(
    model: str,
    files: Sequence[Path],
    device: str = ANY,
    created_by: str = "",
    notes: str = "",
    progress: Progress | None = None,
) -> Manifest:
    """The manifest of these files under the model's name; every byte is read.

    Raises:
        InvalidRequest: a name, a size or a text is none that a manifest can have.
    """
    try:
        entries = tuple(_entry(file, progress) for file in files)
        return Manifest(model, entries, device, created_by, notes)
    except CoresidentError:
        raise
    except ValueError as error:
        raise InvalidRequest(f"this cannot be signed: {error}") from None


def _entry(path: Path, progress: Progress | None) -> FileEntry:
    hasher, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            hasher.update(data)
            size += len(data)
            if progress is not None:
                progress(len(data))
    try:
        return FileEntry(path.name, hasher.hexdigest(), size)
    except ValueError as error:
        raise InvalidRequest(f"{path}: this cannot be signed: {error}", file=str(path)) from None
