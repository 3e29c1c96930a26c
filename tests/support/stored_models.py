"""A tiny model in a signed store, and schedulers that are opened on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from coresident.actors.errors import DeviceLost
from coresident.runtime.store.manifest import ANY
from coresident.runtime.store.selection import Selection
from coresident.runtime.store.store import Store

from support.live import Bench, config
from support.signed import signer, trusting, write_seed
from support.tiny_models import write_gguf

FILE = "tiny.gguf"
PROMPT = (3, 14, 15, 9, 26)
LOST = DeviceLost("the cable was pulled; retry or repair")


@attrs.frozen
class Shop:
    """A store with one activated model, its seed's folder, and the file of the trusted key."""

    store: Store
    seed: Path
    key: Path
    selection: Selection

    @property
    def digest(self) -> str:
        return self.selection.files[0].digest

    @property
    def blob(self) -> Path:
        return self.store.folder / "blobs" / self.digest

    def config(self, seed: bool = False, **sections: Any) -> Any:
        """A small scheduler on ``store:tiny``; with ``seed`` its damaged files are replaced."""
        store = {"path": str(self.store.folder), "keys": [str(self.key)], "seed": str(self.seed) if seed else ""}
        small = {"model": "store:tiny", "context": 128, "sequences": 1}
        sections = {"decision": False, **sections, "store": {**store, **sections.get("store", {})}}
        return config(**{**sections, "generation": {**small, **sections.get("generation", {})}})

    def bench(self, seed: bool = False, observers: Any = (), **sections: Any) -> Bench:
        return Bench(self.config(seed, **sections), observers)

    def leases(self) -> int:
        """Leases on the model, in all processes."""
        found = [each.leases for each in self.store.status().manifests if each.digest == self.selection.manifest]
        return sum(found)

    def damage(self) -> None:
        """Change one byte of the weights where they are, so that neither size nor time of the file tell."""
        before = self.blob.stat()
        self.blob.chmod(0o600)
        with self.blob.open("r+b") as file:
            file.seek(-5, os.SEEK_END)
            old = file.read(1)
            file.seek(-5, os.SEEK_END)
            file.write(bytes([old[0] ^ 1]))
        self.blob.chmod(before.st_mode & 0o777)
        os.utime(self.blob, ns=(before.st_atime_ns, before.st_mtime_ns))


def open_shop(folder: Path, device: str = ANY, activate: bool = True) -> Shop:
    """A store in ``folder`` that trusts one key, with ``tiny`` activated for a device."""
    key = folder / "key.pub"
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_bytes(signer().public.pem())
    data = write_gguf(folder / FILE, "llama", tokenizer=True).read_bytes()
    signed = write_seed(folder / "seed", {FILE: data}, "tiny", device)
    store = trusting(folder / "store")
    selection = store.add_manifest(signed.text())
    if activate:
        store.stage(selection, folder / "seed")
        selection = store.activate(selection.manifest)
    return Shop(store, folder / "seed", key, selection)


async def answer(desk) -> tuple[int, ...]:
    return (await desk.scheduler.generate(PROMPT, max_tokens=4, retain=False)).tokens


async def lose(desk) -> None:
    """Lose the device in the middle of an answer."""
    desk.backend.fail("decode", LOST)
    with pytest.raises(DeviceLost):
        await answer(desk)
    assert desk.scheduler.readiness().state == "faulted"
