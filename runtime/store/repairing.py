"""Whether a model's files are whole, byte for byte, and how they become so: from a folder, through staging.

A source is a folder with the model's files under their own names (a seed, or where they were signed), a folder with
files named by digest, another store, or one file. Nothing in it is believed: what it offers is staged, and only bytes
with the right digest are published.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .artifacts import BLOBS, Artifacts
from .folders import Folder
from .manifest import FileEntry
from .selection import FileState, Progress, Selection
from .staging import Progress as FileProgress
from .views import link_view

Source = Path | Traversable


def states(root: Folder, selection: Selection, progress: Progress | None) -> tuple[FileState, ...]:
    """Read every byte of every file of a selection; what each of them is, in the manifest's order."""
    return tuple(_state(Artifacts(root), entry, progress) for entry in selection.files)


def require_whole(found: Sequence[FileState], store: str) -> None:
    """Raise ``ArtifactInvalid`` that names every file that is not whole, when there is one."""
    bad = [state for state in found if state.state != "ok"]
    if bad:
        raise _not_whole(store, bad, [state.fault for state in bad], "stage them, or repair the store from a source")


def stage_from(root: Folder, selection: Selection, source: Source, progress: Progress | None) -> tuple[str, ...]:
    """Copy what is not here and whole from ``source``; the digests of what was copied.

    Raises ``ArtifactInvalid`` for the first file that the source has not, or not right.
    """
    missing = [state.entry for state in states(root, selection, progress) if state.state != "ok"]
    for entry in missing:
        _copy(root, entry, source, progress)
    return tuple(entry.digest for entry in missing)


def mend(root: Folder, selection: Selection, source: Source | None, progress: Progress | None) -> tuple[str, ...]:
    """Replace what is not whole, then link the view anew; the digests of what was replaced.

    Raises ``ArtifactInvalid`` that names every file that could not be replaced, after the others were.
    """
    bad = [state for state in states(root, selection, progress) if state.state != "ok"]
    if bad and source is None:
        raise _not_whole(root.path, bad, [state.state for state in bad], "a folder with good copies is needed")
    left: list[FileState] = []
    reasons: list[str] = []
    for state in bad:
        try:
            _copy(root, state.entry, source, progress) if source is not None else None
        except ArtifactInvalid as error:
            left.append(state)
            reasons.append(f"{state.state}, and {error.message}")
    if left:
        raise _not_whole(root.path, left, reasons)
    link_view(root, selection.manifest, selection.files)
    return tuple(state.entry.digest for state in bad)


def _state(artifacts: Artifacts, entry: FileEntry, progress: Progress | None) -> FileState:
    try:
        artifacts.verify(entry.digest, entry.size, _steps(progress))
    except ArtifactInvalid as error:
        missing = error.details.get("fault") == "missing"
        return FileState(entry, "missing" if missing else "damaged", error.message)
    return FileState(entry, "ok")


def _copy(root: Folder, entry: FileEntry, source: Source, progress: Progress | None) -> None:
    """Stage one file from the first place in the source that has it right."""
    last: ArtifactInvalid | None = None
    for candidate in _candidates(source, entry):
        try:
            _stage(root, entry, candidate, progress)
        except ArtifactInvalid as error:
            last = ArtifactInvalid(f"{candidate} is not {entry.name}: {error.message}", **error.details)
        except OSError as error:
            last = ArtifactInvalid(f"{candidate} cannot be read: {error}", file=str(candidate), field="source")
        else:
            return
    if last is None:
        wanted = f"{entry.name} ({entry.size} bytes, SHA-256 {entry.digest})"
        message = f"{source} has no file {wanted}{_broken(source, entry)}: name a folder that has it"
        last = ArtifactInvalid(message, file=str(source), field="files", value=entry.name)
    raise last


def _stage(root: Folder, entry: FileEntry, candidate: Source, progress: Progress | None) -> None:
    """Stage one file; once more, from its beginning, when only what an earlier attempt left can be to blame.

    After a loss of power a part may hold anything. Staging removes a part that turns out wrong.
    """
    with candidate.open("rb") as reader:
        try:
            Artifacts(root).stage(reader, entry.digest, entry.size, _steps(progress))
        except ArtifactInvalid as error:
            if not error.details.get("resumed"):
                raise
            reader.seek(0)
            Artifacts(root).stage(reader, entry.digest, entry.size, _steps(progress))


def _candidates(source: Source, entry: FileEntry) -> Iterator[Source]:
    if source.is_file():
        yield source
    elif not source.is_dir():
        raise InvalidRequest(f"there is no folder or file {source} to copy from", source=str(source))
    else:
        for names in ((entry.name,), (entry.digest,), (BLOBS, entry.digest)):
            candidate = source.joinpath(*names)
            if candidate.is_file():
                yield candidate


def _broken(source: Source, entry: FileEntry) -> str:
    """What is said of a link in the file's place that leads to no file."""
    candidate = source.joinpath(entry.name)
    if isinstance(candidate, Path) and candidate.is_symlink():
        return f" ({entry.name} there is a link to {os.readlink(candidate)}, which is no file)"
    return ""


def _steps(progress: Progress | None) -> FileProgress | None:
    """The store's progress, told in steps, from a file's, told as where it is; a file may be gone through twice."""
    if progress is None:
        return None
    last = 0

    def tell(done: int, _: int) -> None:
        nonlocal last
        step, last = done - last if done > last else done, done
        progress(step)

    return tell


def _not_whole(store: str, bad: Sequence[FileState], reasons: Sequence[str], advice: str = "") -> ArtifactInvalid:
    told = "; ".join(
        f"{state.entry.name} (SHA-256 {state.entry.digest}, {state.entry.size} bytes): {reason}"
        for state, reason in zip(bad, reasons, strict=True)
    )
    names = [state.entry.name for state in bad]
    few = "1 file is" if len(bad) == 1 else f"{len(bad)} files are"
    message = f"{store}: {few} not whole: {told}{advice and f'; {advice}'}"
    return ArtifactInvalid(message, file=store, field="files", value=names)
