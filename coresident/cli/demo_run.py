"""The demo's run: one answer streams while decisions arrive at intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import trio

from ..results import DecisionResult, GenerationResult, Piece
from ..runtime.config import PoliciesConfig
from ..runtime.host.live import Statistics
from ..scheduler import Scheduler
from .demo_story import INSTRUCTION, MESSAGES, PROMPT
from .faults import PolicyFaults
from .watch import Waited, Watch
from .wording import percentile, shown

CHECK_BELOW_NS = 10 * 10**9
# The first decision comes early, so that it meets the prompt's prefill.
FIRST_SHARE = 0.25


@attrs.frozen
class Decided:
    """A decision's rows and what came of them."""

    rows: tuple[str, ...]
    result: DecisionResult


Teller: TypeAlias = Callable[["Piece | Decided | str"], None]


@attrs.define
class Run:
    """What has happened so far; the screen reads it while it grows. Times in nanoseconds."""

    label: str
    tokens_asked: int
    watch: Watch
    toy: bool = False
    scheduler: Scheduler | None = None
    loaded_ns: int = 0
    request: str = ""
    text: str = ""
    decided: list[Decided] = attrs.field(factory=list)
    result: GenerationResult | None = None
    phase: str = "loading"
    equal: bool | None = None
    check_skipped: str = ""
    statistics: Statistics | None = None
    faults: PolicyFaults = attrs.field(factory=PolicyFaults)
    policies: PoliciesConfig | None = None
    recording_error: Exception | None = None

    @property
    def token_times(self) -> list[int]:
        return self.watch.tokens.get(self.request, [])

    @property
    def rate(self) -> float | None:
        """Tokens a second between the first and the latest token, decisions included."""
        times = self.token_times
        return None if len(times) < 2 else (len(times) - 1) * 1e9 / (times[-1] - times[0])

    def statistics_now(self) -> Statistics | None:
        """The scheduler's, those of its last moment once it is closed, ``None`` while it loads."""
        if self.statistics is None and self.scheduler is not None:
            return self.scheduler.statistics()
        return self.statistics

    def seen(self) -> list[Waited]:
        """What the decisions that ended waited for, in order."""
        return [self.watch.decisions[decided.result.request] for decided in self.decided]

    def latencies(self) -> list[int]:
        """How long each decision took from its acceptance to its scores."""
        return [waited.total_ns for waited in self.seen() if waited.total_ns is not None]

    def as_json(self) -> dict[str, Any]:
        """The run for machines."""
        return {
            "model": self.label,
            "loaded_ns": self.loaded_ns,
            "answer": None if self.result is None else attrs.asdict(self.result),
            "tokens_per_second": self.rate,
            "decisions": [_decision(decided, self.watch) for decided in self.decided],
            "decision_latency_ns": {
                "p50": percentile(self.latencies(), 0.5),
                "max": max(self.latencies(), default=None),
            },
            "equals_solo_run": self.equal,
            "check_skipped": self.check_skipped or None,
            "policy_faults": self.faults.messages,
        }


def _decision(decided: Decided, watch: Watch) -> dict[str, Any]:
    waited = watch.decisions[decided.result.request]
    return {
        **attrs.asdict(decided.result),
        "rows": decided.rows,
        "waited_ns": waited.waited_ns,
        "waited_for": waited.waited_for,
        "segments_waited": waited.segments,
    }


def words_of(piece: Piece, toy: bool) -> str:
    """What to show of a piece: its text, or the bytes of an untrained byte-level model, escaped."""
    if toy and piece.token is not None:
        return repr(bytes([piece.token % 256]))[2:-1]
    return shown(piece.text)


async def perform(run: Run, scheduler: Scheduler, every: float, check: bool | None, told: Teller) -> None:
    """Stream the answer and decide meanwhile; then, where that takes little time, generate it again alone and compare.

    ``told`` hears of pieces, decisions and phases (as strings) when they come.
    """
    run.phase = "answering"
    told(run.phase)
    async with trio.open_nursery() as nursery:
        answered = trio.Event()
        nursery.start_soon(_decide_at_intervals, run, scheduler, every, answered, told)
        run.result = await _answer(run, scheduler, told)
        answered.set()
    run.phase = "answered"
    told(run.phase)
    alone_ns = run.watch.device_ns.get(run.request, 0)
    if check is False or (check is None and alone_ns > CHECK_BELOW_NS):
        run.check_skipped = "not asked for" if check is False else f"it would take about {alone_ns / 1e9:.0f} s"
    else:
        run.phase = "checking"
        told(run.phase)
        solo = await scheduler.generate(_prompt(), max_tokens=run.tokens_asked, retain=False)
        run.equal = solo.tokens == run.result.tokens
    run.phase = "done"


def _prompt() -> list[dict[str, str]]:
    return [{"role": "user", "content": PROMPT}]


async def _answer(run: Run, scheduler: Scheduler, told: Teller) -> GenerationResult:
    generation = scheduler.generate(_prompt(), max_tokens=run.tokens_asked, retain=False)
    run.request = generation.request
    async with generation:
        async for piece in generation:
            run.text += words_of(piece, run.toy)
            told(piece)
        return await generation.result()


async def _decide_at_intervals(
    run: Run, scheduler: Scheduler, every: float, answered: trio.Event, told: Teller
) -> None:
    """With a pause after each, so that a slow machine still gets on with the answer."""
    pause = every * FIRST_SHARE
    for messages in itertools.cycle(MESSAGES):
        with trio.move_on_after(pause):
            await answered.wait()
            return
        decided = Decided(messages, await scheduler.decide(INSTRUCTION, messages))
        run.decided.append(decided)
        told(decided)
        pause = every
