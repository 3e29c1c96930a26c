"""Replay on the nursery host: a real device, or a modelled one that takes its time, on the machine's clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import trio

from ..actors.errors import CoresidentError
from ..actors.events import Refused, RequestEvent
from ..runtime.host.assembly import Assembly
from ..runtime.host.live import LiveRuntime, open_live
from ..runtime.host.observers import Delivery, Observer
from .drivers import Counting, OnProgress, Played, Scoreboard
from .events_workload import ArriveDecision, ArrivePreparation
from .outcomes import ENDS, replayed_outcome
from .player import Abandon, Player, Submit
from .submissions import Submissions
from .workload import Item, Wish, Workload


class _Driver:
    """Between a player and a live runtime; also an observer, which is how it hears of tokens."""

    def __init__(self, player: Player, board: Scoreboard, submissions: Submissions) -> None:
        self._player = player
        self._board = board
        self._submissions = submissions
        self._changed = trio.Event()
        self._error: Exception | None = None

    async def run(self, runtime: LiveRuntime) -> None:
        """Play to the end. Raises what made it blind for tokens, if anything did."""
        clock = runtime.host.clock
        self._board.start(clock())
        while not self._player.done:
            if self._error is not None:
                raise self._error
            match self._player.pop(clock()):
                case Submit(item):
                    self._submit(runtime, item, clock())
                case Abandon(role, request, reason):
                    runtime.cancel(role, request, reason)
                case Wish() as wish:
                    runtime.tell(self._submissions.wish(wish))
                case None:
                    await self._wait(clock())
                    continue
            await trio.lowlevel.checkpoint()

    def delivered(self, delivery: Delivery) -> None:
        return

    def token(self, request: str, index: int, at: int) -> None:
        self._player.token(request, at)
        self._wake()

    def dropped(self, error: Exception) -> None:
        self._error = error
        self._wake()

    def _submit(self, runtime: LiveRuntime, item: Item, at: int) -> None:
        def listener(event: RequestEvent, when: int) -> None:
            if isinstance(event, ENDS):
                runtime.finished(item.request)
                self._board.ended(item.request, replayed_outcome(event), when)
                self._wake()

        try:
            if isinstance(item.arrival, ArriveDecision):
                runtime.decide(self._submissions.decision(item.arrival, at), listener)
            elif isinstance(item.arrival, ArrivePreparation):
                runtime.prepare(self._submissions.preparation(item.arrival), listener)
            else:
                message, stream = self._submissions.generation(item, item.arrival, at)
                runtime.generate(message, stream, listener)
        except CoresidentError as error:
            # Refused at the door: the mailbox is full, or the device was lost and the host has ended.
            self._board.ended(item.request, replayed_outcome(Refused(item.request, error)), at)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _wait(self, now: int) -> None:
        """Until something happens or the next command is due."""
        changed, due = self._changed, self._player.next_at
        with trio.CancelScope() as scope:
            if due is not None:
                scope.deadline = trio.current_time() + max(0, due - now) / 1e9
            await changed.wait()


async def replay_live(
    assembly: Assembly,
    workload: Workload,
    observers: Iterable[Observer] = (),
    progress: OnProgress | None = None,
    avoid: Mapping[str, Collection[int]] | None = None,
) -> Played:
    """Play a workload on an assembly, in real time. Raises what kept the scheduler from becoming ready."""
    player = Player(workload)
    board = Scoreboard(player, workload.size, progress)
    driver = _Driver(player, board, Submissions(workload, assembly, avoid))
    counting = Counting()
    async with open_live(assembly, (*observers, counting, driver)) as runtime:
        await driver.run(runtime)
    return Played(board.outcomes, board.counts, counting.result(), tuple(player.drifts))
