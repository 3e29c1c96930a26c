"""Keys that sign manifests: Ed25519 (RFC 8032), in PEM files as OpenSSL writes and reads them.

A key is named by its id, the SHA-256 of its 32 public bytes. Private keys are files that only their owner can read;
others are refused, as ``ssh`` refuses them. The cryptography is the package ``cryptography``, imported when used.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ...actors.errors import ArtifactInvalid, InvalidRequest
from .faults import translated
from .newfile import require_new, write_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PUBLIC_SUFFIX = ".pub"
MAX_KEY_FILE = 16 * 1024
SIGNATURE_BYTES = 64
_PUBLIC_PEM, _PRIVATE_PEM = b"BEGIN PUBLIC KEY", b"PRIVATE KEY"
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@attrs.frozen(slots=False)
class PublicKey:
    """The half of a key that may be given away: 32 bytes."""

    raw: bytes = attrs.field(validator=[attrs.validators.min_len(32), attrs.validators.max_len(32)])

    @cached_property
    def key_id(self) -> str:
        """SHA-256 of the key, as 64 lower-case hexadecimal digits."""
        return hashlib.sha256(self.raw).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` (64 bytes) is this key's, of ``message``.

        Raises:
            InvalidRequest: ``cryptography`` is not installed.
        """
        modules = _cryptography()
        try:
            modules.ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except modules.InvalidSignature:
            return False
        return True

    def pem(self) -> bytes:
        """The key as a public PEM file (``SubjectPublicKeyInfo``)."""
        modules = _cryptography()
        key = modules.ed25519.Ed25519PublicKey.from_public_bytes(self.raw)
        form = modules.serialization
        pem: bytes = key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        return pem


@attrs.frozen
class PrivateKey:
    """The half of a key that signs; its bytes show in no ``repr``."""

    _key: Ed25519PrivateKey = attrs.field(repr=False, eq=False)
    public: PublicKey

    def sign(self, message: bytes) -> bytes:
        """The signature of ``message``, 64 bytes; the same each time (Ed25519 draws nothing)."""
        return self._key.sign(message)

    def pem(self) -> bytes:
        """The key as a private PEM file (PKCS #8), not encrypted."""
        form = _cryptography().serialization
        pem: bytes = self._key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        return pem


def generate() -> PrivateKey:
    """A new key from the system's randomness. Raises ``InvalidRequest`` without ``cryptography``."""
    return _private(_cryptography().ed25519.Ed25519PrivateKey.generate())


def from_seed(seed: bytes) -> PrivateKey:
    """The key of 32 secret bytes: always the same one."""
    return _private(_cryptography().ed25519.Ed25519PrivateKey.from_private_bytes(seed))


def save(key: PrivateKey, path: Path) -> Path:
    """Write the key to ``path``, for its owner only, and its public half beside it; returns the latter's path.

    Raises:
        InvalidRequest: one of the files is there; a key is never overwritten.
        StoreFault: the system refuses to write one; then neither is there.
    """
    public = path.with_name(path.name + PUBLIC_SUFFIX)
    require_new(public)
    _save(path, key.pem(), 0o600)
    try:
        save_public(key.public, public)
    except BaseException:
        path.unlink()
        raise
    return public


def save_public(key: PublicKey, path: Path) -> None:
    """Write a public key to ``path``. Raises like :func:`save`."""
    _save(path, key.pem(), 0o644)


def load_private(path: Path) -> PrivateKey:
    """Read a private key that only its owner can read.

    Raises:
        ArtifactInvalid: it is no Ed25519 key in PEM, or others can read it.
        InvalidRequest: there is no such file that can be read, or ``cryptography`` is not installed.
    """
    modules = _cryptography()
    text, mode = _read(path, "'coresident store keygen' makes a key")
    if _PUBLIC_PEM in text:
        raise _not_a_key(path, "private", "it is a public one, which signs nothing; give the private one it belongs to")
    if mode & _OPEN_TO_OTHERS:
        rights = f"{stat.S_IMODE(mode):04o}"
        raise ArtifactInvalid(
            f"{path}: others than its owner may use this private key (mode {rights}): chmod 600 {path}; "
            "and if others were here, make a new key",
            file=str(path),
            field="mode",
            value=rights,
        )
    try:
        key = modules.serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError, modules.UnsupportedAlgorithm) as error:
        raise _not_a_key(path, "private", str(error)) from None
    if not isinstance(key, modules.ed25519.Ed25519PrivateKey):
        raise _not_a_key(path, "private", f"it is a {type(key).__name__}")
    return _private(key)


