"""The environment of a worker: that of its parent, and perhaps a vendor's driver for the Vulkan loader.

What the loader was told already stays as it is. The vendor's manifest is added behind it, for this process alone, and
only when its versions are the ones that were asked for. The loader reads a copy of the manifest that was checked, with
the library's place made absolute; the copy outlives its readers. Format and variables: the "Driver interface to the
Vulkan loader" of the Vulkan-Loader documentation.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...actors.errors import ArtifactInvalid
from ..config_worker import DriverConfig
from ..logged import Logged, warn

# The first two replace the loader's own search, the newer one wins; the last adds to that search.
OVERRIDES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
ADDITION = "VK_ADD_DRIVER_FILES"
LONGEST = 1 << 16


class WorkerEnvironment:
    """Environment variables for one child process. :meth:`close` it when the child has been reaped."""

    def __init__(self, base: Mapping[str, str], driver: DriverConfig | None = None) -> None:
        """Raises ``ArtifactInvalid`` for a driver manifest that can't be read."""
        self.variables = dict(base)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if driver is not None and driver.manifest:
            self._add(driver)

    def close(self) -> None:
        """Remove the temporary manifest; closing twice is no error."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def _add(self, driver: DriverConfig) -> None:
        manifest = read_manifest(driver.manifest)
        different = differences(manifest, driver.versions)
        if different:
            warn(Logged.DRIVER_LEFT_OUT, manifest=driver.manifest, different=different)
            return
        self._folder = tempfile.TemporaryDirectory(prefix="coresident-driver-")
        path = Path(self._folder.name) / Path(driver.manifest).name
        path.write_text(json.dumps(_placed(manifest, Path(driver.manifest))), encoding="utf-8")
        name = next((name for name in OVERRIDES if self.variables.get(name)), ADDITION)
        before = self.variables.get(name)
        self.variables[name] = f"{before}{os.pathsep}{path}" if before else str(path)


def read_manifest(path: str) -> Mapping[str, Any]:
    """A driver manifest. Raises ``ArtifactInvalid`` naming the file and the field."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(LONGEST + 1)
        manifest: Any = json.loads(data) if len(data) <= LONGEST else None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactInvalid(
            f"driver manifest {path}: {error}; name the driver's JSON manifest", file=path, field="manifest"
        ) from error
    icd = manifest.get("ICD") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or not isinstance(icd, dict) or not isinstance(icd.get("library_path"), str):
        raise ArtifactInvalid(
            f"driver manifest {path}: there is no ICD.library_path in it; name the driver's JSON manifest",
            file=path,
            field="ICD.library_path",
        )
    return manifest


def differences(manifest: Mapping[str, Any], wanted: Mapping[str, str]) -> list[str]:
    """What of the wanted versions a manifest does not have, in words; fields may stand in its ``ICD`` table."""
    found = {**manifest, **manifest["ICD"]}
    return [
        f"{name} is {found.get(name)!r}, wanted {value!r}"
        for name, value in wanted.items()
        if name == "ICD" or found.get(name) != value
    ]


def _placed(manifest: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The manifest for another folder: a library beside it is named absolutely; a bare name is left to the system."""
    library = manifest["ICD"]["library_path"]
    if os.path.dirname(library):
        library = str(path.resolve().parent / library)
    return {**manifest, "ICD": {**manifest["ICD"], "library_path": library}}
