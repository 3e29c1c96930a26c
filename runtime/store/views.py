"""Models under their own file names: ``views/<manifest digest>/NAME``, hard links to the artifacts.

A view makes no copy: a loader that expects a folder, or a file with a suffix, gets one. What is there and right is left
alone, so a view in a read-only store can be used; what is not right is linked anew, in place, which leaves whoever has
the old file open with the old file.
"""

from __future__ import annotations

import secrets
import stat

from ...actors.errors import ArtifactInvalid
from .artifacts import BLOBS
from .collect import VIEWS
from .faults import invalid, missing
from .folders import Folder
from .manifest import FileEntry


def link_view(root: Folder, digest: str, files: tuple[FileEntry, ...]) -> None:
    """Make the view of a manifest hold exactly its files, each as it is in ``blobs`` now; no bytes are read.

    Raises:
        ArtifactInvalid: an artifact is missing, or a link or folder is where a file should be.
        StoreFault: the system refuses to link, as on a file system that has no hard links.
    """
    wanted = {entry.name: entry.digest for entry in files}
    with root.child(BLOBS) as blobs, root.child(VIEWS, create=True) as views, views.child(digest, create=True) as view:
        for name in view.names():
            if name not in wanted:
                view.unlink(name)
        changed = [_link(blobs, view, name, artifact) for name, artifact in wanted.items()]
        if any(changed):
            view.sync()


def _link(blobs: Folder, view: Folder, name: str, artifact: str) -> bool:
    """Whether the name had to be linked anew."""
    target, there = blobs.entry(artifact), view.entry(name)
    path = f"{blobs.path}/{artifact}"
    if target is None:
        raise missing(path)
    if not stat.S_ISREG(target.st_mode):
        raise invalid(path, "not a file", "an artifact is a regular file, not a link or folder: remove it, and repair")
    if there is not None and (there.st_dev, there.st_ino) == (target.st_dev, target.st_ino):
        return False
    while not _linked(blobs, view, name, artifact):
        pass
    return True


def _linked(blobs: Folder, view: Folder, name: str, artifact: str) -> bool:
    """Put the artifact in the name's place; false when somebody else, tidying up, has taken this one's link away."""
    temporary = f".{secrets.token_hex(8)}"
    blobs.link(artifact, view, temporary)
    try:
        view.replace(temporary, view, name)
    except ArtifactInvalid as error:
        # Somebody tidies once, before linking, so this ends. Where the view itself is gone, the next link fails.
        if error.details["fault"] != "missing":
            raise
        return False
    finally:
        # Where somebody else has linked it meanwhile, both are names of one file, and the system keeps both.
        view.unlink(temporary)
    return True
