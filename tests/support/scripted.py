"""Another backend, held and broken on command: for tests of hosts that must not sleep to hit the middle of a step.

Operations are named as the backend's methods: ``load``, ``warm``, ``prefill``, ``decode``, ``score``, ``copy``,
``save``, ``restore``, ``store``, ``fetch``, ``drop``, ``unload``. A point is a call of an operation and a segment in
it: point 0 is before the first segment, point ``k`` the end of the ``k``-th. It also counts: loads with weights, and
threads inside at once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

WATCHDOG = 30.0


class Hold:
    """A point where the device stops until it is released. Made by :meth:`ScriptedBackend.hold`, on the Trio thread."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._reached = trio.Event()
        self._released = threading.Event()

    async def reached(self) -> None:
        """Wait until the device stands here."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the device go on."""
        self._released.set()

    def stand(self) -> None:
        self._token.run_sync_soon(self._reached.set)
        if not self._released.wait(WATCHDOG):
            raise AssertionError("a held segment was never released")


@attrs.define
class _Rule:
    """What happens at a point of the ``skip``-th matching call from now."""

    operation: str
    segment: int
    skip: int
    hold: Hold | None = None
    error: BaseException | None = None


class ScriptedBackend:
    """Runs another backend; ``excess`` bytes are measured above what its workspaces used."""

    def __init__(self, inner) -> None:
        self._inner = inner
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._inside = 0
        self.most_inside = 0
        self.loads: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.segments: Counter[str] = Counter()
        self.prefilled: list[tuple[str, int, int]] = []
        self.open_workspaces = 0
        self.excess = 0

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def hold(self, operation: str, segment: int = 1, skip: int = 0) -> Hold:
        """Stop the device at a point of the next such operation (after ``skip`` others)."""
        hold = Hold()
        self._rules.append(_Rule(operation, segment, skip, hold=hold))
        return hold

    def fail(self, operation: str, error: BaseException, segment: int = 0, skip: int = 0) -> None:
        """Raise ``error`` at a point of the next such operation (after ``skip`` others)."""
        self._rules.append(_Rule(operation, segment, skip, error=error))

    @property
    def pending(self) -> int:
        """Holds and faults that have not happened yet."""
        return len(self._rules)

    # --- the backend ------------------------------------------------------------------------------------------------

    def open_workspace(self, charge: int):
        with self._alone():
            self.open_workspaces += 1
            return _Space(self, self._inner.open_workspace(charge))

    def load(self, model, request, weights):
        self.loads[model] += weights
        return self._steps("load", self._inner.load(model, request, weights))

    def warm(self, model, workspace):
        return self._steps("warm", self._inner.warm(model, workspace.inner))

    def prefill(self, workspace, model, role, slot, start, tokens, sampler):
        self.prefilled.append((role, start, len(tokens)))
        return self._steps("prefill", self._inner.prefill(workspace.inner, model, role, slot, start, tokens, sampler))

    def decode(self, workspace, model, rows, samplers):
        return self._steps("decode", self._inner.decode(workspace.inner, model, rows, samplers))

    def score(self, workspace, model, slot, start, tokens, heads):
        return self._steps("score", self._inner.score(workspace.inner, model, slot, start, tokens, heads))

    def score_rows(self, workspace, model, rows, heads):
        return self._steps("score", self._inner.score_rows(workspace.inner, model, rows, heads))

    def copy(self, *args):
        return self._steps("copy", self._inner.copy(*args))

    def save(self, *args):
        return self._steps("save", self._inner.save(*args))

    def restore(self, *args):
        return self._steps("restore", self._inner.restore(*args))

    def store(self, *args):
        return self._steps("store", self._inner.store(*args))

    def fetch(self, *args):
        return self._steps("fetch", self._inner.fetch(*args))

    def drop(self, model, handle):
        with self._alone():
            self._point("drop", 0, self._taken("drop"))
            self._inner.drop(model, handle)

    def unload(self, model):
        with self._alone():
            self._point("unload", 0, self._taken("unload"))
            self._inner.unload(model)

    # --- points -----------------------------------------------------------------------------------------------------

    def _steps(self, operation, inner):
        rules = self._taken(operation)
        self.calls[operation] += 1
        count = 0
        try:
            with self._alone():
                self._point(operation, 0, rules)
            while True:
                with self._alone():
                    try:
                        segment = next(inner)
                    except StopIteration as end:
                        return end.value
                    count += 1
                    self.segments[operation] += 1
                    self._point(operation, count, rules)
                yield segment
        finally:
            inner.close()

    def _taken(self, operation: str) -> list[_Rule]:
        """The rules of this call; those for later calls come one call nearer."""
        mine = [rule for rule in self._rules if rule.operation == operation and rule.skip == 0]
        for rule in self._rules:
            if rule.operation == operation and rule not in mine:
                rule.skip -= 1
        self._rules = [rule for rule in self._rules if rule not in mine]
        return mine

    def _point(self, operation: str, segment: int, rules: list[_Rule]) -> None:
        for rule in rules:
            if rule.segment != segment:
                continue
            if rule.hold is not None:
                rule.hold.stand()
            if rule.error is not None:
                raise rule.error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            self.most_inside = max(self.most_inside, self._inside)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1


class _Space:
    def __init__(self, backend: ScriptedBackend, inner) -> None:
        self.inner = inner
        self.charge = inner.charge
        self._backend = backend
        self._open = True

    def peak(self) -> int:
        return self.inner.peak() + self._backend.excess

    def close(self) -> None:
        self._backend.open_workspaces -= self._open
        self._open = False
        self.inner.close()
