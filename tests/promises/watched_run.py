"""A random workload on the virtual host under named policies, and what has to be known of it to check promises."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
from coresident.actors.effects import Notify, Report, RunGrant, Send
from coresident.actors.events import (
    Accepted,
    DecisionEnded,
    GenerationEnded,
    Granted,
    PreparationEnded,
    Refused,
    Released,
)
from coresident.actors.messages import (
    Finished,
    GrantEnded,
    PromoteStep,
    Settled,
    StepDone,
    SubmitGeneration,
    SubmitPreparation,
    SubmitStep,
)
from coresident.actors.work import DecodeWork, Measured, StepRequest
from coresident.policies.views import WorkClass
from coresident.runtime.backends.modelled import CountingSampler
from coresident.runtime.host.steps import Stream
from hypothesis import strategies as st

from support.virtual import Sim, config

ENDS = (GenerationEnded, DecisionEnded, PreparationEnded, Refused)
# Prompts share these heads, and preparations prepare them.
HEADS = (tuple(range(10)), tuple(range(100, 140)), tuple(range(100, 170)))


@attrs.frozen
class Generate:
    """A generation request; ``prompt`` is a head and as many tokens of its own."""

    at: int
    head: int
    tail: int
    max_tokens: int
    work_class: WorkClass


@attrs.frozen
class Decide:
    """A decision request: an instruction's length, and the tokens of each row."""

    at: int
    instruction: int
    rows: tuple[int, ...]


@attrs.frozen
class Prepare:
    """A preparation of a head, in the place of earlier ones of the conversation."""

    at: int
    head: int
    conversation: str


