"""What the front door answers with. Times are integer nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

import attrs

from .runtime.models.channel_families import Kind


@attrs.frozen
class Piece:
    """One generated token and the text that became certain with it (maybe none).

    ``logprob`` and ``top`` (pairs of token and log-probability) are there when the request asked for them. ``kind`` is
    what the text is, ``thought``, ``answer`` or ``tool_call``; ``channel`` counts the stretches of one kind from 0, so
    that one tool call ends where the next begins; ``recipient`` is the tool, where the output names it apart.
    """

    text: str
    token: int | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    kind: Kind = "answer"
    channel: int = 0
    recipient: str | None = None


@attrs.frozen
class ToolCall:
    """A whole tool call as the model wrote it; ``recipient`` is the tool, where the output names it apart."""

    text: str
    recipient: str | None = None


def text_of(kind: Kind, pieces: Iterable[Piece]) -> str:
    """All the text of one kind."""
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def tool_calls_of(pieces: Iterable[Piece], unfinished: int | None) -> tuple[ToolCall, ...]:
    """The tool calls, without that of the channel which is ``unfinished``: half a call must not be run."""
    mine = [piece for piece in pieces if piece.kind == "tool_call" and piece.channel != unfinished]
    runs = [list(run) for _, run in groupby(mine, lambda piece: piece.channel)]
    return tuple(ToolCall("".join(piece.text for piece in run), run[0].recipient) for run in runs)


@attrs.frozen
class GenerationResult:
    """How a generation ended, and what it produced.

    ``outcome`` is ``completed`` or ``cancelled``; ``reason`` is ``stop_token``, ``stop_string`` or ``length``, or of a
    cancelled one ``deadline``, ``abandoned`` (its block was left early), or what ``cancel`` was given, which is
    ``cancelled`` by default. ``reused`` prompt tokens came from a retained prefix, ``prefilled`` were computed.
    ``first_token_ns`` is measured from submission; ``None`` when there was no token. ``text`` is the answer;
    ``thought`` and ``tool_calls`` are there when the request named its channels; ``thought_cut``: the output ended
    inside a thought.
    """

    request: str
    text: str
    tokens: tuple[int, ...]
    outcome: str
    reason: str
    prompt_tokens: int
    reused: int
    prefilled: int
    first_token_ns: int | None
    total_ns: int
    thought: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thought_cut: bool = False

    @property
    def answer(self) -> str:
        return self.text


@attrs.frozen
class DecisionResult:
    """How a decision ended: ``completed`` with scores, or ``abstained`` with its reason, or ``cancelled``.

    ``scores`` maps each head to one value per row; empty unless completed. ``reason`` of an abstention: ``deadline``,
    ``unavailable`` (the device or the scheduler), ``over_budget`` (its step does not fit the workspace), or what the
    abstention policy says, such as ``uncertain``. Of a cancelled one: why.
    """

    request: str
    outcome: str
    reason: str
    scores: Mapping[str, tuple[float, ...]]
    instruction_reused: int
    total_ns: int

    @property
    def abstained(self) -> bool:
        return self.outcome == "abstained"


@attrs.frozen
class Measurement:
    """Exact token counts of a rendered prompt: what remains of the admitted context is for output."""

    prompt_tokens: int
    admitted_context: int
    remaining: int
