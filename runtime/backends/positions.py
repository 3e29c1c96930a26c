"""What every backend refuses of the positions of KV slots and of retained copies, in the same words."""

from __future__ import annotations

import attrs

from ...actors.errors import InvalidRequest
from .prefix_header import Geometry


def check_room(capacity: int, filled: int, start: int, tokens: int) -> None:
    """Refuse to evaluate positions beyond a slot's capacity, or after a gap. Raises ``InvalidRequest``."""
    if tokens < 1 or start < 0:
        raise InvalidRequest(f"{tokens} tokens at position {start}: at least one token is needed", tokens=tokens)
    if start + tokens > capacity:
        raise InvalidRequest(
            f"{tokens} tokens at position {start} end at {start + tokens}, the slot holds {capacity}: admit a "
            "larger context or send less",
            start=start,
            tokens=tokens,
            capacity=capacity,
        )
    check_filled(filled, start)


def check_filled(filled: int, tokens: int) -> None:
    """Refuse to build on positions that were not evaluated. Raises ``InvalidRequest``."""
    if tokens > filled:
        raise InvalidRequest(
            f"the first {tokens} positions of the slot were asked for, {filled} are evaluated: prefill them first",
            tokens=tokens,
            filled=filled,
        )


def check_kept(kept: Geometry, held: int, wanted: Geometry, tokens: int) -> None:
    """Refuse to take ``tokens`` positions of a retained copy that fits another model, or that holds fewer.

    Raises:
        InvalidRequest: naming the first field that differs.
    """
    for field in attrs.fields_dict(Geometry):
        has, needs = getattr(kept, field), getattr(wanted, field)
        if has != needs:
            raise InvalidRequest(
                f"retained KV has {field} {has!r}, the model has {needs!r}: drop it and prefill again",
                field=field,
                kept=has,
                wanted=needs,
            )
    if not 0 < tokens <= held:
        raise InvalidRequest(
            f"{tokens} positions were asked of retained KV that holds {held}: restore at most those",
            tokens=tokens,
            kept=held,
        )
