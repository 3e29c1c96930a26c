"""Staging throughput: a store copies, hashes, syncs and publishes a file, against ``sha256sum`` of the same file.

They alternate within one run, over a file in the page cache; the figures are medians, and the ratio is of throughput
(staging / ``sha256sum``). ``hashlib`` of the same file stands beside: it is the floor of any staging in Python, while
``sha256sum`` may be built with or without the processor's own instructions for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from common import arguments, report
from coresident.runtime.store.artifacts import Artifacts
from coresident.runtime.store.folders import Folder

MIB = 1 << 20


def seconds(call, *given):
    """Wall time of a call, and its value."""
    begin = time.perf_counter()
    value = call(*given)
    return time.perf_counter() - begin, value


def write_source(path: Path, size: int) -> None:
    """A file of random bytes that is on the disk, so that no round pays for writing it."""
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())


def with_sha256sum(path: Path) -> str:
    """The digest, by the program."""
    done = subprocess.run(["sha256sum", str(path)], capture_output=True, text=True, check=True)
    return done.stdout.split()[0]


def with_hashlib(path: Path) -> str:
    """The digest, by Python's module."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    options = arguments(__doc__, rounds=5, mebibytes=256)
    size = options.mebibytes * MIB
    times = {name: [] for name in ("staging", "verify", "resume", "sha256sum", "hashlib")}
    with tempfile.TemporaryDirectory() as folder:
        source, store = Path(folder, "source"), Path(folder, "store")
        write_source(source, size)
        digest = with_hashlib(source)
        for index in range(options.rounds + 1):
            with Folder.at(store, create=True) as root:
                artifacts = Artifacts(root)
                took = {
                    "sha256sum": seconds(with_sha256sum, source)[0],
                    "staging": seconds(artifacts.stage_file, source, digest, size)[0],
                    "hashlib": seconds(with_hashlib, source)[0],
                    "verify": seconds(artifacts.verify, digest, size)[0],
                    "resume": _resumed(artifacts, source, digest, size),
                }
            shutil.rmtree(store)
            for name, value in took.items() if index else ():
                times[name].append(value)
    medians = {name: statistics.median(values) for name, values in times.items()}
    figures = {f"{name}_MiB_per_s": options.mebibytes / value for name, value in medians.items()}
    for other in ("sha256sum", "hashlib"):
        figures[f"staging_over_{other}"] = medians[other] / medians["staging"]
    report("staging", {"MiB": options.mebibytes, "rounds": options.rounds, **figures}, options.save)


def _resumed(artifacts: Artifacts, source: Path, digest: str, size: int) -> float:
    """Seconds to stage the file when its first 55 % are there already."""
    artifacts.remove(digest)
    part = Path(artifacts.root.path, "staging", f"{digest}.part")
    with source.open("rb") as file, part.open("wb") as half:
        half.write(file.read(size * 55 // 100))
        half.flush()
        os.fsync(half.fileno())
    took, staged = seconds(artifacts.stage_file, source, digest, size)
    assert staged.resumed == size * 55 // 100
    return took


if __name__ == "__main__":
    main()
