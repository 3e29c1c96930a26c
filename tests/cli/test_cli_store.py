"""``coresident store``: from a key to a repaired model, told in a few lines, and one line for what is wrong."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from coresident.runtime.store import newfile
from coresident.runtime.store.keys import save, save_public

from support.signed import FILES, signer, staged, trusting
from support.stores import Unsynced, contents, disk_error


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and store of the user are below the test's folder, which is also where the user is."""
    signer()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CORESIDENT_STORE", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def active(model: Path, tmp_path: Path) -> Path:
    """The blobs of a store in which the model is active; the model's folder is its seed."""
    config, folder = tmp_path / "config" / "coresident", tmp_path / "data" / "coresident" / "store"
    save(signer(), config / "signing.key")
    save_public(signer().public, config / "trusted" / "mine.pub")
    store = trusting(folder, Unsynced())
    store.activate(staged(store, model).manifest)
    return folder / "blobs"


def flip(path: Path) -> None:
    path.chmod(0o600)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_from_a_key_to_an_active_model_and_a_repaired_one(cli: Callable, model: Path, tmp_path: Path) -> None:
    for arguments in (("keygen", "--trust"), ("sign", "small", model), ("stage", model), ("activate", model)):
        done = cli("store", *arguments)
        assert (done.code, done.err) == (0, "")
    active = tmp_path / "data" / "coresident" / "store" / "blobs"
    listed = cli("store", "list", "--json").json()
    assert listed["selections"] == [
        {"model": "small", "device": "any", "manifest": listed["manifests"][0]["digest"], "sequence": 1}
    ]
    assert (listed["artifacts"], listed["bytes"]) == (2, sum(map(len, FILES.values())))
    shown = cli("store", "list").out
    assert listed["manifests"][0]["digest"][:12] in shown
    assert "small" in shown
    verified = cli("store", "verify")
    assert verified.code == 0
    assert verified.out.count(" ok") == 2
    for blob in active.iterdir():
        flip(blob)
    verified = cli("store", "verify")
    assert (verified.code, verified.err) == (1, "")
    assert verified.out.count("damaged") == 2 + 1
    assert "coresident store repair small --from FOLDER\n" in verified.out
    report = cli("store", "verify", "small", "--json").json()
    assert report["whole"] is report["selections"][0]["whole"] is False
    assert {file["name"]: file["state"] for file in report["selections"][0]["files"]} == dict.fromkeys(FILES, "damaged")
    refused = cli("store", "repair", "small")
    assert refused.code == 2
    assert "2 files are not whole: model.gguf (SHA-256" in refused.err
    repaired = cli("store", "repair", "small", "--from", model)
    assert repaired.code == 0
    assert repaired.out.splitlines()[-1] == "small, 2 files, 614 B: every byte is what was signed."
    assert cli("store", "verify", "--json").json()["whole"] is True


def test_gc_deletes_what_is_deselected(cli: Callable, active: Path) -> None:
    assert cli("store", "gc").out.startswith("Deleted manifests: 0; artifacts: 0, 0 B;")
    assert cli("store", "deactivate", "small").code == 0
    done = cli("store", "gc")
    assert done.out == "Deleted manifests: 1; artifacts: 2, 614 B; unfinished copies: 0; stale leases: 0.\n"
    assert list(active.iterdir()) == []
    assert "nothing" in cli("store", "list").out
    assert "nothing is selected" in cli("store", "verify").out


def test_a_manifest_lost_from_the_store_is_verified_as_damaged_and_repaired(
    cli: Callable, active: Path, model: Path
) -> None:
    kept = next((active.parent / "manifests").iterdir())
    flip(kept)
    verified = cli("store", "verify")
    assert verified.code == 1
    assert "refused" in verified.out
    assert "damaged" in cli("store", "list").out
    assert cli("store", "repair", "small").code == 2
    repaired = cli("store", "repair", "small", "--from", model)
    assert repaired.code == 0
    assert repaired.out.startswith("Replaced manifest ")
    assert cli("store", "verify").code == 0


def test_what_is_not_signed_or_not_copied_again_is_told(cli: Callable, active: Path, model: Path) -> None:
    for folder in ("onnx", ".git"):
        (model / folder).mkdir()
    signed = cli("store", "sign", "small", model, "--out", "other.json", "--notes", "again")
    assert signed.out.splitlines()[0] == f"Left out: {model / 'onnx'}; a model's files are in one folder."
    done = cli("store", "stage", "other.json", "--from", model)
    assert done.out.splitlines()[0] == "small, 2 files, 614 B: 0 copied, 2 there already."
    assert done.out.splitlines()[1].endswith(signed.out.split()[-1][:12])


