"""Signed models for tests: a key that is always the same, a seed's folder, and a store that trusts the key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from coresident.runtime.store.keys import PrivateKey, from_seed
from coresident.runtime.store.layer import OS_LAYER, Layer
from coresident.runtime.store.manifest import ANY, FILE_NAME, FileEntry, Manifest, SignedManifest, sign
from coresident.runtime.store.selection import Selection
from coresident.runtime.store.store import Store

from .parts import require_or_skip

FILES = {"model.gguf": b"the weights " * 50, "tokenizer.json": b'{"tokens": []}'}
NEWER = {"model.gguf": b"newer weights " * 50, "tokenizer.json": b'{"tokens": []}'}


def signer(number: int = 0) -> PrivateKey:
    """A private key; the same one for the same number."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        require_or_skip("store", f"cryptography is not installed ({error})")
    return from_seed(bytes(range(number, number + 32)))


def manifest_of(files: Mapping[str, bytes] = FILES, model: str = "small", device: str = ANY) -> Manifest:
    """The manifest of files given by their bytes."""
    entries = [FileEntry(name, hashlib.sha256(data).hexdigest(), len(data)) for name, data in files.items()]
    return Manifest(model, tuple(entries), device)


def write_seed(
    folder: Path,
    files: Mapping[str, bytes] = FILES,
    model: str = "small",
    device: str = ANY,
    key: PrivateKey | None = None,
) -> SignedManifest:
    """A folder with a model's files and their signed manifest."""
    signed = sign(manifest_of(files, model, device), key or signer())
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / FILE_NAME).write_bytes(signed.text())
    return signed


def trusting(folder: Path, layer: Layer = OS_LAYER) -> Store:
    """A store that trusts the first key."""
    return Store(folder, (signer().public,), layer)


def staged(store: Store, seed: Path, files: Mapping[str, bytes] = FILES, device: str = ANY) -> Selection:
    """A model that is in the store, whole, and not activated; its seed stays in ``seed``."""
    selection = store.add_manifest(write_seed(seed, files, device=device).text())
    store.stage(selection, seed)
    return selection
