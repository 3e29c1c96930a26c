"""KV memory of slots, in the form that mlx-lm's model classes take: fixed capacity, allocated when a model is loaded.

A class calls ``update_and_fetch`` once for each layer while it builds its graph, and computes nothing by that. Until a
layer is committed, its buffers are those from before; a step that is given up leaves them as they were. Committing
drops the old ones, so that their memory is the new ones' memory: a write in place.

Layers with a window keep every position and see the last ones through a mask, so any position can be gone back to.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ....actors.errors import BackendFault
from ..positions import check_filled, check_room
from .description import Sizes

POSITION_AXIS = 2
ASKED_TWICE = "a layer asked for its KV cache twice in one step: this model cannot run here"
NEVER_ASKED = "a layer never asked for its KV cache: this model cannot run here"


def write(buffer: mx.array, start: int, values: mx.array) -> mx.array:
    """The buffer with ``values`` from position ``start`` on; in its own memory when nothing else refers to it."""
    return mx.slice_update(buffer, values, mx.array([start]), axes=(POSITION_AXIS,))


class Seen:
    """Which positions the queries of a step see, in a layer that sees ``window`` positions, or all.

    ``offset`` counts the positions in front of the step that is built now.
    """

    def __init__(self, window: int | None) -> None:
        self.offset = 0
        self.window = window

    def make_mask(self, tokens: int, return_array: bool = False, window_size: int | None = None) -> Any:
        """Which positions the next ``tokens`` queries see: ``None`` for all, ``"causal"``, or an array.

        Arrays are bool ``(tokens, positions)``, over the positions that ``update_and_fetch`` is going to give.

        Raises:
            BackendFault: the model's class wants another window than the one it was described with.
        """
        if window_size is not None and window_size != self.window:
            raise BackendFault(f"a window of {window_size} was asked of a layer that has {self.window}")
        first, end = self._first(self.offset), self.offset + tokens
        # A first query that sees all in front of it and a window that the last one fits in: no window at all.
        whole = self.window is None or end <= self.window
        if whole and not return_array:
            return None if tokens == 1 else "causal"
        if tokens == 1 and not return_array:
            return None
        queries = mx.arange(self.offset, end)[:, None]
        positions = mx.arange(first, end)[None]
        mask = queries >= positions
        return mask if self.window is None else mask & (queries < positions + self.window)

    def _first(self, start: int) -> int:
        """The first position that a query at ``start`` sees."""
        return 0 if self.window is None else max(0, start - self.window + 1)


class LayerCache(Seen):
    """Keys and values of one layer of one slot, ``(1, kv_heads, capacity, head_dim)``."""

    def __init__(self, sizes: Sizes, window: int | None, capacity: int) -> None:
        super().__init__(window)
        self._shape = (1, sizes.kv_heads, capacity, sizes.head_dim)
        self._dtype: mx.Dtype = getattr(mx, sizes.dtype)
        self._pending: tuple[mx.array, mx.array] | None = None
        self.renew()

    def renew(self) -> None:
        """Allocate the buffers anew, at once."""
        self._pending = None
        self.keys, self.values = mx.zeros(self._shape, self._dtype), mx.zeros(self._shape, self._dtype)
        mx.eval(self.keys, self.values)

    def begin(self, start: int) -> None:
        """Build the next step behind the first ``start`` positions."""
        self._pending = None
        self.offset = start

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """The step's own keys and values are to follow; what its queries may see, lazily."""
        if self._pending is not None:
            raise BackendFault(ASKED_TWICE)
        start, self.offset = self.offset, self.offset + keys.shape[POSITION_AXIS]
        self._pending = write(self.keys, start, keys), write(self.values, start, values)
        first = self._first(start)
        seen_keys, seen_values = (buffer[:, :, first : self.offset] for buffer in self._pending)
        return seen_keys, seen_values

    def commit(self) -> tuple[mx.array, mx.array]:
        """Take the step's keys and values over; evaluate them next."""
        if self._pending is None:
            raise BackendFault(NEVER_ASKED)
        (self.keys, self.values), self._pending = self._pending, None
        return self.keys, self.values

    @property
    def state(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.values.nbytes)


class Slot:
    """The caches of all layers. ``filled`` counts the positions from 0 that are whole in every layer."""

    def __init__(self, sizes: Sizes, capacity: int) -> None:
        self.capacity = capacity
        self.filled = 0
        self.caches = [LayerCache(sizes, window, capacity) for window in sizes.windows]

    def begin(self, start: int, tokens: int) -> None:
        """Build a step of ``tokens`` positions next; they, and what is behind, count as not evaluated until it is."""
        self.check(start, tokens)
        self.filled = start
        for cache in self.caches:
            cache.begin(start)

    def give_up(self) -> None:
        """Forget what was built and not committed."""
        for cache in self.caches:
            cache.begin(self.filled)

    def renew(self) -> None:
        """Start again with fresh buffers after a fault."""
        self.filled = 0
        for cache in self.caches:
            cache.renew()

    def check(self, start: int, tokens: int) -> None:
        """Refuse positions beyond the capacity, or after a gap."""
        check_room(self.capacity, self.filled, start, tokens)

    def check_filled(self, tokens: int) -> None:
        """Refuse to build on positions that were not evaluated."""
        check_filled(self.filled, tokens)