def test_keys_and_store_can_be_named(
    cli: Callable, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other, store = tmp_path / "my.key", tmp_path / "other.key", tmp_path / "my store"
    for path in (key, other):
        done = cli("store", "keygen", path)
        assert f"--trust {path}.pub" in done.out
        assert path.stat().st_mode & 0o777 == 0o600
    out = tmp_path / "my.json"
    files = sorted(model.iterdir())
    signed = cli("store", "sign", "org/small", *files, "--key", key, "--out", out, "--notes", "for tests")
    digest = signed.out.split()[-1]
    refused = cli("store", "stage", out, "--store", store, "--from", model, "--trust", f"{other}.pub")
    assert refused.code == 2
    assert "not trusted" in refused.err
    assert not store.exists()
    trust = ("--trust", f"{other}.pub", "--trust", f"{key}.pub")
    assert cli("store", "stage", out, "--store", store, "--from", model, *trust).code == 0
    monkeypatch.setenv("CORESIDENT_STORE", str(store))
    done = cli("store", "activate", digest[:8], *trust)
    assert done.out == f"org/small on device any runs from manifest {digest} (record 1).\n"
    assert cli("store", "activate", digest, "--device", "mlx", *trust).out.endswith("(record 2).\n")
    verified = cli("store", "verify", "org/small", "--device", "mlx", *trust)
    assert verified.code == 0
    assert contents(store / "views") == {f"{digest}/{name}": data for name, data in FILES.items()}


def test_what_is_signed_already_is_not_overwritten(cli: Callable, active: Path, model: Path) -> None:
    before = contents(model)
    assert "never overwritten" in cli("store", "keygen").err
    done = cli("store", "sign", "small", model)
    assert done.code == 2
    assert "--out" in done.err
    assert contents(model) == before


def test_a_manifest_for_which_the_disk_has_no_room_is_not_begun(
    cli: Callable, active: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise disk_error(errno.ENOSPC)

    monkeypatch.setattr(newfile.os, "fsync", full)
    done = cli("store", "sign", "small", "model", "--out", "new.json")
    assert (done.code, done.out) == (1, "")
    assert "can't write new.json: No space left" in done.err
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("sign", "small", "nowhere"), "no file or folder nowhere"),
        (("sign", "../x", "model"), "model is '../x'"),
        (("sign", "small", "model", "--key", "no.key"), "no key file no.key"),
        (("sign", "small", "model", "--key", "model/model.gguf"), "others than its owner"),
        (("sign", "small", "empty"), "no files to sign in empty"),
        (("sign", "small", "hollow"), "size is 0"),
        (("stage", "nowhere"), "no manifest to read"),
        (("stage", "model/tokenizer.json"), "model/tokenizer.json"),
        (("stage", "model", "--trust", "no.pub"), "no key file no.pub"),
        (("activate", "0123456789"), "no manifest in"),
        (("activate", "other"), "no manifest in"),
        (("sign", "small", "model", "--key", "maker.pub"), "it is a public one"),
        (("verify", "--trust", "no.pub"), "(KEY.pub) of whoever signed"),
        (("sign", "small", "broken"), "links that lead nowhere: broken/model.gguf -> no/where"),
        (("sign", "small", "broken/model.gguf"), "links that lead nowhere: broken/model.gguf -> no/where"),
        (("sign", "small", "outside"), "there are only folders (inside)"),
        (
            ("stage", "model/manifest.json", "--from", "broken", "--store", "new"),
            "model.gguf there is a link to no/where",
        ),
        (("deactivate", "other"), "nothing is selected for other"),
        (("sign", "small", "model", "--key", "model"), "model can't be read: Is a directory"),
        (("sign", "small", "model", "--out", "no/where.json"), "no/where.json"),
        (("keygen", "model/model.gguf/x"), "can't write model/model.gguf/x"),
        (("list", "--store", "x" * 300), "File name too long"),
        (("verify", "other"), "nothing is selected for other"),
        (("repair", "other", "--from", "model"), "nothing is selected for other"),
        (("repair", "a b"), "nothing is selected for a b"),
        (("gc", "--store", "nowhere"), "no store here"),
        (("activate", "model", "--store", "nowhere"), "no store here"),
        (("list", "--store", "model/model.gguf"), "model.gguf"),
    ],
)
def test_wrong_input_gets_one_line(
    cli: Callable, active: Path, tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow" / "model.gguf").touch()
    (tmp_path / "outside" / "inside").mkdir(parents=True)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.gguf").symlink_to("no/where")
    (tmp_path / "maker.pub").write_bytes(signer().public.pem())
    (tmp_path / "maker.pub").chmod(0o600)
    done = cli("store", *arguments)
    assert done.code in (1, 2)
    assert done.out == ""
    assert named in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_listing_where_there_is_no_store_makes_none(cli: Callable, tmp_path: Path) -> None:
    assert "there is no store yet" in cli("store", "list").out
    assert cli("store", "list", "--json").json()["exists"] is False
    assert "nothing is selected" in cli("store", "verify").out
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_one_line_says_what_to_install(
    cli: Callable, active: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    for arguments in (("keygen", "new.key"), ("verify",), ("sign", "small", "model", "--out", "new.json")):
        done = cli("store", *arguments)
        assert (done.code, done.out) == (2, "")
        assert "pip install 'coresident[store]'" in done.err
    assert cli("store", "list").code == 0, "listing needs no keys"


def test_help_documents_every_command_and_its_exit_codes(cli: Callable) -> None:
    commands = ("keygen", "sign", "stage", "activate", "deactivate", "verify", "repair", "gc", "list")
    overview = cli("store", "--help").out
    assert all(command in overview for command in commands)
    for command in commands:
        assert "Exit codes" in cli("store", command, "--help").out


def test_the_store_s_places_follow_the_xdg_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from coresident.runtime.store.places import default_key, default_store, default_trusted

    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_store({"CORESIDENT_STORE": "~/mine"}) == tmp_path / "mine"
    assert default_store({"XDG_DATA_HOME": "/data"}) == Path("/data/coresident/store")
    assert default_store({"XDG_DATA_HOME": "relative"}) == tmp_path / ".local" / "share" / "coresident" / "store"
    assert default_trusted({}) == tmp_path / ".config" / "coresident" / "trusted"
    assert default_key({"XDG_CONFIG_HOME": os.sep}) == Path("/coresident/signing.key")
