"""Replay on the virtual host: a modelled device under a virtual clock.

It is as fast as the machine goes, and the same every time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..actors.errors import BackendFault, TraceDiverged
from ..actors.events import ReadinessChanged, RequestEvent
from ..actors.messages import Cancel, Close, Start
from ..runtime.host.assembly import DECISION, GENERATION, Assembly
from ..runtime.host.observers import Delivery, Observer
from ..runtime.host.virtual import VirtualHost
from .drivers import Counting, OnProgress, Played, Scoreboard
from .events_workload import ArriveDecision, ArrivePreparation
from .outcomes import ENDS, replayed_outcome
from .player import Abandon, Player, Submit
from .submissions import Submissions
from .workload import Wish, Workload


class _Driver:
    """Between a player and a virtual host; also an observer, which is how it hears of readiness and tokens."""

    def __init__(self, assembly: Assembly, player: Player, board: Scoreboard, submissions: Submissions) -> None:
        self.host: VirtualHost
        self._assembly = assembly
        self._player = player
        self._board = board
        self._submissions = submissions
        self._armed: int | None = None
        self._ready = False
        self._error: Exception | None = None

    def run(self, total: int) -> None:
        """Open, play to the end, close. Raises what kept it from that."""
        self.host.listen_all(self._event)
        self.host.send("supervisor", Start())
        self.host.run()
        if self._error is not None:
            raise self._error
        if not self._ready:
            raise self._assembly.supervisor.readiness().error or BackendFault(
                "the modelled device did not become ready"
            )
        if not self._player.done:
            raise TraceDiverged(
                f"{total - len(self._board.outcomes)} of {total} requests never ended, and nothing is left to happen: "
                "the trace names a device or policies that cannot serve them"
            )
        self.host.send("supervisor", Close())
        self.host.run()

    # --- the observer -------------------------------------------------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        for event in delivery.events():
            if isinstance(event, ReadinessChanged) and event.state == "ready" and not self._ready:
                self._ready = True
                self._board.start(delivery.at)
                self._arm()

    def token(self, request: str, index: int, at: int) -> None:
        self._player.token(request, at)
        self._arm()

    def dropped(self, error: Exception) -> None:
        self._error = error

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
        """Carry out one command."""
        match self._player.pop(self.host.now):
            case Submit(item):
                arrival = item.arrival
                if isinstance(arrival, ArriveDecision):
                    self.host.send(DECISION, self._submissions.decision(arrival, self.host.now))
                elif isinstance(arrival, ArrivePreparation):
                    self.host.send(GENERATION, self._submissions.preparation(arrival))
                else:
                    message, stream = self._submissions.generation(item, arrival, self.host.now)
                    self.host.streams.open(message.request, stream)
                    self.host.send(GENERATION, message)
            case Abandon(role, request, reason):
                self.host.send(role, Cancel(request, reason))
            case Wish() as wish:
                self.host.send(GENERATION, self._submissions.wish(wish))
            case None:
                pass


def replay_virtual(
    assembly: Assembly,
    workload: Workload,
    observers: Iterable[Observer] = (),
    progress: OnProgress | None = None,
    avoid: Mapping[str, Collection[int]] | None = None,
) -> Played:
    """Play a workload on an assembly whose backend is modelled.

    Raises ``TraceDiverged`` when requests can never end, and what kept the device from becoming ready.
    """
    player = Player(workload)
    total = len(workload.items)
    board = Scoreboard(player, total, progress)
    driver = _Driver(assembly, player, board, Submissions(workload, assembly, avoid))
    counting = Counting()
    driver.host = VirtualHost(assembly.actors, assembly.backend, assembly.plans, (*observers, counting, driver))
    driver.run(total)
    return Played(board.outcomes, counting.result(), tuple(player.drifts))
