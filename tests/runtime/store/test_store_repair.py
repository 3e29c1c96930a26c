"""Verify and repair: every byte is read, what is not right is replaced from a source, and what has none is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.store.selection import Selection
from coresident.runtime.store.store import Store

from support.signed import FILES, signer, staged, trusting
from support.stores import contents


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    return tmp_path / "seed"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return trusting(tmp_path / "store")


@pytest.fixture
def chosen(store: Store, seed: Path) -> Selection:
    return store.activate(staged(store, seed).manifest)


def blob(store: Store, chosen: Selection, name: str) -> Path:
    return next(store.folder / "blobs" / entry.digest for entry in chosen.files if entry.name == name)


def damage(path: Path, position: int = 3) -> None:
    """Flip a bit in place, as a bad disk does: size, names and links stay."""
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def states(store: Store, chosen: Selection) -> dict[str, str]:
    return {state.entry.name: state.state for state in store.verify(chosen)}


def test_R27_verification_reads_bytes_and_one_flipped_bit_anywhere_is_found(store: Store, chosen: Selection) -> None:
    assert states(store, chosen) == {"model.gguf": "ok", "tokenizer.json": "ok"}
    path = blob(store, chosen, "tokenizer.json")
    for position in range(len(FILES["tokenizer.json"])):
        damage(path, position)
        assert states(store, chosen) == {"model.gguf": "ok", "tokenizer.json": "damaged"}
        damage(path, position)
    path.unlink()
    assert states(store, chosen) == {"model.gguf": "ok", "tokenizer.json": "missing"}


def test_R27_repair_replaces_what_exists_and_is_wrong(store: Store, chosen: Selection, seed: Path) -> None:
    view = store.path(chosen)
    damage(blob(store, chosen, "model.gguf"))
    assert (view / "model.gguf").read_bytes() != FILES["model.gguf"], "a view shares the bytes"
    with (view / "model.gguf").open("rb") as reader:
        assert store.repair(chosen, seed) == (chosen.files[0].digest,)
        assert reader.read() != FILES["model.gguf"], "who has the old file open keeps it"
    assert contents(view) == FILES
    assert states(store, chosen) == {"model.gguf": "ok", "tokenizer.json": "ok"}
    assert store.repair(chosen, seed) == store.repair(chosen) == ()


def test_R27_without_a_source_it_says_exactly_what_is_missing(store: Store, chosen: Selection) -> None:
    damage(blob(store, chosen, "model.gguf"))
    blob(store, chosen, "tokenizer.json").unlink()
    with pytest.raises(ArtifactInvalid, match="2 files are not whole") as raised:
        store.repair(chosen)
    assert raised.value.details["value"] == ["model.gguf", "tokenizer.json"]
    for entry in chosen.files:
        assert f"{entry.name} (SHA-256 {entry.digest}, {entry.size} bytes)" in raised.value.message


def test_R27_a_source_is_not_believed_and_what_it_has_right_is_used(
    store: Store, chosen: Selection, seed: Path
) -> None:
    for name in FILES:
        damage(blob(store, chosen, name))
    damage(seed / "model.gguf")
    with pytest.raises(ArtifactInvalid, match="1 file is not whole") as raised:
        store.repair(chosen, seed)
    assert raised.value.details["value"] == ["model.gguf"]
    assert states(store, chosen) == {"model.gguf": "damaged", "tokenizer.json": "ok"}
    assert not list((store.folder / "staging").iterdir())
    (seed / "model.gguf").unlink()
    with pytest.raises(ArtifactInvalid, match=r"seed has no file model\.gguf"):
        store.repair(chosen, seed)


def test_a_source_may_be_another_store_files_by_digest_or_one_file(
    store: Store, chosen: Selection, seed: Path, tmp_path: Path
) -> None:
    other = trusting(tmp_path / "other")
    staged(other, tmp_path / "again")
    digests = tmp_path / "digests"
    digests.mkdir()
    (digests / chosen.files[0].digest).write_bytes(FILES["model.gguf"])
    for source in (other.folder, digests, seed / "model.gguf"):
        damage(blob(store, chosen, "model.gguf"))
        assert store.repair(chosen, source) == (chosen.files[0].digest,)
    damage(blob(store, chosen, "model.gguf"))
    with pytest.raises(InvalidRequest, match="no folder or file"):
        store.repair(chosen, tmp_path / "nowhere")


def test_what_progress_raises_ends_a_repair_and_the_next_one_does_it(
    store: Store, chosen: Selection, seed: Path
) -> None:
    class StopHere(Exception):
        pass

    def stop(_: int) -> None:
        raise StopHere

    damage(blob(store, chosen, "model.gguf"))
    with pytest.raises(StopHere):
        store.repair(chosen, seed, stop)
    told: list[int] = []
    store.repair(chosen, seed, told.append)
    assert sum(told) >= chosen.size
    assert min(told) > 0
    assert contents(store.path(chosen)) == FILES


def test_R26_a_repair_needs_no_reader_to_go(store: Store, chosen: Selection, seed: Path) -> None:
    with store.lease(chosen) as lease:
        damage(blob(store, chosen, "model.gguf"))
        store.repair(chosen, seed)
        assert lease.held
        assert store.status().manifests[0].leases == 1
    assert store.status().manifests[0].leases == 0


def test_repair_looks_at_bytes_and_needs_no_key(chosen: Selection, store: Store, seed: Path) -> None:
    damage(blob(store, chosen, "model.gguf"))
    assert Store(store.folder, (signer(1).public,)).repair(chosen, seed) == (chosen.files[0].digest,)
