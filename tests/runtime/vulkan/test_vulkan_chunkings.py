"""Vulkan under any chunking: whatever is cut, suspended, given up, moved or run in between, the bits are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from coresident.actors.work import PrefixFile, StepKind, StepShape
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backends import opened_on
from support.reference import MODEL, Keep, decode, drain, prefill, score, workspace
from support.vulkan_models import FORMS, written

LENGTH = 90
TOKENS = [int(token) for token in np.random.default_rng(11).integers(3, 160, LENGTH + 20)]
PROMPT, NEXT, ROW = TOKENS[:LENGTH], TOKENS[LENGTH], TOKENS[LENGTH + 1 :][:11]
INSTRUCTION = PROMPT[:33]
SLOTS = (0, 1, 2)
FIRST, SECOND = 1, 2

SEGMENTS = ("coresident.runtime.backends.vulkan.steps.segment_of", (1, 200_000, 1 << 40))
"""What bounds a segment, and the multiply-adds to try: a few in a layer, a few in a chunk, one."""

WAYS = ("whole", "suspended", "given up", "token by token")
MOVES = ("stays", "copied", "restored", "shared", "from a file", "warmed")


@attrs.frozen
class Part:
    """The next ``tokens``: how they are evaluated, in segments of so many multiply-adds, and what happens then.

    ``gaps`` are the segments behind which others run, or up to which a chunk runs that is given up.
    """

    tokens: int
    way: str
    segment: int
    gaps: frozenset[int]
    move: str


PARTS = st.lists(
    st.builds(
        Part,
        tokens=st.integers(1, 40),
        way=st.sampled_from(WAYS),
        segment=st.sampled_from(SEGMENTS[1]),
        gaps=st.frozensets(st.integers(0, 40), max_size=2),
        move=st.sampled_from(MOVES),
    ),
    max_size=7,
)


def parts_of(drawn: list[Part], length: int) -> Iterator[Part]:
    """As many of the drawn parts as there are tokens, and the rest as it comes."""
    for part in drawn:
        tokens = min(part.tokens, length)
        if tokens:
            yield attrs.evolve(part, tokens=tokens)
        length -= tokens
    while length:
        yield Part(min(40, length), "whole", SEGMENTS[1][-1], frozenset(), "stays")
        length -= min(40, length)


@attrs.define
class Course:
    """A sequence on its way through the slots of a device that others use too."""

    backend: Any
    folder: Path
    alone: tuple[float, ...]
    role: str = "generation"
    slot: int = 1
    at: int = 0
    last: np.ndarray | None = None

    def go(self, tokens: list[int], drawn: list[Part]) -> np.ndarray:
        """The logits after the last token."""
        for part in parts_of(drawn, len(tokens)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(SEGMENTS[0], lambda running, segment=part.segment: segment)
                self._evaluate(tokens[self.at : self.at + part.tokens], part)
            self._move(tokens[: self.at], part.move)
        assert self.last is not None
        return self.last

    def _evaluate(self, tokens: list[int], part: Part) -> None:
        if part.way == "token by token" and self.role == "generation":
            for token in tokens[:3]:
                self.last = decode(self.backend, [(self.slot, self.at, token)])[0]
                self.at += 1
            tokens = tokens[3:]
        if not tokens:
            return
        if part.way == "given up":
            self._chunk(tokens, part.gaps, until=max(part.gaps, default=1))
        self.last = self._chunk(tokens, part.gaps if part.way == "suspended" else frozenset())
        self.at += len(tokens)

    def _chunk(self, tokens: list[int], gaps: frozenset[int], until: int | None = None) -> np.ndarray | None:
        """Evaluate a chunk, or the first segments of it."""
        keep, end = Keep(), self.at + len(tokens)
        space = workspace(self.backend, StepKind.PREFILL, len(tokens), end)
        steps = self.backend.prefill(space, MODEL, self.role, self.slot, self.at, tokens, keep)
        for number, _ in enumerate(steps):
            if number == until:
                break
            if number in gaps:
                self._others()
        steps.close()
        space.close()
        return keep.seen[0] if keep.seen else None

    def _others(self) -> None:
        """A prompt, decode rows and a decision in other slots."""
        one, two = (slot for slot in SLOTS if slot != self.slot)
        prefill(self.backend, one, PROMPT[:21])
        prefill(self.backend, two, PROMPT[7:12])
        decode(self.backend, [(one, 21, 5), (two, 5, 9)])
        if self.role == "generation":
            prefill(self.backend, 0, INSTRUCTION, role="decision")
            assert score(self.backend, 0, len(INSTRUCTION), ROW) == self.alone

    def _move(self, tokens: list[int], move: str) -> None:
        """Go on in another slot, or behind a warm-up that empties the slots."""
        if move == "stays" or (self.role == "decision" and move != "copied"):
            return
        target = (self.slot + 1) % len(SLOTS)
        if move == "copied":
            drain(self.backend.copy(MODEL, self.role, self.slot, (target,), self.at))
        else:
            self._keep(tokens, move)
            if move == "warmed":
                self._warm()
            prefill(self.backend, target, PROMPT[::-1][:50])
            drain(self.backend.restore(MODEL, target, self.at, handle=SECOND))
            self.backend.drop(MODEL, SECOND)
        self.slot = target

    def _keep(self, tokens: list[int], move: str) -> None:
        """Save what there is, with a shared head where it is long enough, or by way of a file."""
        backend, handle = self.backend, SECOND if move != "from a file" else FIRST
        shared = len(tokens) // 64 * 64 if move == "shared" else 0
        if shared:
            drain(backend.save(MODEL, self.slot, shared, handle=FIRST))
            drain(backend.save(MODEL, self.slot, self.at, SECOND, *((FIRST, shared) if shared < self.at else ())))
        else:
            drain(backend.save(MODEL, self.slot, self.at, handle))
        if move == "from a file":
            file = PrefixFile(str(self.folder / "prefix"), "launch", "identity", tuple(tokens), 0, 16)
            drain(backend.store(MODEL, FIRST, file))
            drain(backend.fetch(MODEL, SECOND, file))
            Path(file.path).unlink()
        backend.drop(MODEL, FIRST)

    def _warm(self) -> None:
        space = self.backend.open_workspace(self.backend.charge(MODEL, StepShape(StepKind.WARMUP, 1, 16, 16)))
        drain(self.backend.warm(MODEL, space))
        space.close()


@attrs.frozen(eq=False)
class Alone:
    """A loaded model, and its numbers with nothing in between: the whole prompt at once."""

    backend: Any
    folder: Path
    logits: np.ndarray
    next: np.ndarray
    scores: tuple[float, ...]

    def course(self, role: str = "generation") -> Course:
        return Course(self.backend, self.folder, self.scores, role)


@pytest.fixture(scope="module", params=[("synthetic", ""), *FORMS], ids="-".join)
def alone(request, tmp_path_factory) -> Alone:
    folder = tmp_path_factory.mktemp("vulkan")
    family, form = request.param
    backend = opened_on("vulkan", written(folder, family, form) if form else None)
    course = Course(backend, folder, ())
    whole = course._chunk(PROMPT, frozenset())
    after = decode(backend, [(course.slot, LENGTH, NEXT)])[0]
    attrs.evolve(course, role="decision")._chunk(INSTRUCTION, frozenset())
    return Alone(backend, folder, whole, after, score(backend, course.slot, len(INSTRUCTION), ROW))


@given(drawn=PARTS)
@settings(max_examples=8, deadline=None)
def test_R10_R52_every_chunking_gives_the_bits_of_the_whole_prompt(alone, drawn):
    course = alone.course()
    assert course.go(PROMPT, drawn).tobytes() == alone.logits.tobytes()
    after = decode(alone.backend, [(course.slot, LENGTH, NEXT)])[0]
    assert after.tobytes() == alone.next.tobytes()


@given(drawn=PARTS)
@settings(max_examples=3, deadline=None)
def test_R10_every_chunking_of_an_instruction_gives_the_scores(alone, drawn):
    course = alone.course("decision")
    course.go(INSTRUCTION, drawn)
    assert score(alone.backend, course.slot, len(INSTRUCTION), ROW) == alone.scores


def test_other_numbers_are_seen(alone):
    """The negative control: one other token, far back, changes bits."""
    changed = [PROMPT[0] + 1, *PROMPT[1:]]
    assert alone.course().go(changed, []).tobytes() != alone.logits.tobytes()
    deciding = alone.course("decision")
    deciding.go(changed[: len(INSTRUCTION)], [])
    assert score(alone.backend, deciding.slot, len(INSTRUCTION), ROW) != alone.scores
