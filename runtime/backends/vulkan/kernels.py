"""The shipped compute kernels: SPIR-V and what each one binds, as the manifest beside the shaders says.

Every kernel's descriptor sets have fixed parts: set 0 is the model (weights, small vectors), set 1 the step's own
memory, set 2 the keys and values of one layer of a slot. A set that a kernel doesn't use is empty. Buffers are bound
whole; offsets are push constants.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import attrs

from ....actors.errors import ArtifactInvalid

PACKAGE = "coresident.runtime.backends.vulkan.shaders"
MANIFEST = "manifest.json"


@attrs.frozen
class Binding:
    """One descriptor: ``kind`` is ``storage`` (a storage buffer) or ``texel`` (a uniform texel buffer).

    ``format`` is the VkFormat of a texel binding, such as ``VK_FORMAT_R16G16B16A16_SFLOAT``.
    """

    kind: str
    format: str | None = None


@attrs.frozen
class Kernel:
    """A compiled entry point ``main``: ``sets[i]`` has the bindings 0, 1, ... of set i."""

    name: str
    spirv: bytes = attrs.field(repr=False)
    sha256: str
    sets: tuple[tuple[Binding, ...], ...]
    push_bytes: int


class Kernels(Mapping[str, Kernel]):
    """All kernels by name; ``digest`` changes with any of them."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self._kernels = dict(sorted(kernels.items()))
        lines = "".join(f"{name} {kernel.sha256}\n" for name, kernel in self._kernels.items())
        self.digest = hashlib.sha256(lines.encode()).hexdigest()

    def __getitem__(self, name: str) -> Kernel:
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)


def load_kernels() -> Kernels:
    """Read every kernel that the manifest lists.

    Raises:
        ArtifactInvalid: a file is missing, or is not the one that the manifest was made for.
    """
    folder = files(PACKAGE)
    manifest = json.loads(folder.joinpath(MANIFEST).read_text(encoding="utf-8"))
    return Kernels({name: _kernel(name, entry) for name, entry in manifest["kernels"].items()})


def _kernel(name: str, entry: Mapping[str, Any]) -> Kernel:
    file = f"{name}.spv"
    try:
        spirv = files(PACKAGE).joinpath(file).read_bytes()
    except OSError as error:
        raise _invalid(file, "nothing", entry["sha256"]) from error
    found = hashlib.sha256(spirv).hexdigest()
    if found != entry["sha256"]:
        raise _invalid(file, found, entry["sha256"])
    sets = tuple(tuple(Binding(*binding) for binding in bindings) for bindings in entry["sets"])
    return Kernel(name, spirv, found, sets, entry["push_bytes"])


def _invalid(file: str, found: str, wanted: str) -> ArtifactInvalid:
    return ArtifactInvalid(
        f"the compiled shader {file} has SHA-256 {found}, where {MANIFEST} says {wanted}: install coresident again",
        file=file,
        field="sha256",
        value=found,
    )
