"""First use: a seed that a trusted key has signed is imported once, however often the import is cut short."""

from __future__ import annotations

import errno
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid, CoresidentError
from coresident.runtime.store.journal import NAME
from coresident.runtime.store.manifest import FILE_NAME
from coresident.runtime.store.seed import import_seed, restore_manifest
from coresident.runtime.store.store import Store

from support.faulty_layer import Crash, FaultyLayer
from support.signed import FILES, NEWER, signer, staged, trusting, write_seed
from support.stores import Unsynced, contents, disk_error, leave_part


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return trusting(tmp_path / "store")


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    write_seed(tmp_path / "seed")
    return tmp_path / "seed"


def test_R25_first_use_imports_the_seed_and_a_second_start_imports_nothing(store: Store, seed: Path) -> None:
    told: list[int] = []
    chosen = import_seed(store, seed, told.append)
    assert chosen is not None
    assert chosen == store.selected("small")
    assert contents(store.path(chosen)) == FILES
    assert sum(told) > chosen.size
    before = contents(store.folder)
    del told[:]
    assert import_seed(store, seed, told.append) is None
    assert (contents(store.folder), told) == (before, [])


def test_R25_an_unauthenticated_seed_is_refused_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    write_seed(tmp_path / "foreign", key=signer(1))
    with pytest.raises(ArtifactInvalid, match=r"foreign.*manifest\.json: key is .* not trusted"):
        import_seed(store, tmp_path / "foreign")
    (tmp_path / "bare").mkdir()
    with pytest.raises(ArtifactInvalid, match="no manifest to read"):
        import_seed(store, tmp_path / "bare")
    changed = write_seed(tmp_path / "changed").text().replace(b'"small"', b'"other"')
    (tmp_path / "changed" / FILE_NAME).write_bytes(changed)
    with pytest.raises(ArtifactInvalid, match="not this key's signature"):
        import_seed(store, tmp_path / "changed")
    assert not store.folder.exists()


@pytest.mark.parametrize("damage", ["flipped", "short", "missing"])
def test_R25_a_seed_whose_files_are_not_what_was_signed_is_not_activated(store: Store, seed: Path, damage: str) -> None:
    file = seed / "tokenizer.json"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"X" + file.read_bytes()[1:] if damage == "flipped" else b"{")
    with pytest.raises(ArtifactInvalid, match=r"tokenizer\.json"):
        import_seed(store, seed)
    assert store.selected("small") is None
    assert not (store.folder / NAME).exists()
    write_seed(seed)
    assert import_seed(store, seed) is not None


@pytest.mark.parametrize("kind", ["once", "crash"])
def test_R25_an_import_cut_short_at_any_call_is_gone_on_with(tmp_path: Path, seed: Path, kind: str) -> None:
    write_seed(seed, {"model.gguf": FILES["model.gguf"]})
    counting = FaultyLayer()
    import_seed(trusting(tmp_path / "counted", counting), seed)
    # Of calls that do the same to the same file the last one fails; a process that dies leaves each state once.
    alike = {call: at for at, call in enumerate(counting.calls)}
    for at in counting.states() if kind == "crash" else alike.values():
        folder = tmp_path / f"store{at}"
        layer = FaultyLayer(at, Crash() if kind == "crash" else disk_error(errno.EIO), onwards=kind == "crash")
        try:
            import_seed(trusting(folder, layer), seed)
        except (CoresidentError, Crash):
            layer.bury()
        store = trusting(folder, Unsynced())
        import_seed(store, seed)
        chosen = store.selected("small")
        assert chosen is not None
        assert [state.state for state in store.verify(chosen)] == ["ok"]


def test_R25_an_import_is_gone_on_with_when_a_loss_of_power_left_zeros_in_a_part(store: Store, seed: Path) -> None:
    entry = write_seed(seed).manifest.files[0]
    leave_part(store.folder, bytes(entry.size - 9), entry.digest)
    chosen = import_seed(store, seed)
    assert chosen is not None
    assert contents(store.path(chosen)) == FILES


def test_R25_what_came_after_the_seed_stays_also_when_that_is_nothing(store: Store, seed: Path, tmp_path: Path) -> None:
    import_seed(store, seed)
    newer = store.activate(staged(store, tmp_path / "newer", NEWER).manifest)
    assert import_seed(store, seed) is None
    assert store.selected("small") == newer
    store.deactivate("small")
    assert import_seed(store, seed) is None
    assert store.selected("small") is None


def test_R25_a_seed_never_overtakes_an_activation_made_meanwhile(
    store: Store, seed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = staged(store, tmp_path / "newer", NEWER)
    stage = Store.stage

    def slowly(self: Store, *arguments: object) -> tuple[str, ...]:
        store.activate(newer.manifest)
        return stage(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "stage", slowly)
    chosen = import_seed(store, seed)
    assert chosen is not None
    assert chosen.manifest == newer.manifest


def test_R25_a_collection_meanwhile_takes_nothing_from_an_import(
    store: Store, seed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Store.stage

    def beside_a_collection(self: Store, *arguments: object) -> tuple[str, ...]:
        self.gc()
        staged = stage(self, *arguments)  # type: ignore[arg-type]
        assert self.gc().artifacts == ()
        return staged

    monkeypatch.setattr(Store, "stage", beside_a_collection)
    assert import_seed(store, seed) is not None


def test_R25_a_seed_can_be_a_resource_of_a_package(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_seed(tmp_path / "packages" / "seeded_application" / "model")
    (tmp_path / "packages" / "seeded_application" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "packages")
    chosen = import_seed(store, files("seeded_application") / "model")
    monkeypatch.delitem(sys.modules, "seeded_application")
    assert chosen is not None
    assert contents(store.path(chosen)) == FILES


def test_a_manifest_that_the_store_has_lost_comes_back_from_the_seed_or_another_store(
    store: Store, seed: Path, tmp_path: Path
) -> None:
    chosen = import_seed(store, seed)
    assert chosen is not None
    other = trusting(tmp_path / "other")
    import_seed(other, seed)
    kept = store.folder / "manifests" / f"{chosen.manifest}.json"
    for source in (seed, seed / FILE_NAME, other.folder):
        for damaged in (None, b"{"):
            kept.unlink()
            if damaged is not None:
                kept.write_bytes(damaged)
            restore_manifest(store, chosen.manifest, source)
            assert store.selected("small") == chosen
    write_seed(seed, NEWER)
    with pytest.raises(ArtifactInvalid, match="is the one that is missing"):
        restore_manifest(store, chosen.manifest, seed)
