"""What ``coresident store`` says to do next can be done, and a repair works from whatever state a store is in."""

from __future__ import annotations

import errno
import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.backends.catalog import open_backend
from coresident.runtime.logged import Logged, warn
from coresident.runtime.store import newfile
from coresident.runtime.store.digests import Reader
from coresident.runtime.store.staging import Part

from coresident.cli.logs import Level, configure
from support.signed import NEWER, signer, write_seed
from support.spoiling import WAYS, check_whole, spoil
from support.stored_models import FILE, Shop, open_shop
from support.stores import disk_error


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CORESIDENT_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return open_shop(tmp_path)


def options(shop: Shop) -> tuple[object, ...]:
    return ("--store", shop.store.folder, "--trust", shop.key)


@pytest.mark.parametrize(("blob", "view", "manifest"), WAYS)
def test_R27_repair_makes_a_store_whole_from_any_state(
    cli: Callable, shop: Shop, blob: str, view: str, manifest: str
) -> None:
    spoil(shop, blob, view, manifest)
    done = cli("store", "repair", "tiny", "--from", shop.seed, *options(shop))
    assert (done.code, done.err) == (0, "")
    assert ("Replaced manifest" in done.out, f"Replaced {FILE}" in done.out) == (manifest != "whole", blob != "whole")
    check_whole(shop)


@pytest.mark.parametrize(
    ("blob", "manifest"), [("missing", "whole"), ("damaged", "whole"), ("whole", "missing"), ("whole", "damaged")]
)
def test_R27_the_command_that_a_refused_opening_names_repairs(
    cli: Callable, shop: Shop, blob: str, manifest: str
) -> None:
    spoil(shop, blob, "whole", manifest)
    with pytest.raises(ArtifactInvalid) as refused:
        open_backend(shop.config(seed=True))
    name, *words = shlex.split(refused.value.message.split("'")[-2])
    assert name == "coresident"
    assert cli(*words).code == 0
    check_whole(shop)


def test_R27_without_a_source_repair_says_which_option_names_one(cli: Callable, shop: Shop) -> None:
    shop.damage()
    assert cli("store", "repair", "tiny", *options(shop)).err.endswith("(--from FOLDER)\n")
    verified = cli("store", "verify", *options(shop)).out
    assert f"store repair tiny --from FOLDER --store {shop.store.folder} --trust {shop.key}" in verified


def test_a_key_that_is_not_trusted_is_told_with_the_places_of_trust_and_repairs_nothing(
    cli: Callable, shop: Shop, tmp_path: Path
) -> None:
    verified = cli("store", "verify", "--store", shop.store.folder)
    assert verified.code == 1
    assert f"copy it into {tmp_path / 'config' / 'coresident' / 'trusted'}, or name it in [store] keys" in verified.out
    assert "repair" not in verified.out
    refused = cli("store", "repair", "tiny", "--store", shop.store.folder)
    assert "not trusted" in refused.err
    assert "--from" not in refused.err


def test_a_snapshot_of_links_is_signed_and_staged_and_links_to_folders_are_named(
    cli: Callable, shop: Shop, tmp_path: Path
) -> None:
    """As the cache of Hugging Face is: names that are links to files which are named by digest."""
    blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "main"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name, data in NEWER.items():
        (blobs / name[::-1]).write_bytes(data)
        (snapshot / name).symlink_to(Path("../../blobs") / name[::-1])
    (snapshot / "onnx").symlink_to("../../blobs")
    (tmp_path / "my.key").write_bytes(signer().pem())
    (tmp_path / "my.key").chmod(0o600)
    signed = cli("store", "sign", "linked", snapshot, "--key", "my.key", "--out", "linked.json")
    assert signed.out.splitlines()[0] == f"Left out: {snapshot / 'onnx'}; a model's files are in one folder."
    staged = cli("store", "stage", "linked.json", "--from", snapshot, *options(shop))
    assert "2 copied" in staged.out
    command = shlex.split(staged.out.splitlines()[-1].partition(": ")[2])
    assert cli(*command[1:]).code == 0
    shutil.rmtree(tmp_path / "hub")
    assert cli("store", "verify", "linked", *options(shop)).code == 0


def test_a_model_is_activated_by_its_name_when_one_manifest_has_it(cli: Callable, shop: Shop, tmp_path: Path) -> None:
    assert "from manifest" in cli("store", "activate", "tiny", *options(shop)).out
    write_seed(tmp_path / "newer", NEWER, "tiny")
    assert cli("store", "stage", tmp_path / "newer", *options(shop)).code == 0
    assert "2 manifests" in cli("store", "activate", "tiny", *options(shop)).err


def test_an_interrupted_staging_says_that_it_is_gone_on_with(
    cli: Callable, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_seed(tmp_path / "newer", NEWER, "newer")
    fill = Part.fill

    def interrupted(part: Part, reader: Reader, progress: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Part, "fill", interrupted)
    done = cli("store", "stage", "newer", *options(shop))
    assert (done.code, done.out) == (130, "")
    assert done.err == "coresident: interrupted; the same command goes on from here.\n"
    monkeypatch.setattr(Part, "fill", fill)
    assert cli("store", "stage", "newer", *options(shop)).code == 0


def test_gc_says_what_it_keeps_because_it_is_in_use(cli: Callable, shop: Shop) -> None:
    shop.store.deactivate("tiny")
    with shop.store.lease(shop.selection):
        assert cli("store", "gc", *options(shop)[:2]).out.splitlines()[1:] == [
            "Kept, because in use: 1 model that nothing selects."
        ]
    assert len(cli("store", "gc", *options(shop)[:2]).out.splitlines()) == 1


class Terminal(io.StringIO):
    """What a person reads, without colours."""

    def isatty(self) -> bool:
        return True


def test_a_warning_of_a_read_only_store_is_a_sentence_on_a_terminal_and_json_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        configure(Level.WARNING)
        warn(Logged.LEASE_UNAVAILABLE, model="sea", error="it is read-only", effect="the model runs")
        said[stream.isatty()] = stream.getvalue()
    assert "lease.unavailable: the model runs (it is read-only)" in said[True]
    assert json.loads(said[False])["effect"] == "the model runs"


def test_a_full_disk_promises_nothing_of_a_key(cli: Callable, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise disk_error(errno.ENOSPC)

    monkeypatch.setattr(newfile.os, "fsync", full)
    assert cli("store", "keygen", "new.key").err.endswith("free some space and try again\n")


def test_a_damaged_journal_is_told_once(cli: Callable, shop: Shop) -> None:
    journal = shop.store.folder / "journal"
    journal.write_bytes(journal.read_bytes().replace(b"tiny", b"tinz"))
    assert cli("store", "list", "--store", shop.store.folder).err.count(str(journal)) == 1
