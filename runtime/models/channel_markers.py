"""Markers as token ids, and how they are found in a stream.

Rule 1: a marker whose text is one token of the vocabulary is that token and nothing else: ordinary tokens that spell
the same text are text.
Rule 2: only where the vocabulary has no such token, and the family allows it, a marker is what the tokenizer makes of
its text, alone or before line ends (which go with it where they share a token). A spelling that the tokenizer merges
with the character before it is not found, and a text that quotes it is taken for it: ids cannot tell.
Rule 3: the marker that is complete first counts; of those complete at the same token, the longest. No token of it is
passed on before, so the longest ending of the stream that could begin a marker is held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations

import attrs

from ...actors.errors import InvalidRequest
from .channel_families import FAMILIES, Family, Marker
from .tokenizer import AnyTokenizer

# Tokenizers merge line ends into the punctuation before them.
LINE_ENDS = ("", "\n", "\n\n")


@attrs.frozen(eq=False)
class Markers:
    """A family over one tokenizer. ``spellings``: token ids to the marker they are; no spelling begins with another."""

    family: Family
    spellings: Mapping[tuple[int, ...], Marker]
    token_bytes: Callable[[int], bytes]

    @classmethod
    def of(cls, family: str | Family, tokenizer: AnyTokenizer) -> Markers:
        """Look the markers up. The tokenizer's stop tokens end the turn, unless the family has another use for them.

        Raises:
            InvalidRequest: no such family, or the tokenizer doesn't have its markers (names them).
        """
        found = _family(family)
        spellings: dict[tuple[int, ...], Marker] = {}
        missing = []
        for marker in found.markers:
            sequences = _spellings(found, marker, tokenizer)
            if marker.required and not sequences:
                missing.append(marker.text)
            spellings |= dict.fromkeys(sequences, marker)
        if missing:
            raise InvalidRequest(
                f"channels {found.name} need the markers {' '.join(missing)}, which the tokenizer {tokenizer.label} "
                "does not have: choose the family that this model was trained with",
                field="channels",
                value=found.name,
                missing=tuple(missing),
            )
        for token in sorted(tokenizer.stop_tokens):
            text = tokenizer.token_bytes(token).decode("utf-8", errors="replace")
            spellings.setdefault((token,), Marker(text, "end_turn"))
        _check_apart(found, spellings)
        return cls(found, spellings, tokenizer.token_bytes)

    @property
    def longest(self) -> int:
        """Tokens of the longest marker."""
        return max(map(len, self.spellings))


def _family(family: str | Family) -> Family:
    if isinstance(family, Family):
        return family
    if family not in FAMILIES:
        raise InvalidRequest(
            f"channels is {family!r}; the families are {', '.join(FAMILIES)}", field="channels", value=family
        )
    return FAMILIES[family]


def _spellings(family: Family, marker: Marker, tokenizer: AnyTokenizer) -> set[tuple[int, ...]]:
    whole = tokenizer.encode(marker.text)
    if len(whole) == 1 and tokenizer.token_bytes(whole[0]) == marker.text.encode():
        return {whole}
    if not family.spelled:
        return set()
    texts = [marker.text + end for end in LINE_ENDS]
    encoded = {tokenizer.encode(text, special=False): text for text in texts}
    sequences = {ids for ids, text in encoded.items() if tokenizer.decode(ids, special=True) == text}
    return {ids for ids in sequences if not any(ids[:size] in sequences for size in range(1, len(ids)))}


def _check_apart(family: Family, spellings: Mapping[tuple[int, ...], Marker]) -> None:
    for first, second in permutations(spellings, 2):
        if second[: len(first)] == first:
            raise InvalidRequest(
                f"channels {family.name}: the marker {spellings[second].text} begins with the tokens of "
                f"{spellings[first].text} and could never be found; no marker may begin with another",
                field="channels",
                value=family.name,
            )


@attrs.define(eq=False)
class MarkerMatcher:
    """Finds markers in a stream of tokens; holds back fewer tokens than the longest marker has."""

    markers: Markers
    held: tuple[int, ...] = attrs.field(init=False, default=())
    _beginnings: frozenset[tuple[int, ...]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        spellings = self.markers.spellings
        self._beginnings = frozenset(ids[:size] for ids in spellings for size in range(1, len(ids)))

    def push(self, token: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Take a token: ordinary tokens that are certain now, then the ids of the marker it completes, or none."""
        seen = (*self.held, token)
        for ending in _endings(seen):
            if ending in self.markers.spellings:
                self.held = ()
                return seen[: len(seen) - len(ending)], ending
        self.held = next((ending for ending in _endings(seen) if ending in self._beginnings), ())
        return seen[: len(seen) - len(self.held)], ()

    def flush(self) -> tuple[int, ...]:
        """The stream has ended: what was held back is ordinary."""
        held, self.held = self.held, ()
        return held


def _endings(tokens: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Endings of ``tokens``, the longest first."""
    return (tokens[start:] for start in range(len(tokens)))
