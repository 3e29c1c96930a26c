"""Retained prefixes on disk as a client sees them: saved to a file, and restored from it within one launch.

A file's head is read on a worker thread; its keys and values are read and written by device steps, where nothing else
touches the device.
"""

from __future__ import annotations

import os
import secrets
from functools import cache, partial
from pathlib import Path

import attrs
import trio

from .actors.errors import CoresidentError, InvalidRequest
from .actors.events import CheckpointEnded, Refused, RequestEvent
from .actors.messages import FetchPrefix, StorePrefix
from .runtime.backends.prefix_file import look_into
from .runtime.host.assembly import GENERATION
from .runtime.host.live import LiveRuntime
from .runtime.models.text import Rendered


@attrs.frozen
class Checkpoint:
    """A prefix in a file: its tokens, and the bytes of their keys and values."""

    tokens: int
    bytes: int
    path: Path


@cache
def launch_id() -> str:
    """This launch of the process: files written in another one are refused."""
    return secrets.token_hex(16)


async def save_prefix(runtime: LiveRuntime, prompt: Rendered, path: str | os.PathLike[str]) -> Checkpoint:
    """Write the longest retained prefix of a prompt. See ``Scheduler.save_prefix``."""
    message = StorePrefix(runtime.new_id("c"), prompt.tokens, prompt.identity, _absolute(path), launch_id())
    return await _Checkpointing(runtime, message).result()


async def restore_prefix(runtime: LiveRuntime, path: str | os.PathLike[str]) -> Checkpoint:
    """Retain what a file holds. See ``Scheduler.restore_prefix``."""
    digest = runtime.assembly.models[GENERATION].digest
    file = await trio.to_thread.run_sync(partial(look_into, _absolute(path), launch_id(), digest))
    return await _Checkpointing(runtime, FetchPrefix(runtime.new_id("c"), file)).result()


def _absolute(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidRequest(f"path is {path!r}: give the path of a file", field="path", value=path)
    return os.path.abspath(text)


class _Checkpointing:
    """One file on its way. A cancelled wait cancels it."""

    def __init__(self, runtime: LiveRuntime, message: StorePrefix | FetchPrefix) -> None:
        self._runtime = runtime
        self._message = message
        self._ended = trio.Event()
        self._outcome: CheckpointEnded | CoresidentError | None = None

    async def result(self) -> Checkpoint:
        self._runtime.checkpoint(self._message, self._event)
        try:
            await self._ended.wait()
        finally:
            if not self._ended.is_set():
                self._runtime.cancel(GENERATION, self._message.request, "abandoned")
                with trio.CancelScope(shield=True):
                    await self._ended.wait()
        end = self._outcome
        if not isinstance(end, CheckpointEnded):
            raise end or InvalidRequest(f"checkpoint {self._message.request} ended without saying how")
        if end.outcome != "completed":
            raise end.error or InvalidRequest(f"checkpoint {end.request} was {end.outcome}: {end.reason}")
        return Checkpoint(end.tokens, end.bytes, Path(end.path))

    def _event(self, event: RequestEvent, at: int) -> None:
        if isinstance(event, CheckpointEnded | Refused):
            self._outcome = event if isinstance(event, CheckpointEnded) else event.error
            self._runtime.finished(self._message.request)
            self._ended.set()
