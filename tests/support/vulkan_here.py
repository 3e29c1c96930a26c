"""What this machine has of Vulkan, and how to run without parts of it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from coresident.runtime.backends.vulkan.survey import Survey, survey
from coresident.runtime.config_worker import DriverConfig

from support.parts import require_or_skip

MANIFESTS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
NO_LOADER = """
import sys, types

class Ffi:
    def dlopen(self, name):
        raise OSError(f"{name}: cannot open shared object file")

sys.modules["vulkan._vulkancache"] = types.ModuleType("vulkan._vulkancache")
sys.modules["vulkan._vulkancache"].ffi = Ffi()
"""


@cache
def found() -> Survey:
    return survey()


def needs_vulkan() -> None:
    """Skip the running test where Vulkan finds no device, or fail it where it must."""
    if found().chosen is None:
        require_or_skip("vulkan", found().note)


def without_a_loader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started from here on find the binding, and it finds no loader."""
    (folder / "sitecustomize.py").write_text(NO_LOADER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))


def without_drivers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started from here on find the loader, and it finds no driver."""
    monkeypatch.setenv("VK_DRIVER_FILES", str(folder / "none.json"))
    monkeypatch.setenv("VK_ICD_FILENAMES", str(folder / "none.json"))
    monkeypatch.delenv("VK_ADD_DRIVER_FILES", raising=False)


def cpu_driver() -> DriverConfig:
    """Mesa's CPU driver as a vendor's; skips where its manifest is not found."""
    needs_vulkan()
    for folder in MANIFESTS:
        for path in Path(folder).glob("lvp_icd*.json"):
            icd = json.loads(path.read_text(encoding="utf-8"))["ICD"]
            return DriverConfig(str(path), {"api_version": icd["api_version"]})
    pytest.skip(f"no manifest of Mesa's CPU driver (lvp_icd*.json) in {', '.join(MANIFESTS)}")
