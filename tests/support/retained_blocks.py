"""Retained storage of the scripted device: blocks that prefixes with one head hold together.

What is evaluated remembers how: a token's state depends on the states before it, on its place in the chunk and on the
chunk's length, as on a backend whose numbers are bound to the grid.
"""

from __future__ import annotations

import zlib


class State(int):
    """The state of one token: its id, and a sign of how it was computed."""

    sign: int


def evaluate(held: list[State], tokens, how: str) -> list[State]:
    """The states of ``tokens`` that are computed together behind what is ``held``."""
    sign = held[-1].sign if held else 0
    states = []
    for place, token in enumerate(tokens):
        sign = zlib.crc32(f"{how} {place} {len(tokens)} {token}".encode(), sign)
        state = State(token)
        state.sign = sign
        states.append(state)
    return states


class RetainedBlocks:
    """Prefixes by handle, in blocks of ``block`` tokens; whole where that is 0."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._blocks: dict[int, list[list[State]]] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __getitem__(self, handle: int) -> list[State]:
        return [state for block in self._blocks[handle] for state in block]

    @property
    def tokens(self) -> int:
        """Tokens in storage, those of a shared block counted once."""
        return sum(len(block) for block in {id(b): b for blocks in self._blocks.values() for b in blocks}.values())

    def save(self, handle: int, states: list[State], base: int | None, shared: int) -> None:
        """Store states behind the first ``shared`` of a base, which must be the same to the bit."""
        assert handle not in self._blocks
        head: list[list[State]] = []
        if base is not None:
            assert self.block
            assert 0 < shared < len(states)
            assert shared % self.block == 0
            there, wanted = self[base][:shared], states[:shared]
            assert [(int(s), s.sign) for s in there] == [(int(s), s.sign) for s in wanted]
            head = self._blocks[base][: shared // self.block]
        size = self.block or len(states)
        self._blocks[handle] = head + [states[n : n + size] for n in range(shared, len(states), size)]

    def drop(self, handle: int) -> None:
        """Forget a prefix; what a lost device or a failed restore has taken already is no error, as in the contract."""
        self._blocks.pop(handle, None)

    def clear(self) -> None:
        self._blocks.clear()
