"""The supervisor: readiness that tells the truth.

It loads and warms every model through ordinary steps, says ready only when all of them are, hears of device faults, and
carries out ``retry`` (start again with what is there) and ``repair`` (verify and load everything again). Its revision
only grows. A lost device it recovers by itself, as often as :class:`Restarts` allows: by ``retry``, and by ``repair``
when that did not help.
"""

from __future__ import annotations

from collections import Counter, deque

import attrs

from ..policies.views import WorkClass
from .effects import Effect, Report, Send, Stop, UnloadModel
from .errors import ArtifactInvalid, CoresidentError, DeviceLost, InvalidRequest
from .events import ReadinessChanged
from .lifecycle import Lifecycle
from .messages import (
    Available,
    Close,
    DeviceFault,
    Drained,
    Failed,
    Finished,
    Message,
    Recover,
    ResetDevice,
    Settled,
    Start,
    StepDone,
    StepRefused,
    SubmitStep,
    Unavailable,
    WithdrawStep,
)
from .work import LoadWork, StepKind, StepRequest, WarmupWork

RECOVERIES = ("retry", "repair")


@attrs.frozen
class ModelSetup:
    """One resident model: its key, the ledger bytes it needs by account, and the workspace of its warm-up."""

    model: str
    accounts: tuple[tuple[str, int], ...]
    warmup_charge: int


@attrs.frozen
class Restarts:
    """How often the supervisor recovers by itself: ``limit`` times within ``window_ns``; then a person has to act.

    The rule of Erlang's supervisors (maximum restart intensity).
    """

    limit: int = 0
    window_ns: int = 60_000_000_000


@attrs.frozen
class Readiness:
    """``state`` and what can be done about it now; ``admitted_context`` in tokens, 0 unless ready.

    ``state``: ``new``, ``starting``, ``ready``, ``faulted``, ``recovering``, ``closing`` or ``closed``. ``actions`` are
    those of ``retry`` and ``repair`` that are open now: both while faulted, none otherwise. ``error`` is the fault. It
    is true when it is ready, and false otherwise.
    """

    revision: int
    state: str
    admitted_context: int
    actions: tuple[str, ...]
    error: CoresidentError | None = None

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    def __bool__(self) -> bool:
        return self.ready


