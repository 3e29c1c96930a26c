"""One sequence on one KV slot of any backend, without a scheduler: for tests, oracles and small tools.

A session evaluates on the chunk grid that counts from position 0, so that its numbers are those a scheduler would
get. It keeps the logits of the last evaluated position, from which :meth:`KVSession.generate` goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, Self, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from ...actors.errors import InvalidRequest
from ...actors.work import StepKind, StepShape
from .contract import Backend, DecodeInput, Sampled, Sampler, Segments, Workspace

Logits = NDArray[np.float32]


class TeacherForced(Protocol):
    """A backend with the feature ``teacher_forced_logits``: for tests and oracles, never under a scheduler.

    Nothing is charged for it and nothing bounds it: a chunk takes ``len(tokens) * vocabulary`` float32 values, and what
    its layers need.
    """

    def logits_all(self, model: str, role: str, slot: int, start: int, tokens: Sequence[int]) -> Logits: ...


class _Keep:
    """Keeps a copy of the logits instead of choosing a token."""

    logits: Logits | None = None

    def sample(self, logits: Logits) -> Sampled:
        self.logits = logits.copy()
        return Sampled(0)


def _run(steps: Segments) -> None:
    for _ in steps:
        pass


@attrs.define(eq=False)
class KVSession:
    """A sequence in generation slot ``slot`` of a loaded ``model``, evaluated in chunks of ``chunk`` tokens.

    ``tokens`` are those whose keys and values the slot holds; ``next_logits`` are the logits after the last of them,
    float32 ``(vocabulary,)``, or ``None`` when the session is empty or was trimmed.
    """

    backend: Backend
    model: str
    slot: int
    chunk: int = 256
    tokens: list[int] = attrs.field(factory=list)
    next_logits: Logits | None = None

    def prefill(self, tokens: Sequence[int]) -> Logits:
        """Append tokens and return the logits after the last one."""
        if not tokens:
            raise InvalidRequest("prefill of no tokens: give at least one", tokens=0)
        keep = _Keep()
        for part, last in self._grid(tokens):
            start = len(self.tokens)
            workspace = self._workspace(StepKind.PREFILL, len(part), start + len(part))
            sampler: Sampler | None = keep if last else None
            try:
                _run(self.backend.prefill(workspace, self.model, "generation", self.slot, start, part, sampler))
            finally:
                workspace.close()
            self.tokens.extend(part)
        return self._kept(keep)

    def step(self, token: int) -> Logits:
        """Append one token by a decode step and return the logits after it."""
        keep = _Keep()
        position = len(self.tokens)
        workspace = self._workspace(StepKind.DECODE, 1, position + 1)
        try:
            _run(self.backend.decode(workspace, self.model, [DecodeInput(self.slot, position, token)], [keep]))
        finally:
            workspace.close()
        self.tokens.append(token)
        return self._kept(keep)

    def generate(
        self,
        max_tokens: int,
        sampler: Sampler,
        cancelled: Callable[[], bool] = lambda: False,
        stop_tokens: Sequence[int] = (),
    ) -> tuple[int, ...]:
        """Sample and append up to ``max_tokens`` tokens; ends before a stop token, or between steps when cancelled."""
        if self.next_logits is None:
            raise InvalidRequest(
                "there are no logits to go on from: prefill at least one token first", tokens=len(self.tokens)
            )
        generated: list[int] = []
        logits = self.next_logits
        while len(generated) < max_tokens and not cancelled():
            token = sampler.sample(logits.copy()).token
            if token in stop_tokens:
                break
            logits = self.step(token)
            generated.append(token)
        return tuple(generated)

    def logits(self, tokens: Sequence[int]) -> Logits:
        """Append tokens and return the logits after every one of them, float32 ``(len(tokens), vocabulary)``.

        Raises:
            InvalidRequest: the backend lacks the feature ``teacher_forced_logits``.
        """
        feature = "teacher_forced_logits"
        if feature not in self.backend.capabilities.features or not tokens:
            raise InvalidRequest(
                f"logits of {len(tokens)} tokens: the backend {self.backend.name} needs the feature {feature!r}, "
                "and at least one token is needed",
                tokens=len(tokens),
            )
        forced = cast(TeacherForced, self.backend)
        parts = []
        for part, _ in self._grid(tokens):
            parts.append(forced.logits_all(self.model, "generation", self.slot, len(self.tokens), part))
            self.tokens.extend(part)
        every: Logits = np.concatenate(parts)
        self.next_logits = every[-1].copy()
        return every

    def trim(self, tokens: int) -> None:
        """Keep only the first ``tokens`` tokens."""
        if not 0 <= tokens <= len(self.tokens):
            raise InvalidRequest(f"trim to {tokens} tokens: the session holds {len(self.tokens)}", tokens=tokens)
        if tokens < len(self.tokens):
            del self.tokens[tokens:]
            self.next_logits = None

    def clone(self, slot: int) -> Self:
        """A session in another slot that goes on from the same point."""
        twin = self.from_prefix(slot, len(self.tokens))
        twin.next_logits = None if self.next_logits is None else self.next_logits.copy()
        return twin

    def from_prefix(self, slot: int, tokens: int) -> Self:
        """A session in another slot that holds this one's first ``tokens`` tokens."""
        if not 0 <= tokens <= len(self.tokens):
            raise InvalidRequest(f"prefix of {tokens} tokens: the session holds {len(self.tokens)}", tokens=tokens)
        if tokens:
            _run(self.backend.copy(self.model, "generation", self.slot, (slot,), tokens))
        return attrs.evolve(self, slot=slot, tokens=self.tokens[:tokens], next_logits=None)

    def _grid(self, tokens: Sequence[int]) -> list[tuple[list[int], bool]]:
        """The tokens cut at multiples of the chunk size, each part with whether it is the last."""
        start, end = len(self.tokens), len(self.tokens) + len(tokens)
        first = (start // self.chunk + 1) * self.chunk
        edges = [start, *range(first, end, self.chunk), end]
        return [(list(tokens[low - start : high - start]), high == end) for low, high in pairwise(edges)]

    def _workspace(self, kind: StepKind, tokens: int, context: int) -> Workspace:
        return self.backend.open_workspace(self.backend.charge(self.model, StepShape(kind, 1, tokens, context)))

    def _kept(self, keep: _Keep) -> Logits:
        if keep.logits is None:
            raise InvalidRequest(f"the backend {self.backend.name} sampled nothing in the last chunk", slot=self.slot)
        self.next_logits = keep.logits
        return keep.logits
