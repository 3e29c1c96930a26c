"""A host for the actors alone: a mailbox each, deliveries in any order between them, a scripted device, virtual time.

Every delivery is followed by the checks that hold at all times: one grant at a time, workspace that adds up to what
runs and is suspended, a ledger within its partition, prefixes within their bytes, which ledger, actor and storage count
alike, reuse within what matched, one end per request.
"""

from __future__ import annotations

import random
from collections import Counter, deque

from coresident.actors import effects as fx
from coresident.actors.decision import DecisionActor
from coresident.actors.device import DeviceController
from coresident.actors.events import (
    Accepted,
    DecisionEnded,
    GenerationEnded,
    PrefixDropped,
    PrefixReused,
    PreparationAdvanced,
    PreparationEnded,
    Refused,
)
from coresident.actors.generation import GenerationActor
from coresident.actors.memory.entries import PrefixStatistics
from coresident.actors.memory.ledger import WORKSPACE, Ledger
from coresident.actors.messages import (
    Cancel,
    Close,
    Failed,
    GrantEnded,
    Message,
    PromoteStep,
    Recover,
    Settled,
    Start,
    SubmitDecision,
    SubmitGeneration,
    SubmitPreparation,
    SubmitStep,
    Suspended,
    WithdrawStep,
)
from coresident.actors.supervisor import Restarts, Supervisor
from coresident.policies.views import WorkClass

from .bench_questions import Questions
from .bench_setup import KV_BYTES, Bench
from .scripted_device import MS, ScriptedDevice


