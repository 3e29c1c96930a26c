"""One device under an ordering policy, as pure arithmetic: closed-loop clients, steps of segments, and a log.

It follows the device controller: asks when the device is free, keeps memory only then, asks again whenever something
arrives while a step runs and once at the grant, and lets a step yield at the end of its segment. Every question is
asked twice, and every answer checked. It offers the steps of all clients, several decisions among them, where the
decision actor offers those of its oldest request only: bounds that hold here hold for less choice too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import attrs
from coresident.policies.views import Choice, Ordering, OrderingView, StepView, WorkClass

MS = 1_000_000


@attrs.frozen
class Request:
    """Steps, each a tuple of segment times; a ``chunk`` is suspended when it yields, a decode run just ends early."""

    steps: tuple[tuple[int, ...], ...]
    charge: int = 0
    chunk: bool = True
    deadline_in: int | None = None


@attrs.frozen
class Client:
    """Sends each request ``think`` after its last one was answered."""

    name: str
    work_class: WorkClass
    requests: tuple[Request, ...]
    start: int = 0
    think: int = 0


@attrs.define
class Open:
    """A request on its way: what is left of it, and the view of its waiting or running step."""

    client: Client
    index: int
    left: list[tuple[int, ...]]
    view: StepView

    @property
    def request(self) -> Request:
        return self.client.requests[self.index]


@attrs.frozen
class Segment:
    """A segment that ran; ``waited`` names the classes that had work waiting when its grant was given."""

    request: str
    work_class: WorkClass
    granted: int
    start: int
    end: int
    waited: frozenset[WorkClass]


@attrs.define
class Device:
    """Runs clients to their end under one policy; ``late`` submits next steps only after the device was granted.

    ``gaps`` are the times in which a class waited, up to a grant; ``waits`` those of steps up to their first grant.
    """

    policy: Ordering
    capacity: int = 0
    late: bool = False
    at: int = 0
    memory: Any = None
    waiting: list[Open] = attrs.field(factory=list)
    arrivals: list[tuple[int, int, Open]] = attrs.field(factory=list)
    segments: list[Segment] = attrs.field(factory=list)
    arrived: dict[str, int] = attrs.field(factory=dict)
    ended: dict[str, int] = attrs.field(factory=dict)
    gaps: list[tuple[WorkClass, int, int]] = attrs.field(factory=list)
    drops: dict[str, int] = attrs.field(factory=dict)
    waits: list[tuple[StepView, int]] = attrs.field(factory=list)
    _free_since: int = 0
    _since: dict[WorkClass, int] = attrs.field(factory=dict)
    _count: int = 0

    def run(self, clients: Iterable[Client]) -> Device:
        for client in clients:
            self._send(client, 0, client.start)
        while self.arrivals or self.waiting:
            if not self.waiting:
                self.at = max(self.at, self.arrivals[0][0])
            self._admit(None, self.at - 1 if self.late and self.waiting else self.at)
            self._grant()
        return self

    def _send(self, client: Client, index: int, at: int) -> None:
        if index < len(client.requests):
            request, name = client.requests[index], f"{client.name}/{index}"
            deadline = None if request.deadline_in is None else at + request.deadline_in
            view = StepView("", name, client.work_class, at, at, request.charge, 0, deadline)
            self._submit(Open(client, index, list(request.steps), view), at)

    def _submit(self, work: Open, at: int) -> None:
        """Queue the next step of ``work``; it is let in with the arrivals of its time."""
        self._count += 1
        name, bound, left = f"{work.view.request}#{self._count}", sum(work.left[0]), sum(map(sum, work.left))
        work.view = attrs.evolve(work.view, step=name, submitted=at, bound_ns=bound, suspended=False, remaining_ns=left)
        heapq.heappush(self.arrivals, (at, self._count, work))

    def _admit(self, running: Open | None, until: int) -> bool:
        """Let in what has arrived ``until`` then; say whether the running step has to yield for it."""
        yields = False
        while self.arrivals and self.arrivals[0][0] <= until:
            work = heapq.heappop(self.arrivals)[2]
            self._wait(work)
            self.arrived.setdefault(work.view.request, work.view.request_arrived)
            yields |= running is not None and self._asked_to_yield(running)
        return yields

    def _wait(self, work: Open) -> None:
        self.waiting.append(work)
        self._since.setdefault(work.view.work_class, self.at)

    def _ask(self, running: Open | None) -> tuple[Choice, Any]:
        held = sum(w.view.charge for w in self.waiting if w.view.suspended)
        free = self.capacity - held - (running.view.charge if running else 0)
        assert free >= 0
        view = OrderingView(
            self.at, tuple(w.view for w in self.waiting), running and running.view, free, self._free_since
        )
        answer = self.policy(view, self.memory)
        assert answer == self.policy(view, self.memory), "the policy is not pure"
        hash(answer)
        return answer

    def _asked_to_yield(self, running: Open) -> bool:
        choice, _ = self._ask(running)
        named = [w for w in [running, *self.waiting] if w.view.step == choice.step]
        assert len(named) == 1
        assert not choice.drop
        return named[0] is not running

    def _grant(self) -> None:
        choice, self.memory = self._ask(None)
        work = next(w for w in self.waiting if w.view.step == choice.step)
        for name in choice.drop:
            self._drop(next(w for w in self.waiting if w.view.step == name), work)
        self.waiting.remove(work)
        held = sum(w.view.charge for w in self.waiting if w.view.suspended)
        assert held + work.view.charge <= self.capacity
        work_class = work.view.work_class
        self.gaps.append((work_class, self._since.pop(work_class), self.at))
        if not work.view.suspended:
            self.waits.append((work.view, self.at - work.view.submitted))
        self._run(work)
        if any(w.view.work_class is work_class for w in self.waiting):
            self._since[work_class] = self.at

    def _drop(self, work: Open, chosen: Open) -> None:
        assert work.view.suspended
        assert work.view.work_class > chosen.view.work_class
        self.drops[work.view.request] = work.view.drops + 1
        index = len(work.request.steps) - len(work.left)
        work.left[0] = work.request.steps[index]
        work.view = attrs.evolve(work.view, suspended=False, drops=work.view.drops + 1)
        assert work.view.drops == 1

    def _run(self, work: Open) -> None:
        granted, yields = self.at, False
        waited = frozenset(w.view.work_class for w in self.waiting)
        if any(w.view.work_class < work.view.work_class for w in self.waiting):
            yields = self._asked_to_yield(work)
        yields |= self._admit(work, self.at)
        segments = list(work.left[0])
        while segments:
            start, end = self.at, self.at + segments.pop(0)
            while self.arrivals and self.arrivals[0][0] <= end:
                self.at = max(self.at, self.arrivals[0][0])
                yields |= self._admit(work, self.at)
            self.at = end
            self.segments.append(Segment(work.view.request, work.view.work_class, granted, start, end, waited))
            for other in self.waiting:
                if other.view.work_class < work.view.work_class:
                    other.view = attrs.evolve(other.view, passed=True)
            if yields:
                break
        self._free_since = self.at
        self._after(work, tuple(segments))

    def _after(self, work: Open, rest: tuple[int, ...]) -> None:
        if rest and work.request.chunk:
            work.left[0] = rest
            work.view = attrs.evolve(work.view, suspended=True)
            self._wait(work)
            return
        work.left[:1] = [rest] if rest else []
        work.view = attrs.evolve(work.view, started=True, drops=0)
        if work.left:
            self._submit(work, self.at)
            if work.view.work_class is WorkClass.DECISION:
                self._admit(None, self.at)
            return
        self.ended[work.view.request] = self.at
        self._send(work.client, work.index + 1, self.at + work.client.think)
