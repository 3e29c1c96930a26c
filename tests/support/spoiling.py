"""Stores that lack something: every combination of artifact, view and manifest being whole, missing or damaged."""

from __future__ import annotations

import itertools
import os

from support.stored_models import FILE, Shop

WAYS = tuple(itertools.product(("whole", "missing", "damaged"), repeat=3))
"""Artifact, view, manifest; a damaged view is a file of its own with other bytes."""


def spoil(shop: Shop, blob: str, view: str, manifest: str) -> None:
    """Bring a store with a linked view into one of these states."""
    linked = shop.store.path(shop.selection)
    assert linked.name == FILE
    kept = shop.store.folder / "manifests" / f"{shop.selection.manifest}.json"
    if view != "whole":
        linked.unlink()
    if view == "damaged":
        linked.write_bytes(b"GGUF, as anybody may write it")
    if blob == "damaged":
        shop.damage()
        os.utime(shop.blob, ns=(1, 1))
    if blob == "missing":
        shop.blob.unlink()
    if manifest == "damaged":
        kept.write_bytes(kept.read_bytes().replace(b"any", b"all"))
    if manifest == "missing":
        kept.unlink()


def check_whole(shop: Shop) -> None:
    """Every byte is what was signed, under both names, and the manifest is there."""
    good = (shop.seed / FILE).read_bytes()
    assert shop.store.selected("tiny") == shop.selection
    assert [state.state for state in shop.store.verify(shop.selection)] == ["ok"]
    assert (shop.store.folder / "views" / shop.selection.manifest / FILE).read_bytes() == good
