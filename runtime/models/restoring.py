"""Models of a store that are repaired before a scheduler is opened on them, where a configuration allows that."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..config import Config
from ..logged import Logged, inform
from .locate import VARIABLE
from .stored import PREFIX, StoredModel, selected_manifest


def restore_models(config: Config) -> bool:
    """Replace from ``store.seed`` what is missing or damaged of the models of a configuration.

    Returns false, and does nothing, where there is no seed or ``limits.restarts`` is 0: then a person repairs.
    Raises ``ArtifactInvalid`` where the seed has no good copy either.
    """
    if not (config.store.seed and config.limits.restarts):
        return False
    for model in _stored(config):
        replaced = model.repair()
        inform(Logged.ARTIFACT_REPLACED, model=model.name, manifest=model.manifest, digests=list(replaced))
    return True


def _stored(config: Config) -> Iterator[StoredModel]:
    """The models that come from the store, as far as something is selected; their files are not looked at."""
    decision = "" if config.decision is None else config.decision.model
    for reference in (config.generation.model or os.environ.get(VARIABLE, ""), decision):
        name, _, digest = reference.removeprefix(PREFIX).partition("@")
        if reference.startswith(PREFIX) and name:
            manifest = digest or selected_manifest(name, config.store, config.device.backend)
            if manifest:
                yield StoredModel(name, manifest, "", (), config.store)
