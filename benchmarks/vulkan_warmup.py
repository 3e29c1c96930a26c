"""What the first request of a process waits for: with empty caches and with those that an earlier process left, after a
warm-up and without one.

Each run is a process of its own: it loads the model, warms it up or not, and answers equal requests of one chunk and a
few tokens. The first chunk and the first token are set against the slowest later ones. Milliseconds of the wall, and of
the process's CPUs, which say more where cores are shared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import arguments, prompt_tokens, report
from coresident.runtime.backends.vulkan.preparing import device_of
from vulkan_speed import Cost, chunk, cost, decode, opened_on

REQUESTS, TOKENS, CHUNK = 5, 6, 128
CACHES = ("XDG_CACHE_HOME", "MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH")


def first_and_later(costs: list[Cost]) -> dict[str, object]:
    """The first, the slowest of the others by each clock, and how many times of that the first took."""
    later = {name: max(one[name] for one in costs[1:]) for name in costs[0]}
    return {"first": costs[0], "slowest_later": later, "ratio": {name: costs[0][name] / later[name] for name in later}}


def in_this_process(model: str, warm: bool) -> dict[str, object]:
    """Load, and answer the requests."""
    bench = opened_on("vulkan", model, 512, "1 GiB", warm=False)
    warming = cost(bench.warm) if warm else None
    tokens = prompt_tokens(CHUNK, bench.backend.describe(bench.model).vocabulary)
    chunks, steps = [], []
    for _ in range(REQUESTS):
        chunks.append(chunk(bench, 0, tokens)[0])
        steps += decode(bench, CHUNK, TOKENS)
    device = device_of(bench.backend)
    device.save_cache()
    return {
        "device": device.info.name,
        "driver": device.info.driver,
        "warm_up": warming,
        "pipelines": device.pipelines.created,
        "found_in_the_file": device.pipelines.cache_hits,
        "chunk": first_and_later(chunks),
        "token": first_and_later(steps),
    }


def in_another(model: str, warm: bool, folder: Path) -> dict[str, object]:
    """The same by a process whose caches, the driver's too, are in a folder; and how many files it added there."""
    environment = {**os.environ, **{name: str(folder / name) for name in CACHES}}
    for name in CACHES:
        (folder / name).mkdir(exist_ok=True)
    before = files_in(folder)
    command = [sys.executable, __file__, "--model", model, "--child", "warm" if warm else "cold"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return {**json.loads(done.stdout), "new_files_in_the_caches": files_in(folder) - before}


def files_in(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def main() -> None:
    options = arguments(__doc__, child="")
    if options.child:
        print(json.dumps(in_this_process(options.model, options.child == "warm")))
        return
    runs = {}
    for name, warm in (("with_a_warm_up", True), ("without_one", False)):
        with tempfile.TemporaryDirectory() as folder:
            for caches in ("empty_caches", "filled_caches"):
                runs[f"{caches}_{name}"] = in_another(options.model, warm, Path(folder))
    about = {key: runs["empty_caches_with_a_warm_up"][key] for key in ("device", "driver")}
    trimmed = {name: {key: run[key] for key in run if key not in about} for name, run in runs.items()}
    report("vulkan_warmup", {**about, **trimmed}, options.save)


if __name__ == "__main__":
    main()
