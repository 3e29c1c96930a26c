"""Processes that use a store beside the test's own: forked from one that has it imported, so each costs little.

What they do is here, in a module that imports nothing else. Each is told and asked through a pipe, whose end is the
process's end.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from coresident.runtime.store.artifacts import Artifacts
from coresident.runtime.store.folders import Folder
from coresident.runtime.store.journal import Journal
from coresident.runtime.store.keys import PublicKey
from coresident.runtime.store.leases import Leases
from coresident.runtime.store.store import Store

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["coresident.runtime.store.store", "cryptography.hazmat.primitives.asymmetric.ed25519"])
READY = "ready"


@contextmanager
def beside(work: Callable[..., None], *arguments: object) -> Iterator[tuple[ForkServerProcess, Connection]]:
    """A process that does ``work(pipe, *arguments)``, and the other end of the pipe; killed when the block ends."""
    mine, its = _FORKS.Pipe()
    process = _FORKS.Process(target=work, args=(its, *arguments))
    process.start()
    its.close()
    try:
        with mine:
            yield process, mine
    finally:
        process.kill()
        process.join()
        process.close()


def in_step(work: Callable[..., None], *arguments: tuple[object, ...]) -> list[Any]:
    """What processes answer that do ``work``, each with its arguments, and begin when all of them are there."""
    with ExitStack() as stack:
        pipes = [stack.enter_context(beside(work, *each))[1] for each in arguments]
        for pipe in pipes:
            assert pipe.recv() == READY
        for pipe in pipes:
            pipe.send("go")
        return [pipe.recv() for pipe in pipes]


def append_records(pipe: Connection, folder: Path, model: str) -> None:
    """Append twenty records for a model."""
    with Folder.at(folder) as root, _answering(pipe):
        for number in range(20):
            Journal(root).append(model, "any", f"{number:064x}")


def activate_again(pipe: Connection, store: Path, key: bytes, mine: str, other: str) -> None:
    """Activate a manifest ten times, while another process does so with the other one."""
    shared = Store(store, (PublicKey(key),))
    with _answering(pipe):
        for _ in range(10):
            assert shared.activate(mine).manifest == mine
            selected = shared.selected("small")
            assert selected is not None
            assert selected.manifest in (mine, other)


def relink_again(pipe: Connection, store: Path, key: bytes, manifest: str) -> None:
    """Open a model fifty times, whose file has always just gone from its view."""
    shared = Store(store, (PublicKey(key),))
    chosen = shared.selection(manifest)
    with _answering(pipe):
        for _ in range(50):
            (store / "views" / manifest / chosen.files[0].name).unlink(missing_ok=True)
            shared.path(chosen)


def stage_all(pipe: Connection, store: Path, sources: Path, digests: list[str]) -> None:
    """Stage files named by their digests; answers with whether this process published each."""
    artifacts = Artifacts(Folder.at(store, create=True))
    pipe.send(READY)
    pipe.recv()
    pipe.send([artifacts.stage_file(sources / digest, digest).published for digest in digests])


def stage_slowly(pipe: Connection, store: Path, data: bytes, digest: str) -> None:
    """Stage in a hundred pieces, and stop for ever at 55 % of them."""

    class Slow:
        position = 0

        def read(self, size: int, /) -> bytes:
            if self.position >= 0.55 * len(data):
                pipe.send("55 %")
                pipe.recv()
            piece = data[self.position :][: min(size, len(data) // 100)]
            self.position += len(piece)
            return piece

    Artifacts(Folder.at(store, create=True)).stage(Slow(), digest, len(data))


def hold_lease(pipe: Connection, store: Path, manifest: str) -> None:
    """Take a lease, and give it back when told to."""
    lease = Leases(Folder.at(store)).take(manifest)
    pipe.send("taken")
    pipe.recv()
    lease.release()
    pipe.send("given back")
    pipe.recv()


def hold_lease_and_fork(pipe: Connection, store: Path, manifest: str) -> None:
    """Take a lease, and fork a child that tries to release it and lives on."""
    lease = Leases(Folder.at(store)).take(manifest)
    if not os.fork():
        lease.release()
        pipe.send(f"released, held: {lease.held}")
    with suppress(EOFError):
        pipe.recv()
    os._exit(0)


@contextmanager
def _answering(pipe: Connection) -> Iterator[None]:
    """Begin when told to; answer ``"done"``, or the error."""
    pipe.send(READY)
    pipe.recv()
    try:
        yield
    except Exception as error:
        pipe.send(repr(error))
    else:
        pipe.send("done")