class BenchHost(Questions):
    """Runs the actors of a :class:`Bench`. Nothing happens but by its methods."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.at = 0
        self.stopped = False
        self._choose = random.Random(bench.seed)
        self.device = ScriptedDevice(bench.can_suspend, bench.prefill_segments, MS, bench.block)
        self.ledger = Ledger(bench.partition)
        self.ledger.reserve({WORKSPACE: bench.workspace, "retained/m": bench.retained})
        self.controller = DeviceController(self.ledger, bench.policy("ordering"))
        self.generation = GenerationActor(bench.generation_setup())
        self.decision = DecisionActor(bench.decision_setup())
        restarts = Restarts(bench.restarts)
        self.supervisor = Supervisor(bench.models(), bench.context, ("generation", "decision"), restarts=restarts)
        actors = (self.controller, self.generation, self.decision, self.supervisor)
        self.actors = {actor.name: actor for actor in actors}
        self.mail: dict[str, deque[Message]] = {name: deque() for name in self.actors}
        self.timers: dict[str, tuple[int, str, Message]] = {}
        self.events: list[object] = []
        self.submitted: dict[str, SubmitGeneration | SubmitDecision | SubmitPreparation] = {}
        self.open: set[str] = set()
        self.ends: dict[str, GenerationEnded | DecisionEnded | PreparationEnded | Refused] = {}
        self.progress: dict[str, list[int]] = {}
        self.owners: dict[str, str] = {}
        self.withdrawn: set[str] = set()
        self.failures = 0
        self.reuse: dict[str, PrefixReused] = {}
        self.charged: dict[str, int] = {}
        self.begun: dict[str, int] = {}
        self._names = Counter()

    # --- clients --------------------------------------------------------------------------------------------------

    def generate(self, prompt, max_tokens: int = 4, name: str | None = None, **fields) -> str:
        """Submit a generation request; its id."""
        name = name or self._name("g")
        fields.setdefault("identity", "m/chat")
        message = SubmitGeneration(name, tuple(prompt), max_tokens, **fields)
        return self._submit("generation", message)

    def decide(self, rows, instruction=(), heads=("relevance",), name: str | None = None, **fields) -> str:
        """Submit a decision request; its id."""
        rows = tuple(map(tuple, rows))
        message = SubmitDecision(name or self._name("d"), tuple(instruction), rows, tuple(heads), "m/rank", **fields)
        return self._submit("decision", message)

    def prepare(self, tokens, standing: int = 0, name: str | None = None, **fields) -> str:
        """Submit a preparation; its id."""
        fields.setdefault("identity", "m/chat")
        message = SubmitPreparation(name or self._name("p"), tuple(tokens), standing, **fields)
        return self._submit("generation", message)

    def _name(self, letter: str) -> str:
        self._names[letter] += 1
        return f"{letter}{self._names[letter]}"

    def _submit(self, actor: str, message: SubmitGeneration | SubmitDecision | SubmitPreparation) -> str:
        self.submitted[message.request] = message
        self.send(actor, message)
        return message.request

    def cancel(self, request: str) -> None:
        decision = isinstance(self.submitted[request], SubmitDecision)
        self.send("decision" if decision else "generation", Cancel(request))

    def recover(self, action: str) -> None:
        self.send("supervisor", Recover(action))

    def send(self, to: str, message: Message) -> None:
        self.mail[to].append(message)

    # --- time -----------------------------------------------------------------------------------------------------

    def deliver(self) -> bool:
        """Deliver one message, from any mailbox that has one; false when none has."""
        waiting = [name for name, mail in self.mail.items() if mail]
        if not waiting:
            return False
        name = waiting[0] if self.bench.seed is None else self._choose.choice(waiting)
        message = self.mail[name].popleft()
        self._note_begin(name, message)
        effects = self.actors[name].handle(message, self.at)
        if isinstance(message, GrantEnded) and isinstance(message.outcome, Failed):
            self.failures += 1
            if message.outcome.sticky:
                # Whoever still waits asks anew, once there is a device again.
                self.begun.clear()
        if name == "device" and isinstance(message, GrantEnded) and not isinstance(message.outcome, Suspended):
            self.charged.pop(self._granted, None)
        for effect in effects:
            self._perform(effect)
        self._check()
        return True

    def settle(self) -> None:
        """Deliver everything there is."""
        while self.deliver():
            pass

    def segment(self) -> None:
        """Run one segment of the running grant, if there is one."""
        if self.device.running is not None:
            self.wait(MS)
            ended = self.device.segment(self.at)
            if ended is not None:
                self.send("device", ended)

    def wait(self, ns: int) -> None:
        """Let time pass; timers that are due deliver their messages."""
        self.at += ns
        for key, (at, to, message) in list(self.timers.items()):
            if at <= self.at:
                del self.timers[key]
                self.send(to, message)

    def run(self, segments: int = 100_000, until=None) -> int:
        """Deliver and compute until nothing is left or ``until()``; the number of segments."""
        for count in range(segments):
            self.settle()
            if self.device.running is None or (until is not None and until()):
                return count
            self.segment()
        raise AssertionError(f"still at work after {segments} segments: {self.open}")

    def run_on(self) -> None:
        """As ``run``, and let time pass for as long as somebody waits for it."""
        self.run()
        while self.timers:
            self.wait(max(0, min(at for at, _, _ in self.timers.values()) - self.at))
            self.run()

    def close(self) -> None:
        """End everything, and check that nothing is left."""
        self.send("supervisor", Close())
        self.run()
        assert self.stopped
        assert not self.open
        assert self.supervisor.readiness().state == "closed"
        assert self.ledger.reserved == 0
        assert all(account.used == 0 for account in self.ledger.statistics().accounts.values())
        assert not self.device.retained
        assert not self.device.suspended
        assert not self.device.weights
        assert not self.timers
        assert self.generation.statistics().slots == self.bench.slots

    # --- effects --------------------------------------------------------------------------------------------------

    def _perform(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Send(to, message):
                self.send(to, message)
            case fx.RunGrant(grant):
                self._granted = grant.step.step
                self.charged[grant.step.step] = grant.step.charge
                self.device.run(grant)
            case fx.AskYield(grant, give_up):
                self.device.ask_yield(grant, give_up)
            case fx.DropSuspended(step):
                self.device.drop_suspended(step)
                self.charged.pop(step, None)
            case fx.DropRetained(_, handle):
                self.device.drop_retained(handle)
            case fx.UnloadModel(model):
                self.device.unload(model)
            case fx.SetTimer(key, at, to, message):
                self.timers[key] = (at, to, message)
            case fx.CancelTimer(key):
                self.timers.pop(key, None)
            case fx.Notify(event) | fx.Report(event):
                self.events.append(event)
                self._note(event)
            case fx.Stop():
                self.stopped = True

    def _note(self, event: object) -> None:
        match event:
            case Accepted(request):
                assert request not in self.open | self.ends.keys()
                self.open.add(request)
            case PreparationAdvanced(request, position, goal):
                seen = self.progress.setdefault(request, [])
                assert request in self.open
                assert position % self.bench.chunk == 0
                assert position <= goal
                assert self._lost() or position > (seen[-1] if seen else 0)
                seen.append(position)
            case GenerationEnded(request) | DecisionEnded(request) | PreparationEnded(request):
                self.open.remove(request)
                self.ends[request] = event
            case Refused(request):
                self.ends.setdefault(request, event)
            case PrefixReused(request, prompt, matched, reused, kind):
                assert 0 <= reused <= matched <= prompt - 1
                assert (kind == "none") == (reused == 0)
                self.reuse[request] = event

    def _lost(self) -> bool:
        """Whether anything that was computed may have been lost."""
        return self.failures > 0 or any(isinstance(e, PrefixDropped) and e.why == "evicted" for e in self.events)

    def _note_begin(self, name: str, message: Message) -> None:
        """Remember how many segments had run when the device first heard of a decision request; whose a step is."""
        if isinstance(message, PromoteStep):
            self.owners[message.step] = message.request
        elif isinstance(message, WithdrawStep):
            self.withdrawn.add(message.step)
        steps = (
            message.next if isinstance(message, Settled) else (message.step,) if isinstance(message, SubmitStep) else ()
        )
        for step in steps:
            if step.work_class is WorkClass.DECISION and not step.started:
                self.begun[step.request] = len(self.device.segments)

    def _check(self) -> None:
        ledger = self.ledger.statistics()
        assert ledger.reserved <= ledger.partition
        assert all(account.used <= account.reserved for account in ledger.accounts.values())
        assert self.ledger.budget(WORKSPACE) - self.ledger.available(WORKSPACE) == sum(self.charged.values())
        prefixes = self.generation.statistics().prefixes
        assert prefixes.used <= prefixes.budget
        if not any(self.mail.values()):
            self._check_retained(prefixes)

    def _check_retained(self, prefixes: PrefixStatistics) -> None:
        """With no message on its way, everybody counts the same bytes, to the byte."""
        assert prefixes.used == self.ledger.budget("retained/m") - self.ledger.available("retained/m")
        saving = any(not entry.ready for entry in self.generation._kv.prefixes.entries())
        if self.supervisor.readiness().ready and not saving:
            assert prefixes.used == self.device.retained.tokens * KV_BYTES


def open_bench(**fields) -> BenchHost:
    """A host of a :class:`Bench` with these fields, everything loaded and ready."""
    host = BenchHost(Bench(**fields))
    host.send("supervisor", Start())
    host.run()
    return host
