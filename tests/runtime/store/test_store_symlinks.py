"""Symbolic links planted at every level of a store: each is refused by name, and nothing outside is read or changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.runtime.store.artifacts import Artifacts
from coresident.runtime.store.collect import Keep, collect
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.leases import Leases

from support.faulty_layer import FaultyLayer
from support.stores import DATA, DIGEST, Pieces, contents, leave_part, open_store, refused

SIZE = len(DATA)
ENTRY = "1-0123456789abcdef"


def stage(store: Path) -> object:
    """Put the artifact into the store."""
    return open_store(store).stage(Pieces(), DIGEST, SIZE)


def verify(store: Path) -> object:
    """Read the artifact."""
    return open_store(store).verify(DIGEST)


def open_it(store: Path) -> object:
    """Open the artifact."""
    return open_store(store).open(DIGEST)


def remove(store: Path) -> object:
    """Delete the artifact."""
    return open_store(store).remove(DIGEST)


def remove_partial(store: Path) -> object:
    """Delete what was staged in part."""
    return open_store(store).remove_partial(DIGEST)


def take(store: Path) -> object:
    """Take a lease."""
    return Leases(Folder.at(store)).take(DIGEST)


def count(store: Path) -> object:
    """Count leases."""
    return Leases(Folder.at(store)).count(DIGEST)


def reap(store: Path) -> object:
    """Reap leases."""
    return Leases(Folder.at(store)).reap()


def gc(store: Path) -> object:
    """Delete everything that nobody holds."""
    return collect(Folder.at(store), lambda leased: Keep(leased, leased), partials=True)


PLANTED: dict[str, tuple[Callable[[Path], object], ...]] = {
    "blobs": (stage, verify, open_it, remove, gc),
    f"blobs/{DIGEST}": (stage, verify, open_it),
    "staging": (stage, remove_partial, gc),
    f"staging/{DIGEST}.part": (stage, remove_partial),
    "leases": (take, count, reap, gc),
    "leases/gate": (take, reap, gc),
    f"leases/{DIGEST}": (take, count, reap, gc),
    f"leases/{DIGEST}/{ENTRY}": (count, reap, gc),
    "manifests": (gc,),
    "views": (gc,),
    f"views/{DIGEST}": (gc,),
}
CASES = [(level, use) for level, uses in PLANTED.items() for use in uses]


def outside_of(tmp_path: Path) -> Path:
    """A folder beside the store that has what a store has, and must stay as it is."""
    outside = tmp_path / "outside"
    for name in (DIGEST, f"{DIGEST}.part", f"{DIGEST}.json", ENTRY, "gate", "file"):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_bytes(b"precious")
    return outside


def plant(store: Path, level: str, target: Path) -> Path:
    """A link to ``target`` at this level of a store."""
    link = store / level
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    return link


@pytest.mark.parametrize(("level", "use"), CASES, ids=[f"{level[:12]}-{use.__name__}" for level, use in CASES])
@pytest.mark.parametrize("target", ["outside", "outside/file", "none"], ids=["folder", "file", "dangling"])
def test_R35_a_planted_link_is_refused_by_name_and_redirects_nothing(
    tmp_path: Path, level: str, use: Callable[[Path], object], target: str
) -> None:
    outside, store = outside_of(tmp_path), tmp_path / "store"
    link = plant(store, level, tmp_path / target)
    before = contents(outside)
    with refused("symlink", file=str(link)):
        use(store)
    assert contents(outside) == before
    assert link.is_symlink()
    assert not (tmp_path / "none").exists()


def test_R35_links_are_never_listed_and_removing_one_removes_the_link_itself(tmp_path: Path) -> None:
    outside, store = outside_of(tmp_path), tmp_path / "store"
    artifacts = open_store(store)
    for level in (f"blobs/{DIGEST}", f"staging/{DIGEST}.part", f"views/{DIGEST}/model", f"manifests/{DIGEST}.json"):
        plant(store, level, outside / "file")
    before = contents(outside)
    assert (artifacts.has(DIGEST), artifacts.list(), artifacts.partials()) == (False, (), ())
    assert artifacts.remove(DIGEST)
    (store / "staging" / f"{DIGEST}.part").unlink()
    gone = gc(store)
    assert gone == collect(artifacts.root, lambda leased: Keep(leased, leased)).__class__(
        manifests=(DIGEST,), views=(DIGEST,), artifacts=(), partials=(), leases=0, bytes=0
    )
    assert contents(outside) == before
    assert contents(store) == {"leases/gate": b""}


@pytest.mark.parametrize("operation", ["lstat", "write", "fsync", "replace", "chmod"])
@pytest.mark.parametrize("swapped", ["blobs", "staging"])
def test_R35_a_folder_that_becomes_a_link_while_staging_redirects_nothing(
    tmp_path: Path, swapped: str, operation: str
) -> None:
    """The folders are held open, so the artifact goes where they were, whatever has their names now."""
    outside, store = outside_of(tmp_path), tmp_path / "store"
    layer = FaultyLayer()
    artifacts = open_store(store, layer)
    leave_part(store, DATA[:500])
    (store / "blobs").mkdir()
    before = contents(outside)

    def swap(_: str) -> None:
        (store / swapped).rename(store / "moved")
        (store / swapped).symlink_to(outside)

    layer.before[operation] = swap
    if swapped == "blobs" and operation == "lstat":
        # The lock is taken, and the artifact is looked for once more: that is where the link is met.
        with refused("symlink"):
            artifacts.stage(Pieces(), DIGEST, SIZE)
    else:
        assert artifacts.stage(Pieces(), DIGEST, SIZE).published
        place = "moved" if swapped == "blobs" else "blobs"
        assert (store / place / DIGEST).read_bytes() == DATA
    assert contents(outside) == before


def test_R35_the_path_of_the_store_itself_may_be_a_link_and_is_followed_once(tmp_path: Path) -> None:
    outside, home, link = outside_of(tmp_path), tmp_path / "disk", tmp_path / "store"
    home.mkdir()
    link.symlink_to(home)
    artifacts = Artifacts(Folder.at(link))
    link.unlink()
    link.symlink_to(outside)
    before = contents(outside)
    artifacts.stage(Pieces(), DIGEST, SIZE)
    assert contents(home) == {f"blobs/{DIGEST}": DATA}
    assert contents(outside) == before
    assert os.path.samefile(link, outside)
