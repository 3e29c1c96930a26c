"""Replay on the virtual host: a modelled device under a virtual clock.

It is as fast as the machine goes, and the same every time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..actors.errors import BackendFault, PolicyFault, TraceDiverged
from ..actors.events import PolicyFaulted, ReadinessChanged, RequestEvent
from ..actors.messages import Cancel, Close, Start
from ..runtime.backends.contract import Sampled
from ..runtime.host.assembly import DECISION, GENERATION, Assembly
from ..runtime.host.observers import Observer
from ..runtime.host.steps import Stop, Stream
from ..runtime.host.virtual import VirtualHost
from .drivers import Counting, OnProgress, Played, Scoreboard
from .events_workload import ArriveDecision, ArrivePreparation
from .outcomes import ENDS, replayed_outcome
from .player import Abandon, Player, Submit
from .stalls import waits
from .submissions import Submissions
from .workload import Playable, Wish, Workload

FRUITLESS = 10_000


class _Driver:
    """Between a player and a virtual host.

    A ``strict`` one ends the run at the first fault of a policy.
    """

    def __init__(
        self, assembly: Assembly, player: Player, board: Scoreboard, submissions: Submissions, strict: bool
    ) -> None:
        self.host: VirtualHost
        self._assembly = assembly
        self._player = player
        self._board = board
        self._submissions = submissions
        self._strict = strict
        self._armed: int | None = None
        self._ready = False
        self._error: Exception | None = None

    def run(self, total: int) -> None:
        """Open, play to the end, close. Raises what kept it from that."""
        self.host.listen_all(self._event)
        self.host.listen(ReadinessChanged, self._readiness)
        if self._strict:
            self.host.listen(PolicyFaulted, self._faulted)
            self.host.in_vain(FRUITLESS, self._in_vain)
        self.host.send("supervisor", Start())
        self.host.run()
        if self._error is not None:
            raise self._error
        if not self._ready:
            raise self._assembly.supervisor.readiness().error or BackendFault(
                "the modelled device did not become ready"
            )
        if not self._player.done:
            named = waits(self._assembly, self._player)
            raise TraceDiverged(
                f"{total - self._board.done} of {total} requests have not ended, and nothing is left to happen: "
                f"{'; '.join(named)}",
                waits=named,
            )
        self.host.send("supervisor", Close())
        self.host.run()

    # --- what the host tells ------------------------------------------------------------------------------------

    def _readiness(self, event: ReadinessChanged, at: int) -> None:
        if event.state == "ready" and not self._ready:
            self._ready = True
            self._board.start(at)
            self._arm()

    def _faulted(self, event: PolicyFaulted, at: int) -> None:
        self._end(event.policy, event.error.message)

    def _in_vain(self, key: str) -> None:
        """A policy that puts preparation off again and again never schedules it: that has to end."""
        self._end("preparation", f"put preparation off {FRUITLESS} times in a row: it never schedules")

    def _end(self, kind: str, message: str) -> None:
        """A policy is at fault: everything is ended, and the fault raised afterwards."""
        if self._error is None:
            name = getattr(self._assembly.config.policies, kind).name
            self._error = PolicyFault(f"{kind} policy {name!r}: {message}", kind=kind, name=name)
            self.host.send("supervisor", Close())

    # --- commands -----------------------------------------------------------------------------------------------

    def _event(self, event: RequestEvent, at: int) -> None:
        if isinstance(event, ENDS):
            self._board.ended(event.request, replayed_outcome(event), at)
            self.host.streams.close(event.request)
            # What follows without a pause follows here, as it did for a client that acts on an end at once.
            while self._player.next_at is not None and self._player.next_at <= at:
                self._act()
            self._arm()

    def _arm(self) -> None:
        """Be called when the next command is due."""
        due = self._player.next_at
        if due is None or (self._armed is not None and self._armed <= due):
            return
        self._armed = due
        self.host.call_at(due, lambda: self._ring(due))

    def _ring(self, due: int) -> None:
        if self._armed != due:
            return
        self._armed = None
        self._act()
        self._arm()

    def _act(self) -> None:
        """Carry out one command; none any more once the run is to end."""
        command = self._player.pop(self.host.now)
        if self._error is not None:
            return
        match command:
            case Submit(item):
                arrival = item.arrival
                if isinstance(arrival, ArriveDecision):
                    self.host.send(DECISION, self._submissions.decision(arrival, self.host.now))
                elif isinstance(arrival, ArrivePreparation):
                    self.host.send(GENERATION, self._submissions.preparation(arrival))
                else:
                    message, stream = self._submissions.generation(item, arrival, self.host.now)
                    self.host.streams.open(message.request, stream if item.cancel is None else self._watched(stream))
                    self.host.send(GENERATION, message)
            case Abandon(role, request, reason):
                self.host.send(role, Cancel(request, reason))
            case Wish() as wish:
                self.host.send(GENERATION, self._submissions.wish(wish))
            case None:
                pass

    def _watched(self, stream: Stream) -> Stream:
        """The stream of a request that is to be cancelled after some token of its own."""

        def take(request: str, sampled: Sampled) -> Stop | None:
            self._player.token(request, self.host.now)
            self._arm()
            return stream.on_token(request, sampled)

        return Stream(stream.sampler, take)


def replay_virtual(
    assembly: Assembly,
    workload: Playable,
    observers: Iterable[Observer] = (),
    progress: OnProgress | None = None,
    avoid: Mapping[str, Collection[int]] | None = None,
    seed: int = 0,
    strict: bool = False,
) -> Played:
    """Play a workload on an assembly whose backend is modelled; another ``seed`` makes other tokens up.

    Raises ``TraceDiverged``, naming who waits for what, when requests can never end; what kept the device from becoming
    ready; and, where it is ``strict``, ``PolicyFault`` once a policy has misbehaved, after everything was ended. Else
    another policy stands in for it, as on a live host.
    """
    player = Player(workload)
    board = Scoreboard(player, workload.size, progress, keep=isinstance(workload, Workload))
    submissions = Submissions(workload, assembly, avoid, seed, without_logits=True)
    driver = _Driver(assembly, player, board, submissions, strict)
    counting = Counting()
    driver.host = VirtualHost(assembly.actors, assembly.backend, assembly.plans, (*observers, counting))
    driver.run(workload.size)
    return Played(board.outcomes, board.counts, counting.result(), tuple(player.drifts))
