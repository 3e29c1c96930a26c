"""Finds dispatches and copies that touch the same memory with no barrier between them.

A driver on a CPU runs everything in order, so no number shows that a barrier is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import attrs
import pytest
from coresident.runtime.backends.vulkan.dispatches import Dispatch
from coresident.runtime.backends.vulkan.kernels import load_kernels
from coresident.runtime.backends.vulkan.recording import Recording
from coresident.runtime.backends.vulkan.sets import SetPool

POINTER, VARIABLE, DECORATE, MEMBER = 32, 59, 71, 72
STORAGE_BUFFER, NON_WRITABLE, BINDING, SET = 12, 24, 33, 34


class Touch(NamedTuple):
    """Bytes ``start`` to ``stop`` of a buffer that ``who`` reads or writes."""

    who: str
    buffer: int
    start: int
    stop: int

    def meets(self, other: Touch) -> bool:
        return self.buffer == other.buffer and self.start < other.stop and other.start < self.stop


def instructions(spirv: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Opcode and operands of each instruction; the header is five words."""
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    at = 5
    while at < len(words):
        length = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1 : at + length]
        at += length


@cache
def written(kernel: str) -> frozenset[tuple[int, int]]:
    """Set and binding of every storage buffer that a kernel may write."""
    found = list(instructions(load_kernels()[kernel].spirv))
    pointed = {operands[0]: operands[2] for opcode, operands in found if opcode == POINTER}
    fixed = {operands[0] for opcode, operands in found if opcode == MEMBER and operands[2] == NON_WRITABLE}
    told = {
        (operands[0], operands[1]): operands[2] for opcode, operands in found if opcode == DECORATE and operands[2:]
    }
    buffers = [operands for opcode, operands in found if opcode == VARIABLE and operands[2] == STORAGE_BUFFER]
    return frozenset(
        (told[number, SET], told[number, BINDING]) for kind, number, _ in buffers if pointed[kind] not in fixed
    )


@attrs.define(eq=False)
class Hazards:
    """``found`` has (kind, first, second) of what is not ordered; kinds are as in ``read after write``."""

    found: set[tuple[str, str, str]] = attrs.field(factory=set)
    dispatches: int = 0
    _sets: dict[int, list[Touch]] = attrs.field(factory=dict)
    _since: dict[int, tuple[list[Touch], list[Touch]]] = attrs.field(factory=dict)

    def bound(self, handle: int, touches: list[Touch]) -> None:
        self._sets[handle] = touches

    def barrier(self, recording: int) -> None:
        self._since[recording] = [], []

    def dispatch(self, recording: int, dispatch: Dispatch, handles: Sequence[int | None]) -> None:
        self.dispatches += 1
        places = [
            ((index, binding), touch._replace(who=dispatch.kernel))
            for index, handle in enumerate(handles)
            if handle is not None
            for binding, touch in enumerate(self._sets[handle])
        ]
        out = written(dispatch.kernel)
        writes = [part for at, touch in places if at in out for part in _written_parts(dispatch, touch)]
        adds = dispatch.kernel.startswith("matmul") and struct.unpack_from("<I", dispatch.push, 32)[0]
        reads = [touch for at, touch in places if at not in out] + (writes if adds else [])
        self.touch(recording, reads, writes)

    def touch(self, recording: int, reads: Iterable[Touch], writes: Iterable[Touch]) -> None:
        reads, writes = list(reads), list(writes)
        read, wrote = self._since[recording]
        self._compare("read after write", wrote, reads)
        self._compare("write after read", read, writes)
        self._compare("write after write", wrote, [one for one in writes if not _apart_by_constants(one.who)])
        read += reads
        wrote += writes

    def _compare(self, kind: str, before: list[Touch], now: list[Touch]) -> None:
        self.found |= {(kind, old.who, new.who) for new in now for old in before if new.meets(old)}


def _written_parts(dispatch: Dispatch, touch: Touch) -> list[Touch]:
    """What of a bound range is written: a product writes some columns of some rows."""
    if not dispatch.kernel.startswith("matmul"):
        return [touch]
    rows, _, _, tokens, _, _, at, stride, _ = struct.unpack("<9I", dispatch.push)
    starts = [touch.start + 4 * (at + token * stride) for token in range(tokens)]
    return [touch._replace(start=start, stop=start + 4 * rows) for start in starts]


def _apart_by_constants(kernel: str) -> bool:
    """Several dispatches of these write parts of one range, told apart by push constants."""
    return kernel.startswith(("embed", "rope", "values"))


def watch(patch: pytest.MonkeyPatch) -> Hazards:
    """Look at everything that is recorded from here on."""
    hazards = Hazards()
    make, dispatch, barrier, copy = SetPool.make, Recording.dispatch, Recording.barrier, Recording.copy

    def made(self: SetPool, kernel: str, index: int, bounds: Sequence[Any]) -> Any:
        handle = make(self, kernel, index, bounds)
        touches = [Touch("", id(one.buffer), one.offset, one.offset + one.bytes) for one in bounds]
        hazards.bound(_number(self, handle), touches)
        return handle

    def dispatched(self: Recording, what: Dispatch, sets: Sequence[Any]) -> None:
        numbers = [None if handle is None else _number(self._recorder, handle) for handle in sets]
        hazards.dispatch(id(self), what, numbers)
        dispatch(self, what, sets)

    def ordered(self: Recording) -> None:
        hazards.barrier(id(self))
        barrier(self)

    def copied(self: Recording, source: Any, target: Any, regions: Iterable[tuple[int, int, int]]) -> None:
        wanted = list(regions)
        reads = [Touch("copy", id(source), start, start + size) for start, _, size in wanted]
        writes = [Touch("copy", id(target), to, to + size) for _, to, size in wanted]
        hazards.touch(id(self), reads, writes)
        copy(self, source, target, wanted)

    for kind, name, change in (
        (SetPool, "make", made),
        (Recording, "dispatch", dispatched),
        (Recording, "barrier", ordered),
        (Recording, "copy", copied),
    ):
        patch.setattr(kind, name, change)
    return hazards


def _number(holder: Any, handle: Any) -> int:
    return int(holder.link.functions.ffi.cast("uintptr_t", handle))
