"""The frame of the policies that order by class: urgent first, and a bounded share for the classes below.

Order. The most urgent class that waits has the device; a policy says who is first within a class. While a
step runs, only strictly more urgent work makes it yield.

Share. A class below the most urgent waiting one, preparation excepted, is owed one segment when the more
urgent classes had the device for ``c * (1 - share) / share`` while it waited, where ``c`` is what its last
such segment took (before the first: what its step is expected to take). The segment is paid for afterwards by
its measured time, so the class gets ``share`` of a saturated device and not more. The claim is one segment
and is void when the class does not wait: idleness saves nothing up. Of two classes that are owed one, the
longer kept from the device goes first.

Decisions. A share is never taken while a decision waits that was passed before, or whose request has started.
So a decision is passed by one segment at most, and a request that has started runs to its end.

A share needs no mark on the running step: more urgent work waits while it runs, so it yields after one
segment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from ..views import Choice, Ordering, OrderingView, StepView, WorkClass
from .room import give_way, make_room

Order: TypeAlias = Callable[[StepView], tuple[int, ...]]

SHARED = (WorkClass.FOREGROUND, WorkClass.UTILITY)


@attrs.frozen
class Claim:
    """Of one class: the time more urgent classes had while it waited, and what its last paid segment took."""

    urgent_ns: int = 0
    segment_ns: int | None = None


@attrs.frozen
class Shares:
    """Memory of the policies by class: the class granted last, when, and the claims of ``SHARED``, in that order."""

    granted: WorkClass | None = None
    at: int = 0
    claims: tuple[Claim, ...] = tuple(Claim() for _ in SHARED)


def by_class(order: Order, share: float) -> Ordering:
    """Return the policy of an ``order`` that sorts by class first (the smallest goes first, ties as listed)."""

    def decide(view: OrderingView, memory: Any) -> tuple[Choice, Any]:
        first = min(view.waiting, key=order, default=None)
        if view.running is not None:
            urgent = first is not None and first.work_class < view.running.work_class
            return give_way(view, first if urgent else None), memory
        if first is None:
            raise ValueError("an ordering policy was asked with nothing waiting and nothing running")
        shares = _settled(memory or Shares(), view)
        owed = _owed(shares, view, order, share) if len(view.waiting) > 1 else None
        choice = make_room(view, owed or first)
        granted = next(step.work_class for step in view.waiting if step.step == choice.step)
        return choice, Shares(granted, view.at, shares.claims)

    return decide


def may_pass(waiting: tuple[StepView, ...]) -> bool:
    """Say whether a segment of less urgent work may precede the waiting decisions."""
    return not any(step.work_class is WorkClass.DECISION and (step.passed or step.started) for step in waiting)


def _settled(shares: Shares, view: OrderingView) -> Shares:
    """Bring the claims up to ``view.at``: the device was with ``shares.granted`` since ``shares.at``."""
    claims = [_claim(k, claim, shares, view) for k, claim in zip(SHARED, shares.claims, strict=True)]
    return Shares(shares.granted, shares.at, tuple(claims))


def _claim(work_class: WorkClass, claim: Claim, shares: Shares, view: OrderingView) -> Claim:
    if shares.granted is work_class:
        # Only a grant past waiting work ends at its segment; any other may be followed by idle time.
        paid = any(s.work_class < work_class and s.submitted <= shares.at for s in view.waiting)
        return Claim(0, view.at - shares.at if paid else claim.segment_ns)
    since = min((s.submitted for s in view.waiting if s.work_class is work_class), default=None)
    if since is None:
        return Claim(0, claim.segment_ns) if claim.urgent_ns else claim
    if shares.granted is None or shares.granted > work_class:
        return claim
    return Claim(claim.urgent_ns + view.at - max(since, shares.at), claim.segment_ns)


def _owed(shares: Shares, view: OrderingView, order: Order, share: float) -> StepView | None:
    """The step that is owed a segment, if any.

    The most urgent waiting class is asked too: a claim of its own holds against a smaller one from below.
    """
    if not may_pass(view.waiting):
        return None
    owed: list[tuple[int, StepView]] = []
    for work_class, claim in zip(SHARED, shares.claims, strict=True):
        step = min((s for s in view.waiting if s.work_class is work_class), key=order, default=None)
        if step is None or claim.urgent_ns == 0:
            continue
        cost = step.bound_ns if claim.segment_ns is None else claim.segment_ns
        if share * claim.urgent_ns >= (1 - share) * cost:
            owed.append((claim.urgent_ns, step))
    return max(owed, key=lambda entry: entry[0])[1] if owed else None
