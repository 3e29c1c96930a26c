"""From recorded requests to messages: the recorded token ids where there are some, made-up tokens of the same
structure otherwise.

Outputs have the recorded length and content: a request that stopped stops at the same token, and what follows in the
conversation finds the same prefix retained. The device computes every product; only the choice of the token is taken
from the trace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..actors.messages import (
    PinConversation,
    ReleaseConversation,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
)
from ..policies.views import WorkClass
from ..runtime.backends.contract import Sampled, Sampler
from ..runtime.host.assembly import GENERATION, Assembly
from ..runtime.host.steps import Stream
from ..runtime.models.sampling import SamplingParams, make_sampler
from .blocks import BlockNotes, BlockTokens
from .events_schedule import EndGeneration
from .events_workload import ArriveDecision, ArriveGeneration, ArrivePreparation, Content, Pin
from .header import Header
from .made_up import SourceTokens
from .workload import Item, Playable, Wish

_CLASSES = {work_class.label: work_class for work_class in WorkClass}
_AHEAD = 64


class Made(Protocol):
    """Makes tokens up: for a content, and for places that the trace says nothing about."""

    def tokens(self, content: Content) -> tuple[int, ...]: ...

    def fillers(self, name: str, start: int, count: int) -> list[int]: ...


class _Told:
    """A sampler that answers with the recorded tokens, and with made-up ones after them."""

    def __init__(self, request: str, tokens: Sequence[int], made: Made) -> None:
        self._request = request
        self._tokens = list(tokens)
        self._made = made
        self._count = 0

    def sample(self, logits: NDArray[np.float32]) -> Sampled:
        index, self._count = self._count, self._count + 1
        if index == len(self._tokens):
            self._tokens += self._made.fillers(self._request, index, _AHEAD)
        return Sampled(self._tokens[index])


class _Forced(_Told):
    """One that looks at the logits first, as any sampler does."""

    def __init__(self, request: str, tokens: Sequence[int], made: Made) -> None:
        super().__init__(request, tokens, made)
        self._inner: Sampler = make_sampler(SamplingParams())

    def sample(self, logits: NDArray[np.float32]) -> Sampled:
        self._inner.sample(logits)
        return super().sample(logits)


class _Stop:
    """Ends the output where it ended when it was recorded."""

    def __init__(self, tokens: int | None, reason: str) -> None:
        self._left = tokens
        self._reason = reason

    def take(self, request: str, sampled: Sampled) -> str | None:
        if self._left is None:
            return None
        self._left -= 1
        return self._reason if self._left == 0 else None


class Submissions:
    """Makes the messages of a workload for an assembly.

    ``avoid`` are token ids, by model, that are not made up. ``seed`` is added to the header's: another one makes other
    tokens of the same structure. On a device ``without_logits`` nobody looks at them.
    """

    def __init__(
        self,
        workload: Playable,
        assembly: Assembly,
        avoid: Mapping[str, Collection[int]] | None = None,
        seed: int = 0,
        without_logits: bool = False,
    ) -> None:
        header = workload.header
        avoid = avoid or {}
        self._sampler = _Told if without_logits else _Forced
        self._made: dict[str, Made] = {}
        self._exact: dict[str, bool] = {}
        for role, key in ((GENERATION, GENERATION), ("decision", assembly.decision_model or GENERATION)):
            description = assembly.models[key]
            kept_out = {*avoid.get(key, ()), *description.stop_tokens}
            self._made[role] = _made(header, workload.notes, description.vocabulary, kept_out, header.seed + seed)
            recorded = next((model for model in header.models if role in model.roles), None)
            self._exact[role] = recorded is not None and recorded.vocabulary <= description.vocabulary

    def generation(self, item: Item, arrival: ArriveGeneration, at: int) -> tuple[SubmitGeneration, Stream]:
        """The message of a generation request submitted at ``at``, and its stream."""
        message = SubmitGeneration(
            request=arrival.request,
            prompt=self._tokens(GENERATION, arrival.prompt),
            max_tokens=arrival.max_tokens,
            identity=arrival.identity,
            work_class=_CLASSES[arrival.work_class],
            deadline=None if arrival.deadline_ns is None else at + arrival.deadline_ns,
            retain=arrival.retain,
            conversation=arrival.conversation,
            after=arrival.after,
        )
        ending = item.ending if isinstance(item.ending, EndGeneration) else None
        sampler = self._sampler(arrival.request, self._output(ending), self._made[GENERATION])
        return message, Stream(sampler, _stop(arrival, ending).take)

    def decision(self, arrival: ArriveDecision, at: int) -> SubmitDecision:
        """The message of a decision request submitted at ``at``."""
        return SubmitDecision(
            request=arrival.request,
            instruction=self._tokens("decision", arrival.instruction),
            rows=tuple(self._tokens("decision", row) for row in arrival.rows),
            heads=arrival.heads,
            identity=arrival.identity,
            deadline=None if arrival.deadline_ns is None else at + arrival.deadline_ns,
            after=arrival.after,
        )

    def preparation(self, arrival: ArrivePreparation) -> SubmitPreparation:
        """The message of a preparation."""
        return SubmitPreparation(
            request=arrival.request,
            tokens=self._tokens(GENERATION, arrival.known),
            standing=arrival.standing,
            identity=arrival.identity,
            conversation=arrival.conversation,
            after=arrival.after,
        )

    @staticmethod
    def wish(wish: Wish) -> PinConversation | ReleaseConversation:
        """The message of what was said about retained prefixes."""
        if isinstance(wish.event, Pin):
            return PinConversation(wish.event.conversation, wish.event.pinned)
        return ReleaseConversation(wish.event.conversation)

    def _tokens(self, role: str, content: Content) -> tuple[int, ...]:
        if content.ids is not None and self._exact[role]:
            return content.ids
        return self._made[role].tokens(content)

    def _output(self, ending: EndGeneration | None) -> tuple[int, ...]:
        if ending is None or ending.whole is None:
            return ()
        if ending.output is not None and self._exact[GENERATION]:
            return ending.output
        return self._made[GENERATION].tokens(ending.whole)[ending.prompt :]


def _made(header: Header, notes: BlockNotes, vocabulary: int, avoid: Collection[int], seed: int) -> Made:
    if header.block_scope == "source":
        return SourceTokens(header.block_size, vocabulary, avoid, seed)
    return BlockTokens(notes, vocabulary, avoid, seed)


def _stop(arrival: ArriveGeneration, ending: EndGeneration | None) -> _Stop:
    """Where the output ends: as recorded, or as the source of an imported trace says."""
    if ending is not None and ending.outcome == "completed" and ending.reason != "length":
        return _Stop(ending.tokens, ending.reason)
    if ending is None and arrival.expected is not None and arrival.expected < arrival.max_tokens:
        return _Stop(max(1, arrival.expected), "stop_token")
    return _Stop(None, "")
