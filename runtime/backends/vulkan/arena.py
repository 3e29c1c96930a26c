"""Arenas: many named pieces of memory in few allocations, placed by a plan before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Protocol, Self

import attrs

from .memory import Bound, Buffer


@attrs.frozen
class Piece:
    """``bytes`` of memory that must lie in one allocation, under a name of its own."""

    name: str
    bytes: int


@attrs.frozen
class Place:
    """Where a piece lies: in which block, and at which offset."""

    block: int
    offset: int
    bytes: int


@attrs.frozen
class Packing:
    """Sizes of the blocks, in bytes, and the place of every piece."""

    blocks: tuple[int, ...]
    places: Mapping[str, Place]


def pack(pieces: Iterable[Piece], block: int, alignment: int) -> Packing:
    """Place pieces, each in the first block that has room for it, at multiples of ``alignment``.

    Blocks are no larger than ``block`` bytes and as small as what they hold. A piece that is larger gets a block of
    its own: a plan then shows that it cannot be allocated. Names must differ.
    """
    used: list[int] = []
    places: dict[str, Place] = {}
    for piece in pieces:
        if piece.bytes <= 0 or piece.name in places:
            raise ValueError(f"piece {piece.name} of {piece.bytes} bytes: pieces have bytes, and names of their own")
        size = -(-piece.bytes // alignment) * alignment
        index = next((index for index, full in enumerate(used) if full + size <= block), len(used))
        if index == len(used):
            used.append(0)
        places[piece.name] = Place(index, used[index], piece.bytes)
        used[index] += size
    return Packing(tuple(used), places)


class Allocates(Protocol):
    """What an arena asks of a device."""

    def allocate(self, size: int, what: str, host: bool = False) -> Buffer: ...


@attrs.define(eq=False)
class Arena:
    """The blocks of a packing, allocated."""

    buffers: tuple[Buffer, ...]
    _places: Mapping[str, Place]

    @classmethod
    def allocate(cls, device: Allocates, packing: Packing, what: str, host: bool = False) -> Self:
        """Allocate every block; when one is refused, those before it are freed. Raises ``BudgetExceeded``."""
        with ExitStack() as undo:
            buffers = []
            for index, size in enumerate(packing.blocks):
                buffers.append(device.allocate(size, f"block {index} of {what}", host))
                undo.callback(buffers[-1].free)
            undo.pop_all()
        return cls(tuple(buffers), packing.places)

    def at(self, name: str) -> Bound:
        """The memory of a piece."""
        place = self._places[name]
        return Bound(self.buffers[place.block], place.offset, place.bytes)

    def free(self) -> None:
        """Free every block; doing it again is no error."""
        for buffer in self.buffers:
            buffer.free()
