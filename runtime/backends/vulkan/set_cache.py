"""Descriptor sets made once for what they bind, and found again by the kernels that bind the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import attrs

from .functions import Handle
from .memory import Bound
from .sets import SetPool


@attrs.frozen(eq=False)
class SetCache:
    """Sets number ``index`` of kernels, by what they bind; those of one pool."""

    pool: SetPool
    index: int
    _by_kernel: dict[tuple[str, Hashable], Handle] = attrs.field(factory=dict, init=False)
    _by_bindings: dict[tuple[Hashable, Hashable], Handle] = attrs.field(factory=dict, init=False)

    def get(self, kernel: str, what: Hashable, bounds: Callable[[], Sequence[Bound]]) -> Handle:
        """The kernel's set over ``what``, whose memory ``bounds`` gives when there is none yet."""
        # Hashing bindings takes longer than all the rest of recording a dispatch.
        found = self._by_kernel.get((kernel, what))
        if found is None:
            key = self.pool.pipelines.kernels[kernel].sets[self.index], what
            if key not in self._by_bindings:
                self._by_bindings[key] = self.pool.make(kernel, self.index, bounds())
            self._by_kernel[kernel, what] = found = self._by_bindings[key]
        return found

    def free(self) -> None:
        """Free every set; doing it again does nothing."""
        self._by_kernel.clear()
        self._by_bindings.clear()
        self.pool.free()
