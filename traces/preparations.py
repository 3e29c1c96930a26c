"""What prepared tokens were worth, in one pass over the events of a run.

A preparation computes stretches of tokens in a KV slot. Saved, they are in a retained prefix; a request that reuses a
prefix, or takes a preparation over, has them in its own slot, and so on from prefix to prefix. Reuse is always of a
head, so of a stretch it is always a head too: one position says how much of it was used, another how much is still
there.

A prepared token counts as used once, for the first request that reuses it: what comes later would have found it
anyway, since a request that had to compute it would have left it behind as well. What the use saved is estimated as
the tokens times the run's mean device time of a prefilled token; a restore from retained storage is not taken off.
A chunk that was in flight when its preparation was taken over is the request's, not the preparation's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from ..runtime.host.assembly import GENERATION
from .events_schedule import Advance, Drop, EndPreparation, Grant, Refuse, Retain, Reuse, Seat, Step, Tokens
from .events_workload import ArrivePreparation
from .format import Event

_NO_END = sys.maxsize


@attrs.frozen
class Use:
    """Prepared tokens that a request was the first to reuse, and the estimated time to its first token that it saved.

    A request that ended before its first token saved none.
    """

    request: str
    tokens: int
    saved_ns: int


@attrs.frozen
class PreparationAccount:
    """One preparation: ``computed`` is the sum of ``used``, ``kept``, ``evicted`` and ``wasted`` tokens.

    ``kept`` tokens were retained to the end without a use, ``evicted`` ones given up before one, and ``wasted`` ones
    never retained: what came in their place was different. ``goal`` tokens were to be there, ``reused`` were when it
    began. ``outcome`` is ``None`` when its end is not in the trace. ``preemptions`` count chunks interrupted for other
    work.
    """

    request: str
    conversation: str
    at: int
    ended_at: int | None
    outcome: str | None
    goal: int
    reused: int
    computed: int
    used: int
    kept: int
    evicted: int
    wasted: int
    preemptions: int
    saved_ns: int
    uses: tuple[Use, ...]


@attrs.frozen
class PreparationStatistics:
    """All preparations of a run; token counts are sums over ``accounts``.

    ``prefill_token_ns`` is the mean device time of a prefilled token of the generation model in this run.
    """

    outcomes: Mapping[str, int]
    computed: int
    reused: int
    used: int
    kept: int
    evicted: int
    wasted: int
    preemptions: int
    saved_ns: int
    prefill_token_ns: float | None
    accounts: tuple[PreparationAccount, ...]


@attrs.define(eq=False)
class _Stretch:
    """Tokens ``start`` to ``stop`` of a prompt, computed in one go; the positions are where each part of it ends."""

    job: _Job
    start: int
    stop: int
    used: int
    kept: int
    evicted: int

    def parts(self) -> tuple[int, int, int, int]:
        """Tokens used, kept, evicted, wasted; of several copies the longest counts."""
        kept = max(self.used, self.kept)
        evicted = max(kept, self.evicted)
        return self.used - self.start, kept - self.used, evicted - kept, self.stop - evicted


# Stretches in order, each with the position up to which this copy has it.
_Held: TypeAlias = tuple[tuple[_Stretch, int], ...]


@attrs.define(eq=False)
class _Job:
    arrival: ArrivePreparation
    goal: int = 0
    end: EndPreparation | Refuse | None = None
    preemptions: int = 0
    stretches: list[_Stretch] = attrs.field(factory=list)
    uses: Counter[str] = attrs.field(factory=Counter)


class PreparationTally:
    """Takes events in order. It holds what every preparation came to, and what is retained now."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._slots: dict[str, _Held] = {}
        self._prefixes: dict[int, _Held] = {}
        self._using: set[str] = set()
        self._answered: set[str] = set()
        self._grants: dict[str, Grant] = {}
        self._prefilled = self._prefill_ns = 0

    def add(self, event: Event) -> None:
        """Count one event; a ``Reuse`` goes to :meth:`reuse`."""
        match event:
            case ArrivePreparation(request=request):
                self._jobs[request] = _Job(event)
            case Seat():
                self._seat(event)
            case Advance(request=request, position=position, goal=goal):
                job = self._jobs[request]
                job.goal = goal
                if job.stretches:
                    job.stretches[-1].stop = max(job.stretches[-1].stop, position)
            case EndPreparation(request=request) | Refuse(request=request) if request in self._jobs:
                self._jobs[request].end = event
            case Retain(request=request, handle=handle, tokens=tokens) if request is not None:
                self._prefixes[handle] = _head(self._slots.pop(request, ()), tokens)
            case Drop():
                self._drop(event)
            case Tokens(request=request) if request in self._using:
                self._answered.add(request)
            case Grant():
                self.granted(event)
            case Step():
                self.stepped(event)
            case _:
                pass

    def reuse(self, event: Reuse) -> int:
        """A request reuses what is retained: how many of the tokens a preparation computed."""
        held = self._taken(event)
        if held:
            self._slots[event.request] = held
        for stretch, stop in held:
            fresh = stop - stretch.used
            if fresh > 0:
                stretch.used = stop
                stretch.job.uses[event.request] += fresh
                self._using.add(event.request)
        return sum(stop - stretch.start for stretch, stop in held)

    def result(self) -> PreparationStatistics | None:
        """Statistics of what was added so far; ``None`` without a preparation."""
        if not self._jobs:
            return None
        for held in self._prefixes.values():
            for stretch, stop in held:
                stretch.kept = max(stretch.kept, stop)
        token_ns = self._prefill_ns / self._prefilled if self._prefilled else None
        accounts = tuple(self._account(job, token_ns or 0.0) for job in self._jobs.values())
        return PreparationStatistics(
            outcomes=dict(sorted(Counter(account.outcome or "open" for account in accounts).items())),
            computed=sum(account.computed for account in accounts),
            reused=sum(account.reused for account in accounts),
            used=sum(account.used for account in accounts),
            kept=sum(account.kept for account in accounts),
            evicted=sum(account.evicted for account in accounts),
            wasted=sum(account.wasted for account in accounts),
            preemptions=sum(account.preemptions for account in accounts),
            saved_ns=sum(account.saved_ns for account in accounts),
            prefill_token_ns=token_ns,
            accounts=accounts,
        )

    def _account(self, job: _Job, token_ns: float) -> PreparationAccount:
        parts = [stretch.parts() for stretch in job.stretches]
        used, kept, evicted, wasted = (sum(column) for column in zip((0, 0, 0, 0), *parts, strict=True))
        uses = tuple(
            Use(request, tokens, round(tokens * token_ns) if request in self._answered else 0)
            for request, tokens in job.uses.items()
        )
        end = job.end
        return PreparationAccount(
            request=job.arrival.request,
            conversation=job.arrival.conversation,
            at=job.arrival.at,
            ended_at=None if end is None else end.at,
            outcome=None if end is None else end.outcome if isinstance(end, EndPreparation) else "refused",
            goal=end.goal if isinstance(end, EndPreparation) else job.goal,
            reused=end.reused if isinstance(end, EndPreparation) else 0,
            computed=used + kept + evicted + wasted,
            used=used,
            kept=kept,
            evicted=evicted,
            wasted=wasted,
            preemptions=job.preemptions,
            saved_ns=sum(use.saved_ns for use in uses),
            uses=uses,
        )

    # --- who has what -------------------------------------------------------------------------------------------

    def _taken(self, event: Reuse | Seat) -> _Held:
        """What a request or preparation begins with, out of a prefix or of the preparation that it takes over."""
        if event.taken_from is not None:
            return _head(self._slots.pop(event.taken_from, ()), event.reused)
        return _head(self._prefixes.get(event.handle, ()), event.reused) if event.handle is not None else ()

    def _seat(self, event: Seat) -> None:
        job, start = self._jobs[event.request], event.reused
        stretch = _Stretch(job, start, start, start, start, start)
        job.stretches.append(stretch)
        self._slots[event.request] = (*self._taken(event), (stretch, _NO_END))

    def _drop(self, event: Drop) -> None:
        """A superseded prefix lives on in a longer one; one that is there until the scheduler closes was kept."""
        for stretch, stop in self._prefixes.pop(event.handle, ()):
            if event.why == "closed":
                stretch.kept = max(stretch.kept, stop)
            elif event.why != "superseded":
                stretch.evicted = max(stretch.evicted, stop)

    # --- device time --------------------------------------------------------------------------------------------

    def granted(self, grant: Grant) -> None:
        """The device was given to a step."""
        if grant.owner == GENERATION:
            self._grants[grant.step] = grant

    def stepped(self, step: Step) -> None:
        """A grant has ended."""
        grant = self._grants.get(step.step)
        if grant is None:
            return
        if step.outcome == "suspended":
            for request in grant.requests:
                if request in self._jobs:
                    self._jobs[request].preemptions += 1
            return
        del self._grants[step.step]
        if grant.kind == "prefill" and step.outcome == "finished" and step.measured is not None:
            self._prefilled += grant.tokens or 0
            self._prefill_ns += step.measured.step_ns


def _head(held: _Held, tokens: int) -> _Held:
    """The same stretches as far as they are in the first ``tokens``, as they are now."""
    return tuple(
        (stretch, min(stop, stretch.stop, tokens))
        for stretch, stop in held
        if stretch.start < min(stop, stretch.stop, tokens)
    )
