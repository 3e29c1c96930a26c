"""Collection: what nobody selects or holds goes, everything else stays, also while others take leases and stage."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.store.artifacts import Artifacts
from coresident.runtime.store.collect import Collected, Keep, collect
from coresident.runtime.store.faults import StoreFault
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.leases import Lease, Leases

from support.faulty_layer import Crash, FaultyLayer
from support.stores import DATA, DIGEST, Pieces, contents, digest_of, disk_error, leave_part, open_store, refused

SIZE = len(DATA)
MODELS = {name: digest_of(name.encode()) for name in ("kept", "leased", "gone")}
"""Manifest digests; the artifact of each has its name as its bytes, so the same digest."""

NAMES = {digest: name for name, digest in MODELS.items()}


def furnish(path: Path) -> None:
    """A store with three models, each with manifest, view and artifact, and a staging that was cut short."""
    for folder in ("blobs", "manifests"):
        (path / folder).mkdir(parents=True)
    for name, digest in MODELS.items():
        (path / "blobs" / digest).write_bytes(name.encode())
        (path / "manifests" / f"{digest}.json").write_bytes(b"{}")
        view = path / "views" / digest
        view.mkdir(parents=True)
        (view / "model.gguf").hardlink_to(path / "blobs" / digest)
    leave_part(path, DATA[:500])


def whole(path: Path) -> dict[str, set[str]]:
    """The models by what is left of them."""
    found: dict[str, set[str]] = {name: set() for name in MODELS}
    for file in contents(path):
        kind, *rest = file.split("/")
        digest = rest[0].removesuffix(".json")
        if digest in NAMES and kind != "leases":
            found[NAMES[digest]].add(kind)
    return found


def kept(*names: str) -> Keep:
    """Keep these models."""
    digests = frozenset(MODELS[name] for name in names)
    return Keep(digests, digests)


def with_leased(leased: Iterable[str]) -> Keep:
    """What a store would keep: the selection, and what is leased."""
    return kept("kept", *(NAMES[digest] for digest in leased))


ALL, NONE = {"blobs", "manifests", "views"}, set[str]()


def test_R2_what_is_neither_kept_nor_leased_is_collected(tmp_path: Path) -> None:
    furnish(tmp_path)
    root = Folder.at(tmp_path)
    gone = MODELS["gone"]
    with Leases(root).take(MODELS["leased"]):
        assert collect(root, with_leased) == Collected((gone,), (gone,), (gone,), (), leases=0, bytes=4)
        assert whole(tmp_path) == {"kept": ALL, "leased": ALL, "gone": NONE}
        assert collect(root, with_leased) == Collected((), (), (), (), leases=0, bytes=0)
    leased = MODELS["leased"]
    assert collect(root, with_leased, partials=True) == Collected(
        (leased,), (leased,), (leased,), (DIGEST,), leases=0, bytes=6
    )
    assert whole(tmp_path) == {"kept": ALL, "leased": NONE, "gone": NONE}
    assert not any((tmp_path / "staging").iterdir())


def test_R2_a_leased_manifest_stays_even_when_the_caller_forgets_it(tmp_path: Path) -> None:
    furnish(tmp_path)
    root = Folder.at(tmp_path)
    with Leases(root).take(MODELS["leased"]):
        collect(root, lambda _: kept("kept"))
    assert whole(tmp_path)["leased"] == {"manifests", "views"}


def test_an_empty_store_has_nothing_to_collect(tmp_path: Path) -> None:
    assert collect(Folder.at(tmp_path), with_leased, partials=True) == Collected((), (), (), (), leases=0, bytes=0)


def test_files_that_are_not_the_stores_are_left_alone(tmp_path: Path) -> None:
    foreign = {f"{folder}/notes.txt": b"mine" for folder in ("blobs", "staging", "manifests", "views")}
    for name, data in foreign.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    collect(Folder.at(tmp_path), with_leased, partials=True)
    assert contents(tmp_path) == {**foreign, "leases/gate": b""}


def test_a_staging_that_goes_on_is_not_disturbed(tmp_path: Path) -> None:
    artifacts = open_store(tmp_path)
    found = []

    def look(_: int, __: int) -> None:
        found.append(collect(artifacts.root, with_leased, partials=True).partials)

    assert artifacts.stage(Pieces(), DIGEST, SIZE, look).published
    assert found == [()] * 4


def test_an_error_in_keep_comes_through_and_nothing_is_deleted(tmp_path: Path) -> None:
    furnish(tmp_path)
    root = Folder.at(tmp_path)

    def broken(_: frozenset[str]) -> Keep:
        raise LookupError("the journal is damaged")

    before = contents(tmp_path)
    with pytest.raises(LookupError):
        collect(root, broken)
    assert contents(tmp_path) == {**before, "leases/gate": b""}
    with Leases(root).take(DIGEST, timeout_s=0) as lease:
        assert lease.held


def test_a_lease_that_comes_while_a_collection_looks_waits_and_finds_the_files_gone(tmp_path: Path) -> None:
    furnish(tmp_path)
    layer, at_gate = FaultyLayer(), threading.Event()
    layer.before["lock"] = lambda _: at_gate.set()
    reader = Artifacts(Folder.at(tmp_path, layer))
    with ThreadPoolExecutor() as pool:

        def keep(leased: frozenset[str]) -> Keep:
            taking.append(pool.submit(Leases(reader.root).take, MODELS["gone"], None))
            assert at_gate.wait(60)
            return with_leased(leased)

        taking = []
        assert collect(Folder.at(tmp_path), keep).artifacts == tuple(sorted((MODELS["gone"], MODELS["leased"])))
        with taking[0].result(), refused("missing"):
            reader.verify(MODELS["gone"])


def test_R2_readers_and_a_collector_race_and_no_reader_loses_what_it_found(tmp_path: Path) -> None:
    furnish(tmp_path)
    digest, over = MODELS["leased"], threading.Event()
    found: list[bool] = []

    def read() -> None:
        artifacts = Artifacts(Folder.at(tmp_path))
        while not over.is_set():
            with Leases(artifacts.root).take(digest):
                here = artifacts.has(digest)
                found.append(here)
                for _ in range(3):
                    assert artifacts.has(digest) or not here

    def write() -> None:
        artifacts = Artifacts(Folder.at(tmp_path))
        try:
            for _ in range(25):
                collect(artifacts.root, with_leased)
                if not artifacts.has(digest):
                    with Leases(artifacts.root).gate(shared=False):
                        artifacts.stage(Pieces(b"leased"), digest, 6)
        finally:
            over.set()

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(read), pool.submit(read), pool.submit(write)]:
            done.result(120)
    assert any(found)
    assert Leases(Folder.at(tmp_path)).count(digest) == 0


@pytest.mark.parametrize("late", [False, True], ids=["undone", "done"])
@pytest.mark.parametrize("error", [disk_error(5), Crash()], ids=["EIO", "killed"])
def test_a_collection_that_fails_at_any_call_leaves_what_is_kept_whole_and_can_be_done_again(
    tmp_path: Path, error: BaseException, late: bool
) -> None:
    furnish(tmp_path / "counted")
    counted = FaultyLayer()
    collect(Folder.at(tmp_path / "counted", counted), with_leased, partials=True)
    for index in range(1, len(counted.calls)):
        store = tmp_path / str(index)
        furnish(store)
        layer = FaultyLayer(index, error, late=late, onwards=isinstance(error, Crash))
        lease = _stale_lease(store)
        root = Folder.at(store, layer)
        with pytest.raises((StoreFault, ArtifactInvalid, Crash)):
            collect(root, with_leased, partials=True)
        layer.bury()
        left = whole(store)
        assert left["kept"] == ALL
        # What refers to an artifact is gone before the artifact is.
        assert all("blobs" in parts or parts == NONE for parts in left.values())
        collect(Folder.at(store, FaultyLayer()), with_leased, partials=True)
        assert whole(store) == {"kept": ALL, "leased": NONE, "gone": NONE}
        assert not (store / "leases" / lease).exists()


def _stale_lease(store: Path) -> str:
    """The name of a lease whose holder is gone."""
    lease: Lease = Leases(Folder.at(store, FaultyLayer())).take(MODELS["gone"])
    name = f"{lease.name}/{lease.entry}"
    lease.release()
    (store / "leases" / name).parent.mkdir(exist_ok=True)
    (store / "leases" / name).write_bytes(b"")
    return name
