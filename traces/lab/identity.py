"""What a run's result depends on, besides what its lab says: the content of files and the library itself.

A result is taken for a run's own only while all of it is unchanged.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs

from ...runtime.config import PoliciesConfig

_ROOMS = ("policies", "actors", "runtime", "traces")


@cache
def library() -> str:
    """The library's version and a digest of its sources, as they were when this process first asked."""
    package, digest = __package__.split(".")[0], hashlib.sha256()
    for room in _ROOMS:
        folder = Path(import_module(f"{package}.{room}").__path__[0])
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{room}/{path.relative_to(folder).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return f"{version(package)}+{digest.hexdigest()[:16]}"


def file_digest(path: Path) -> str:
    """The SHA-256 of a file. Raises ``OSError``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def own_code(policies: PoliciesConfig) -> dict[str, str]:
    """The user's own modules that policies name, each with the digest of its file; what they import is not looked at.

    The policies have been resolved before, so that their modules are loaded.
    """
    names = [policy.name for policy in attrs.astuple(policies, recurse=False)]
    modules = sorted({name.partition(":")[0] for name in names if ":" in name})
    files = {module: getattr(sys.modules[module], "__file__", None) for module in modules}
    return {module: file_digest(Path(file)) if file else "" for module, file in files.items()}


def digest_of(data: Any) -> str:
    """The SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(canonical(data)).hexdigest()


def canonical(data: Any) -> bytes:
    """Plain data as the one JSON text that stands for it."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str).encode()
