"""Several at one store: who activates, opens, collects or stages beside others gets a whole model or the fault."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.journal import Journal
from coresident.runtime.store.selection import Selection
from coresident.runtime.store.store import Store

from support.faulty_layer import FaultyLayer
from support.signed import FILES, NEWER, signer, staged, trusting, write_seed
from support.store_processes import activate_again, in_step, relink_again
from support.stores import contents, disk_error


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return trusting(tmp_path / "store")


def test_two_processes_that_activate_at_once_leave_one_of_the_two_selected(store: Store, tmp_path: Path) -> None:
    made = [staged(store, tmp_path / "old").manifest, staged(store, tmp_path / "new", NEWER).manifest]
    work = [(store.folder, signer().public.raw, *order) for order in (made, made[::-1])]
    assert in_step(activate_again, *work) == ["done", "done"]
    chosen = store.selected("small")
    assert chosen is not None
    assert chosen.manifest in made
    sequences = [record.sequence for record in Journal(Folder.at(store.folder)).read().records]
    assert sequences == list(range(1, len(sequences) + 1))


def test_processes_that_open_one_model_whose_view_is_not_whole_all_get_it(store: Store, tmp_path: Path) -> None:
    chosen = store.activate(staged(store, tmp_path / "seed").manifest)
    work = (store.folder, signer().public.raw, chosen.manifest)
    assert in_step(relink_again, work, work, work) == ["done"] * 3
    assert contents(store.path(chosen)) == FILES


def test_R42_who_asks_while_another_model_is_activated_and_the_old_one_collected_gets_the_new_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.activate(staged(store, tmp_path / "old").manifest)
    new = staged(store, tmp_path / "new", NEWER).manifest
    selection = Store.selection

    def overtaken(self: Store, manifest: str) -> Selection:
        monkeypatch.setattr(Store, "selection", selection)
        store.activate(new)
        assert store.gc().manifests == (manifest,)
        return store.selection(manifest)

    monkeypatch.setattr(Store, "selection", overtaken)
    chosen = store.selected("small")
    assert chosen is not None
    assert chosen.manifest == new


def test_a_manifest_that_was_collected_before_its_files_came_is_missed(store: Store, tmp_path: Path) -> None:
    made = store.add_manifest(write_seed(tmp_path / "seed").text())
    store.gc()
    with pytest.raises(ArtifactInvalid, match="no such file in the store"):
        store.stage(made, tmp_path / "seed")
    assert not (store.folder / "blobs").exists()


def test_an_error_in_a_leases_block_is_told_before_that_of_its_release(store: Store, tmp_path: Path) -> None:
    made = staged(store, tmp_path / "seed")
    layer = FaultyLayer()
    lease = trusting(store.folder, layer).lease(made)
    layer.before["unlink"] = lambda _: setattr(layer, "fail_at", len(layer.calls))
    layer.error = disk_error(errno.EIO)
    with pytest.raises(LookupError) as caught, lease:
        raise LookupError("the caller's own")
    assert "can't remove" in caught.value.__notes__[0]
    assert (lease.held, layer.paths) == (False, {})


def test_a_link_that_somebody_else_tidies_away_is_made_again(store: Store, tmp_path: Path) -> None:
    chosen = store.activate(staged(store, tmp_path / "seed").manifest)
    view = store.folder / "views" / chosen.manifest
    (view / "model.gguf").unlink()
    layer = FaultyLayer()
    layer.before["replace"] = lambda _: store.path(chosen)
    (view / "tokenizer.json").unlink()
    assert contents(trusting(store.folder, layer).path(chosen)) == FILES
    (view / "tokenizer.json").unlink()
    layer.before["replace"] = lambda _: shutil.rmtree(view)
    with pytest.raises(ArtifactInvalid):
        trusting(store.folder, layer).path(chosen)