class Supervisor:
    """Loads, watches, recovers and closes. See the module's docstring."""

    def __init__(
        self,
        models: tuple[ModelSetup, ...],
        context: int,
        actors: tuple[str, ...],
        name: str = "supervisor",
        device: str = "device",
        restarts: Restarts = Restarts(),
    ) -> None:
        self.name = name
        self._models = models
        self._context = context
        self._actors = actors
        self._device = device
        self._life = Lifecycle("readiness", name, "new")
        self._revision = 0
        self._error: CoresidentError | None = None
        self._todo: deque[StepRequest] = deque()
        self._step: StepRequest | None = None
        self._left: dict[str, StepRequest] = {}
        self._count = 0
        self._loaded: set[str] = set()
        self._intact: set[str] = set()
        self._awaited: Counter[str] = Counter()
        self._recovery: str | None = None
        self._restarts = restarts
        self._restarted: deque[int] = deque()
        self._out: list[Effect] = []

    def handle(self, message: Message, at: int) -> list[Effect]:
        """Take one message; the effects in order."""
        self._out = []
        match message:
            case Start():
                self._change("start")
                self._load(at)
            case StepDone():
                self._step_done(message, at)
            case DeviceFault(error):
                self._fault(error, at)
            case Recover(action):
                self._recover(action)
            case Close():
                self._begin_close()
            case Drained(actor):
                self._awaited[actor] -= 1
            case _:
                raise TypeError(f"the supervisor does not take {type(message).__name__}")
        if self._awaited.total() == 0 and not self._left:
            self._go_on(at)
        return self._out

    def readiness(self) -> Readiness:
        """The truth of this moment."""
        state = self._life.state
        ready = state == "ready"
        actions = RECOVERIES if state == "faulted" else ()
        return Readiness(self._revision, state, self._context if ready else 0, actions, self._error)

    def statistics(self) -> Readiness:
        """The same view; supervisors count nothing."""
        return self.readiness()

    def _change(self, event: str, error: CoresidentError | None = None) -> None:
        self._life.to(event)
        self._revision += 1
        self._error = error
        now = self.readiness()
        self._out.append(Report(ReadinessChanged(now.revision, now.state, now.admitted_context, now.actions, error)))

    # --- loading ------------------------------------------------------------------------------------------------

    def _load(self, at: int, repair: bool = False) -> None:
        """Queue load and warm-up of every model; one step is on its way at a time."""
        self._todo.clear()
        if repair:
            self._intact.clear()
        for model in self._models:
            reserves = () if model.model in self._loaded else model.accounts
            load = LoadWork(model.model, model.model not in self._intact, repair)
            self._todo.append(self._make(load, 0, reserves, at))
            self._todo.append(self._make(WarmupWork(model.model), model.warmup_charge, (), at))
        self._send_next()

    def _make(
        self, work: LoadWork | WarmupWork, charge: int, reserves: tuple[tuple[str, int], ...], at: int
    ) -> StepRequest:
        self._count += 1
        name = f"{self.name}/{self._count}"
        return StepRequest(name, self.name, name, WorkClass.FOREGROUND, work, charge, 0, at, reserves=reserves)

    def _send_next(self) -> None:
        if self._todo:
            self._step = self._todo.popleft()
            self._out.append(Send(self._device, SubmitStep(self._step)))

    def _step_done(self, done: StepDone, at: int) -> None:
        step = self._step if self._step is not None and self._step.step == done.step else None
        if done.settle:
            self._out.append(Send(self._device, Settled(done.step)))
        left = self._left.pop(done.step, None)
        if left is not None and left.work.kind is StepKind.LOAD and isinstance(done.outcome, Finished):
            self._loaded.add(left.work.model)
        if step is None:
            return
        self._step = None
        if step.work.kind is StepKind.LOAD and isinstance(done.outcome, Finished):
            self._loaded.add(step.work.model)
            self._intact.add(step.work.model)
        if self._life.state == "closing":
            return
        match done.outcome:
            case Failed(error, sticky):
                if not sticky:
                    self._fault(error, at)
            case StepRefused(error):
                self._fault(error, at)
            case _:
                self._send_next()
                if self._step is None:
                    self._ready()

    def _ready(self) -> None:
        self._change("ready")
        self._out += [Send(actor, Available()) for actor in self._actors]

    # --- faults, recovery, end ----------------------------------------------------------------------------------

    def _fault(self, error: CoresidentError, at: int) -> None:
        if not self._life.can("fault"):
            return
        action = self._restart(error, at)
        if self._step is not None:
            # It may still be on the device, so nothing is begun there before it has ended.
            self._left[self._step.step] = self._step
            self._out.append(Send(self._device, WithdrawStep(self._step.step)))
        self._step = None
        self._todo.clear()
        self._change("fault", error)
        self._tell_actors(Unavailable(error, restart=action is not None))
        if action is not None:
            self._recover(action)

    def _restart(self, error: CoresidentError, at: int) -> str | None:
        """How to recover without being asked, if at all."""
        if not isinstance(error, DeviceLost | ArtifactInvalid):
            return None
        while self._restarted and self._restarted[0] <= at - self._restarts.window_ns:
            self._restarted.popleft()
        if len(self._restarted) >= self._restarts.limit:
            return None
        self._restarted.append(at)
        helped = self._life.state == "ready" and isinstance(error, DeviceLost)
        return "retry" if helped else "repair"

    def _recover(self, action: str) -> None:
        if action not in RECOVERIES:
            raise InvalidRequest(f"recovery {action!r}: known are {', '.join(RECOVERIES)}")
        if self._life.state != "faulted":
            return
        self._change("recover")
        self._recovery = action

    def _tell_actors(self, message: Unavailable | Close) -> None:
        """Each answers with one ``Drained`` once nothing of its is on the device."""
        self._awaited.update(self._actors)
        self._out += [Send(actor, message) for actor in self._actors]

    def _go_on(self, at: int) -> None:
        """What waited for the actors to be drained: no step from before a fault runs after it."""
        if self._recovery is not None:
            repair, self._recovery = self._recovery == "repair", None
            self._out.append(Send(self._device, ResetDevice()))
            self._load(at, repair)
        elif self._life.state == "closing" and self._step is None:
            self._finish_close()

    def _begin_close(self) -> None:
        if not self._life.can("close"):
            return
        self._change("close")
        self._todo.clear()
        self._recovery = None
        if self._step is not None:
            self._out.append(Send(self._device, WithdrawStep(self._step.step)))
        self._tell_actors(Close())

    def _finish_close(self) -> None:
        self._out += [UnloadModel(model.model) for model in self._models if model.model in self._loaded]
        self._out.append(Send(self._device, Close()))
        self._change("closed")
        self._out.append(Stop())
