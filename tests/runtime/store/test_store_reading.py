"""Reading what is selected: through views and under leases, beside collections, links and read-only disks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.faults import StoreFault
from coresident.runtime.store.store import Store

from support.faulty_layer import FaultyLayer
from support.signed import FILES, NEWER, staged, trusting
from support.stores import contents, disk_error


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return trusting(tmp_path / "store")


def test_R2_collection_keeps_what_is_selected_or_leased_and_a_lease_after_it_finds_the_files_gone(
    store: Store, tmp_path: Path
) -> None:
    old, new = staged(store, tmp_path / "old"), staged(store, tmp_path / "new", NEWER)
    store.activate(old.manifest)
    lease = store.lease(old)
    store.activate(new.manifest)
    assert store.gc().manifests == ()
    assert {state.digest: state.leases for state in store.status().manifests} == {old.manifest: 1, new.manifest: 0}
    lease.release()
    lease.release()
    collected = store.gc()
    assert collected.manifests == (old.manifest,)
    assert collected.artifacts == (old.files[0].digest,), "the tokenizer is shared with the newer one"
    with pytest.raises(ArtifactInvalid):
        store.lease(old)
    assert store.status().manifests[0].leases == 0
    assert [state.state for state in store.verify(new)] == ["ok", "ok"]
    store.deactivate("small")
    assert store.gc().manifests == (new.manifest,)
    assert (store.status().artifacts, store.status().bytes) == (0, 0)


def test_a_lease_is_refused_when_an_artifact_is_gone(store: Store, tmp_path: Path) -> None:
    made = staged(store, tmp_path / "seed")
    (store.folder / "blobs" / made.files[0].digest).unlink()
    with pytest.raises(ArtifactInvalid, match="gone from the store"):
        store.lease(made)
    assert store.status().manifests[0].leases == 0


def test_a_view_holds_the_manifest_s_files_and_nothing_else(store: Store, tmp_path: Path) -> None:
    chosen = store.activate(staged(store, tmp_path / "seed").manifest)
    view = store.path(chosen)
    (view / "planted.json").write_text("{}")
    (view / "model.gguf").unlink()
    (view / "model.gguf").symlink_to(tmp_path / "seed" / "model.gguf")
    (view / "tokenizer.json").unlink()
    assert contents(store.path(chosen)) == FILES
    single = store.activate(staged(store, tmp_path / "one", {"model.gguf": b"only"}).manifest)
    assert store.path(single).read_bytes() == b"only"
    assert store.path(single).name == "model.gguf"


def test_R35_an_artifact_or_manifest_that_became_a_link_is_refused(store: Store, tmp_path: Path) -> None:
    chosen = store.activate(staged(store, tmp_path / "seed").manifest)
    for planted in ("blobs", "manifests", "views", f"views/{chosen.manifest}", f"blobs/{chosen.files[0].digest}"):
        path, outside = store.folder / planted, tmp_path / "outside"
        path.rename(outside)
        path.symlink_to(outside)
        for use in (store.activate, lambda _: (store.selected("small"), store.path(chosen))):
            with pytest.raises(ArtifactInvalid, match="link"):
                use(chosen.manifest)
        path.unlink()
        outside.rename(path)
    assert contents(store.path(chosen)) == FILES


def test_a_store_that_is_read_only_can_be_selected_from_and_verified(store: Store, tmp_path: Path) -> None:
    store.activate(staged(store, tmp_path / "seed").manifest)
    layer = FaultyLayer()
    reading = trusting(store.folder, layer)
    chosen = reading.selected("small")
    assert chosen is not None
    assert reading.path(chosen).is_dir()
    assert [state.state for state in reading.verify(chosen)] == ["ok", "ok"]
    assert reading.status().artifacts == 2
    changing = {"write", "truncate", "chmod", "replace", "link", "unlink", "mkdir", "rmdir"}
    assert not changing & set(layer.operations)


def test_a_system_without_hard_links_says_so(store: Store, tmp_path: Path) -> None:
    made = staged(store, tmp_path / "seed")
    layer = FaultyLayer()

    def refuse(_: str) -> None:
        layer.fail_at, layer.error = len(layer.calls), disk_error(errno.EPERM)

    layer.before["link"] = refuse
    with pytest.raises(StoreFault, match="can't link"):
        trusting(store.folder, layer).activate(made.manifest)
    assert store.selected("small") is None
