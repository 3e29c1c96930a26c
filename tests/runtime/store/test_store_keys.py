"""Signing keys: files that nobody else may read, signatures as in RFC 8032, and plain words without the package."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid, InvalidRequest
from coresident.runtime.store import keys, newfile
from coresident.runtime.store.faults import StoreFault
from coresident.runtime.store.keys import (
    PublicKey,
    by_id,
    generate,
    load_private,
    load_public,
    load_trusted,
    save,
    save_public,
)

from support.signed import signer
from support.stores import disk_error


@pytest.fixture(autouse=True)
def _needs_the_package() -> None:
    signer()


def test_R81_signatures_are_those_of_rfc_8032() -> None:
    key = keys.from_seed(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.public.raw.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    signature = key.sign(b"\x72")
    assert signature.hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert key.public.verifies(signature, b"\x72")
    assert not key.public.verifies(signature, b"\x73")
    assert not signer().public.verifies(signature, b"\x72")


def test_a_key_comes_back_from_its_files_which_only_its_owner_can_read(tmp_path: Path) -> None:
    key = generate()
    public = save(key, tmp_path / "new" / "my.key")
    assert (tmp_path / "new" / "my.key").stat().st_mode & 0o777 == 0o600
    assert load_private(tmp_path / "new" / "my.key").public == load_public(public) == key.public
    assert load_trusted(public.parent) == (key.public,)
    assert by_id([key.public]) == {key.public.key_id: key.public}
    assert load_trusted(tmp_path / "nowhere") == ()


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    for taken in ("my.key", "my.key.pub"):
        (tmp_path / taken).write_text("precious")
        with pytest.raises(InvalidRequest, match="never overwritten"):
            save(generate(), tmp_path / "my.key")
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {taken: "precious"}
        (tmp_path / taken).unlink()


@pytest.mark.parametrize("open_to_all", ["trusted", "trusted/a.pub"])
def test_keys_that_anybody_may_write_are_not_trusted(tmp_path: Path, open_to_all: str) -> None:
    folder = tmp_path / "trusted"
    save_public(signer().public, folder / "a.pub")
    (folder / "._a.pub").write_bytes(b"what a desktop leaves")
    (folder / "notes").write_bytes(b"no key")
    assert load_trusted(folder) == (signer().public,)
    mode = (tmp_path / open_to_all).stat().st_mode
    (tmp_path / open_to_all).chmod(mode | 0o002)
    with pytest.raises(ArtifactInvalid, match="chmod o-w"):
        load_trusted(folder)
    (tmp_path / open_to_all).chmod(mode)
    assert load_trusted(folder) == (signer().public,)
    with pytest.raises(InvalidRequest, match="can't be read"):
        load_trusted(folder / "a.pub")


@pytest.mark.parametrize("refused", ["my.key", "my.key.pub"])
def test_a_key_that_cannot_be_written_whole_leaves_neither_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def full(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), (tmp_path / "my.key").stat()) == (refused == "my.key"):
            raise disk_error(errno.ENOSPC)

    monkeypatch.setattr(newfile.os, "fsync", full)
    with pytest.raises(StoreFault, match=f"can't write .*{refused}: No space left"):
        save(generate(), tmp_path / "my.key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "pipe", "under a file", "too long"])
def test_a_key_file_that_is_none_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd.key"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "odd.key").touch()
        path = path / "odd.key" if kind == "under a file" else path.with_name("odd.key" * 100)
    for load in (load_private, load_public):
        with pytest.raises(InvalidRequest, match=r"odd\.key"):
            load(path)


def test_a_link_to_nowhere_in_a_keys_place_stays(tmp_path: Path) -> None:
    for taken in ("my.key", "my.key.pub"):
        (tmp_path / taken).symlink_to(tmp_path / "nowhere")
        with pytest.raises(InvalidRequest, match="never overwritten"):
            save(generate(), tmp_path / "my.key")
        assert [path.name for path in tmp_path.iterdir()] == [taken]
        (tmp_path / taken).unlink()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o777])
def test_a_private_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    save(generate(), tmp_path / "my.key")
    (tmp_path / "my.key").chmod(mode)
    with pytest.raises(ArtifactInvalid, match="chmod 600") as raised:
        load_private(tmp_path / "my.key")
    assert raised.value.details["value"] == f"{mode:04o}"


def test_what_is_no_ed25519_key_is_refused_with_its_file(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    other, pem = X25519PrivateKey.generate(), form.Encoding.PEM
    unlocked = other.private_bytes(pem, form.PrivateFormat.PKCS8, form.NoEncryption())
    locked = other.private_bytes(pem, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret"))
    public = other.public_key().public_bytes(pem, form.PublicFormat.SubjectPublicKeyInfo)
    path = tmp_path / "odd.key"
    path.touch(0o600)
    for text in (b"", b"\0" * 100, b"-----BEGIN PRIVATE KEY-----", b"x" * 100_000, unlocked, locked, public):
        path.write_bytes(text)
        for load in (load_private, load_public):
            with pytest.raises(ArtifactInvalid, match=r"odd\.key"):
                load(path)


def test_a_key_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    for load, advice in ((load_private, "keygen' makes a key"), (load_public, r"KEY\.pub\) of whoever signed")):
        with pytest.raises(InvalidRequest, match=advice):
            load(tmp_path / "no.key")


def test_one_half_of_a_key_in_the_place_of_the_other_is_told(tmp_path: Path) -> None:
    public = save(generate(), tmp_path / "my.key")
    public.chmod(0o600)
    with pytest.raises(ArtifactInvalid, match="it is a public one, which signs nothing"):
        load_private(public)
    with pytest.raises(ArtifactInvalid, match=r"it is a private one; give its public half \(my\.key\.pub\)"):
        load_public(tmp_path / "my.key")


def test_private_bytes_show_in_no_message(tmp_path: Path) -> None:
    key = signer()
    assert bytes(range(32)).hex() not in repr(key)
    assert "0x" not in repr(key)


@pytest.mark.parametrize("raw", [b"", b"x" * 31, b"x" * 33])
def test_a_public_key_has_32_bytes(raw: bytes) -> None:
    with pytest.raises(ValueError, match="raw"):
        PublicKey(raw)


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    public = save(generate(), tmp_path / "my.key")
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    for use in (generate, lambda: load_public(public), lambda: PublicKey(bytes(32)).verifies(bytes(64), b"")):
        with pytest.raises(InvalidRequest, match=r"pip install 'coresident\[store\]'"):
            use()
