"""Activation: nothing is selected that was not signed, staged and read to its last byte, and nothing gets lost."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import attrs
import pytest
from coresident.actors.errors import ArtifactInvalid, CoresidentError, InvalidRequest
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.journal import NAME, Journal
from coresident.runtime.store.manifest import SignedManifest, sign
from coresident.runtime.store.store import Store

from support.faulty_layer import Crash, FaultyLayer
from support.signed import FILES, NEWER, manifest_of, signer, staged, trusting, write_seed
from support.stores import Unsynced, disk_error


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return trusting(tmp_path / "store")


def shelve(store: Store, signed: SignedManifest) -> str:
    """Put a manifest into the store's folder, as somebody can who may write there."""
    path = store.folder / "manifests" / f"{signed.digest}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(signed.text())
    return signed.digest


def journal_of(store: Store) -> bytes:
    path = store.folder / NAME
    return path.read_bytes() if path.exists() else b""


def test_R42_nothing_selected_is_reported_as_nothing_selected(store: Store, tmp_path: Path) -> None:
    assert store.selected("small") is None
    assert not store.folder.exists(), "asking makes no store"
    staged(store, tmp_path / "seed")
    assert store.selected("small") is None
    assert store.status().selections == ()
    with pytest.raises(InvalidRequest, match="nothing is selected for small"):
        store.deactivate("small")


def test_R36_what_is_signed_whole_and_activated_is_selected_under_its_own_names(store: Store, tmp_path: Path) -> None:
    made = staged(store, tmp_path / "seed")
    chosen = store.activate(made.manifest)
    assert store.selected("small") == chosen == attrs.evolve(made, sequence=1)
    assert chosen.size == sum(map(len, FILES.values()))
    path = store.path(chosen)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == FILES
    assert store.activate(made.manifest).sequence == 1, "what is selected already is not recorded again"


def test_R36_a_manifest_without_a_trusted_signature_is_never_activated(store: Store, tmp_path: Path) -> None:
    good, stranger = staged(store, tmp_path / "seed"), signer(1)
    signed = write_seed(tmp_path / "seed")
    mine = signed.manifest
    for bad in (
        sign(mine, stranger),
        attrs.evolve(signed, signature="00" * 64),
        attrs.evolve(signed, signature=stranger.sign(mine.message()).hex()),
        attrs.evolve(signed, manifest=attrs.evolve(mine, model="other")),
    ):
        with pytest.raises(ArtifactInvalid, match=r"not trusted|not this key's"):
            store.add_manifest(bad.text())
        with pytest.raises(ArtifactInvalid, match=r"not trusted|not this key's"):
            store.activate(shelve(store, bad))
    with pytest.raises(ArtifactInvalid, match="not trusted"):
        Store(store.folder).activate(good.manifest)
    assert journal_of(store) == b""


@pytest.mark.parametrize("name", sorted(FILES))
def test_R36_one_artifact_that_does_not_verify_is_enough_to_refuse(store: Store, tmp_path: Path, name: str) -> None:
    made = staged(store, tmp_path / "seed")
    blob = next(store.folder / "blobs" / entry.digest for entry in made.files if entry.name == name)
    whole = blob.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (bytes(flipped), whole[:-1], whole + b"x", b"", None):
        blob.unlink()
        if damaged is not None:
            blob.write_bytes(damaged)
        with pytest.raises(ArtifactInvalid, match="1 file is not whole") as raised:
            store.activate(made.manifest)
        assert raised.value.details["value"] == [name]
        assert store.selected("small") is None
        blob.write_bytes(whole)
    assert journal_of(store) == b""


def test_R36_what_was_activated_is_selected_only_while_its_key_is_trusted(store: Store, tmp_path: Path) -> None:
    store.activate(staged(store, tmp_path / "seed").manifest)
    with pytest.raises(ArtifactInvalid, match="not trusted"):
        Store(store.folder, (signer(1).public,)).selected("small")


def test_a_record_cannot_select_what_was_signed_for_another_model_or_device(store: Store, tmp_path: Path) -> None:
    made = staged(store, tmp_path / "seed", device="mlx")
    for model, device in (("other", "mlx"), ("small", "vulkan"), ("small", "any")):
        with Folder.at(store.folder) as root:
            Journal(root).append(model, device, made.manifest)
        with pytest.raises(ArtifactInvalid, match="is signed for small on device mlx"):
            store.selected(model, device)


