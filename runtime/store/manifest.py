"""What a model consists of: file names with SHA-256 and size, signed by somebody with Ed25519.

The file is one line of canonical JSON (see :mod:`~coresident.runtime.store.canonical`)::

    {"format":"coresident-manifest","key":ID,"manifest":{...},"signature":HEX,"version":1}

and is stored under the SHA-256 of its bytes. The signature is over ``coresident-manifest 1``, an end of line, and the
canonical bytes of the inner object, so that a signature of anything else never passes for one of a manifest.

What a signature says: the holder of that key put these names, digests and sizes together under this model's name. It
does not say when. A manifest once signed stays valid for as long as its key is trusted: whoever can write the store
can select an older signed manifest of the same model again. To forbid one, trust its key no longer.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import cattrs

from ...actors.errors import ArtifactInvalid, InvalidRequest
from ..structuring import faults_in, strict_converter
from .canonical import bad_value, canonical, parse
from .digests import check_digest, is_digest
from .keys import SIGNATURE_BYTES, PrivateKey, PublicKey, by_id
from .places import default_trusted

FORMAT = "coresident-manifest"
VERSION = 1
FILE_NAME = "manifest.json"
ANY = "any"
MAX_BYTES = 256 << 10
MAX_FILES = 1024
MAX_SIZE = 1 << 48
MAX_NOTES = 4000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}")
_DOMAIN = f"{FORMAT} {VERSION}\n".encode()
_CONVERTER = strict_converter()


def check_name(what: str, name: str) -> str:
    """A model's or device's name, as it is, when it is one.

    Raises:
        InvalidRequest: it is not 1 to 100 of the letters, digits and ``._:/-``, beginning with a letter or digit.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{what} is {name[:120]!r}: a name has 1 to 100 letters, digits or ._:/- and begins with a letter or digit",
            field=what,
            value=name,
        )
    return name


