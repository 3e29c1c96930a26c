"""A model that says what a test wants, with a tokenizer that has any family's markers; on the synthetic checkpoint."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
from coresident.runtime.backends.contract import Sampled
from coresident.runtime.models.channel_families import FAMILIES
from coresident.runtime.models.chat import ChatTemplate
from coresident.runtime.models.sampling import make_sampler
from coresident.runtime.models.tokenizer import ByteTokenizer

import coresident.scheduler
from support.live import Bench, Desk

# Bytes that stand in no UTF-8 text.
FREE = (*range(0xF8, 0x100), 0xC0, 0xC1)
MORE = {"gemma4": ('<|"|>',)}
ENDS = {"gemma4": ("<turn|>",), "harmony": ("<|return|>", "<|call|>")}
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@attrs.frozen(kw_only=True)
class MarkedBytes(ByteTokenizer):
    """Every byte is a token, and some that no text has are special."""

    marked: Mapping[str, int]

    def encode(self, text: str, *, special: bool = True) -> tuple[int, ...]:
        if not special or not self.marked:
            return super().encode(text)
        parts = re.split("(" + "|".join(map(re.escape, self.marked)) + ")", text)
        return tuple(id for part in parts for id in ((self.marked[part],) if part in self.marked else part.encode()))

    def token_bytes(self, token: int) -> bytes:
        texts = {id: text for text, id in self.marked.items()}
        return texts[token].encode() if token in texts else super().token_bytes(token)


def tokenizer_of(family: str) -> MarkedBytes:
    """Bytes with the markers of a family; ``think`` spells its own."""
    texts = () if family == "think" else [*(marker.text for marker in FAMILIES[family].markers), *MORE.get(family, ())]
    marked = dict(zip(texts, FREE, strict=False))
    return MarkedBytes(
        marked=marked,
        special_tokens=frozenset(marked.values()),
        stop_tokens=frozenset(marked[text] for text in ENDS.get(family, ())),
        chat_template=TEMPLATE,
    )


@attrs.define(eq=False)
class Saying:
    """A sampler that says its tokens, and letters when it has none left."""

    tokens: Sequence[int]
    said: int = 0

    def sample(self, logits: object) -> Sampled:
        self.said += 1
        return Sampled(self.tokens[self.said - 1] if self.said <= len(self.tokens) else ord("x"))


def says(monkeypatch: Any, *scripts: Iterable[int]) -> list[Saying]:
    """Requests whose seed is 1, 2, ... say these scripts; the others are sampled as ever."""
    samplers = [Saying(tuple(script)) for script in scripts]
    monkeypatch.setattr(
        coresident.scheduler,
        "make_sampler",
        lambda params: samplers[params.seed - 1] if params.seed else make_sampler(params),
    )
    return samplers


@asynccontextmanager
async def speaking(family: str = "think") -> AsyncIterator[Desk]:
    """An open desk whose tokenizer has the family's markers."""
    bench = Bench()
    tokenizer = tokenizer_of(family)
    kit = attrs.evolve(bench.kits["generation"], tokenizer=tokenizer, template=ChatTemplate.of(tokenizer))
    bench.kits = {**bench.kits, "generation": kit}
    async with bench.open() as opened:
        yield opened
    bench.check_closed()