def test_R37_the_newest_activation_of_a_model_and_device_wins(store: Store, tmp_path: Path) -> None:
    old, new = staged(store, tmp_path / "old"), staged(store, tmp_path / "new", NEWER)
    for manifest, expected in ((old, 1), (new, 2), (old, 3)):
        assert store.activate(manifest.manifest).sequence == expected
        chosen = store.selected("small")
        assert chosen is not None
        assert chosen.manifest == manifest.manifest
    store.activate(new.manifest, "mlx")
    answers = {device: store.selected("small", device) for device in ("mlx", "any", "vulkan")}
    assert {device: found and found.manifest for device, found in answers.items()} == {
        "mlx": new.manifest,
        "any": old.manifest,
        "vulkan": old.manifest,
    }
    store.deactivate("small", "mlx")
    assert store.selected("small", "mlx") is None
    assert store.selected("small", "vulkan") is not None


def test_a_manifest_for_one_device_is_not_activated_on_another(store: Store, tmp_path: Path) -> None:
    made = staged(store, tmp_path / "seed", device="mlx")
    for other in ("vulkan", "any"):
        with pytest.raises(InvalidRequest, match="signed for device mlx"):
            store.activate(made.manifest, other)
    assert store.activate(made.manifest).device == "mlx"
    assert store.selected("small") is None


@pytest.mark.parametrize("kind", ["once", "late", "onwards", "crash"])
def test_R40_a_fault_at_any_call_of_an_activation_leaves_the_old_or_the_new_selection(
    tmp_path: Path, kind: str
) -> None:
    store = trusting(tmp_path / "store", Unsynced())
    old, new = staged(store, tmp_path / "old"), staged(store, tmp_path / "new", NEWER)
    store.activate(old.manifest)
    counting = FaultyLayer()
    trusting(store.folder, counting).activate(new.manifest)
    ended = set()
    for at in range(len(counting.calls)) if kind in ("once", "late") else counting.states():
        store.activate(old.manifest)
        shutil.rmtree(store.folder / "views" / new.manifest, ignore_errors=True)
        error = Crash() if kind == "crash" else disk_error(errno.EIO)
        layer = FaultyLayer(at, error, late=kind == "late", onwards=kind in ("onwards", "crash"))
        try:
            trusting(store.folder, layer).activate(new.manifest)
        except (CoresidentError, Crash):
            ended.add("failed")
        layer.bury()
        chosen = store.selected("small")
        assert chosen is not None
        assert chosen.manifest in (old.manifest, new.manifest)
        assert [state.state for state in store.verify(chosen)] == ["ok", "ok"]
        ended.add("old" if chosen.manifest == old.manifest else "new")
    assert ended == {"failed", "old", "new"}


def test_R40_what_is_selected_already_is_on_the_medium_too_when_it_is_activated_again(
    store: Store, tmp_path: Path
) -> None:
    chosen = store.activate(staged(store, tmp_path / "seed").manifest)
    layer = FaultyLayer()
    assert trusting(store.folder, layer).activate(chosen.manifest).sequence == 1
    assert ("fsync", f"store/{NAME}") in layer.calls
    assert "write" not in layer.operations


def test_a_damaged_journal_or_manifest_is_an_error_and_never_an_older_selection(store: Store, tmp_path: Path) -> None:
    old, new = staged(store, tmp_path / "old"), staged(store, tmp_path / "new", NEWER)
    store.activate(old.manifest)
    store.activate(new.manifest)
    manifest = store.folder / "manifests" / f"{new.manifest}.json"
    for path in (manifest, store.folder / NAME):
        whole = path.read_bytes()
        for damaged in (whole.replace(b"small", b"smell"), whole[:-1] + b" ", b"x", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            if path == manifest or damaged is not None:
                with pytest.raises(ArtifactInvalid):
                    store.selected("small")
                with pytest.raises(ArtifactInvalid):
                    store.gc()
            path.write_bytes(whole)
    assert store.selected("small") == attrs.evolve(new, sequence=2)


def test_a_clock_that_steps_back_changes_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = staged(store, tmp_path / "old"), staged(store, tmp_path / "new", NEWER)
    store.activate(old.manifest)
    future = time.time() + 10**8
    for path in store.folder.rglob("*"):
        os.utime(path, (future, future))
    for clock in ("time", "time_ns", "monotonic", "monotonic_ns"):
        monkeypatch.setattr(time, clock, lambda: 0)
    store.activate(new.manifest)
    monkeypatch.undo()
    chosen = store.selected("small")
    assert chosen is not None
    assert (chosen.manifest, chosen.sequence) == (new.manifest, 2)


def test_an_older_signed_manifest_can_be_selected_again_which_is_what_a_rollback_is(
    store: Store, tmp_path: Path
) -> None:
    old, new = staged(store, tmp_path / "old"), staged(store, tmp_path / "new", NEWER)
    store.activate(new.manifest)
    assert store.activate(old.manifest).manifest == old.manifest
    assert sign(manifest_of(FILES), signer()).digest == old.manifest, "signing draws nothing and knows no time"