def _named(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    check_name(attribute.name, value)


def _digest(_: Any, __: Any, value: str) -> None:
    check_digest(value)


def _file_name(_: Any, __: Any, value: str) -> None:
    """One plain name: it cannot lead out of a folder, and no two systems read it differently."""
    plain = value.isprintable() and not set(value) & set("/\\:") and not value.startswith(".")
    if not plain or not 1 <= len(value.encode("utf-8", "replace")) <= 200 or value.casefold() == FILE_NAME:
        raise ValueError(
            f"name is {value[:100]!r}: a file name has 1 to 200 printable bytes, no / \\ or :, no dot at its begin, "
            f"and is not {FILE_NAME}"
        )


def _size(_: Any, __: Any, value: int) -> None:
    if not 1 <= value <= MAX_SIZE:
        raise ValueError(f"size is {value}: a file has 1 to {MAX_SIZE} bytes; an empty one is nobody's model")


def _text(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if len(value) > MAX_NOTES or not value.replace("\n", "").isprintable():
        raise ValueError(f"{attribute.name} is {value[:60]!r}: at most {MAX_NOTES} printable characters")


def _files(_: Any, __: Any, value: tuple[FileEntry, ...]) -> None:
    if not 1 <= len(value) <= MAX_FILES:
        raise ValueError(f"files are {len(value)}: a model has 1 to {MAX_FILES}")
    seen: dict[str, str] = {}
    for entry in value:
        other = seen.setdefault(unicodedata.normalize("NFC", entry.name).casefold(), entry.name)
        if other is not entry.name:
            raise ValueError(f"files has {other!r} and {entry.name!r}, which some systems take for one name")


@attrs.frozen
class FileEntry:
    """One file of a model: its name in the model's folder, its SHA-256, and its bytes."""

    name: str = attrs.field(validator=_file_name)
    digest: str = attrs.field(validator=_digest)
    size: int = attrs.field(validator=_size)


@attrs.frozen
class Manifest:
    """A model's name, the device it is for (``any`` or one name), its files, and words about it."""

    model: str = attrs.field(validator=_named)
    files: tuple[FileEntry, ...] = attrs.field(validator=_files)
    device: str = attrs.field(default=ANY, validator=_named)
    created_by: str = attrs.field(default="", validator=_text)
    notes: str = attrs.field(default="", validator=_text)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.files)

    def message(self) -> bytes:
        """What is signed."""
        return _DOMAIN + canonical(attrs.asdict(self))


@attrs.frozen
class SignedManifest:
    """A manifest, the id of the key it claims, and a signature that :meth:`check` compares with that key."""

    manifest: Manifest
    key: str = attrs.field(validator=_digest)
    signature: str

    def text(self) -> bytes:
        """The file's bytes."""
        content = {
            "format": FORMAT,
            "key": self.key,
            "manifest": attrs.asdict(self.manifest),
            "signature": self.signature,
            "version": VERSION,
        }
        return canonical(content) + b"\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the file's bytes: the name under which it is stored and activated."""
        return hashlib.sha256(self.text()).hexdigest()

    def check(self, trusted: Iterable[PublicKey], file: str) -> None:
        """Pass when one of the trusted keys made the signature.

        Raises:
            ArtifactInvalid: none did; names ``file`` and the key.
            InvalidRequest: ``cryptography`` is not installed.
        """
        key = by_id(trusted).get(self.key)
        if key is None:
            reason = (
                "this key is not trusted here; get KEY.pub from whoever signed, and copy it into "
                f"{default_trusted()}, or name it in [store] keys (in a command: --trust KEY.pub)"
            )
            raise bad_value(file, "key", self.key, reason)
        if not key.verifies(bytes.fromhex(self.signature), self.manifest.message()):
            reason = "it is not this key's signature of this manifest; get the manifest again"
            raise bad_value(file, "signature", self.signature, reason)


def sign(manifest: Manifest, key: PrivateKey) -> SignedManifest:
    """The manifest with the key's signature.

    Raises:
        InvalidRequest: it takes more than 256 KiB.
    """
    signed = SignedManifest(manifest, key.public.key_id, key.sign(manifest.message()).hex())
    if len(signed.text()) > MAX_BYTES:
        raise InvalidRequest(f"the manifest takes {len(signed.text())} bytes, of {MAX_BYTES} allowed: fewer files")
    return signed


def parse_signed(text: bytes, file: str) -> SignedManifest:
    """Read a manifest's file; whether its signature is somebody's is not looked at (see ``check``).

    Raises:
        ArtifactInvalid: it is not such a file; names ``file``, field and value.
    """
    content = parse(text[:-1] if text.endswith(b"\n") else b"", MAX_BYTES, file)
    for field, expected in (("format", FORMAT), ("version", VERSION)):
        if type(content.get(field)) is not type(expected) or content[field] != expected:
            raise bad_value(file, field, content.get(field), f"{expected!r} is what this version reads")
    manifest, signature = content.get("manifest"), content.get("signature")
    if not isinstance(signature, str) or not re.fullmatch(f"[0-9a-f]{{{2 * SIGNATURE_BYTES}}}", signature):
        raise bad_value(file, "signature", signature, f"it has {2 * SIGNATURE_BYTES} lower-case hexadecimal digits")
    return SignedManifest(_structured(manifest, file), _key(content, file), signature)


def _key(content: Mapping[str, Any], file: str) -> str:
    unknown = sorted(content.keys() - {"format", "key", "manifest", "signature", "version"})
    if unknown:
        raise bad_value(file, "keys", unknown[:5], "these are not keys of a manifest's file")
    key = content.get("key")
    if not isinstance(key, str) or not is_digest(key):
        raise bad_value(file, "key", key, "a key's id has 64 lower-case hexadecimal digits")
    return key


def _structured(content: object, file: str) -> Manifest:
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(files, list) or len(files) > MAX_FILES:
        found = len(files) if isinstance(files, list) else type(files).__name__
        raise bad_value(file, "manifest.files", found, f"a list of 1 to {MAX_FILES} files is what a manifest has")
    if len(content) > len(attrs.fields(Manifest)):
        raise bad_value(file, "manifest", len(content), f"it has {len(attrs.fields(Manifest))} keys")
    try:
        return _CONVERTER.structure(content, Manifest)
    except cattrs.BaseValidationError as error:
        found = faults_in(error, "manifest")
        shown = found if len(found) <= 400 else f"{found[:400]}..."
        raise ArtifactInvalid(f"{file}: {shown}", file=file, field="manifest", value=shown) from None
