"""Audit: the recorded messages are fed to new actors, and everything that they want done must come out as recorded.

It needs no model and no device: what the actors were told of them is in the trace. In whatever order the host delivered
messages, the trace has that order, so one difference means that the scheduler, one of its policies, or the trace is
not what it was. The first difference ends an audit: what comes after it follows from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs

from ...actors.effects import Effect, Send
from ...actors.errors import CoresidentError, TraceDiverged, TraceInvalid
from ...actors.messages import Message
from ...runtime.host.observers import Delivery
from ..codec import Malformed
from ..events_messages import Given
from ..reader import TraceReader
from .charges import Charges
from .compare import Derived
from .digest import RunDigest
from .groups import Group, Groups
from .messages import Rebuilder
from .setup import actors_of
from .words import effect_words, event_words, words

BEFORE = 8


@attrs.frozen
class AuditedMessage:
    """A message that came out as recorded: its place in the run, line and time, and what the actor wanted done.

    ``lines`` are those of the trace about it.
    """

    number: int
    line: int
    at: int
    actor: str
    message: str
    lines: tuple[str, ...]
    effects: tuple[str, ...]


@attrs.frozen
class Divergence:
    """The first message that did not come out as recorded.

    ``what`` says what is different; ``recorded`` and ``now`` are the lines of the trace about it, and those that would
    be written now; ``effects`` is all that the actor wants done now, ``before`` the messages ahead of it.
    """

    what: str
    number: int
    line: int
    at: int
    actor: str
    message: str
    recorded: tuple[str, ...]
    now: tuple[str, ...]
    effects: tuple[str, ...]
    before: tuple[AuditedMessage, ...]


@attrs.frozen
class AuditReport:
    """What an audit came to: messages that came out as recorded, and the first that did not, if one did not."""

    trace: str
    messages: int
    span_ns: int
    divergence: Divergence | None
    recorded_by: str
    audited_by: str

    @property
    def same(self) -> bool:
        """Whether everything came out as recorded."""
        return self.divergence is None

    def check(self) -> None:
        """Raise ``TraceDiverged`` when not."""
        found = self.divergence
        if found is not None:
            raise TraceDiverged(
                f"trace {self.trace}, line {found.line}, message {found.number} ({found.actor} takes {found.message}): "
                f"{found.what}",
                file=self.trace,
                line=found.line,
                number=found.number,
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**attrs.asdict(self), "same": self.same}


def audit(trace: str | Path, policies: Mapping[str, str] | None = None) -> AuditReport:
    """Feed a trace's messages to new actors and compare what comes of each.

    ``policies`` names, by kind, the ``module:attribute`` of policies that the recording's user had written.

    Raises:
        TraceInvalid: the file is not a whole, unchanged trace of a version that is read here; where that is known
            only at its end, the error tells what came out otherwise before.
        InvalidRequest: it was recorded without messages, or ``policies`` doesn't name what it needs.
        PolicyFault: a policy can't be made.
    """
    with TraceReader(trace) as reader:
        try:
            auditor = _Auditor(reader, policies or {})
            divergence = auditor.run()
        except CoresidentError as error:
            _check_unchanged(reader.path, error.message)
            raise
        if divergence is not None:
            _check_unchanged(
                reader.path,
                f"line {divergence.line}, message {divergence.number} does not come out as recorded: {divergence.what}",
            )
        return AuditReport(
            str(trace), auditor.same, auditor.at, divergence, reader.header.recorded_by, version("coresident")
        )


def _check_unchanged(path: Path, found: str) -> None:
    """Raise ``TraceInvalid`` when a file in which something was ``found`` is not whole or was changed since.

    Of such a file nothing else can be said: it tells a run that never was.
    """
    if not path.is_file():
        return
    try:
        with TraceReader(path) as reader:
            for _ in reader:
                pass
    except TraceInvalid as error:
        again = "" if found == error.message else f"; an audit stopped at this: {found}"
        raise TraceInvalid(f"the trace was changed or cut: {error.message}{again}", **error.details) from None


class _Diverged(Exception):
    """What is different, and what the actor wants done now."""

    def __init__(self, what: str, effects: Iterable[Effect] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.effects = tuple(effect_words(effect) for effect in effects)


class _Auditor:
    """One audit."""

    def __init__(self, reader: TraceReader, policies: Mapping[str, str]) -> None:
        self.same = 0
        self.at = 0
        self._reader = reader
        self._charges = Charges()
        self._actors = actors_of(reader, policies, self._charges.expected)
        self._groups = Groups(reader)
        self._rebuilder: Rebuilder | None = None
        self._origin = 0
        self._mail: dict[str, deque[Message]] = {name: deque() for name in self._actors}
        self._digest = RunDigest()
        self._derived = Derived()
        self._before: deque[tuple[Group, Message, tuple[Effect, ...]]] = deque(maxlen=BEFORE)

    def run(self) -> Divergence | None:
        """Feed every message; the first that comes out otherwise."""
        group = None
        for group in self._groups:
            try:
                self._take(group)
            except _Diverged as found:
                return self._divergence(group, found)
            except Malformed as error:
                raise self._reader.invalid(f"(of line {group.line}) {error}") from None
            self.same += 1
            self.at = group.took.at
        return self._check_end(group)

    def _take(self, group: Group) -> None:
        took = group.took
        self._charges.learn(took.charges)
        self._derived.begin(group.events)
        message = self._message(group)
        actor = self._actors.get(took.actor)
        if actor is None:
            raise _Diverged(f"there is no actor {took.actor!r}: there are {', '.join(self._actors)}")
        at = self._origin + took.at
        try:
            effects = tuple(actor.handle(message, at))
        except Exception as error:
            # Whatever it is, an actor that took this message when it was recorded did not raise.
            raise _Diverged(f"the actor raises {type(error).__name__}: {error}") from error
        delivery = Delivery(self.same + 1, at, took.actor, message, effects)
        differs = self._derived.difference(delivery)
        digest = self._digest.add(delivery, took.given, took.charges)
        if differs is not None:
            raise _Diverged(differs, effects)
        if digest != took.digest:
            raise _Diverged(
                f"the message, or what the actor wants done, has the digest {digest}; recorded was {took.digest}",
                effects,
            )
        for effect in effects:
            if isinstance(effect, Send):
                self._mail[effect.to].append(effect.message)
        self._before.append((group, message, effects))

    def _message(self, group: Group) -> Message:
        """The message of a group, made of its lines or the oldest on its way."""
        took = group.took
        if took.given is not None:
            if self._rebuilder is None:
                self._rebuilder = self._begin(took.given)
            return self._rebuilder.message(group, took.given)
        mail = self._mail.get(took.actor)
        if not mail:
            raise _Diverged(f"no message is on its way to {took.actor}, which took {took.message} when recorded")
        message = mail.popleft()
        if type(message).__name__ != took.message:
            raise _Diverged(f"{words(message)} is the oldest on its way to {took.actor}; recorded was {took.message}")
        return message

    def _begin(self, first: Given) -> Rebuilder:
        """What the host's clock showed at the first message is where its times begin."""
        if first.origin is None:
            raise Malformed("the first message has no origin: the trace does not begin with its run")
        self._origin = first.origin
        return Rebuilder(self._groups, first.origin)

    def _check_end(self, group: Group | None) -> Divergence | None:
        """A host that stopped has emptied every mailbox; what is left was never taken, or its lines are gone."""
        left = [f"{name}: {words(message)}" for name, mail in self._mail.items() for message in mail]
        if group is None or not left:
            return None
        self._derived.begin(())
        return self._divergence(group, _Diverged(f"the trace ends with messages on their way: {'; '.join(left)}"))

    def _divergence(self, group: Group, found: _Diverged) -> Divergence:
        took = group.took
        return Divergence(
            what=found.what,
            number=self.same + 1,
            line=group.line,
            at=took.at,
            actor=took.actor,
            message=took.message,
            recorded=self._derived.recorded,
            now=self._derived.now,
            effects=found.effects,
            before=tuple(self._shown()),
        )

    def _shown(self) -> Iterator[AuditedMessage]:
        first = self.same - len(self._before) + 1
        for number, (group, message, effects) in enumerate(self._before, first):
            told = tuple(effect_words(effect) for effect in effects)
            lines = tuple(map(event_words, group.events))
            yield AuditedMessage(number, group.line, group.took.at, group.took.actor, words(message), lines, told)