def load_public(path: Path) -> PublicKey:
    """Read a public key.

    Raises:
        ArtifactInvalid: it is no Ed25519 key in PEM.
        InvalidRequest: there is no such file that can be read, or ``cryptography`` is not installed.
    """
    modules = _cryptography()
    text, _ = _read(path, "give the public key (KEY.pub) of whoever signed")
    if _PRIVATE_PEM in text:
        raise _not_a_key(path, "public", f"it is a private one; give its public half ({path.name}{PUBLIC_SUFFIX})")
    try:
        key = modules.serialization.load_pem_public_key(text)
    except (ValueError, modules.UnsupportedAlgorithm) as error:
        raise _not_a_key(path, "public", str(error)) from None
    if not isinstance(key, modules.ed25519.Ed25519PublicKey):
        raise _not_a_key(path, "public", f"it is a {type(key).__name__}")
    return PublicKey(key.public_bytes_raw())


def load_trusted(folder: Path) -> tuple[PublicKey, ...]:
    """The public keys (``*.pub``, hidden files aside) of a folder, by file name; none when it is not there.

    Raises:
        ArtifactInvalid: one of them is no Ed25519 key in PEM, or anybody may write the folder or one of its keys.
        InvalidRequest: the folder or a key can't be read, or ``cryptography`` is not installed.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InvalidRequest(
            f"the trusted keys in {folder} can't be read: {error.strerror}", file=str(folder)
        ) from error
    keys = [folder / name for name in names if name.endswith(PUBLIC_SUFFIX) and not name.startswith(".")]
    found = tuple(load_public(path) for path in keys)
    for path in (folder, *keys):
        if os.name == "posix" and path.stat().st_mode & stat.S_IWOTH:
            raise ArtifactInvalid(
                f"{path}: anybody on this machine may write it, and so decide whom you trust: look whether all keys in "
                f"{folder} are those you meant, then chmod o-w {path}",
                file=str(path),
                field="mode",
            )
    return found


def by_id(keys: Iterable[PublicKey]) -> dict[str, PublicKey]:
    """The keys under their ids."""
    return {key.key_id: key for key in keys}


def _private(key: Any) -> PrivateKey:
    return PrivateKey(key, PublicKey(key.public_key().public_bytes_raw()))


def _read(path: Path, advice: str) -> tuple[bytes, int]:
    """A key file's bytes and mode, both of the file that was opened."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode):
                return file.read(MAX_KEY_FILE), mode
    except FileNotFoundError:
        raise InvalidRequest(f"there is no key file {path}: {advice}", file=str(path)) from None
    except OSError as error:
        raise InvalidRequest(f"the key file {path} can't be read: {error.strerror}", file=str(path)) from error
    raise InvalidRequest(f"{path} is not a regular file: name a file with a key", file=str(path))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a named pipe, which nobody may ever write to, is opened at once too."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _save(path: Path, pem: bytes, mode: int) -> None:
    with translated("write", str(path)):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_new(path, pem, mode)


def _not_a_key(path: Path, kind: str, reason: str) -> ArtifactInvalid:
    return ArtifactInvalid(
        f"{path}: this is not a {kind} Ed25519 key in PEM: {reason.rstrip('.')}", file=str(path), field="key"
    )


@attrs.frozen
class _Cryptography:
    """What is used of the package ``cryptography``."""

    ed25519: Any
    serialization: Any
    InvalidSignature: type[Exception]
    UnsupportedAlgorithm: type[Exception]


def _cryptography() -> _Cryptography:
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InvalidRequest(
            f"signed models need the package cryptography, which cannot be imported ({error}): "
            "pip install 'coresident[store]'"
        ) from error
    return _Cryptography(ed25519, serialization, InvalidSignature, UnsupportedAlgorithm)
