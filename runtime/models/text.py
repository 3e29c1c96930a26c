"""The text side of a resident model: tokenizer, chat template, and the identity of what they render."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ...actors.errors import InvalidRequest
from .locate import SYNTHETIC, ModelSource
from .tokenizer import AnyTokenizer, load_tokenizer

if TYPE_CHECKING:
    from .chat import ChatTemplate

_NO_OPTIONS = frozenset({"self", "messages", "tools", "now", "add_generation_prompt"})
Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | Sequence[int]


@attrs.frozen
class Rendered:
    """A prompt as tokens, and the identity under which its prefixes may be shared."""

    tokens: tuple[int, ...]
    identity: str


@attrs.frozen
class RenderedDecision:
    """A decision as tokens: the instruction once, then each row with what follows it."""

    instruction: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    identity: str


@attrs.frozen
class TextKit:
    """Renders prompts of one model."""

    tokenizer: AnyTokenizer
    template: ChatTemplate
    digest: str

    @classmethod
    def of(cls, source: ModelSource, digest: str) -> TextKit:
        """The kit of a model file. Raises ``ArtifactInvalid`` when its tokenizer or template is damaged."""
        from .chat import ChatTemplate

        tokenizer = load_tokenizer(None if source.path == SYNTHETIC else Path(source.path))
        return cls(tokenizer, ChatTemplate.of(tokenizer), digest)

    def render(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> Rendered:
        """A text, chat messages, or token ids to tokens; never shortened.

        Raises ``InvalidRequest`` for messages without meaning, and token ids outside the vocabulary.
        """
        options = _checked_options(options)
        if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray | memoryview):
            raise InvalidRequest(
                f"prompt is {prompt!r}: give a text, a list of chat messages, or a list of token ids",
                field="prompt",
                value=prompt,
            )
        if isinstance(prompt, str):
            return Rendered(self.tokenizer.encode_prompt(prompt), self._identity("text"))
        if prompt and isinstance(prompt[0], int):
            return Rendered(self._ids(prompt), self._identity("text"))
        text = self.template.render(prompt, tools=tools, now=now, **options)  # type: ignore[arg-type]
        return Rendered(self.tokenizer.encode_prompt(text), self._identity(self.template.digest(options)))

    def render_decision(self, instruction: str, rows: Sequence[str]) -> RenderedDecision:
        """An instruction and rows as the head and tails of chat prompts: the head is the same for every row.

        Rows are taken as plain text: what looks like a special token in a row is not one.
        """
        head, tail = self._around_row(instruction)
        ending = self.tokenizer.encode(tail)
        bodies = tuple((*self.tokenizer.encode(row, special=False), *ending) for row in rows)
        return RenderedDecision(self.tokenizer.encode_prompt(head), bodies, self._identity(self.template.digest({})))

    def _around_row(self, instruction: str) -> tuple[str, str]:
        """What the template puts before and after a row.

        Without a system role, the instruction leads the user's message.
        """
        mark = "row" + hashlib.sha256(instruction.encode(errors="replace")).hexdigest()[:16]
        try:
            messages = [{"role": "system", "content": instruction}, {"role": "user", "content": mark}]
            text = self.template.render(messages)
        except InvalidRequest:
            text = self.template.render([{"role": "user", "content": f"{instruction}\n\n{mark}"}])
        head, found, tail = text.partition(mark)
        if not found or mark in tail:
            raise InvalidRequest(
                f"the chat template of {self.tokenizer.label} does not show a user's message exactly once: "
                "it cannot frame decision rows",
                field="instruction",
            )
        return head, tail

    def _ids(self, prompt: Sequence[Any]) -> tuple[int, ...]:
        for place, token in enumerate(prompt):
            if type(token) is not int or not 0 <= token < self.tokenizer.vocabulary:
                raise InvalidRequest(
                    f"prompt[{place}] is {token!r}: token ids are integers from 0 to {self.tokenizer.vocabulary - 1}",
                    field=f"prompt[{place}]",
                    value=token,
                )
        return tuple(prompt)

    def _identity(self, rendering: str) -> str:
        return hashlib.sha256(f"{self.digest} {rendering}".encode()).hexdigest()


def _checked_options(options: object) -> dict[str, Any]:
    """Options of a template as they are passed to it; what is not an option is refused by name."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidRequest(
            f"template_options is {options!r}: give a mapping of names to values",
            field="template_options",
            value=options,
        )
    for name in options:
        if not isinstance(name, str) or name in _NO_OPTIONS:
            raise InvalidRequest(
                f"template_options has the name {name!r}: names are texts, but not {', '.join(sorted(_NO_OPTIONS))}",
                field="template_options",
                value=name,
            )
    return dict(options)
