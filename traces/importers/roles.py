"""Work that the source did not have, derived from what it had: decisions and preparations, the same for equal seeds.

A decision has an instruction that all decisions share, and rows of content of their own, as many as the prompt it is
derived from would fill, within bounds. A preparation has the head of a turn's prompt that the next turn begins with,
which is known when the turn ends.
"""

from __future__ import annotations

import hashlib

from ..events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation
from .content import made
from .turn import Settings, Turn

INSTRUCTION = 128
ROW = 256
ROWS = 16
HEAD = "probability"
IDENTITY = "decide"


def becomes_decision(settings: Settings, index: int) -> bool:
    """Whether request number ``index`` is one of the share that become decisions."""
    digest = hashlib.blake2b(f"{settings.seed} {index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") < settings.decisions * 2**64


def decision_of(arrival: ArriveGeneration, request: str, settings: Settings, size: int) -> ArriveDecision:
    """The decision in place of, or in front of, a generation request: when that comes, after what that comes after."""
    tokens = min(arrival.prompt.tokens, ROW * ROWS)
    lengths = [min(ROW, tokens - start) for start in range(0, tokens, ROW)]
    return ArriveDecision(
        at=arrival.at,
        request=request,
        instruction=made(INSTRUCTION, size, settings.seed, "instruction"),
        rows=tuple(made(length, size, settings.seed, request, index) for index, length in enumerate(lengths)),
        heads=(HEAD,),
        identity=IDENTITY,
        after=arrival.after,
        think_ns=arrival.think_ns,
    )


def preparation_of(turn: Turn, at: int, request: str, after: str, settings: Settings) -> ArrivePreparation | None:
    """What the end of a turn, at ``at``, lets be prepared for the next one."""
    if turn.known is None:
        return None
    return ArrivePreparation(
        at=at,
        request=request,
        known=turn.known,
        standing=turn.standing,
        identity=turn.identity,
        conversation=turn.conversation,
        after=after,
        think_ns=None if settings.open_loop else 0,
    )
