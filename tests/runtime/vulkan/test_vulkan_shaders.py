"""The shipped kernels: they are what their sources compile to, valid, and within what every device has."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

import pytest
from coresident.actors.errors import ArtifactInvalid
from coresident.runtime.backends.vulkan import kernels as module
from coresident.runtime.backends.vulkan.describing import STORAGE_BINDINGS
from coresident.runtime.backends.vulkan.kernels import Kernels, load_kernels

from support.parts import require_or_skip
from support.vulkan_hazards import instructions
from tools.compile_shaders import COMPILER, SHADERS, call, differences

EXECUTION_MODE, CAPABILITY = 16, 17
LOCAL_SIZE = 17
SHADER, SAMPLED_BUFFER = 1, 46
DECORATE, NO_CONTRACTION = 71, 42
EXTENDED, FUSED = 12, 50
ARITHMETIC = frozenset({127, 129, 131, 133, 136, 140, 141, *range(142, 149)})
"""OpFNegate, OpFAdd, OpFSub, OpFMul, OpFDiv, OpFRem, OpFMod, and products of vectors and matrices."""

LEAST_PUSH_BYTES = 128


def compiler_or_skip() -> None:
    wanted = json.loads((SHADERS / "manifest.json").read_text())["compiler"]["version"]
    try:
        found = call(COMPILER, "--version").splitlines()[0]
    except FileNotFoundError as error:
        require_or_skip("vulkan", str(error))
    if found != wanted:
        require_or_skip("vulkan", f"{COMPILER} is {found!r}, the kernels are compiled with {wanted!r}")


def test_shipped_kernels_are_what_their_sources_compile_to() -> None:
    compiler_or_skip()
    assert differences() == []


def test_every_kernel_is_valid_spirv(tmp_path) -> None:
    compiler_or_skip()
    for path in sorted(SHADERS.glob("*.spv")):
        call("spirv-val", "--target-env", "vulkan1.2", str(path))
    cut = tmp_path / "cut.spv"
    cut.write_bytes((SHADERS / "swiglu.spv").read_bytes()[:-4])
    with pytest.raises(RuntimeError, match=r"cut\.spv failed"):
        call("spirv-val", "--target-env", "vulkan1.2", str(cut))


def test_the_manifest_knows_every_source_as_it_is() -> None:
    manifest = json.loads((SHADERS / "manifest.json").read_text())
    sources = {path.name: path for path in SHADERS.iterdir() if path.suffix in {".comp", ".glsl"}}
    assert manifest["sources"] == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sources.items()
    }
    assert {f"{name}.spv" for name in manifest["kernels"]} == {path.name for path in SHADERS.glob("*.spv")}
    assert {entry["source"] for entry in manifest["kernels"].values()} == {n for n in sources if n.endswith(".comp")}


def test_kernels_ask_nothing_that_a_device_may_lack() -> None:
    for name, kernel in load_kernels().items():
        found = list(instructions(kernel.spirv))
        (size,) = [operands[2:] for opcode, operands in found if opcode == EXECUTION_MODE and operands[1] == LOCAL_SIZE]
        capabilities = {operands[0] for opcode, operands in found if opcode == CAPABILITY}
        assert size[0] * size[1] * size[2] <= 128, name
        assert capabilities <= {SHADER, SAMPLED_BUFFER}, name
        assert kernel.push_bytes <= LEAST_PUSH_BYTES, name
        assert len(kernel.sets) == 3, name


def test_a_device_is_asked_for_the_storage_buffers_that_some_kernel_binds() -> None:
    bound = [sum(each.kind == "storage" for one in kernel.sets for each in one) for kernel in load_kernels().values()]
    assert max(bound) == STORAGE_BINDINGS


def test_no_arithmetic_of_a_kernel_may_be_contracted() -> None:
    """A driver could fuse or reorder what isn't decorated, in one pipeline and not in another."""
    for name, kernel in load_kernels().items():
        found = list(instructions(kernel.spirv))
        pinned = {operands[0] for opcode, operands in found if opcode == DECORATE and operands[1] == NO_CONTRACTION}
        results = {operands[1] for opcode, operands in found if opcode in ARITHMETIC}
        assert results <= pinned, name
        extended = [operands for opcode, operands in found if opcode == EXTENDED]
        assert not any(operands[3] == FUSED for operands in extended), name


def test_the_digest_of_all_kernels_changes_with_any() -> None:
    kernels = load_kernels()
    assert kernels.digest == load_kernels().digest
    for left_out in ("rope", "softmax_texel"):
        some = {name: kernel for name, kernel in kernels.items() if name != left_out}
        assert Kernels(some).digest != kernels.digest


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_kernel_is_refused_by_name(damage, tmp_path, monkeypatch) -> None:
    for entry in files(module.PACKAGE).iterdir():
        if entry.name.endswith((".spv", ".json")):
            (tmp_path / entry.name).write_bytes(entry.read_bytes())
    monkeypatch.setattr(module, "files", lambda package: Path(tmp_path))
    assert load_kernels().digest
    path = tmp_path / "swiglu.spv"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"\x00\x00")
    with pytest.raises(ArtifactInvalid, match=r"swiglu\.spv.*install coresident again"):
        load_kernels()