def workloads(most: int = 14, burst: int = 120) -> st.SearchStrategy[list[Any]]:
    """Up to ``most`` arrivals within ``burst`` milliseconds, many of them at the same time."""
    times = st.sampled_from([0, burst // 2]) | st.integers(0, burst)
    classes = st.sampled_from([WorkClass.FOREGROUND, WorkClass.FOREGROUND, WorkClass.UTILITY])
    heads = st.integers(0, len(HEADS) - 1)
    generate = st.builds(Generate, times, heads, st.integers(1, 40), st.integers(1, 12), classes)
    rows = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)
    decide = st.builds(Decide, times, st.sampled_from([0, 10, 20]), rows)
    prepare = st.builds(Prepare, times, heads, st.sampled_from(["", "one"]))
    return st.lists(generate | generate | decide | decide | prepare, min_size=1, max_size=most)


@attrs.define
class Ran:
    """One grant: its step, the requests that it served, from when to when, and what was measured."""

    step: StepRequest
    requests: frozenset[str]
    work_class: WorkClass
    start: int
    end: int | None = None
    outcome: str = ""
    measured: Measured | None = None


@attrs.define
class Watch:
    """An observer. What fails here, as when two grants overlap, is ``error`` in the end."""

    runs: list[Ran] = attrs.field(factory=list)
    accepted: dict[str, int] = attrs.field(factory=dict)
    ends: dict[str, list[Any]] = attrs.field(factory=dict)
    tokens: dict[str, list[int]] = attrs.field(factory=dict)
    drops: Counter[str] = attrs.field(factory=Counter)
    gaps: list[tuple[WorkClass, int, int]] = attrs.field(factory=list)
    steps: list[StepRequest] = attrs.field(factory=list)
    deliveries: list[str] | None = None
    error: Exception | None = None
    _waiting: dict[str, WorkClass] = attrs.field(factory=dict)
    _since: dict[WorkClass, int] = attrs.field(factory=dict)
    _classes: dict[str, WorkClass] = attrs.field(factory=dict)

    def delivered(self, delivery: Any) -> None:
        if self.deliveries is not None:
            self.deliveries.append(repr(delivery))
        match delivery.message:
            case SubmitStep(step):
                self._waits(step, delivery.at)
            case Settled(_, steps):
                for step in steps:
                    self._waits(step, delivery.at)
            case PromoteStep(step=name, work_class=work_class) if name in self._classes:
                self._classes[name] = work_class
                if name in self._waiting:
                    self._leaves(name)
                    self._waits_as(name, work_class, delivery.at)
            case GrantEnded(outcome=Finished(result)):
                for row in result.rows:
                    self.tokens.setdefault(row.request, []).extend(row.tokens)
        for effect in delivery.effects:
            self._effect(effect, delivery.at)

    def _effect(self, effect: Any, at: int) -> None:
        match effect:
            case Report(Granted() as granted):
                self._granted(granted, at)
            case RunGrant(grant):
                work = grant.step.work
                rows = [row.request for row in work.rows] if isinstance(work, DecodeWork) else [grant.step.request]
                assert not self.runs or self.runs[-1].end is not None, "two grants at once"
                name = grant.step.step
                self.runs.append(Ran(grant.step, frozenset(rows), self._classes.get(name, grant.step.work_class), at))
            case Report(Released() as released):
                self._released(released, at)
            case Send(_, StepDone(step=step)):
                self._leaves(step)
            case Notify(Accepted(request)):
                self.accepted[request] = at
            case Notify(event) if isinstance(event, ENDS):
                self.ends.setdefault(event.request, []).append(event)

    def _waits(self, step: StepRequest, at: int) -> None:
        self.steps.append(step)
        self._classes[step.step] = step.work_class
        self._waits_as(step.step, step.work_class, at)

    def _waits_as(self, name: str, work_class: WorkClass, at: int) -> None:
        self._waiting[name] = work_class
        self._since.setdefault(work_class, at)

    def _leaves(self, name: str) -> None:
        work_class = self._waiting.pop(name, None)
        if work_class is not None and work_class not in self._waiting.values():
            self._since.pop(work_class, None)

    def _granted(self, granted: Granted, at: int) -> None:
        if granted.step not in self._waiting:
            return
        work_class = self._waiting.pop(granted.step)
        self.gaps.append((work_class, self._since.pop(work_class), at))
        if work_class in self._waiting.values():
            self._since[work_class] = at

    def _released(self, released: Released, at: int) -> None:
        if released.outcome == "dropped":
            self.drops[released.step] += 1
            return
        run = self.runs[-1]
        if run.step.step != released.step or run.end is not None:
            return
        run.end, run.outcome, run.measured = at, released.outcome, released.measured
        if released.outcome == "suspended":
            self._waits_as(released.step, self._classes[released.step], at)

    def token(self, request: str, index: int, at: int) -> None:
        """Tokens are taken from the ends of steps."""

    def dropped(self, error: Exception) -> None:
        self.error = error


def seed_of(name: str) -> int:
    return int(name[1:]) + 1


def play(
    workload: list[Any], tight: bool = False, cancel: tuple[int, int] | None = None, keep: bool = False, **named: Any
):
    """Run a workload to its end under ``named`` policies; ``cancel`` is an arrival's index and how long after it.

    With ``keep`` every delivery is kept as text. The host is checked to be idle at the end, and to hold nothing.
    """
    sections: dict[str, Any] = {"policies": {kind: {"name": name} for kind, name in named.items()}}
    if tight:
        sections["device"] = {"workspace": "40 KiB"}
    sim = Sim(config(**sections))
    watch = Watch(deliveries=[] if keep else None)
    sim.host.observers.add(watch)
    for index, item in enumerate(workload):
        _submit(sim, f"r{index}", item)
    if cancel is not None:
        index, later = cancel
        role = "decision" if isinstance(workload[index], Decide) else "generation"
        sim.cancel(workload[index].at + later, f"r{index}", role)
    sim.run()
    sim.close()
    if watch.error is not None:
        raise watch.error
    return watch


def _submit(sim: Sim, name: str, item: Any) -> None:
    match item:
        case Decide():
            sim.decide(item.at, name, item.instruction, item.rows)
        case Prepare():
            known = SubmitPreparation(name, HEADS[item.head], 0, "model", conversation=item.conversation)
            sim.at(item.at, lambda: sim.host.send("generation", known))
        case Generate():
            prompt = (*HEADS[item.head], *range(1000 + 100 * seed_of(name), 1000 + 100 * seed_of(name) + item.tail))
            message = SubmitGeneration(name, prompt, item.max_tokens, "model", item.work_class)

            def submit() -> None:
                sim.host.streams.open(name, Stream(CountingSampler(seed_of(name)), lambda row, sampled: None))
                sim.host.send("generation", message)

            sim.at(item.at, submit)


def own_tokens(name: str, count: int) -> list[int]:
    """What a request generates that has the device to itself."""
    sampler = CountingSampler(seed_of(name))
    return [sampler.sample(None).token for _ in range(count)]
