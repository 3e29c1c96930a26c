"""What a step tells its kernels: token ids, positions and the rotation of each position, in one host-visible buffer."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray


@attrs.frozen
class StepLayout:
    """Where a step of up to ``tokens`` tokens finds its parameters; places are in 4-byte words."""

    tokens: int
    head_dim: int

    @property
    def ids_at(self) -> int:
        """Token ids, uint32."""
        return 0

    @property
    def positions_at(self) -> int:
        """Positions in the tokens' own slots, uint32."""
        return self.tokens

    @property
    def rotation_at(self) -> int:
        """For each token, ``head_dim / 2`` pairs of cosine and sine, float32."""
        return 2 * self.tokens

    @property
    def bytes(self) -> int:
        """Bytes of the buffer."""
        return 4 * (self.rotation_at + self.tokens * self.head_dim)

    def write(
        self,
        view: NDArray[np.uint8],
        ids: Sequence[int],
        positions: Sequence[int],
        frequencies: NDArray[np.float64],
    ) -> None:
        """Fill a step's buffer; angles are float64, as float32 loses them at long contexts.

        ``frequencies`` has ``head_dim / 2`` elements. There may be fewer tokens than the layout has room for.
        """
        words = view[: self.bytes].view(np.uint32)
        words[self.ids_at : self.ids_at + len(ids)] = ids
        words[self.positions_at : self.positions_at + len(positions)] = positions
        angles = np.multiply.outer(np.asarray(positions, np.float64), frequencies)
        end = self.rotation_at + len(positions) * self.head_dim
        pairs = words[self.rotation_at : end].view(np.float32).reshape(len(positions), -1, 2)
        pairs[:, :, 0] = np.cos(angles)
        pairs[:, :, 1] = np.sin(angles)
