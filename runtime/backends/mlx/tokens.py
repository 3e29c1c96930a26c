"""Token ids for the device."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ....actors.errors import InvalidRequest


def token_array(rows: Sequence[Sequence[int]], vocabulary: int) -> mx.array:
    """Ids of rows of one length, int32 ``(rows, tokens)``.

    Raises:
        InvalidRequest: one is outside the vocabulary: MLX would read beyond it.
    """
    for row in rows:
        for token in row:
            if not 0 <= token < vocabulary:
                raise InvalidRequest(
                    f"token {token} cannot be looked up: the vocabulary has {vocabulary} tokens",
                    token=token,
                    vocabulary=vocabulary,
                )
    return mx.array([list(row) for row in rows], mx.int32)
